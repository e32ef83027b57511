//! Buckets, the objects of a bucket with the nodes that have copies, and one object.
//!
//! A page of a bucket is as long as one question to the other members (`KEYS_MAX`), so each look asks each member once.

use std::collections::{BTreeMap, HashMap};

use futures::future::try_join;
use nigh_data::{ETag, GetRequest, ListRequest, ListedObject};
use nigh_objects::WriteMode;
use nigh_terms::{BucketName, Namespace, ObjectKey, Principal, Timestamp, Version};
use serde::Serialize;

use super::super::AdminSource;
use super::super::refusal::Refusal;
use crate::cluster::members::{CopiesSeen, KEYS_MAX, MemberAnswer, MemberQuestion, OTHER_ANSWER};
use crate::object_users::ObjectUsers;
use crate::unpushed::UnpushedRow;

/// The buckets of a namespace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct BucketList {
    namespace: Namespace,
    buckets: BTreeMap<BucketName, ShownBucket>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ShownBucket {
    created: Timestamp,
}

/// Where one object's bytes are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Copies {
    /// The nodes that have a cached copy, with the copy's version.
    cached: BTreeMap<String, Version>,
    /// The node that is the object's home, as far as it is known.
    home: Option<String>,
    /// Numbers of the nodes that have not acknowledged yet that older copies are invalid.
    pending: Vec<u32>,
}

/// A write that the store does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ShownUnpushed {
    mode: WriteMode,
    failures: u32,
    damaged: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ShownObject {
    size: u64,
    modified: Timestamp,
    etag: ETag,
    #[serde(flatten)]
    copies: Copies,
    unpushed: Option<ShownUnpushed>,
}

/// A page of a bucket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ObjectList {
    namespace: Namespace,
    bucket: BucketName,
    prefix: String,
    /// Common prefixes up to the next slash.
    folders: Vec<String>,
    objects: BTreeMap<ObjectKey, ShownObject>,
    /// Members that did not say what they have cached, and why.
    unanswered: BTreeMap<String, String>,
    next: Option<String>,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ObjectPage {
    namespace: Namespace,
    bucket: BucketName,
    key: ObjectKey,
    version: Version,
    content_type: Option<String>,
    tags: BTreeMap<String, String>,
    user: BTreeMap<String, String>,
    parts: usize,
    #[serde(flatten)]
    shown: ShownObject,
    /// Members that did not say what they have cached or who used it, and why.
    unanswered: BTreeMap<String, String>,
    /// The last invocations that used it, by id.
    users: ObjectUsers,
}

/// The buckets of `namespace`.
pub(super) async fn buckets<N: AdminSource>(node: &N, namespace: &Namespace) -> Result<BucketList, Refusal> {
    let found = node.memory().list_buckets(&Principal::outside(namespace.clone())).await?;
    let buckets = found.into_iter().map(|bucket| (bucket.name, ShownBucket { created: bucket.created }));
    Ok(BucketList { namespace: namespace.clone(), buckets: buckets.collect() })
}

/// What all members know of these objects, in their order; and who did not answer.
pub(super) async fn copies<N: AdminSource>(
    node: &N,
    namespace: &Namespace,
    bucket: &BucketName,
    keys: &[ObjectKey],
) -> Result<(Vec<Copies>, BTreeMap<String, String>), Refusal> {
    let mut answers = vec![(node.name().to_owned(), node.copies(namespace, bucket, keys))];
    let mut unanswered = BTreeMap::new();
    if let Some(cluster) = node.cluster().filter(|_| !keys.is_empty()) {
        let (namespace, bucket, keys) = (namespace.clone(), bucket.clone(), keys.to_vec());
        for (member, answer) in cluster.ask_members(&MemberQuestion::Copies { namespace, bucket, keys }).await? {
            match answer {
                Ok(MemberAnswer::Copies(seen)) => answers.push((member, seen)),
                Ok(_) => drop(unanswered.insert(member, OTHER_ANSWER.to_owned())),
                Err(why) => drop(unanswered.insert(member, why)),
            }
        }
    }
    Ok((merged(keys.len(), &answers), unanswered))
}

/// The answers of several nodes, joined for each of `count` objects.
fn merged(count: usize, answers: &[(String, Vec<CopiesSeen>)]) -> Vec<Copies> {
    let mut all = vec![Copies::default(); count];
    for (member, seen) in answers {
        for (copies, seen) in all.iter_mut().zip(seen) {
            if let Some(version) = seen.cached {
                copies.cached.insert(member.clone(), version);
            }
            if seen.home {
                copies.home = Some(member.clone());
                copies.pending.clone_from(&seen.pending);
            }
        }
    }
    all
}

