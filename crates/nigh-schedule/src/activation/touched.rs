//! The objects that an invocation read and wrote, for the dispatch owner: a limited number, each once. Pure.

use nigh_terms::{BucketName, Namespace, ObjectKey};
use serde::{Deserialize, Serialize};

use super::DataCallRecord;

/// The most objects of one invocation that are reported.
const TOUCHED_MAX: usize = 32;

/// An object that an invocation read or wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TouchedObject {
    /// The object's bucket.
    pub bucket: BucketName,
    /// The object's key.
    pub key: ObjectKey,
    /// The bytes of its largest read or write.
    pub bytes: u64,
    /// True if it was written; false if it was only read.
    pub wrote: bool,
}

impl TouchedObject {
    /// The object's name in `namespace`.
    #[must_use]
    pub fn object(&self, namespace: &Namespace) -> nigh_data::ObjectId {
        nigh_data::ObjectId { namespace: namespace.clone(), bucket: self.bucket.clone(), key: self.key.clone() }
    }

    /// The objects that these calls touched, in the order of their first calls.
    #[must_use]
    pub fn of(calls: &[DataCallRecord]) -> Vec<Self> {
        let mut touched: Vec<Self> = Vec::new();
        for call in calls {
            let (wrote, Some(key)) = (call.served == "write", &call.key) else { continue };
            if !wrote && !call.is_read() {
                continue;
            }
            let is_it = |known: &&mut Self| known.bucket.as_str() == call.bucket && known.key.as_str() == key;
            if let Some(known) = touched.iter_mut().find(is_it) {
                known.wrote |= wrote;
                known.bytes = known.bytes.max(call.bytes);
            } else if touched.len() < TOUCHED_MAX
                && let (Ok(bucket), Ok(key)) = (BucketName::new(&call.bucket), ObjectKey::new(key))
            {
                touched.push(Self { bucket, key, bytes: call.bytes, wrote });
            }
        }
        touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_stands_once_and_is_written_if_any_call_wrote_it() {
        let call = |served: &str, key: &str, bytes| DataCallRecord {
            served: served.to_owned(),
            bucket: "bucket".to_owned(),
            key: Some(key.to_owned()),
            bytes,
            began_us: 0,
            took_us: 0,
            under_way: None,
        };
        let calls = [call("miss", "a", 5), call("write", "b", 7), call("metadata", "c", 0), call("hit", "b", 9)];
        let touched = TouchedObject::of(&calls);
        let short: Vec<_> = touched.iter().map(|one| (one.key.as_str(), one.bytes, one.wrote)).collect();
        assert_eq!(short, [("a", 5, false), ("b", 9, true)]);
        let many: Vec<_> = (0..100).map(|at| call("hit", &format!("k{at}"), 1)).collect();
        assert_eq!(TouchedObject::of(&many).len(), TOUCHED_MAX);
    }
}
