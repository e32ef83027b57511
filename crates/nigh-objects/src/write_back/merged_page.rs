//! One page of a listing where some objects are in the store and others are unpushed: which keys it has. Pure.
//!
//! The unpushed writes are read before the store is asked, so that an object that is pushed meanwhile is seen twice
//! rather than never. Each side may return only a part; the page ends where the shorter part ends.

use std::collections::BTreeMap;

use nigh_data::ListedObject;
use nigh_terms::{BucketName, Namespace, ObjectKey};

use super::dirty::{ObjectState, WriteBackQueue};

/// One side's entries, in order, and whether there may be more after the last one.
#[derive(Clone, Debug)]
pub struct Side<T> {
    /// In the order of their keys.
    pub entries: Vec<T>,
    /// True if there may be more after the last one.
    pub more: bool,
}

/// A part of a page.
#[derive(Clone, Debug)]
pub struct PagePart {
    /// The objects, in the order of their keys.
    pub listed: Vec<ListedObject>,
    /// The key after which the next page begins; none if this is the last page.
    pub next: Option<ObjectKey>,
}

/// Up to `limit` of a bucket's unpushed writes whose keys begin with `prefix` and sort after `after`. Call it before
/// asking the store.
#[must_use]
pub fn waiting(
    dirty: &WriteBackQueue,
    (namespace, bucket): (&Namespace, &BucketName),
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Side<(ObjectKey, Option<ListedObject>)> {
    let mut keys = dirty.keys(namespace, bucket, prefix, after);
    let shown = |becomes: &ObjectState, key: &ObjectKey| match becomes {
        ObjectState::Gone | ObjectState::Lost => None,
        ObjectState::Put(meta) => {
            Some(ListedObject { key: key.clone(), size: meta.size, etag: meta.etag.clone(), modified: meta.modified })
        }
    };
    let entries = keys.by_ref().take(limit).map(|(key, waits)| (key.clone(), shown(&waits.becomes, key))).collect();
    Side { entries, more: keys.next().is_some() }
}

/// Merges the unpushed writes of several homes, no two of which have the same key.
#[must_use]
pub(crate) fn joined(sides: Vec<Side<(ObjectKey, Option<ListedObject>)>>) -> Side<(ObjectKey, Option<ListedObject>)> {
    let ends = sides.iter().filter(|side| side.more).filter_map(|side| side.entries.last());
    let end = ends.map(|(key, _)| key.clone()).min();
    let within = |key: &ObjectKey| end.as_ref().is_none_or(|end| key <= end);
    let all = sides.into_iter().flat_map(|side| side.entries).filter(|(key, _)| within(key));
    let entries: BTreeMap<ObjectKey, Option<ListedObject>> = all.collect();
    Side { entries: entries.into_iter().collect(), more: end.is_some() }
}

/// Merges the unpushed writes (`None`: a deletion) into what is stored. An unpushed write replaces the stored object.
#[must_use]
pub fn merge(stored: Side<ListedObject>, waiting: Side<(ObjectKey, Option<ListedObject>)>) -> PagePart {
    let end_of_stored = stored.entries.last().filter(|_| stored.more).map(|listed| listed.key.clone());
    let end_of_waiting = waiting.entries.last().filter(|_| waiting.more).map(|(key, _)| key.clone());
    let next = match (end_of_stored, end_of_waiting) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    let within = |key: &ObjectKey| next.as_ref().is_none_or(|next| key <= next);
    let mut objects: BTreeMap<ObjectKey, Option<ListedObject>> =
        stored.entries.into_iter().map(|listed| (listed.key.clone(), Some(listed))).collect();
    objects.extend(waiting.entries);
    let listed = objects.into_iter().filter(|(key, _)| within(key)).filter_map(|(_, listed)| listed).collect();
    PagePart { listed, next }
}

#[cfg(test)]
mod tests {
    use nigh_terms::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use nigh_data::ETag;

    fn listed(key: u8, size: u64) -> ListedObject {
        ListedObject {
            key: ObjectKey::new(&format!("{key:03}")).unwrap(),
            size,
            etag: ETag(String::new()),
            modified: Timestamp(0),
        }
    }

    /// Up to `limit` entries after `after`.
    fn part<T>(all: &[(ObjectKey, T)], after: Option<&ObjectKey>, limit: usize) -> (Vec<(ObjectKey, T)>, bool)
    where
        T: Clone,
    {
        let behind: Vec<_> =
            all.iter().filter(|(key, _)| after.is_none_or(|after| key > after)).take(limit + 1).cloned().collect();
        let more = behind.len() > limit;
        (behind.into_iter().take(limit).collect(), more)
    }

    proptest! {
        #[test]
        fn the_parts_together_are_what_is_stored_with_what_waits_over_it(
            stored in prop::collection::btree_set(0u8..60, 0..40),
            waiting in prop::collection::btree_map(0u8..60, any::<bool>(), 0..40),
            limit in 1usize..9,
        ) {
            let mut expected: BTreeMap<u8, u64> = stored.iter().map(|key| (*key, 1)).collect();
            for (key, gone) in &waiting {
                if *gone { expected.remove(key); } else { expected.insert(*key, 2); }
            }
            let below: Vec<_> = stored.iter().map(|key| (listed(*key, 1).key, listed(*key, 1))).collect();
            let above: Vec<_> =
                waiting.iter().map(|(key, gone)| (listed(*key, 2).key, (!gone).then(|| listed(*key, 2)))).collect();
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let (entries, more) = part(&below, after.as_ref(), limit);
                let stored = Side { entries: entries.into_iter().map(|(_, listed)| listed).collect(), more };
                let (entries, more) = part(&above, after.as_ref(), limit);
                let merged = merge(stored, Side { entries, more });
                seen.extend(merged.listed);
                if merged.next.is_none() {
                    break;
                }
                prop_assert!(merged.next > after);
                after = merged.next;
            }
            let expected: Vec<_> = expected.into_iter().map(|(key, size)| listed(key, size)).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
