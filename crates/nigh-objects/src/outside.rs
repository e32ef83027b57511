//! Objects that are being written from outside, as the store reports it: from the write's beginning to its end, or to
//! the end of its lease.
//!
//! Meanwhile no copy of such an object is cached, readers go to the store, and writes of this node go through to it
//! (`integrations/swift/README.md`). This module decides which objects these are; it never asks a store or a clock.

use std::collections::HashMap;
use std::time::Duration;

use nigh_data::{ETag, ObjectId};
use nigh_terms::Monotonic;

/// The most writes from outside at a time. One more is refused, and its writer does not make it.
const TOKENS_MAX: usize = 10_000;

/// The limit of writes under way is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// The objects that are being written from outside.
#[derive(Debug, Default)]
pub(crate) struct OutsideWrites {
    /// For each object the tokens of its outside writes, each with the end of its lease.
    under_way: HashMap<ObjectId, HashMap<String, Monotonic>>,
    tokens: usize,
}

impl OutsideWrites {
    /// Begins a write of `object`, whose lease ends at `until`. Reported again with the same token, it is the same
    /// write.
    pub(crate) fn begin(
        &mut self,
        object: &ObjectId,
        token: &str,
        until: Monotonic,
        now: Monotonic,
    ) -> Result<(), TooMany> {
        if self.tokens >= TOKENS_MAX {
            self.forget_ended(now);
        }
        if self.tokens >= TOKENS_MAX {
            return Err(TooMany);
        }
        let tokens = self.under_way.entry(object.clone()).or_default();
        if tokens.insert(token.to_owned(), until).is_none() {
            self.tokens += 1;
        }
        Ok(())
    }

    /// Ends a write.
    pub(crate) fn end(&mut self, object: &ObjectId, token: &str) {
        let Some(tokens) = self.under_way.get_mut(object) else { return };
        if tokens.remove(token).is_some() {
            self.tokens -= 1;
        }
        if tokens.is_empty() {
            self.under_way.remove(object);
        }
    }

    /// True if `object` is being written from outside now.
    pub(crate) fn hold(&mut self, object: &ObjectId, now: Monotonic) -> bool {
        let Some(tokens) = self.under_way.get_mut(object) else { return false };
        let before = tokens.len();
        tokens.retain(|_, until| now < *until);
        self.tokens -= before - tokens.len();
        let held = !tokens.is_empty();
        if !held {
            self.under_way.remove(object);
        }
        held
    }

    /// The writes under way of objects that `fits` accepts, each with its token and the rest of its lease.
    pub(crate) fn under_way(
        &self,
        fits: impl Fn(&ObjectId) -> bool,
        now: Monotonic,
    ) -> Vec<(ObjectId, String, Duration)> {
        let of_object = |(object, tokens): (&ObjectId, &HashMap<String, Monotonic>)| {
            let going = tokens.iter().filter(|(_, until)| now < **until);
            let named = going.map(|(token, until)| (object.clone(), token.clone(), until.since(now)));
            named.collect::<Vec<_>>()
        };
        self.under_way.iter().filter(|(object, _)| fits(object)).flat_map(of_object).collect()
    }

    fn forget_ended(&mut self, now: Monotonic) {
        self.under_way.retain(|_, tokens| {
            tokens.retain(|_, until| now < *until);
            !tokens.is_empty()
        });
        self.tokens = self.under_way.values().map(HashMap::len).sum();
    }
}

/// The store's report about an object while this node writes it: it may be about this write, or a later one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StoreNotice {
    /// The store has reported nothing.
    #[default]
    Nothing,
    /// The store has bytes with this entity tag.
    Holds(ETag),
    /// The store reported several things, or something other than bytes.
    Others,
}

impl StoreNotice {
    /// The store reports that it has `now`, or does not say what it has.
    pub(crate) fn note(&mut self, now: Option<&ETag>) {
        *self = match (&*self, now) {
            (Self::Nothing, Some(now)) => Self::Holds(now.clone()),
            (Self::Holds(before), Some(now)) if before == now => Self::Holds(now.clone()),
            _ => Self::Others,
        };
    }

    /// True if the whole report may be about the write of `etag`.
    pub(crate) fn is_of(&self, etag: &ETag) -> bool {
        match self {
            Self::Nothing => true,
            Self::Holds(held) => held == etag,
            Self::Others => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{BucketName, Namespace, ObjectKey};

    use super::*;

    fn object(key: usize) -> ObjectId {
        ObjectId {
            namespace: Namespace::new("n").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(&key.to_string()).unwrap(),
        }
    }

    #[test]
    fn an_object_is_held_until_all_its_writes_have_ended_or_their_leases_have() {
        let (mut writes, now) = (OutsideWrites::default(), Monotonic(5));
        let later = now.after(Duration::from_secs(300));
        writes.begin(&object(1), "a", later, now).unwrap();
        writes.begin(&object(1), "b", later, now).unwrap();
        writes.begin(&object(1), "b", later, now).unwrap();
        writes.begin(&object(2), "c", later, now).unwrap();
        assert!(writes.hold(&object(1), now) && !writes.hold(&object(3), now));
        writes.end(&object(1), "a");
        writes.end(&object(1), "nobody's");
        assert!(writes.hold(&object(1), now));
        writes.end(&object(1), "b");
        assert!(!writes.hold(&object(1), now));
        assert!(writes.hold(&object(2), now) && !writes.hold(&object(2), later));
        assert_eq!((writes.tokens, writes.under_way.len()), (0, 0));
    }

    #[test]
    fn the_writes_under_way_are_named_with_the_rest_of_their_leases() {
        let (mut writes, now) = (OutsideWrites::default(), Monotonic(5));
        let second = Duration::from_secs(1);
        writes.begin(&object(1), "a", now.after(3 * second), now).unwrap();
        writes.begin(&object(1), "over", now.after(second), now).unwrap();
        writes.begin(&object(2), "b", now.after(3 * second), now).unwrap();
        let named = writes.under_way(|of| *of == object(1), now.after(second));
        assert_eq!(named, vec![(object(1), "a".to_owned(), 2 * second)]);
    }

    #[test]
    fn writes_beyond_the_limit_are_refused_until_others_have_ended() {
        let (mut writes, now) = (OutsideWrites::default(), Monotonic(5));
        let later = now.after(Duration::from_secs(300));
        for key in 0..TOKENS_MAX {
            writes.begin(&object(key), "t", later, now).unwrap();
        }
        assert_eq!(writes.begin(&object(TOKENS_MAX), "t", later, now), Err(TooMany));
        assert!(!writes.hold(&object(TOKENS_MAX), now) && writes.hold(&object(0), now));
        writes.begin(&object(TOKENS_MAX), "t", later.after(Duration::from_secs(1)), later).unwrap();
        assert_eq!(writes.tokens, 1);
    }

    #[test]
    fn notices_are_of_a_write_if_they_all_tell_of_its_bytes() {
        let tag = |text: &str| ETag(text.to_owned());
        let mut noticed = StoreNotice::default();
        assert!(noticed.is_of(&tag("a")));
        noticed.note(Some(&tag("a")));
        noticed.note(Some(&tag("a")));
        assert!(noticed.is_of(&tag("a")) && !noticed.is_of(&tag("b")));
        noticed.note(Some(&tag("b")));
        assert!(!noticed.is_of(&tag("a")) && !noticed.is_of(&tag("b")));
        let mut deleted = StoreNotice::default();
        deleted.note(None);
        assert!(!deleted.is_of(&tag("a")));
    }
}
