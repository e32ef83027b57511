//! Shadows on a real Swift with Nigh's middleware in its pipeline. A store without shadows is the outsider.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::TryStreamExt;
use md5::{Digest, Md5};
use nigh_data::{Attributes, ETag, ObjectError, ObjectId, ObjectMeta, Tags};
use nigh_lab::instrument::peer::PeerError;
use nigh_lab::instrument::peer::swift::{NighMiddleware, Swift};
use nigh_stores::swift::SwiftStore;
use nigh_stores::swift::shadow::{ShadowConfig, ShadowError, ShadowPrecondition};
use nigh_stores::{ListQuery, NetworkLimits, Payload, RetryPolicy, Store};
use nigh_terms::{BucketName, Epoch, ObjectKey, SecretKey, Sequence, Timestamp, Token, Version};

use crate::on_swift::{namespace, natively};
use crate::skipped::skip;

const SECRET: &str = "a secret of tests, long enough for the middleware";

/// A Swift with the middleware, whose only node nobody answers for.
fn start(test: &str, folder: &Path) -> Option<Swift> {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../integrations/swift/src");
    let source = source.canonicalize().unwrap();
    let nodes = "n1=http://127.0.0.1:9".to_owned();
    match Swift::start_with_nigh(folder, NighMiddleware { source, secret: SecretKey::new(SECRET), nodes }) {
        Ok(swift) => Some(swift),
        Err(missing @ PeerError::NotInstalled { .. }) => {
            skip(test, missing);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn outsider(swift: &Swift) -> SwiftStore {
    // Once is enough: what is refused here stays refused.
    let retry = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
    SwiftStore::new(&natively(swift, swift.endpoint(), NetworkLimits { retry, ..NetworkLimits::default() })).unwrap()
}

fn nigh(swift: &Swift, secret: &str) -> SwiftStore {
    let config = ShadowConfig { secret: SecretKey::new(secret), node: "n1".to_owned() };
    outsider(swift).with_shadows(config).unwrap()
}

fn object(bucket: &str, key: &str) -> ObjectId {
    ObjectId {
        namespace: namespace("tenant"),
        bucket: BucketName::new(bucket).unwrap(),
        key: ObjectKey::new(key).unwrap(),
    }
}

fn meta(bytes: &[u8], sequence: u64) -> ObjectMeta {
    let mut attributes = Attributes::default();
    attributes.user.insert("sequence".to_owned(), sequence.to_string());
    ObjectMeta {
        size: bytes.len() as u64,
        etag: md5(bytes),
        modified: Timestamp(5),
        attributes,
        tags: Tags::new(),
        checksums: Vec::new(),
        parts: Vec::new(),
        version: Version { epoch: Epoch(1), sequence: Sequence(sequence) },
        token: Token::empty(),
    }
}

fn md5(bytes: &[u8]) -> ETag {
    ETag(Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

async fn read(store: &SwiftStore, object: &ObjectId) -> Result<Vec<u8>, ObjectError> {
    let (_, stream) = store.get(object, None, None).await?;
    let pieces: Vec<Bytes> = stream.try_collect().await?;
    Ok(pieces.concat())
}

/// The bytes as a file of the spool.
fn payload(folder: &Path, bytes: &[u8]) -> Payload {
    let path = folder.join("payload");
    std::fs::write(&path, bytes).unwrap();
    Payload::Files(vec![path])
}

const OLD: &[u8] = b"the old payload";
const ONE: &[u8] = b"version one";
const THEIRS: &[u8] = b"what an outsider wrote";

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_is_seen_as_what_it_will_be_and_its_push_overwrites_nothing_younger() {
    let folder = tempfile::tempdir().unwrap();
    let name = "a_shadow_is_seen_as_what_it_will_be_and_its_push_overwrites_nothing_younger";
    let Some(swift) = start(name, folder.path()) else { return };
    let (ours, theirs) = (nigh(&swift, SECRET), outsider(&swift));
    let bucket = BucketName::new("bucket").unwrap();
    let tenant = namespace("tenant");
    // Nigh marks those that it makes.
    theirs.create_bucket(&tenant, &bucket).await.unwrap();
    let before = ours.put_placeholder(&object("bucket", "x"), &meta(ONE, 1), &ShadowPrecondition::Any).await;
    assert!(matches!(before, Err(ShadowError::NotCached)), "{before:?}");
    // Not yet Nigh's: the outsider may write though its node is not there.
    for key in ["pushed", "written", "dropped", "deleted"] {
        theirs.put(&object("bucket", key), &payload(folder.path(), OLD), &meta(OLD, 1)).await.unwrap();
    }
    ours.mark_cached(&tenant, &bucket, true).await.unwrap();
    let refused = theirs.put(&object("bucket", "x"), &payload(folder.path(), OLD), &meta(OLD, 1)).await;
    assert!(refused.is_err(), "an outside write whose node is not reached");

    for (key, sequence) in [("pushed", 2), ("fresh one/ü", 3)] {
        let object = object("bucket", key);
        let meta = meta(ONE, sequence);
        ours.put_placeholder(&object, &meta, &ShadowPrecondition::Any).await.unwrap();
        assert!(read(&theirs, &object).await.is_err(), "the node that has {key} is not there");
        assert!(read(&ours, &object).await.unwrap_err().to_string().contains("placeholder"));
        let seen = theirs.head(&object).await.unwrap();
        assert_eq!(
            (seen.size, &seen.etag, seen.version, &seen.attributes),
            (meta.size, &meta.etag, meta.version, &meta.attributes)
        );
        let listed = theirs.list(ListQuery { prefix: key, ..ListQuery::first(&tenant, &bucket, 10) }).await.unwrap();
        assert_eq!((listed.len(), listed[0].size, &listed[0].etag), (1, meta.size, &meta.etag));
        let other = ObjectMeta { version: Version { epoch: Epoch(0), sequence: Sequence(9) }, ..meta.clone() };
        let older = ours.put_placeholder(&object, &other, &ShadowPrecondition::Any).await;
        assert!(matches!(older, Err(ShadowError::Newer(_))), "{older:?}");
        for _ in 0..2 {
            ours.push_shadow(&object, &payload(folder.path(), ONE), &meta).await.unwrap();
        }
        assert_eq!(read(&theirs, &object).await.unwrap(), ONE);
        assert_eq!(read(&ours, &object).await.unwrap(), ONE);
        assert_eq!(theirs.head(&object).await.unwrap(), seen);
    }

    // An outsider writes after the placeholder; its node is let go of so that it may.
    for key in ["written", "deleted"] {
        ours.put_placeholder(&object("bucket", key), &meta(ONE, 4), &ShadowPrecondition::ETag(md5(OLD))).await.unwrap();
    }
    ours.put_placeholder(&object("bucket", "dropped"), &meta(ONE, 4), &ShadowPrecondition::Present).await.unwrap();
    ours.mark_cached(&tenant, &bucket, false).await.unwrap();
    theirs.put(&object("bucket", "written"), &payload(folder.path(), THEIRS), &meta(THEIRS, 1)).await.unwrap();
    theirs.delete(&object("bucket", "deleted")).await.unwrap();
    for key in ["written", "deleted"] {
        let pushed = ours.push_shadow(&object("bucket", key), &payload(folder.path(), ONE), &meta(ONE, 4)).await;
        assert!(matches!(pushed, Err(ShadowError::Outside(_))), "{pushed:?}");
    }
    assert_eq!(read(&theirs, &object("bucket", "written")).await.unwrap(), THEIRS);
    let gone = read(&theirs, &object("bucket", "deleted")).await;
    assert!(matches!(gone, Err(ObjectError::NoSuchKey(_))), "{gone:?}");
    let dropped = object("bucket", "dropped");
    ours.drop_placeholder(&dropped, meta(ONE, 4).version).await.unwrap();
    assert_eq!(read(&theirs, &dropped).await.unwrap(), OLD);

    expectations_are_kept(&ours, &theirs, folder.path()).await;
}

async fn expectations_are_kept(ours: &SwiftStore, theirs: &SwiftStore, scratch: &Path) {
    let object = object("bucket", "expected");
    let put = async |bytes: &[u8], sequence, expected| {
        ours.put_expecting(&object, &payload(scratch, bytes), &meta(bytes, sequence), &expected).await
    };
    assert!(matches!(put(ONE, 5, ShadowPrecondition::Present).await, Err(ShadowError::Outside(_))));
    put(ONE, 5, ShadowPrecondition::Absent).await.unwrap();
    put(ONE, 5, ShadowPrecondition::Absent).await.unwrap();
    assert!(matches!(put(OLD, 6, ShadowPrecondition::Absent).await, Err(ShadowError::Outside(_))));
    put(OLD, 6, ShadowPrecondition::Version(meta(ONE, 5).version)).await.unwrap();
    assert!(matches!(put(ONE, 5, ShadowPrecondition::Any).await, Err(ShadowError::Newer(_))));
    assert_eq!(read(theirs, &object).await.unwrap(), OLD);
    let delete =
        async |sequence, expected| ours.delete_expecting(&object, meta(ONE, sequence).version, &expected).await;
    assert!(matches!(delete(7, ShadowPrecondition::ETag(md5(ONE))).await, Err(ShadowError::Outside(_))));
    for _ in 0..2 {
        delete(7, ShadowPrecondition::ETag(md5(OLD))).await.unwrap();
    }
    assert!(matches!(read(theirs, &object).await, Err(ObjectError::NoSuchKey(_))));
    let parts = ObjectMeta { etag: ETag(format!("{}-2", "0".repeat(32))), ..meta(ONE, 8) };
    let unfit = ours.put_placeholder(&object, &parts, &ShadowPrecondition::Any).await;
    assert!(matches!(unfit, Err(ShadowError::Unfit(_))), "{unfit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swift_without_the_middleware_or_with_another_secret_takes_no_shadow_and_loses_nothing() {
    let name = "a_swift_without_the_middleware_or_with_another_secret_takes_no_shadow_and_loses_nothing";
    let (folder, bare) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(swift) = start(name, folder.path()) else { return };
    let bucket = BucketName::new("bucket").unwrap();
    let wrong = nigh(&swift, "another secret, as long as the middleware takes");
    let refused = wrong.create_bucket(&namespace("tenant"), &bucket).await.unwrap_err().to_string();
    assert!(refused.contains("signature"), "{refused}");
    drop(swift);

    let swift = Swift::start(bare.path()).unwrap();
    let (ours, theirs) = (nigh(&swift, SECRET), outsider(&swift));
    ours.create_bucket(&namespace("tenant"), &bucket).await.unwrap();
    let object = object("bucket", "o");
    theirs.put(&object, &payload(folder.path(), OLD), &meta(OLD, 1)).await.unwrap();
    let (meta, none) =
        (meta(ONE, 2), |result: Result<_, ShadowError>| matches!(result, Err(ShadowError::NoMiddleware)));
    assert!(none(ours.mark_cached(&namespace("tenant"), &bucket, true).await));
    assert!(none(ours.put_placeholder(&object, &meta, &ShadowPrecondition::Any).await.map(drop)));
    assert!(none(ours.push_shadow(&object, &payload(folder.path(), ONE), &meta).await.map(drop)));
    assert!(none(ours.delete_expecting(&object, meta.version, &ShadowPrecondition::Any).await));
    assert!(none(ours.drop_placeholder(&object, meta.version).await));
    assert_eq!(read(&theirs, &object).await.unwrap(), OLD);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_swift_store_with_shadows_conforms_on_a_swift_with_the_middleware() {
    let folder = tempfile::tempdir().unwrap();
    let name = "the_swift_store_with_shadows_conforms_on_a_swift_with_the_middleware";
    let Some(swift) = start(name, folder.path()) else { return };
    crate::check(&nigh(&swift, SECRET), folder.path()).await;
}
