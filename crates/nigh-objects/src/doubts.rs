//! Objects with a write whose outcome is unknown: the write was sent to the store, and no answer came.
//!
//! The store may carry such a write out at any later time, also over a newer one. Until that is unlikely, or a later
//! write of the object has succeeded, nothing that the store shows of the object is cached: each reader asks the store.
//! This module decides which objects these are; it asks no store and no clock.

use std::collections::HashMap;
use std::time::Duration;

use nigh_data::ObjectId;
use nigh_terms::Monotonic;

/// How long a push without an answer may still be carried out: longer than servers, proxies and their queues keep a
/// request whose client has gone.
pub(crate) const LANDS_WITHIN: Duration = Duration::from_secs(15 * 60);
/// The most such objects that are remembered. If a store fails for so long that there are more, every object counts as
/// one of them for `LANDS_WITHIN`.
const DOUBTS_MAX: usize = 10_000;

/// The objects whose last write has an unknown outcome, each with the end of `LANDS_WITHIN`.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    until: HashMap<ObjectId, Monotonic>,
    all_until: Monotonic,
}

impl Doubts {
    /// A write of `object` ended at `now` without an answer.
    pub(crate) fn arise(&mut self, object: &ObjectId, now: Monotonic) {
        if self.until.len() >= DOUBTS_MAX {
            self.until.retain(|_, until| *until > now);
        }
        let until = now.after(LANDS_WITHIN);
        if self.until.len() >= DOUBTS_MAX {
            self.until.clear();
            self.all_until = until;
        }
        self.until.insert(object.clone(), until);
    }

    /// A write of `object` has succeeded.
    pub(crate) fn settle(&mut self, object: &ObjectId) {
        self.until.remove(object);
    }

    /// True if what the store shows of `object` must not be cached.
    pub(crate) fn hold(&mut self, object: &ObjectId, now: Monotonic) -> bool {
        if now < self.all_until {
            return true;
        }
        match self.until.get(object) {
            Some(until) if now < *until => true,
            Some(_) => {
                self.until.remove(object);
                false
            }
            None => false,
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
    fn a_doubt_ends_with_a_later_write_or_its_time() {
        let (mut doubts, now) = (Doubts::default(), Monotonic(5));
        doubts.arise(&object(1), now);
        doubts.arise(&object(2), now);
        assert!(doubts.hold(&object(1), now) && !doubts.hold(&object(3), now));
        doubts.settle(&object(1));
        assert!(!doubts.hold(&object(1), now) && doubts.hold(&object(2), now));
        assert!(!doubts.hold(&object(2), now.after(LANDS_WITHIN)));
        assert!(doubts.until.is_empty());
    }

    #[test]
    fn more_doubts_than_are_told_apart_are_about_everything() {
        let (mut doubts, now) = (Doubts::default(), Monotonic(5));
        for key in 0..=DOUBTS_MAX {
            doubts.arise(&object(key), now);
        }
        assert!(doubts.until.len() <= DOUBTS_MAX);
        assert!(doubts.hold(&object(0), now) && doubts.hold(&object(DOUBTS_MAX + 7), now));
        assert!(!doubts.hold(&object(0), now.after(LANDS_WITHIN)));
    }
}
