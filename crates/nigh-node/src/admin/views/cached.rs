//! The cached copies of this node that take most memory, and which other nodes have copies of the same objects.

use std::collections::BTreeMap;

use futures::future::join_all;
use nigh_objects::LargeCopy;
use nigh_terms::{BucketName, ByteSize, Namespace, ObjectKey};
use serde::Serialize;

use super::super::AdminSource;
use super::super::refusal::Refusal;
use super::objects::{Copies, copies};
use crate::cluster::members::KEYS_MAX;

/// An object with a copy in this node's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct CachedObject {
    bucket: BucketName,
    key: ObjectKey,
    /// The bytes that the copy takes here.
    bytes: u64,
    #[serde(flatten)]
    copies: Copies,
}

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CachedList {
    namespace: Namespace,
    /// This node, and the copies of all namespaces in its memory.
    node: String,
    copies: u64,
    cached_bytes: ByteSize,
    /// The largest copies of the namespace, largest first.
    objects: Vec<CachedObject>,
    /// Members that did not say what they have cached, and why.
    unanswered: BTreeMap<String, String>,
}

/// The keys of these copies by their buckets, each with its place in the list.
fn by_bucket(largest: &[LargeCopy]) -> BTreeMap<BucketName, (Vec<usize>, Vec<ObjectKey>)> {
    let mut buckets: BTreeMap<BucketName, (Vec<usize>, Vec<ObjectKey>)> = BTreeMap::new();
    for (place, copy) in largest.iter().enumerate() {
        let (places, keys) = buckets.entry(copy.object.bucket.clone()).or_default();
        places.push(place);
        keys.push(copy.object.key.clone());
    }
    buckets
}

/// At most `limit` copies of `namespace`. Other members are asked once for each bucket.
pub(super) async fn cached<N: AdminSource>(
    node: &N,
    namespace: &Namespace,
    limit: usize,
) -> Result<CachedList, Refusal> {
    let (memory, of) = (node.memory().clone(), namespace.clone());
    let limit = limit.min(KEYS_MAX);
    // A walk over a million copies takes too long for a thread that serves others.
    let walked = tokio::task::spawn_blocking(move || memory.largest_copies(&of, limit)).await;
    let largest = walked.map_err(Refusal::internal)?;
    let buckets = by_bucket(&largest);
    let asked = buckets.iter().map(|(bucket, (_, keys))| Box::pin(copies(node, namespace, bucket, keys)));
    let answers = join_all(asked).await;
    let (mut seen, mut unanswered) = (vec![Copies::default(); largest.len()], BTreeMap::new());
    for ((places, _), answer) in buckets.values().zip(answers) {
        let (copies, silent) = answer?;
        for (place, copies) in places.iter().zip(copies) {
            seen[*place] = copies;
        }
        unanswered.extend(silent);
    }
    let usage = node.memory().usage();
    let objects = largest.into_iter().zip(seen).map(|(LargeCopy { object, bytes }, copies)| CachedObject {
        bucket: object.bucket,
        key: object.key,
        bytes,
        copies,
    });
    Ok(CachedList {
        namespace: namespace.clone(),
        node: node.name().to_owned(),
        copies: usage.objects,
        cached_bytes: usage.kept,
        objects: objects.collect(),
        unanswered,
    })
}

#[cfg(test)]
mod tests {
    use nigh_data::ObjectId;

    use super::*;

    #[test]
    fn each_bucket_is_asked_for_once_and_keeps_the_places_of_its_keys() {
        let copy = |bucket: &str, key: &str| {
            let (namespace, bucket) = (Namespace::new("one").unwrap(), BucketName::new(bucket).unwrap());
            LargeCopy { object: ObjectId { namespace, bucket, key: ObjectKey::new(key).unwrap() }, bytes: 1 }
        };
        let buckets = by_bucket(&[copy("inbox", "a"), copy("results", "b"), copy("inbox", "c")]);
        let (places, keys) = &buckets[&BucketName::new("inbox").unwrap()];
        assert_eq!((places.as_slice(), keys[1].as_str()), (&[0, 2][..], "c"));
        assert_eq!((buckets.len(), buckets[&BucketName::new("results").unwrap()].0.as_slice()), (2, &[1][..]));
    }
}
