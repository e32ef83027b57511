//! A ledger and a store whose calls a test can hold up, to make races happen on purpose. The store can show placeholders.

use std::collections::BTreeMap;
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
use nigh_stores::swift::shadow::{ShadowError, SwiftTimestamp};
use nigh_stores::{ListQuery, Payload, ShadowVersions, Shadows, Store, StoreAbilities};
use nigh_terms::{BucketName, Epoch, Namespace, ShardId, Version};
use parking_lot::Mutex;
use tokio::sync::watch;

/// A gate, open at first.
#[derive(Clone)]
pub(crate) struct Gate {
    open: watch::Sender<bool>,
    waiting: Arc<AtomicU64>,
    passed: Arc<AtomicU64>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { open: watch::Sender::new(true), waiting: Arc::default(), passed: Arc::default() }
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// How many stand at it.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How many have passed it so far.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    async fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        drop(self.open.subscribe().wait_for(|open| *open).await);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.passed.fetch_add(1, Ordering::Relaxed);
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

/// Nigh's versions of the objects of a store that shows placeholders.
#[derive(Debug, Default)]
pub(crate) struct Placeholders(Mutex<BTreeMap<ObjectId, ShadowVersions>>);

impl Placeholders {
    /// The version whose placeholder the store shows.
    pub(crate) fn shown(&self, object: &ObjectId) -> Option<Version> {
        self.of(object).shadow
    }

    fn of(&self, object: &ObjectId) -> ShadowVersions {
        self.0.lock().get(object).copied().unwrap_or_default()
    }

    fn place(&self, object: &ObjectId, version: Version) {
        self.0.lock().entry(object.clone()).or_default().shadow = Some(version);
    }

    /// The store has the payload of `version`, whatever it showed; an outsider's has none.
    pub(crate) fn stored(&self, object: &ObjectId, version: Version) {
        let payload = (version != Version::OUTSIDE).then_some(version);
        self.0.lock().insert(object.clone(), ShadowVersions { shadow: None, payload });
    }
}

/// A node's way to the store of all, on which puts can be late.
pub(crate) struct LateStore {
    pub(crate) store: Arc<DirectoryStore>,
    /// What each put passes before the store hears of it.
    pub(crate) puts: Gate,
    /// The placeholders of a store that shows them.
    pub(crate) placeholders: Option<Arc<Placeholders>>,
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
        StoreAbilities { shadows: self.placeholders.is_some(), ..self.store.abilities(namespace) }
    }

    fn check(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.store.check(object, meta)
    }

    fn shadows(&self, _namespace: &Namespace) -> Option<&dyn Shadows> {
        self.placeholders.as_ref().map(|_| self as &dyn Shadows)
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
        self.store.put(object, payload, meta).await?;
        if let Some(placeholders) = &self.placeholders {
            placeholders.stored(object, meta.version);
        }
        Ok(())
    }

    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        self.refuse_placeholder(object)?;
        self.store.head(object).await
    }

    async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        self.refuse_placeholder(object)?;
        self.store.get(object, range, pinned).await
    }

    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError> {
        if let Some(placeholders) = &self.placeholders {
            placeholders.stored(object, Version::OUTSIDE);
        }
        self.store.delete(object).await
    }

    async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        self.store.put_tags(object, tags).await
    }

    async fn list(&self, query: ListQuery<'_>) -> Result<Vec<ListedObject>, ObjectError> {
        self.store.list(query).await
    }
}

impl LateStore {
    /// As Swift does, which has no payload then.
    fn refuse_placeholder(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let shown = self.placeholders.as_ref().and_then(|placeholders| placeholders.shown(object));
        let reason = "there is a placeholder";
        match shown {
            None => Ok(()),
            Some(_) => Err(ObjectError::Store { store: "late", operation: "read", reason: reason.to_owned() }),
        }
    }

    fn versions(&self, object: &ObjectId) -> ShadowVersions {
        self.placeholders.as_ref().map(|placeholders| placeholders.of(object)).unwrap_or_default()
    }
}

#[async_trait]
impl Shadows for LateStore {
    fn fits(&self, _: &ObjectId, _: &ObjectMeta) -> bool {
        true
    }

    async fn place(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ShadowError> {
        if let Some(placeholders) = &self.placeholders {
            placeholders.place(object, meta.version);
        }
        Ok(())
    }

    async fn push(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ShadowError> {
        let there = self.versions(object);
        if there.shadow == Some(meta.version) {
            return Ok(self.put(object, payload, meta).await?);
        }
        if there.shadow.is_none() && there.payload == Some(meta.version) {
            return Ok(());
        }
        let version = there.shadow.or(there.payload).map(|version| version.to_string());
        let found = serde_json::json!({"reason": "something else is there", "exists": true, "version": version,
            "timestamp": "0000000000.00000"});
        Err(ShadowError::Outside(serde_json::from_value(found).unwrap()))
    }

    async fn standing(&self, object: &ObjectId) -> Result<ShadowVersions, ObjectError> {
        Ok(self.versions(object))
    }

    fn newest(&self) -> Option<SwiftTimestamp> {
        None
    }
}