/// The unpushed writes of a bucket whose keys begin with `prefix`.
fn unpushed<N: AdminSource>(
    node: &N,
    namespace: &Namespace,
    bucket: &BucketName,
    prefix: &str,
) -> HashMap<ObjectKey, ShownUnpushed> {
    let found = node.memory().unpushed(namespace, Some(bucket), prefix, super::ROWS_MAX);
    let rows = found.into_iter().map(UnpushedRow::from);
    rows.map(|row| (row.name.key, ShownUnpushed { mode: row.mode, failures: row.failures, damaged: row.damaged }))
        .collect()
}

/// A page of a bucket: the entries behind `after` up to the next slash.
pub(super) async fn objects<N: AdminSource>(
    node: &N,
    namespace: &Namespace,
    bucket: &BucketName,
    prefix: &str,
    after: Option<&String>,
) -> Result<ObjectList, Refusal> {
    let request = ListRequest {
        prefix: prefix.to_owned(),
        delimiter: Some("/".to_owned()),
        start_after: after.cloned(),
        limit: KEYS_MAX,
    };
    let page = node.memory().list(&Principal::outside(namespace.clone()), bucket, request).await?;
    let keys: Vec<ObjectKey> = page.objects.iter().map(|object| object.key.clone()).collect();
    let (copies, unanswered) = copies(node, namespace, bucket, &keys).await?;
    let mut unpushed = unpushed(node, namespace, bucket, prefix);
    let objects = page.objects.into_iter().zip(copies).map(|(listed, copies)| {
        let ListedObject { key, size, etag, modified } = listed;
        let unpushed = unpushed.remove(&key);
        (key, ShownObject { size, modified, etag, copies, unpushed })
    });
    Ok(ObjectList {
        namespace: namespace.clone(),
        bucket: bucket.clone(),
        prefix: prefix.to_owned(),
        objects: objects.collect(),
        folders: page.common_prefixes,
        unanswered,
        next: page.next,
    })
}

/// The last users of an object at all members, and who did not answer.
async fn users<N: AdminSource>(
    node: &N,
    namespace: &Namespace,
    bucket: &BucketName,
    key: &ObjectKey,
) -> Result<(ObjectUsers, BTreeMap<String, String>), Refusal> {
    let mut users = node.users(namespace, bucket, key).await.map_err(Refusal::internal)?;
    let mut unanswered = BTreeMap::new();
    if let Some(cluster) = node.cluster() {
        let (namespace, bucket, key) = (namespace.clone(), bucket.clone(), key.clone());
        for (member, answer) in cluster.ask_members(&MemberQuestion::Users { namespace, bucket, key }).await? {
            match answer {
                Ok(MemberAnswer::Users(others)) => users.join(others),
                Ok(_) => drop(unanswered.insert(member, OTHER_ANSWER.to_owned())),
                Err(why) => drop(unanswered.insert(member, why)),
            }
        }
    }
    Ok((users, unanswered))
}

/// One object.
pub(super) async fn object<N: AdminSource>(
    node: &N,
    namespace: &Namespace,
    bucket: &BucketName,
    key: &ObjectKey,
) -> Result<ObjectPage, Refusal> {
    let who = Principal::outside(namespace.clone());
    let meta = node.memory().head(&who, bucket, key, GetRequest::default()).await?;
    let copies = Box::pin(copies(node, namespace, bucket, std::slice::from_ref(key)));
    let users = Box::pin(users(node, namespace, bucket, key));
    let ((copies, mut unanswered), (users, silent)) = try_join(copies, users).await?;
    unanswered.extend(silent);
    Ok(ObjectPage {
        namespace: namespace.clone(),
        bucket: bucket.clone(),
        key: key.clone(),
        version: meta.version,
        content_type: meta.attributes.content_type.clone(),
        tags: meta.tags.clone(),
        user: meta.attributes.user.clone(),
        parts: meta.parts.len(),
        shown: ShownObject {
            size: meta.size,
            modified: meta.modified,
            etag: meta.etag.clone(),
            copies: copies.into_iter().next().unwrap_or_default(),
            unpushed: unpushed(node, namespace, bucket, key.as_str()).remove(key),
        },
        unanswered,
        users,
    })
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Sequence};

    use super::*;

    #[test]
    fn the_answers_of_all_nodes_are_joined_for_each_object() {
        let version = Version { epoch: Epoch(1), sequence: Sequence(7) };
        let copy = || CopiesSeen { cached: Some(version), ..CopiesSeen::default() };
        let home = CopiesSeen { home: true, pending: vec![3], ..CopiesSeen::default() };
        let answers = [("a".to_owned(), vec![copy(), home]), ("b".to_owned(), vec![copy(), copy()])];
        let all = merged(2, &answers);
        assert_eq!(all[0].cached.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((all[0].home.as_deref(), all[1].home.as_deref()), (None, Some("a")));
        assert_eq!((all[1].cached.len(), all[1].pending.as_slice()), (1, &[3][..]));
    }
}
