//! Acknowledged writes that are damaged in the journal, and what each call makes of them.

use nigh_data::ObjectMeta;
use nigh_terms::{Sequence, Timestamp, Token};

use super::write_back::LazyBench;
use super::writes::copy_of;
use super::*;
use crate::{Access, BucketPolicy};

#[tokio::test]
async fn a_damaged_write_is_said_to_be_damaged_until_the_object_is_written_or_deleted_anew() {
    let l = LazyBench::new().await;
    for name in ["read", "written", "deleted", "whole"] {
        l.put(name, b"acknowledged").await;
    }
    let l = l.restarted_with(|name| name != "whole", false).await;
    assert_eq!(l.get("whole").await.unwrap(), b"acknowledged");
    assert_eq!(l.names().await, ["whole"]);
    for name in ["read", "written", "deleted"] {
        assert!(matches!(l.get(name).await, Err(ObjectError::Damaged(_))), "{name}");
        let head = l.memory.head(&l.who, &l.bucket, &key(name), GetRequest::default()).await;
        assert!(matches!(head, Err(ObjectError::Damaged(_))), "{name}: {head:?}");
    }
    let copied = l.memory.copy(&l.who, &l.bucket, &key("copy"), copy_of("read")).await;
    assert!(matches!(copied, Err(ObjectError::Damaged(_))), "{:?}", copied.map(|copied| copied.done));
    let conditions = WriteConditions { if_absent: true, ..WriteConditions::default() };
    let conditional = l.put_with("read", PutRequest { conditions, ..body(b"x") }).await;
    assert!(matches!(conditional, Err(ObjectError::Damaged(_))), "nobody knows what is there: {conditional:?}");
    let damaged = l.memory.unpushed(&l.who.namespace, Some(&l.bucket), "", 10);
    assert_eq!(damaged.iter().filter(|one| one.is_damaged).count(), 3);

    let persisting = l.persist();
    l.put("written", b"anew").await;
    l.delete("deleted").await;
    assert_eq!(l.get("written").await.unwrap(), b"anew");
    assert!(matches!(l.get("deleted").await, Err(ObjectError::NoSuchKey(_))));
    l.memory.flush(&l.who, &l.bucket, &key("written")).await.unwrap();
    assert_eq!(l.stored("written"), Some(b"anew".to_vec()));
    l.delete("written").await;
    l.delete("whole").await;
    let refused = l.memory.delete_bucket(&l.who, &l.bucket).await;
    assert!(matches!(refused, Err(ObjectError::BucketNotEmpty(_))), "one is damaged yet: {refused:?}");
    l.delete("read").await;
    l.memory.delete_bucket(&l.who, &l.bucket).await.unwrap();
    l.stop.cancel();
    persisting.await.unwrap();
}

/// The store has `bytes`, which an earlier life pushed as `version`.
fn pushed_earlier(l: &LazyBench, name: &str, version: Version, bytes: &'static [u8]) {
    let meta = ObjectMeta {
        size: bytes.len() as u64,
        etag: ETag(String::from_utf8_lossy(bytes).into_owned()),
        modified: Timestamp(0),
        attributes: Attributes::default(),
        tags: Tags::new(),
        checksums: Vec::new(),
        parts: Vec::new(),
        version,
        token: Token::empty(),
    };
    l.store.put_by_others(&l.id(name), meta, Bytes::from_static(bytes));
}

fn after(version: Version, writes: u64) -> Version {
    Version { sequence: Sequence(version.sequence.0 + writes), ..version }
}

