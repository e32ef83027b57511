//! Requests that were carried out, by the names that their clients gave them: a repeated request is one write. Pure.
//!
//! The ledger knows the requests of its records, even after restarts. This table knows those of every mode, their
//! results, and whether functions were notified. A request is looked up here before its conditions are checked, because
//! they held the first time.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;

use nigh_data::ObjectId;
use nigh_engine::RequestId;
use nigh_terms::Version;

use super::dirty::ObjectState;
use super::policy::WriteMode;

/// The most requests that are remembered; beyond it the oldest is forgotten.
const REQUESTS_MAX: usize = 1 << 14;

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestRecord {
    /// The write's version.
    pub(crate) version: Version,
    /// The mode of the write.
    pub(crate) mode: WriteMode,
    /// What the write made of the object.
    pub(crate) becomes: ObjectState,
    /// True if it was carried out; false if the store has not answered.
    pub(crate) is_certain: bool,
    /// True if functions were notified of the change.
    pub(crate) told: bool,
}

type Key = (RequestId, u64);

/// The remembered requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    hasher: RandomState,
    known: HashMap<Key, RequestRecord>,
    order: VecDeque<Key>,
}

impl Requests {
    /// A name counts for one object: a client that draws the same name for another object gets no answer about this
    /// one.
    fn key(&self, request: RequestId, object: &ObjectId) -> Key {
        (request, self.hasher.hash_one(object))
    }

    pub(super) fn get(&self, request: RequestId, object: &ObjectId) -> Option<&RequestRecord> {
        self.known.get(&self.key(request, object))
    }

    pub(super) fn get_mut(&mut self, request: RequestId, object: &ObjectId) -> Option<&mut RequestRecord> {
        let key = self.key(request, object);
        self.known.get_mut(&key)
    }

    /// Records a request, and replaces what was known of it.
    pub(super) fn note(&mut self, request: RequestId, object: &ObjectId, known: RequestRecord) {
        let key = self.key(request, object);
        if self.known.insert(key, known).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > REQUESTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{BucketName, Epoch, Namespace, ObjectKey, Sequence};

    use super::*;

    fn object(key: &str) -> ObjectId {
        ObjectId {
            namespace: Namespace::new("n").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
        }
    }

    fn known(sequence: u64) -> RequestRecord {
        RequestRecord {
            version: Version { epoch: Epoch(1), sequence: Sequence(sequence) },
            mode: WriteMode::Through,
            becomes: ObjectState::Gone,
            is_certain: true,
            told: false,
        }
    }

    #[test]
    fn a_request_is_one_object_s_and_the_oldest_is_forgotten_at_the_limit() {
        let mut requests = Requests::default();
        requests.note(RequestId(0), &object("a"), known(1));
        requests.note(RequestId(0), &object("a"), known(2));
        assert_eq!(requests.get(RequestId(0), &object("a")), Some(&known(2)));
        assert_eq!(requests.get(RequestId(0), &object("b")), None);
        for n in 1..=REQUESTS_MAX as u128 {
            requests.note(RequestId(n), &object("a"), known(3));
        }
        assert_eq!(requests.get(RequestId(0), &object("a")), None);
        assert_eq!((requests.known.len(), requests.order.len()), (REQUESTS_MAX, REQUESTS_MAX));
    }
}
