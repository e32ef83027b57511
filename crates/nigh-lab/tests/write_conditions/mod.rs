//! What a shared bucket stands on: writes and deletions that real S3 services refuse when the object is another than the
//! writer thinks.

use std::collections::BTreeMap;
use std::path::Path;

use nigh_data::{Attributes, ETag, ObjectError, ObjectId, ObjectMeta, Tags, WriteConditions};
use nigh_lab::instrument::peer::s3_server::S3Server;
use nigh_lab::instrument::peer::{Peer, PeerError, S3Access};
use nigh_stores::remote::{RemoteConfig, RemoteStore};
use nigh_stores::{NetworkLimits, Payload, Store};
use nigh_terms::{AccessKeyId, BucketName, Epoch, ObjectKey, Sequence, Timestamp, Token, Version};

use super::on_swift::namespace;
use crate::skipped::skip;

/// Of the `n`th version: its entity tag is not the service's own, as that of an object in parts is not.
fn meta_of(bytes: &[u8], n: u64) -> ObjectMeta {
    ObjectMeta {
        size: bytes.len() as u64,
        etag: ETag(format!("{n:032x}-2")),
        modified: Timestamp(n),
        attributes: Attributes::default(),
        tags: Tags::new(),
        checksums: Vec::new(),
        parts: Vec::new(),
        version: Version { epoch: Epoch(1), sequence: Sequence(n) },
        token: Token::empty(),
    }
}

fn store_of(s3: &S3Access) -> RemoteStore {
    RemoteStore::new(&RemoteConfig {
        endpoint: s3.endpoint.clone(),
        region: s3.region.clone(),
        access_key: AccessKeyId::new(s3.access_key.clone()),
        secret_key: s3.secret_key.clone(),
        bucket_prefixes: BTreeMap::from([(namespace("tenant"), String::new())]),
        limits: NetworkLimits::default(),
    })
    .unwrap()
}

async fn keeps_what_a_shared_bucket_needs(s3: &S3Access, scratch: &Path) {
    let store = store_of(s3);
    let (tenant, bucket) = (namespace("tenant"), BucketName::new("shared").unwrap());
    store.create_bucket(&tenant, &bucket).await.unwrap();
    assert!(store.keeps_conditions(&tenant, &bucket).await.unwrap());
    let object = ObjectId { namespace: tenant.clone(), bucket: bucket.clone(), key: ObjectKey::new("a/b c").unwrap() };
    let write = async |n: u8, condition: WriteConditions| {
        let bytes = vec![n; 1000 + usize::from(n)];
        let file = scratch.join("body");
        std::fs::write(&file, &bytes).unwrap();
        let meta = meta_of(&bytes, u64::from(n));
        let written = store.put_if(&object, &Payload::Files(vec![file]), &meta, &condition).await;
        written.map(|()| meta.etag)
    };
    let absent = || WriteConditions { if_absent: true, ..WriteConditions::default() };
    let matching = |etag: &ETag| WriteConditions { if_match: Some(etag.clone()), ..WriteConditions::default() };
    let refused = |done: Result<ETag, ObjectError>| matches!(done, Err(ObjectError::PreconditionFailed(_)));
    assert!(refused(write(1, matching(&ETag("never".to_owned()))).await), "there is nothing to match");
    let first = write(1, absent()).await.unwrap();
    assert!(refused(write(2, absent()).await));
    let second = write(2, matching(&first)).await.unwrap();
    assert!(refused(write(3, matching(&first)).await));
    assert_eq!(store.head(&object).await.unwrap().etag, second);
    // Of several at once who all have seen the same, one writes.
    let racing = (4..10).map(|n| {
        let (store, object, second) = (&store, &object, &second);
        async move {
            let bytes = vec![n; 10];
            let file = scratch.join(format!("body-{n}"));
            std::fs::write(&file, &bytes).unwrap();
            let condition = WriteConditions { if_match: Some(second.clone()), ..WriteConditions::default() };
            store.put_if(object, &Payload::Files(vec![file]), &meta_of(&bytes, u64::from(n)), &condition).await.is_ok()
        }
    });
    let written = futures::future::join_all(racing).await.into_iter().filter(|written| *written).count();
    assert_eq!(written, 1);
    let newest = store.head(&object).await.unwrap().etag;
    let late = store.delete_if(&object, &second).await;
    assert!(matches!(late, Err(ObjectError::PreconditionFailed(_))), "{late:?}");
    store.head(&object).await.unwrap();
    store.delete_if(&object, &newest).await.unwrap();
    assert!(matches!(store.head(&object).await, Err(ObjectError::NoSuchKey(_))));
    store.delete_if(&object, &newest).await.unwrap();
    store.delete_bucket(&tenant, &bucket).await.unwrap();
}

fn started<P: Peer>(test: &str, peer: Result<P, PeerError>) -> Option<P> {
    match peer {
        Ok(peer) => Some(peer),
        Err(missing @ PeerError::NotInstalled { .. }) => {
            skip(test, missing);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn minio_keeps_what_a_shared_bucket_needs() {
    let folder = tempfile::tempdir().unwrap();
    let test = "minio_keeps_what_a_shared_bucket_needs";
    let Some(peer) = started(test, S3Server::minio(folder.path())) else { return };
    keeps_what_a_shared_bucket_needs(peer.s3(), folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versitygw_keeps_what_a_shared_bucket_needs() {
    let folder = tempfile::tempdir().unwrap();
    let test = "versitygw_keeps_what_a_shared_bucket_needs";
    let Some(peer) = started(test, S3Server::versitygw(folder.path())) else { return };
    keeps_what_a_shared_bucket_needs(peer.s3(), folder.path()).await;
}
