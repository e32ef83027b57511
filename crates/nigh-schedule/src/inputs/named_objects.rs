//! Which objects an invocation's input names, and which of these the invocation read: the base of all features of its
//! data.
//!
//! An input can name an object in three forms: a JSON object with a member for the bucket and one for the key, S3's
//! event notification (its `s3` member), and a text `s3://bucket/key`; `payload_walk` finds them. Which of the named
//! objects are inputs is not guessed from names: `input_paths` learns it from what invocations read. Pure.

use std::collections::BTreeSet;

use nigh_terms::{BucketName, ObjectKey};
use smol_str::SmolStr;

use crate::activation::DataCallRecord;

/// An object that an input names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    /// The members on the path to it, joined by `/`; members of lists are `*`.
    pub path: SmolStr,
    /// The object's bucket.
    pub bucket: BucketName,
    /// The object's key.
    pub key: ObjectKey,
}

/// The paths of the named objects that the invocation read.
#[must_use]
pub fn input_paths(named: &[NamedObject], calls: &[DataCallRecord]) -> BTreeSet<String> {
    let was_read = |object: &&NamedObject| {
        calls.iter().any(|call| {
            call.is_read() && call.bucket == object.bucket.as_str() && call.key.as_deref() == Some(object.key.as_str())
        })
    };
    named.iter().filter(was_read).map(|object| object.path.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::payload_walk::PayloadWalk;

    #[test]
    fn an_input_is_what_was_read() {
        let payload = r#"{"input":{"bucket":"photos","key":"in.png"},"output":{"bucket":"photos","key":"out.png"}}"#;
        let call = |served: &str, key: &str| DataCallRecord {
            served: served.to_owned(),
            bucket: "photos".to_owned(),
            key: Some(key.to_owned()),
            bytes: 1,
            began_us: 0,
            took_us: 1,
            under_way: None,
        };
        let calls = [call("miss", "in.png"), call("write", "out.png"), call("hit", "other")];
        let paths = input_paths(&PayloadWalk::of(payload.as_bytes()).objects, &calls);
        assert_eq!(paths, BTreeSet::from(["/input".to_owned()]));
    }
}
