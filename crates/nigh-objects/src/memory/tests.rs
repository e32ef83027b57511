//! The promises of the object memory, and the fixture of their tests.

mod buckets;
mod coherence;
mod damaged;
mod dates;
mod ephemeral;
mod interleavings;
mod invocations;
mod many;
mod notices;
mod outside_writers;
mod pool;
mod races;
mod reads;
mod repeats;
mod shadows;
mod shared_bucket;
mod shrink;
mod transactions;
mod uploads;
mod whereabouts;
mod write_back;
mod writes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::gated_store::{GatedStore, Point};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt};
use nigh_data::{
    Attributes, ByteStream, Checksum, ChecksumAlgorithm, ChecksumClaim, ClaimedValue, CompleteRequest, CompletedPart,
    CopyRequest, Direction, ETag, GetReply, GetRequest, ListRequest, MultipartRequest, ObjectError, ObjectEvent,
    ObjectObserver, PutDone, PutRequest, RangeSpec, ReadConditions, ServeOutcome, Tags, UploadId, WriteConditions,
};
use nigh_terms::{Admission, BucketName, ByteSize, Epoch, ManualClock, Namespace, ObjectKey, Principal, Version};
use parking_lot::Mutex;

use super::{MemoryLimits, ObjectMemory};
use crate::Writes;

const CACHED: usize = 100_000;

#[derive(Default)]
struct Events(Mutex<Vec<ObjectEvent>>);

impl ObjectObserver for Events {
    fn observe(&self, event: &ObjectEvent) {
        self.0.lock().push(event.clone());
    }
}

struct Fixture {
    store: Arc<GatedStore>,
    memory: ObjectMemory,
    events: Arc<Events>,
    clock: Arc<ManualClock>,
    who: Principal,
    bucket: BucketName,
    folder: tempfile::TempDir,
}

async fn open(
    store: &Arc<GatedStore>,
    events: &Arc<Events>,
    clock: &Arc<ManualClock>,
    folder: &std::path::Path,
) -> ObjectMemory {
    let limits =
        MemoryLimits { cache: ByteSize::mib(4), cached_object: ByteSize(CACHED as u64), object: ByteSize::mib(32) };
    ObjectMemory::open(
        Arc::clone(store) as Arc<dyn nigh_stores::Store>,
        Writes::through(Epoch(1)),
        Arc::clone(clock) as Arc<dyn nigh_terms::Clock>,
        vec![Arc::clone(events) as Arc<dyn ObjectObserver>],
        folder.to_owned(),
        limits,
    )
    .await
    .unwrap()
}

impl Fixture {
    async fn new() -> Self {
        let (store, events, clock) = (Arc::new(GatedStore::default()), Arc::default(), Arc::default());
        let folder = tempfile::tempdir().unwrap();
        let memory = open(&store, &events, &clock, folder.path()).await;
        let who = Principal::outside(Namespace::new("tenant").unwrap());
        let bucket = BucketName::new("bucket").unwrap();
        memory.create_bucket(&who, &bucket).await.unwrap();
        Self { store, memory, events, clock, who, bucket, folder }
    }

    /// Restarts the memory. Its cache is empty then.
    async fn restarted(self) -> Self {
        let memory = open(&self.store, &self.events, &self.clock, self.folder.path()).await;
        Self { memory, ..self }
    }

    async fn put_with(&self, name: &str, request: PutRequest) -> Result<PutDone, ObjectError> {
        self.memory.put(&self.who, &self.bucket, &key(name), request).await
    }

    async fn put(&self, name: &str, bytes: &[u8]) -> PutDone {
        self.put_with(name, body(bytes)).await.unwrap()
    }

    async fn get_with(&self, name: &str, request: GetRequest) -> Result<GetReply, ObjectError> {
        self.memory.get(&self.who, &self.bucket, &key(name), request).await
    }

    async fn get(&self, name: &str) -> Result<Vec<u8>, ObjectError> {
        bytes_of(self.get_with(name, GetRequest::default()).await?).await
    }

    async fn range(&self, name: &str, range: RangeSpec) -> Result<Vec<u8>, ObjectError> {
        bytes_of(self.get_with(name, GetRequest { range: Some(range), ..GetRequest::default() }).await?).await
    }

    async fn delete(&self, name: &str) {
        self.memory.delete(&self.who, &self.bucket, &key(name), WriteConditions::default(), None).await.unwrap();
    }

    fn in_background<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(ObjectMemory, Principal, BucketName) -> T,
    ) -> impl Future<Output = T> {
        work(self.memory.clone(), self.who.clone(), self.bucket.clone())
    }

    /// A get in a task of its own.
    fn getting(&self, name: &str) -> tokio::task::JoinHandle<Result<Vec<u8>, ObjectError>> {
        let (memory, who, bucket, key) = (self.memory.clone(), self.who.clone(), self.bucket.clone(), key(name));
        tokio::spawn(async move { bytes_of(memory.get(&who, &bucket, &key, GetRequest::default()).await?).await })
    }

    /// A put in a task of its own.
    fn putting(&self, name: &str, bytes: &[u8]) -> tokio::task::JoinHandle<Result<PutDone, ObjectError>> {
        let (memory, who, bucket, key) = (self.memory.clone(), self.who.clone(), self.bucket.clone(), key(name));
        let request = body(bytes);
        tokio::spawn(async move { memory.put(&who, &bucket, &key, request).await })
    }

    fn served(&self) -> Vec<ServeOutcome> {
        self.events.0.lock().iter().map(|event| event.served).collect()
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(name).unwrap()
}

fn stream(bytes: &[u8]) -> ByteStream {
    let pieces: Vec<_> = bytes.chunks(70_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    futures::stream::iter(pieces).boxed()
}

fn body(bytes: &[u8]) -> PutRequest {
    PutRequest {
        attributes: Attributes::default(),
        tags: Tags::new(),
        conditions: WriteConditions::default(),
        body: stream(bytes),
        length: Some(bytes.len() as u64),
        md5: None,
        checksum: None,
        request: None,
    }
}

async fn bytes_of(got: GetReply) -> Result<Vec<u8>, ObjectError> {
    let range = got.range.clone();
    let bytes = got.body.try_fold(Vec::new(), |mut all, piece| async move {
        all.extend_from_slice(&piece);
        Ok(all)
    });
    let bytes = bytes.await?;
    assert_eq!(bytes.len() as u64, range.end - range.start);
    Ok(bytes)
}

/// Waits until `what` is true.
async fn until(what: impl Fn() -> bool) {
    for _ in 0..2000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not come true");
}
