//! A ledger and a store whose calls a test can hold up, to make races happen on purpose.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use nigh_data::{BucketInfo, ByteStream, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta, Tags};
use nigh_engine::nats::NatsLedger;
use nigh_engine::{AppendResult, Body, Ledger, LedgerError, Record, StagedPiece};
use nigh_stores::directory::DirectoryStore;
use nigh_stores::{ListQuery, Payload, Store, StoreAbilities};
use nigh_terms::{BucketName, Epoch, Namespace, ShardId, Version};
use tokio::sync::watch;

/// A gate, open at first.
#[derive(Clone)]
pub(crate) struct Gate {
    open: watch::Sender<bool>,
    waiting: Arc<AtomicU64>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { open: watch::Sender::new(true), waiting: Arc::default() }
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// How many stand at it.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    async fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        drop(self.open.subscribe().wait_for(|open| *open).await);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The ledger of a node, whose appends can come late, and whose answers to them.
pub(crate) struct LateLedger {
    pub(crate) ledger: NatsLedger,
    /// What each append passes before the ledger hears of it.
    pub(crate) appends: Gate,
    /// What each answer to an append passes.
    pub(crate) answers: Gate,
}

#[async_trait]
impl Ledger for LateLedger {
    fn epoch(&self, shard: ShardId) -> Epoch {
        self.ledger.epoch(shard)
    }

    fn check(&self, shard: ShardId) -> Result<(), LedgerError> {
        self.ledger.check(shard)
    }

    fn place(&self, shard: ShardId) -> Version {
        self.ledger.place(shard)
    }

    async fn stage(&self, shard: ShardId, piece: Bytes) -> Result<StagedPiece, LedgerError> {
        self.ledger.stage(shard, piece).await
    }

    async fn append(&self, shard: ShardId, record: Record, body: Body) -> Result<AppendResult, LedgerError> {
        self.append_under(shard, self.epoch(shard), record, body).await
    }

    async fn append_under(
        &self,
        shard: ShardId,
        epoch: Epoch,
        record: Record,
        body: Body,
    ) -> Result<AppendResult, LedgerError> {
        self.appends.pass().await;
        let appended = self.ledger.append_under(shard, epoch, record, body).await;
        self.answers.pass().await;
        appended
    }

    async fn stored(&self, shard: ShardId, version: Version) -> Result<(), LedgerError> {
        self.ledger.stored(shard, version).await
    }

    async fn settle(&self, shard: ShardId) -> Result<(), LedgerError> {
        self.ledger.settle(shard).await
    }

    async fn confirm(&self, shard: ShardId) -> Result<(), LedgerError> {
        self.ledger.confirm(shard).await
    }

    async fn read(&self, shard: ShardId, version: Version, offset: u64) -> Result<Bytes, LedgerError> {
        self.ledger.read(shard, version, offset).await
    }
}

/// A node's way to the store of all, on which puts can be late.
pub(crate) struct LateStore {
    pub(crate) store: Arc<DirectoryStore>,
    /// What each put passes before the store hears of it.
    pub(crate) puts: Gate,
}

#[async_trait]
impl Store for LateStore {
    fn kind(&self) -> &'static str {
        self.store.kind()
    }

    fn spool(&self) -> Option<&Path> {
        self.store.spool()
    }

    fn abilities(&self, namespace: &Namespace) -> StoreAbilities {
        self.store.abilities(namespace)
    }

    fn check(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.store.check(object, meta)
    }

    async fn create_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        self.store.create_bucket(namespace, bucket).await
    }

    async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        self.store.delete_bucket(namespace, bucket).await
    }

    async fn head_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        self.store.head_bucket(namespace, bucket).await
    }

    async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        self.store.list_buckets(namespace).await
    }

    async fn put(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.puts.pass().await;
        self.store.put(object, payload, meta).await
    }

    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        self.store.head(object).await
    }

    async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        self.store.get(object, range, pinned).await
    }

    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError> {
        self.store.delete(object).await
    }

    async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        self.store.put_tags(object, tags).await
    }

    async fn list(&self, query: ListQuery<'_>) -> Result<Vec<ListedObject>, ObjectError> {
        self.store.list(query).await
    }
}
