//! The object memory on the directory store: what callers see, across restarts.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test, where it stands")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use nigh_data::{
    Attributes, ByteStream, CompleteRequest, CompletedPart, GetRequest, ListRequest, MultipartRequest, ObjectError,
    PutRequest, RangeSpec, Tags, WriteConditions,
};
use nigh_objects::{MemoryLimits, ObjectMemory, Writes};
use nigh_stores::directory::DirectoryStore;
use nigh_terms::{BucketName, ByteSize, Clock, Epoch, Namespace, ObjectKey, Principal, SystemClock};

const CACHED: usize = 1 << 20;
const PART: usize = 5 << 20;

async fn open(root: &Path, epoch: u64) -> ObjectMemory {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = DirectoryStore::open(root, Arc::clone(&clock)).unwrap();
    let limits =
        MemoryLimits { cache: ByteSize::mib(16), cached_object: ByteSize(CACHED as u64), object: ByteSize::gib(5) };
    let writes = Writes::through(Epoch(epoch));
    ObjectMemory::open(Arc::new(store), writes, clock, Vec::new(), root.join("unused"), limits).await.unwrap()
}

fn names() -> (Principal, BucketName) {
    (Principal::outside(Namespace::new("tenant").unwrap()), BucketName::new("bucket").unwrap())
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(name).unwrap()
}

fn stream(bytes: &[u8]) -> ByteStream {
    let pieces: Vec<_> = bytes.chunks(300_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    futures::stream::iter(pieces).boxed()
}

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|n| ((n + seed) % 251) as u8).collect()
}

async fn put(memory: &ObjectMemory, name: &str, bytes: &[u8], length: Option<u64>) {
    let (who, bucket) = names();
    let request = PutRequest {
        attributes: Attributes { content_type: Some("x/y".to_owned()), ..Attributes::default() },
        tags: Tags::from([("k".to_owned(), "v".to_owned())]),
        conditions: WriteConditions::default(),
        body: stream(bytes),
        length,
        md5: None,
        checksum: None,
        request: None,
    };
    memory.put(&who, &bucket, &key(name), request).await.unwrap();
}

