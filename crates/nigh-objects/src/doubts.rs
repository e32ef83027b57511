//! Objects with a write that the store may yet carry out: it was sent, and no answer came.
//!
//! Such a write may land at any later time, also over a newer one. Until that is unlikely, or a later write of the
//! object has succeeded, what the store shows of it is not kept: readers ask the store each time, and see what it has.
//! It decides which objects these are; it never asks a store or a clock.

use std::collections::HashMap;

use nigh_data::ObjectId;
use nigh_terms::Monotonic;

use crate::write_back::LANDS_WITHIN;

/// Objects told apart. With more, which takes a store that fails for long, all objects are in doubt for that time.
const DOUBTS_MAX: usize = 10_000;

/// What is in doubt, and until when.
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

    /// True if what the store shows of `object` may not be kept.
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
