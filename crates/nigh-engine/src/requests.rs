//! The requests that were carried out, with their versions. Pure.
//!
//! An id is valid for one object: two clients that draw the same id, or a malicious client, do not get each other's
//! outcomes.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;

use nigh_terms::{ShardId, Version};

use crate::ledger::{Record, RequestId};

/// The requests that are remembered; above this number the oldest is forgotten.
pub(crate) const REQUESTS_MAX: usize = 1 << 17;

/// A request on an object: the id, and the object's hash.
pub(crate) type RequestKey = (RequestId, u64);

/// The remembered requests with their results.
#[derive(Default)]
pub(crate) struct Requests {
    hasher: RandomState,
    known: HashMap<RequestKey, Version>,
    order: VecDeque<RequestKey>,
}

impl Requests {
    pub(crate) fn key(&self, shard: ShardId, record: &Record) -> RequestKey {
        (record.request, self.hasher.hash_one((shard, &record.namespace, &record.bucket, &record.key)))
    }

    pub(crate) fn get(&self, key: &RequestKey) -> Option<Version> {
        self.known.get(key).copied()
    }

    pub(crate) fn insert(&mut self, key: RequestKey, version: Version) {
        if self.known.insert(key, version).is_none() {
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
    use bytes::Bytes;
    use nigh_terms::{BucketName, Epoch, Namespace, ObjectKey, Sequence};

    use super::*;
    use crate::ledger::Change;

    fn record(request: u128, key: &str) -> Record {
        Record {
            request: RequestId(request),
            namespace: Namespace::new("tenant").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
            change: Change::Delete { about: Bytes::new() },
        }
    }

    #[test]
    fn a_request_is_one_object_s_and_the_oldest_is_forgotten_at_the_limit() {
        let mut requests = Requests::default();
        let version = |sequence| Version { epoch: Epoch(1), sequence: Sequence(sequence) };
        let first = requests.key(ShardId(0), &record(0, "a"));
        requests.insert(first, version(1));
        assert_eq!(requests.get(&first), Some(version(1)));
        assert_eq!(requests.get(&requests.key(ShardId(0), &record(0, "b"))), None);
        assert_eq!(requests.get(&requests.key(ShardId(1), &record(0, "a"))), None);
        for number in 1..=REQUESTS_MAX as u64 {
            let key = requests.key(ShardId(0), &record(u128::from(number), "a"));
            requests.insert(key, version(number));
        }
        assert_eq!(requests.get(&first), None);
        assert_eq!(requests.order.len(), REQUESTS_MAX);
        assert_eq!(requests.known.len(), REQUESTS_MAX);
    }
}