async fn get(memory: &ObjectMemory, name: &str, range: Option<RangeSpec>) -> Result<Vec<u8>, ObjectError> {
    let (who, bucket) = names();
    let got = memory.get(&who, &bucket, &key(name), GetRequest { range, ..GetRequest::default() }).await?;
    let pieces: Vec<Bytes> = got.body.try_collect().await?;
    Ok(pieces.concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_every_size_outlive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (who, bucket) = names();
    let sizes = [0, 1, 4096, CACHED, CACHED + 1, 3 * CACHED];
    let memory = open(folder.path(), 1).await;
    memory.create_bucket(&who, &bucket).await.unwrap();
    for size in sizes {
        put(&memory, &format!("known/{size}"), &bytes(size, 1), Some(size as u64)).await;
        put(&memory, &format!("unknown/{size}"), &bytes(size, 2), None).await;
    }
    drop(memory);
    let memory = open(folder.path(), 2).await;
    for pass in ["from the store", "from memory"] {
        for size in sizes {
            assert!(get(&memory, &format!("known/{size}"), None).await.unwrap() == bytes(size, 1), "{size} {pass}");
            assert!(get(&memory, &format!("unknown/{size}"), None).await.unwrap() == bytes(size, 2), "{size} {pass}");
        }
    }
    let last = get(&memory, &format!("known/{}", 3 * CACHED), Some(RangeSpec::Suffix(10))).await.unwrap();
    assert_eq!(last, bytes(3 * CACHED, 1)[3 * CACHED - 10..]);
    let meta = memory.head(&who, &bucket, &key("known/0"), GetRequest::default()).await.unwrap();
    assert_eq!((meta.attributes.content_type.as_deref(), meta.tags.len()), (Some("x/y"), 1));
    let request = ListRequest { delimiter: Some("/".to_owned()), limit: 10, ..ListRequest::default() };
    let page = memory.list(&who, &bucket, request).await.unwrap();
    assert_eq!(page.common_prefixes, ["known/", "unknown/"]);
    let (missing, object) = (BucketName::new("missing").unwrap(), key("a"));
    assert!(matches!(memory.list_uploads(&who, &missing, "").await, Err(ObjectError::NoSuchBucket(_))));
    let read = memory.get(&who, &missing, &object, GetRequest::default()).await.map(drop);
    assert!(matches!(read, Err(ObjectError::NoSuchBucket(_))));
    assert!(matches!(get(&memory, "missing", None).await, Err(ObjectError::NoSuchKey(_))));
    let spooled = std::fs::read_dir(folder.path().join("spool/bodies")).unwrap().count();
    assert_eq!(spooled, 0, "what was stored is not in the spool any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_goes_on_after_a_restart_and_ends_as_one_object() {
    let folder = tempfile::tempdir().unwrap();
    let (who, bucket) = names();
    let object = key("big");
    let whole = bytes(2 * PART + 1000, 3);
    let memory = open(folder.path(), 1).await;
    memory.create_bucket(&who, &bucket).await.unwrap();
    let upload = memory.create_upload(&who, &bucket, &object, MultipartRequest::default()).await.unwrap();
    let mut parts = Vec::new();
    let mut at = memory;
    for (number, part) in (1..).zip(whole.chunks(PART)) {
        drop(at);
        at = open(folder.path(), u64::from(number) + 1).await;
        let length = Some(part.len() as u64);
        let done =
            at.put_part(&who, &bucket, &object, &upload, number, stream(part), length, None, None).await.unwrap();
        parts.push(CompletedPart { number, etag: done.etag, checksum: None });
    }
    let request = CompleteRequest { parts, ..CompleteRequest::default() };
    at.complete_upload(&who, &bucket, &object, &upload, request.clone()).await.unwrap();
    drop(at);
    let memory = open(folder.path(), 9).await;
    assert!(get(&memory, "big", None).await.unwrap() == whole);
    assert!(get(&memory, "big", Some(RangeSpec::Part(3))).await.unwrap() == whole[2 * PART..]);
    let again = memory.complete_upload(&who, &bucket, &object, &upload, request).await;
    assert!(matches!(again, Err(ObjectError::NoSuchUpload(_))));
}

/// A piece of a body that counts itself while it lives.
struct Piece {
    bytes: Vec<u8>,
    living: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.living.fetch_sub(self.bytes.len(), Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_streams_in_and_out_in_bounded_memory() {
    const PIECE: usize = 256 << 10;
    const PIECES: usize = 200;
    const BOUND: usize = 4 << 20;
    let folder = tempfile::tempdir().unwrap();
    let (who, bucket) = names();
    let memory = open(folder.path(), 1).await;
    memory.create_bucket(&who, &bucket).await.unwrap();
    let (living, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, peak) = (Arc::clone(&living), Arc::clone(&most));
    let body = futures::stream::iter(0..PIECES).map(move |n| {
        peak.fetch_max(count.fetch_add(PIECE, Ordering::SeqCst) + PIECE, Ordering::SeqCst);
        Ok(Bytes::from_owner(Piece { bytes: vec![n as u8; PIECE], living: Arc::clone(&count) }))
    });
    let request = PutRequest {
        attributes: Attributes::default(),
        tags: Tags::new(),
        conditions: WriteConditions::default(),
        body: body.boxed(),
        length: Some((PIECES * PIECE) as u64),
        md5: None,
        checksum: None,
        request: None,
    };
    memory.put(&who, &bucket, &key("a"), request).await.unwrap();
    assert!(most.load(Ordering::SeqCst) <= BOUND, "{most:?} bytes at once");
    assert_eq!(living.load(Ordering::SeqCst), 0);

    let mut got = memory.get(&who, &bucket, &key("a"), GetRequest::default()).await.unwrap();
    let mut read = 0;
    while let Some(bytes) = got.body.next().await {
        let bytes = bytes.unwrap();
        assert!(bytes.len() <= BOUND);
        assert!(bytes.iter().enumerate().all(|(n, byte)| *byte == ((read + n) / PIECE) as u8));
        read += bytes.len();
    }
    assert_eq!(read, PIECES * PIECE);
    assert!(memory.usage().living.bytes() <= BOUND as u64, "it does not go to memory");
}