#[tokio::test]
async fn of_a_journal_that_may_have_lost_newer_writes_no_older_one_replaces_what_the_store_has() {
    let l = LazyBench::new().await;
    let first = l.put("behind", b"waits").await.version;
    let mut last = first;
    for name in ["put", "touched", "anew", "other", "absent"] {
        last = l.put(name, b"waits").await.version;
    }
    l.put("deleted", b"waits").await;
    l.delete("deleted").await;
    // What the store has, and of whose records nothing is left.
    for name in ["put", "anew", "deleted"] {
        pushed_earlier(&l, name, after(last, 10), b"newer");
    }
    pushed_earlier(&l, "touched", after(last, 10), b"waits");
    pushed_earlier(&l, "behind", Version { sequence: Sequence(first.sequence.0 - 1), ..first }, b"older");
    // Of another installation that has used the bucket.
    pushed_earlier(&l, "other", Version { epoch: Epoch(1000), ..last }, b"other");
    let l = l.restarted_with(|_| false, true).await;
    l.put("anew", b"of now").await;
    let persisting = l.persist();
    for name in ["put", "touched", "anew", "behind", "other", "absent", "deleted"] {
        l.memory.flush(&l.who, &l.bucket, &key(name)).await.unwrap();
    }
    for (name, bytes) in [
        ("put", &b"newer"[..]),
        ("deleted", b"newer"),
        ("touched", b"waits"),
        ("anew", b"of now"),
        ("behind", b"waits"),
        ("other", b"waits"),
        ("absent", b"waits"),
    ] {
        assert_eq!(l.stored(name).as_deref(), Some(bytes), "{name}");
        assert_eq!(l.get(name).await.unwrap(), bytes, "{name}");
    }
    let meta = nigh_stores::Store::head(&*l.store, &l.id("touched")).await.unwrap();
    assert_eq!(meta.version, after(last, 10), "the newer write's metadata stay too");
    // What was superseded waits no more, and is not pushed by the next life either.
    let waits = l.memory.unpushed(&l.who.namespace, Some(&l.bucket), "", 10);
    assert!(waits.iter().all(|one| !["put", "deleted", "touched"].contains(&one.object.key.as_str())), "{waits:?}");
    // Writes go on over it.
    l.put("put", b"next").await;
    l.memory.flush(&l.who, &l.bucket, &key("put")).await.unwrap();
    assert_eq!((l.stored("put"), l.get("put").await.unwrap()), (Some(b"next".to_vec()), b"next".to_vec()));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn in_a_shared_bucket_what_looks_newer_may_be_a_copy_of_others_and_both_are_kept() {
    let l = LazyBench::new().await;
    l.store.has_conditions.store(true, Ordering::SeqCst);
    l.policy(BucketPolicy { access: Access::Shared, ..BucketPolicy::default() }).await.unwrap();
    let waits = l.put("a", b"waits").await.version;
    pushed_earlier(&l, "a", after(waits, 10), b"newer");
    let l = l.restarted_with(|_| false, true).await;
    let persisting = l.persist();
    l.memory.flush(&l.who, &l.bucket, &key("a")).await.unwrap();
    let apart = format!("a.nigh-conflict-{}-{}", waits.epoch.0, waits.sequence.0);
    assert_eq!((l.stored("a"), l.stored(&apart)), (Some(b"newer".to_vec()), Some(b"waits".to_vec())));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn what_waits_is_copied_and_matched_as_what_is_stored() {
    let l = LazyBench::new().await;
    let first = l.put("a", b"waits").await;
    let copied = l.memory.copy(&l.who, &l.bucket, &key("b"), copy_of("a")).await.unwrap();
    assert_eq!(
        (copied.source_version, copied.done.etag, l.get("b").await.unwrap()),
        (first.version, first.etag.clone(), b"waits".to_vec())
    );
    let read =
        async |conditions| l.memory.get(&l.who, &l.bucket, &key("a"), GetRequest { conditions, range: None }).await;
    let none_match = ReadConditions { if_none_match: Some(vec![first.etag.clone()]), ..ReadConditions::default() };
    assert!(matches!(read(none_match).await, Err(ObjectError::NotModified { .. })));
    let other = ReadConditions { if_match: Some(vec![ETag("other".to_owned())]), ..ReadConditions::default() };
    assert!(matches!(read(other).await, Err(ObjectError::PreconditionFailed(_))));
    let write = async |if_match: ETag| {
        let conditions = WriteConditions { if_match: Some(if_match), ..WriteConditions::default() };
        l.put_with("a", PutRequest { conditions, ..body(b"next") }).await
    };
    assert!(matches!(write(ETag("other".to_owned())).await, Err(ObjectError::PreconditionFailed(_))));
    write(first.etag).await.unwrap();
    l.delete("b").await;
    let gone = l.memory.copy(&l.who, &l.bucket, &key("c"), copy_of("b")).await;
    assert!(matches!(gone, Err(ObjectError::NoSuchKey(_))));
    assert_eq!(l.stored("a"), None);
}

#[tokio::test]
async fn uploads_copies_and_deletions_come_to_the_store_as_they_were_acknowledged() {
    let l = LazyBench::new().await;
    l.policy(BucketPolicy::default()).await.unwrap();
    let upload = l.memory.create_upload(&l.who, &l.bucket, &key("parts"), MultipartRequest::default()).await.unwrap();
    let bytes = vec![4; 3000];
    let part = l
        .memory
        .put_part(&l.who, &l.bucket, &key("parts"), &upload, 1, stream(&bytes), Some(3000), None, None)
        .await
        .unwrap();
    let request = CompleteRequest {
        parts: vec![CompletedPart { number: 1, etag: part.etag, checksum: None }],
        ..CompleteRequest::default()
    };
    let done = l.memory.complete_upload(&l.who, &l.bucket, &key("parts"), &upload, request).await.unwrap();
    l.memory.copy(&l.who, &l.bucket, &key("copy"), copy_of("parts")).await.unwrap();
    l.put("gone", b"x").await;
    l.delete("gone").await;
    assert_eq!((l.stored("parts"), l.stored("copy"), l.get("parts").await.unwrap()), (None, None, bytes.clone()));
    assert_eq!(l.names().await, ["copy", "parts"]);
    let l = l.restarted().await;
    let head = l.memory.head(&l.who, &l.bucket, &key("parts"), GetRequest::default()).await.unwrap();
    assert_eq!((&head.etag, head.version, head.parts.as_slice()), (&done.etag, done.version, &[3000][..]));
    let persisting = l.persist();
    for name in ["parts", "copy", "gone"] {
        l.memory.flush(&l.who, &l.bucket, &key(name)).await.unwrap();
    }
    assert_eq!((l.stored("parts"), l.stored("copy"), l.stored("gone")), (Some(bytes.clone()), Some(bytes), None));
    l.stop.cancel();
    persisting.await.unwrap();
}
