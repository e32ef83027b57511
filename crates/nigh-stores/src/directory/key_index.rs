//! A bucket's keys in order, in memory, so that a page of a listing costs only its own length. Pure.
//!
//! The index is empty until the first listing scans the bucket's file names; from then on it follows the files. Changes
//! during a scan are recorded and override the scan, which may miss a new file. A scan learns names only; the other
//! facts of an object are kept once they are known.

use std::collections::BTreeMap;
use std::ops::Bound;

use nigh_data::ETag;
use nigh_terms::{ObjectKey, Timestamp};

/// What a listing shows of an object besides its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedMeta {
    pub(super) size: u64,
    pub(super) etag: ETag,
    pub(super) modified: Timestamp,
}

type Keys = BTreeMap<ObjectKey, Option<ListedMeta>>;

/// The index, in one of three states.
#[derive(Debug, Default)]
pub(super) enum KeyIndex {
    /// Nothing was listed yet, or the index was dropped because it may be wrong.
    #[default]
    Unknown,
    /// A scan is under way. Holds the changes since it began; `None` is a deletion.
    Scanning(BTreeMap<ObjectKey, Option<ListedMeta>>),
    /// All keys.
    Known(Keys),
}

/// A page: keys with their known facts, and whether more follow.
pub(super) type Page = (Vec<(ObjectKey, Option<ListedMeta>)>, bool);

impl KeyIndex {
    /// Begins a scan; call it before reading the first name.
    pub(super) fn begin_scan(&mut self) {
        *self = Self::Scanning(BTreeMap::new());
    }

    /// Ends a scan. Does nothing if the index was dropped meanwhile.
    pub(super) fn end_scan(&mut self, found: Vec<ObjectKey>) {
        let Self::Scanning(changes) = self else { return };
        let mut keys: Keys = found.into_iter().map(|key| (key, None)).collect();
        for (key, change) in std::mem::take(changes) {
            match change {
                Some(shown) => keys.insert(key, Some(shown)),
                None => keys.remove(&key),
            };
        }
        *self = Self::Known(keys);
    }

    /// Drops the index, because it may be wrong.
    pub(super) fn forget(&mut self) {
        *self = Self::Unknown;
    }

    /// Records that an object was written.
    pub(super) fn written(&mut self, key: &ObjectKey, shown: ListedMeta) {
        match self {
            Self::Unknown => {}
            Self::Scanning(keys) | Self::Known(keys) => {
                keys.insert(key.clone(), Some(shown));
            }
        }
    }

    /// Records that an object was deleted.
    pub(super) fn deleted(&mut self, key: &ObjectKey) {
        match self {
            Self::Unknown => {}
            Self::Scanning(changes) => {
                changes.insert(key.clone(), None);
            }
            Self::Known(keys) => {
                keys.remove(key);
            }
        }
    }

    /// Records the facts that a reader found of `key`, unless a writer has changed it since.
    pub(super) fn learned(&mut self, key: &ObjectKey, shown: &ListedMeta) {
        if let Self::Known(keys) = self
            && let Some(known @ None) = keys.get_mut(key)
        {
            *known = Some(shown.clone());
        }
    }

    /// At most `limit` keys that begin with `prefix` and sort after `after`. None if a scan is needed first.
    pub(super) fn page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Option<Page> {
        let Self::Known(keys) = self else { return None };
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut rest =
            keys.range::<str, _>((start, Bound::Unbounded)).take_while(|(key, _)| key.as_str().starts_with(prefix));
        let page: Vec<_> = rest.by_ref().take(limit).map(|(key, shown)| (key.clone(), shown.clone())).collect();
        Some((page, rest.next().is_some()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> ObjectKey {
        ObjectKey::new(text).unwrap()
    }

    fn shown(size: u64) -> ListedMeta {
        ListedMeta { size, etag: ETag(String::new()), modified: Timestamp(0) }
    }

    fn known(keys: &[&str]) -> KeyIndex {
        let mut index = KeyIndex::default();
        index.begin_scan();
        index.end_scan(keys.iter().map(|k| key(k)).collect());
        index
    }

    fn texts(page: &Page) -> Vec<&str> {
        page.0.iter().map(|(key, _)| key.as_str()).collect()
    }

    #[test]
    fn what_changes_during_a_scan_wins_over_what_the_scan_saw() {
        let mut index = KeyIndex::default();
        index.written(&key("before"), shown(1));
        assert!(index.page("", None, 10).is_none());
        index.begin_scan();
        index.written(&key("new"), shown(2));
        index.written(&key("gone"), shown(3));
        index.deleted(&key("gone"));
        index.deleted(&key("old"));
        index.end_scan(vec![key("old"), key("gone"), key("before")]);
        let page = index.page("", None, 10).unwrap();
        assert_eq!(texts(&page), ["before", "new"]);
        assert_eq!(page.0[1].1, Some(shown(2)));
    }

    #[test]
    fn a_scan_of_an_index_dropped_meanwhile_is_not_believed() {
        let mut index = KeyIndex::default();
        index.begin_scan();
        index.forget();
        index.end_scan(vec![key("a")]);
        assert!(index.page("", None, 10).is_none());
    }

    #[test]
    fn a_late_reader_does_not_undo_a_writer() {
        let mut index = known(&["a", "b"]);
        index.written(&key("a"), shown(2));
        index.learned(&key("a"), &shown(1));
        index.learned(&key("b"), &shown(1));
        index.deleted(&key("b"));
        index.learned(&key("b"), &shown(1));
        assert_eq!(index.page("", None, 10).unwrap(), (vec![(key("a"), Some(shown(2)))], false));
    }

    #[test]
    fn a_bound_longer_than_any_key_still_bounds() {
        let longest = "k".repeat(1024);
        let index = known(&[&longest, "l"]);
        assert_eq!(texts(&index.page("", Some(&format!("{longest}k")), 10).unwrap()), ["l"]);
        assert_eq!(texts(&index.page(&format!("{longest}k"), None, 10).unwrap()), [""; 0]);
        assert_eq!(texts(&index.page("", Some(""), 10).unwrap()), [longest.as_str(), "l"]);
    }

    proptest! {
        #[test]
        fn pages_together_are_the_sorted_keys(
            keys in proptest::collection::btree_set("[ab/ü]{1,5}", 0..40),
            prefix in "[ab/]{0,2}",
            after in proptest::option::of("[ab/ü]{0,3}"),
            limit in 1..5usize,
        ) {
            let index = known(&keys.iter().map(String::as_str).collect::<Vec<_>>());
            let wanted: Vec<&String> = keys
                .iter()
                .filter(|key| key.starts_with(&prefix) && after.as_ref().is_none_or(|after| *key > after))
                .collect();
            let mut got = Vec::new();
            let mut at = after.clone();
            loop {
                let (page, more) = index.page(&prefix, at.as_deref(), limit).unwrap();
                prop_assert!(page.len() <= limit);
                got.extend(page.into_iter().map(|(key, _)| key.as_str().to_owned()));
                if !more {
                    break;
                }
                at = got.last().cloned();
            }
            prop_assert_eq!(got.iter().collect::<Vec<_>>(), wanted);
        }
    }
}
