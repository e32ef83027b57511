//! What stands behind the memory: the journal of acknowledged writes, what waits in it, and the store.
//!
//! A write is durable when it returns, by its mode (`policy`): in the store, or in the ledger with the store to follow
//! (`persistor`). Whoever reads here sees every acknowledged write, wherever it stands. Writes of one object come one
//! after the other: the memory orders them. What waits and what is pushed when is decided in `dirty`.

mod about;
mod buckets;
mod dirty;
mod ephemeral;
mod merged_page;
mod persistor;
mod policy;
mod requests;
mod shared_bucket;
mod unpushed;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use nigh_engine::journal::RecoveredRecord;
use nigh_engine::{
    Appended, Body as LedgerBody, Change, INLINE_MAX_BYTES, Ledger, LedgerError, Record, Registry, RequestId, Staged,
    WriteThrough,
};
use nigh_terms::{BucketName, ByteSize, Clock, Epoch, Namespace, Version};
use tokio::sync::{Notify, watch};

use self::buckets::{Buckets, Inside};
pub use self::dirty::DirtyUsage;
use self::dirty::{Base, Dirty, DirtyLimits, Unpushed};
pub(crate) use self::dirty::{Becomes, Below};
use self::ephemeral::Ephemeral;
use self::merged_page::{Merged, Side, merge};
pub(crate) use self::persistor::Copies;
pub use self::policy::{Access, BucketPolicy, ModeRule, ParseWriteModeError, PolicyError, StoreAbilities, WriteMode};
pub(crate) use self::requests::Known;
use self::requests::Requests;
pub use self::unpushed::UnpushedObject;
use crate::bucket_documents::BucketDocuments;
use crate::memory::SHARD;
use crate::meter::WriteBackMeter;
use crate::store::{Payload, Store, check_pin};
use crate::sync::Mutex;
use crate::{ByteStream, ETag, Listed, ObjectError, ObjectId, ObjectMeta, Tags};

/// The registry's table of buckets' policies.
const POLICIES: &str = "bucket-policies";
/// How often a read begins anew because what it read was pushed, and let go, under it.
const READ_ATTEMPTS: usize = 4;
/// How long a push without an answer may land: longer than servers, proxies and their queues keep a request whose
/// client has gone.
pub(crate) const LANDS_WITHIN: Duration = Duration::from_secs(15 * 60);

/// How writes are kept where a bucket does not say otherwise, and what may wait.
#[derive(Clone, Debug)]
pub struct WriteSettings {
    /// The mode.
    pub mode: WriteMode,
    /// The modes of namespaces.
    pub modes: BTreeMap<Namespace, WriteMode>,
    /// Bytes that may be acknowledged and not in the store.
    pub dirty_max: ByteSize,
    /// Objects and deletions that may.
    pub dirty_objects_max: usize,
    /// How long a write waits for a newer one of its object before it is pushed.
    pub delay: Duration,
    /// The wait after the first failure of a push; it doubles up to `back_off_max`.
    pub back_off: Duration,
    /// The longest such wait.
    pub back_off_max: Duration,
    /// Pushes under way at a time.
    pub pushes_max: usize,
    /// How long a write waits for room, or for an earlier one of its object to be pushed, before it is told to come back.
    pub wait: Duration,
}

impl WriteSettings {
    fn limits(&self) -> DirtyLimits {
        DirtyLimits {
            bytes: self.dirty_max.bytes(),
            objects: self.dirty_objects_max,
            delay: self.delay,
            back_off: self.back_off,
            back_off_max: self.back_off_max,
            lands_within: LANDS_WITHIN,
        }
    }
}

impl Default for WriteSettings {
    fn default() -> Self {
        Self {
            mode: WriteMode::Lazy,
            modes: BTreeMap::new(),
            dirty_max: ByteSize::gib(1),
            dirty_objects_max: 100_000,
            delay: Duration::from_secs(1),
            back_off: Duration::from_millis(500),
            back_off_max: Duration::from_secs(60),
            pushes_max: 8,
            wait: Duration::from_secs(10),
        }
    }
}

/// Whom a write tells where it has come to stand, so that all are known in the order of their versions.
pub(crate) trait Order: Send + Sync {
    /// A version, never a write's, to mark in the store what has no place in the order yet.
    fn mark(&self) -> Version;
    /// The ledger is about to be asked for a version.
    fn asking(&self);
    /// It gave this one; who reads here sees the write. `stored` says that the store has it.
    fn placed(&self, version: Version, stored: bool);
    /// It gave none; or, if `lost`, one that nobody knows.
    fn refused(&self, lost: bool);
    /// The ledger is about to be asked for a version that is no write's: whom to tell which it was.
    fn aside(&self) -> Box<dyn Aside>;
}

/// A version that is no write's, on its way. One that is dropped gave none, or one that nobody knows.
pub(crate) trait Aside: Send {
    /// It is this one.
    fn is(self: Box<Self>, version: Version);
}

/// A write on its way.
pub(crate) struct Write<'a> {
    pub(crate) object: &'a ObjectId,
    /// What is known of it; its version is the ledger's to give.
    pub(crate) meta: ObjectMeta,
    pub(crate) payload: Payload,
    /// The bytes, if they went to the ledger as they came.
    pub(crate) staged: Option<Vec<Staged>>,
    pub(crate) mode: WriteMode,
    pub(crate) request: Option<RequestId>,
    pub(crate) order: &'a dyn Order,
    /// What the conditions of the request were checked on, where others write too: nothing else is replaced.
    pub(crate) below: Option<Below>,
    /// It is too large for the journal.
    pub(crate) past_journal: bool,
}

/// A write that was kept.
pub(crate) struct Placed {
    pub(crate) meta: Arc<ObjectMeta>,
    /// It was kept before: this is the answer of then, and there may be newer ones.
    pub(crate) repeated: bool,
}

/// Everything behind the memory.
pub(crate) struct WriteBack {
    store: Arc<dyn Store>,
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    settings: WriteSettings,
    policies: Option<BucketDocuments<BucketPolicy>>,
    dirty: Mutex<Dirty>,
    /// Objects whose records were let go, and the ledger has not been asked whether that is durable.
    unsettled: Mutex<HashSet<ObjectId>>,
    /// Counts the pushes that have ended.
    pushes: watch::Sender<u64>,
    /// There is something to push.
    work: Notify,
    buckets: Buckets,
    ephemeral: Ephemeral,
    requests: Mutex<Requests>,
    meter: WriteBackMeter,
}

/// What a memory's writes stand on.
pub struct Writes {
    /// Their order, and where they are durable before the store has them.
    pub ledger: Arc<dyn Ledger>,
    /// What an earlier life has acknowledged and not pushed.
    pub recovered: Vec<RecoveredRecord>,
    /// What of it is damaged: reads of these objects fail until they are written anew.
    pub lost: Vec<RecoveredRecord>,
    /// What holds where a bucket does not say otherwise.
    pub settings: WriteSettings,
    /// Where the policies of buckets are kept; without it they have none.
    pub registry: Option<Arc<dyn Registry>>,
}

impl Writes {
    /// Every write goes through to the store. `epoch` must be higher than in any earlier life of the memory.
    #[must_use]
    pub fn through(epoch: Epoch) -> Self {
        let settings = WriteSettings { mode: WriteMode::Through, ..WriteSettings::default() };
        Self {
            ledger: Arc::new(WriteThrough::new(epoch)),
            recovered: Vec::new(),
            lost: Vec::new(),
            settings,
            registry: None,
        }
    }
}

impl WriteBack {
    /// In front of `store`.
    ///
    /// # Errors
    /// Which record or policy cannot be read.
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        writes: Writes,
    ) -> Result<Self, ObjectError> {
        let Writes { ledger, recovered, lost, settings, registry } = writes;
        let failed = |operation, reason| ObjectError::Memory { operation, reason };
        let policies = match registry {
            None => None,
            Some(registry) => {
                let opened = BucketDocuments::open(registry, POLICIES, "write policies").await;
                Some(opened.map_err(|error| failed("read the write policies", error.to_string()))?)
            }
        };
        let mut dirty = Dirty::new(settings.limits());
        let (ephemeral, mut requests) = (Ephemeral::default(), Requests::default());
        let now = clock.monotonic();
        let whole = recovered.into_iter().map(|record| (record, true));
        let mut found: Vec<_> = whole.chain(lost.into_iter().map(|record| (record, false))).collect();
        found.sort_by_key(|(record, _)| record.version);
        for (RecoveredRecord { version, record, .. }, whole) in found {
            let object = ObjectId { namespace: record.namespace, bucket: record.bucket, key: record.key };
            let written = about::decode(record.change.about(), version)
                .map_err(|reason| failed("read the journal", format!("the write {version} of {object}: {reason}")))?;
            ephemeral.recover(&object, version, written.mode);
            if written.mode == WriteMode::Ephemeral {
                // The record says that it was there; its bytes are gone with the memory that they were in.
                dirty.recover(&object, version, written.mode, Becomes::Lost, written.below, now);
                continue;
            }
            if !whole {
                tracing::error!(%object, %version, "an acknowledged write is damaged in the journal");
                dirty.recover(&object, version, written.mode, Becomes::Lost, written.below, now);
                continue;
            }
            let (mode, becomes, told) = (written.mode, written.becomes.clone(), false);
            requests.note(record.request, &object, Known { version, mode, becomes, is_certain: true, told });
            // Older writes of the object are in the journal too; they go when the newest has been pushed.
            dirty.recover(&object, version, written.mode, written.becomes, written.below, now);
            if store.abilities(&object.namespace).lands_late {
                dirty.doubt(&object, now);
            }
        }
        let (meter, pushes) = (WriteBackMeter::new(), watch::Sender::new(0));
        let (dirty, unsettled, work) = (Mutex::new(dirty), Mutex::default(), Notify::new());
        let (buckets, requests) = (Buckets::default(), Mutex::new(requests));
        Ok(Self {
            store,
            ledger,
            clock,
            settings,
            policies,
            dirty,
            unsettled,
            pushes,
            work,
            buckets,
            ephemeral,
            requests,
            meter,
        })
    }

    /// The system of record, for what is about buckets.
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn policy(&self, object: &ObjectId) -> Option<Arc<BucketPolicy>> {
        self.policies.as_ref()?.of(&object.namespace, &object.bucket)
    }

    fn default_mode(&self, namespace: &Namespace) -> WriteMode {
        self.settings.modes.get(namespace).copied().unwrap_or(self.settings.mode)
    }

    /// How a write of `object` is kept.
    pub(crate) fn mode(&self, object: &ObjectId, tags: &Tags) -> WriteMode {
        let default = self.default_mode(&object.namespace);
        self.policy(object).map_or(default, |policy| policy.mode_of(object.key.as_str(), tags, default))
    }

    /// Whether the mode of writes of `object` depends on its tags.
    pub(crate) fn asks_tags(&self, object: &ObjectId) -> bool {
        self.policy(object).is_some_and(|policy| policy.rules.iter().any(|rule| rule.tag.is_some()))
    }

    fn is_shared(&self, object: &ObjectId) -> bool {
        self.policy(object).is_some_and(|policy| policy.access == Access::Shared)
    }

    /// Whether the newest write of `object` is kept nowhere but in memory.
    pub(crate) fn is_ephemeral(&self, object: &ObjectId) -> bool {
        self.dirty.lock().get(object).is_some_and(|newest| newest.mode == WriteMode::Ephemeral)
    }

    /// The copy of `object` that `version` wrote is gone from memory: if it was the only one, it is lost.
    pub(crate) fn gone_from_memory(&self, object: &ObjectId, version: Version) {
        if self.dirty.lock().lost(object, version) {
            tracing::debug!(%object, %version, "an ephemeral object is lost: its memory was needed");
            // Who waits for room looks again.
            self.pushes.send_modify(|_| {});
        }
    }

    /// Whether the store is to be asked before a copy of `object` serves.
    pub(crate) fn revalidates(&self, object: &ObjectId) -> bool {
        self.policy(object).is_some_and(|policy| policy.revalidate) && self.dirty.lock().get(object).is_none()
    }

    /// A bucket's policy.
    pub(crate) fn bucket_policy(&self, namespace: &Namespace, bucket: &BucketName) -> BucketPolicy {
        let policy = self.policies.as_ref().and_then(|policies| policies.of(namespace, bucket));
        policy.map(|policy| BucketPolicy::clone(&policy)).unwrap_or_default()
    }

    /// Replaces a bucket's policy; the default one removes it. Writes acknowledged before stay as they are.
    ///
    /// # Errors
    /// `InvalidArgument` for one that contradicts itself or that the store cannot keep.
    pub(crate) async fn set_bucket_policy(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        policy: BucketPolicy,
    ) -> Result<(), ObjectError> {
        let policies = self.policies.as_ref();
        let policies =
            policies.ok_or_else(|| ObjectError::InvalidRequest("policies of buckets are not kept here".to_owned()))?;
        let mut abilities = self.store.abilities(namespace);
        if policy.access == Access::Shared && abilities.conditions {
            abilities.conditions = self.store.keeps_conditions(namespace, bucket).await?;
        }
        policy
            .check(self.default_mode(namespace), abilities)
            .map_err(|error| ObjectError::InvalidArgument(error.to_string()))?;
        policies.set(namespace, bucket, (policy != BucketPolicy::default()).then_some(policy)).await
    }

    /// Puts a piece of a body on its way to the ledger.
    pub(crate) async fn stage(self: Arc<Self>, piece: Bytes) -> Result<Staged, ObjectError> {
        Ok(self.ledger.stage(SHARD, piece).await?)
    }

    /// Keeps a write; durable by its mode when it returns.
    ///
    /// # Errors
    /// `SlowDown` if there is no room, the store's, or the ledger's.
    pub(crate) async fn put(&self, write: Write<'_>) -> Result<Placed, ObjectError> {
        self.store.check(write.object, &write.meta)?;
        self.ledger.check()?;
        let _inside = self.enter(write.object).await?;
        match write.mode {
            WriteMode::Through => self.put_through(write).await,
            WriteMode::Ephemeral => self.put_ephemeral(write).await,
            WriteMode::Lazy | WriteMode::Shadow => {
                let (object, mode) = (write.object.clone(), write.mode);
                self.put_journal(write).await.inspect(|_| tracing::trace!(%object, %mode, "kept in the journal"))
            }
        }
    }

    async fn put_through(&self, write: Write<'_>) -> Result<Placed, ObjectError> {
        let Write { object, meta, payload, below, past_journal, request, order, .. } = &write;
        let mut base = below.as_ref().map_or(Base::Unknown, |below| below.base.clone());
        if self.dirty.lock().get(object).is_some() {
            if !past_journal {
                // What the store gets of this object is the persistor's affair until nothing waits and nothing can land.
                return self.put_journal(write).await;
            }
            let left = self.hand_over(object).await?;
            if below.is_some() {
                base = left.unwrap_or(base);
            }
        }
        self.settle(object).await?;
        let meta = Arc::new(ObjectMeta { version: order.mark(), ..meta.clone() });
        self.note(*request, object, WriteMode::Through, meta.version, Becomes::Put(Arc::clone(&meta)), false);
        self.put_onto(object, payload, &meta, &base).await?;
        // What was never to be pushed has stood until now.
        self.drop_where(object, |newest| !newest.is_pushed_at_last()).await;
        self.unmark(object).await;
        self.settle(object).await?;
        let meta = Arc::new(ObjectMeta { version: self.place_stored(*order), ..ObjectMeta::clone(&meta) });
        self.note(*request, object, WriteMode::Through, meta.version, Becomes::Put(Arc::clone(&meta)), true);
        Ok(Placed { meta, repeated: false })
    }

    async fn put_ephemeral(&self, write: Write<'_>) -> Result<Placed, ObjectError> {
        let Write { object, meta, payload, request, order, .. } = write;
        self.flush(object).await?;
        let room = self.wait_for_room(object, meta.size).await?;
        let mark = self.mark_of(object, &meta)?;
        order.asking();
        let meta = Arc::new(ObjectMeta { version: self.ledger.place(SHARD), ..meta });
        if let Payload::Segment(segment) = payload {
            self.hold(object, Arc::clone(&meta), segment);
        }
        let becomes = Becomes::Put(Arc::clone(&meta));
        self.note(request, object, WriteMode::Ephemeral, meta.version, becomes.clone(), true);
        self.wrote(object, meta.version, WriteMode::Ephemeral, becomes, Below::default(), room).await;
        order.placed(meta.version, false);
        self.mark(object, mark, order);
        Ok(Placed { meta, repeated: false })
    }

    async fn put_journal(&self, write: Write<'_>) -> Result<Placed, ObjectError> {
        let Write { object, meta, payload, staged, mode, request, order, below, past_journal: _ } = write;
        let room = self.wait_for_room(object, meta.size).await?;
        let below = self.below(object, below).await?;
        let about = about::encode(mode, Some(&meta), &below).map_err(|reason| unkept(object, &reason))?;
        let body = match staged {
            Some(staged) => LedgerBody::Staged(staged),
            None => self.journal_body(&payload, &meta).await?,
        };
        self.mark_landed(object).await;
        let appended = self.append(order, object, request, Change::Put { about }, body).await?;
        let meta = Arc::new(ObjectMeta { version: appended.version, ..meta });
        self.note(request, object, mode, meta.version, Becomes::Put(Arc::clone(&meta)), true);
        if !appended.repeated {
            self.wrote(object, meta.version, mode, Becomes::Put(Arc::clone(&meta)), below, room).await;
            self.unmark(object).await;
            order.placed(meta.version, false);
        }
        // Who repeats a request is promised the same: the first may have been refused, or still wait.
        self.acknowledge(object, mode, meta.version).await?;
        Ok(Placed { meta, repeated: appended.repeated })
    }

    /// Takes note of what became of a request that has a name.
    fn note(
        &self,
        request: Option<RequestId>,
        object: &ObjectId,
        mode: WriteMode,
        version: Version,
        becomes: Becomes,
        is_certain: bool,
    ) {
        if let Some(request) = request {
            let mut requests = self.requests.lock();
            let told = requests.get(request, object).is_some_and(|known| known.version == version && known.told);
            requests.note(request, object, Known { version, mode, becomes, is_certain, told });
        }
    }

    /// What became of a request that is made again, once what it was promised holds; None if it is to be carried out.
    ///
    /// # Errors
    /// `SlowDown` while the store does not have what was to go through to it.
    pub(crate) async fn repeated(
        &self,
        object: &ObjectId,
        request: Option<RequestId>,
    ) -> Result<Option<Known>, ObjectError> {
        let Some(request) = request else { return Ok(None) };
        let Some(known) = self.requests.lock().get(request, object).cloned() else { return Ok(None) };
        if !known.is_certain {
            // Sent to the store, without an answer: it carries its version.
            let is_there = self.store.head(object).await.is_ok_and(|meta| meta.version == known.version);
            if !is_there {
                return Ok(None);
            }
        }
        self.acknowledge(object, known.mode, known.version).await?;
        Ok(Some(known))
    }

    /// Those who want to hear of the change that `request` made have.
    pub(crate) fn told(&self, object: &ObjectId, request: Option<RequestId>) {
        if let Some(request) = request
            && let Some(known) = self.requests.lock().get_mut(request, object)
        {
            known.told = true;
        }
    }

    /// Does what `mode` asks for beyond the journal.
    async fn acknowledge(&self, object: &ObjectId, mode: WriteMode, version: Version) -> Result<(), ObjectError> {
        match mode {
            WriteMode::Through => self.flushed(object, version).await,
            WriteMode::Ephemeral | WriteMode::Lazy | WriteMode::Shadow => Ok(()),
        }
    }

    /// The bytes of a payload as the ledger takes them.
    async fn journal_body(&self, payload: &Payload, meta: &ObjectMeta) -> Result<LedgerBody, ObjectError> {
        let pieces = crate::store::payload_pieces(payload, meta)?;
        if meta.size <= INLINE_MAX_BYTES as u64 {
            let mut whole = Vec::with_capacity(meta.size as usize);
            pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
            return Ok(LedgerBody::Inline(whole.into()));
        }
        let mut staged = Vec::new();
        for mut piece in pieces {
            while !piece.is_empty() {
                let part = piece.split_to(piece.len().min(nigh_engine::PIECE_MAX_BYTES));
                staged.push(self.ledger.stage(SHARD, part).await?);
            }
        }
        Ok(LedgerBody::Staged(staged))
    }

    /// A write that the store has takes its place: the newest, whatever came to stand while it was on its way.
    fn place_stored(&self, order: &dyn Order) -> Version {
        order.asking();
        let version = self.ledger.place(SHARD);
        order.placed(version, true);
        version
    }

    async fn append(
        &self,
        order: &dyn Order,
        object: &ObjectId,
        request: Option<RequestId>,
        change: Change,
        body: LedgerBody,
    ) -> Result<Appended, ObjectError> {
        let ObjectId { namespace, bucket, key } = object.clone();
        let request = request.unwrap_or_else(|| RequestId(uuid::Uuid::new_v4().as_u128()));
        order.asking();
        let appended = self.ledger.append(SHARD, Record { request, namespace, bucket, key, change }, body).await;
        match &appended {
            Ok(appended) if !appended.repeated => {}
            Ok(_) => order.refused(false),
            Err(error) => order.refused(matches!(error, LedgerError::Failed(_))),
        }
        if matches!(appended, Err(LedgerError::Full)) {
            self.dirty.lock().want_all(self.clock.monotonic());
            self.work.notify_one();
        }
        Ok(appended?)
    }

    /// Takes note of a write that is durable.
    async fn wrote(
        &self,
        object: &ObjectId,
        version: Version,
        mode: WriteMode,
        becomes: Becomes,
        below: Below,
        room: Room<'_>,
    ) {
        let now = self.clock.monotonic();
        let settled = {
            let mut dirty = self.dirty.lock();
            room.taken(&mut dirty);
            dirty.write(object, version, mode, becomes, below, now)
        };
        self.let_go(object, settled).await;
        self.work.notify_one();
    }

    /// Deletes the object, by `mode`.
    ///
    /// # Errors
    /// As of a put.
    pub(crate) async fn delete(
        &self,
        object: &ObjectId,
        mode: WriteMode,
        request: Option<RequestId>,
        order: &dyn Order,
        below: Option<Below>,
    ) -> Result<Appended, ObjectError> {
        self.ledger.check()?;
        let _inside = self.enter(object).await?;
        let waits = self.dirty.lock().get(object).is_some();
        // In a shared bucket a deletion is late only if a write of the object is.
        let through = mode == WriteMode::Through || self.is_shared(object);
        if through && !waits {
            self.settle(object).await?;
            let base = below.map_or(Base::Unknown, |below| below.base);
            self.delete_from(object, &base).await?;
            let version = self.place_stored(order);
            self.note(request, object, WriteMode::Through, version, Becomes::Gone, true);
            return Ok(Appended { version, repeated: false });
        }
        let mode = if through { WriteMode::Through } else { mode.max(WriteMode::Lazy) };
        let room = self.wait_for_room(object, 0).await?;
        let below = self.below(object, below).await?;
        let about = about::encode(mode, None, &below).map_err(|reason| unkept(object, &reason))?;
        let body = LedgerBody::Inline(Bytes::new());
        self.mark_landed(object).await;
        let appended = self.append(order, object, request, Change::Delete { about }, body).await?;
        self.note(request, object, mode, appended.version, Becomes::Gone, true);
        if !appended.repeated {
            self.wrote(object, appended.version, mode, Becomes::Gone, below, room).await;
            self.unmark(object).await;
            order.placed(appended.version, false);
        }
        self.acknowledge(object, mode, appended.version).await?;
        Ok(appended)
    }

    /// Replaces the object's tags. One that waits is written anew with them.
    ///
    /// # Errors
    /// `NoSuchKey`, or as of a put.
    pub(crate) async fn put_tags(&self, object: &ObjectId, tags: &Tags, order: &dyn Order) -> Result<(), ObjectError> {
        self.ledger.check()?;
        let _inside = self.enter(object).await?;
        if self.retag(object, tags, order)? {
            return Ok(());
        }
        let waiting = match self.waiting_put(object)? {
            Some((meta, mode)) => self.read_waiting(object, &meta).await?.map(|bytes| (meta, mode, bytes)),
            None => None,
        };
        let Some((meta, mode, bytes)) = waiting else {
            self.settle(object).await?;
            self.store.put_tags(object, tags).await?;
            self.place_stored(order);
            return Ok(());
        };
        let meta = ObjectMeta { tags: tags.clone(), ..ObjectMeta::clone(&meta) };
        let payload = Payload::Segment(crate::Segment::copy_of(&bytes)?);
        let (below, past_journal) = (None, false);
        let write = Write { object, meta, payload, staged: None, mode, request: None, order, below, past_journal };
        self.put_journal(write).await?;
        Ok(())
    }

    /// What waits of an object: what is known of it and how it was acknowledged; `None` if nothing waits.
    fn waiting_put(&self, object: &ObjectId) -> Result<Option<(Arc<ObjectMeta>, WriteMode)>, ObjectError> {
        match self.dirty.lock().get(object) {
            None => Ok(None),
            Some(Unpushed { becomes: Becomes::Gone, .. }) => Err(ObjectError::NoSuchKey(object.key.clone())),
            Some(Unpushed { mode: WriteMode::Ephemeral, .. }) => Err(ObjectError::EphemeralLost(object.key.clone())),
            Some(Unpushed { becomes: Becomes::Lost, .. }) => Err(ObjectError::Damaged(object.key.clone())),
            Some(Unpushed { becomes: Becomes::Put(meta), mode, .. }) => Ok(Some((Arc::clone(meta), *mode))),
        }
    }

    /// The bytes of a write that waits; `None` if it waits no longer: the store has it or a newer one.
    async fn read_waiting(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<Option<Bytes>, ObjectError> {
        let mut pieces: Vec<Bytes> = Vec::new();
        let mut read = 0;
        while read < meta.size {
            let piece = match self.ledger.read(SHARD, meta.version, read).await {
                Err(LedgerError::Unknown(_)) => return Ok(None),
                other => other?,
            };
            if piece.is_empty() {
                let reason = format!("its body in the journal ends at {read} of {} bytes", meta.size);
                return Err(unkept(object, &reason));
            }
            read += piece.len() as u64;
            pieces.push(piece);
        }
        let mut pieces = pieces.into_iter();
        Ok(Some(match (pieces.next(), pieces.next()) {
            (None, _) => Bytes::new(),
            (Some(one), None) => one,
            (Some(first), Some(second)) => {
                let mut whole = Vec::with_capacity(meta.size as usize);
                [first, second].into_iter().chain(pieces).for_each(|piece| whole.extend_from_slice(&piece));
                whole.into()
            }
        }))
    }

    /// What is known of the object as it is now.
    ///
    /// # Errors
    /// `NoSuchKey`, `EphemeralLost`, or the store's.
    pub(crate) async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        if let Some((meta, _)) = self.held(object) {
            return Ok(ObjectMeta::clone(&meta));
        }
        match self.waiting_put(object)? {
            Some((meta, _)) => Ok(ObjectMeta::clone(&meta)),
            None => self.store.head(object).await,
        }
    }

    /// The object's bytes in `range`, all of one version; if `pinned` names another, `PreconditionFailed`.
    ///
    /// # Errors
    /// `NoSuchKey`, `EphemeralLost`, the ledger's, or the store's.
    pub(crate) async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        if let Some((meta, segment)) = self.held(object) {
            check_pin(&meta, pinned)?;
            let bytes = segment.slice(range.unwrap_or(0..meta.size)).into_bytes();
            return Ok((ObjectMeta::clone(&meta), futures::stream::iter([Ok(bytes)]).boxed()));
        }
        for _ in 0..READ_ATTEMPTS {
            let Some((meta, _)) = self.waiting_put(object)? else {
                return self.store.get(object, range, pinned).await;
            };
            check_pin(&meta, pinned)?;
            if let Some(bytes) = self.read_waiting(object, &meta).await? {
                let within = |at: u64| usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len()));
                let wanted = range.map_or(0..bytes.len(), |range| within(range.start)..within(range.end));
                let bytes = bytes.slice(wanted);
                return Ok((ObjectMeta::clone(&meta), futures::stream::iter([Ok(bytes)]).boxed()));
            }
        }
        Err(ObjectError::SlowDown("the object changes faster than it can be read"))
    }

    /// Up to `limit` objects whose key begins with `prefix` and sorts behind `after`, in the order of the keys' bytes;
    /// what waits among them.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn list(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ObjectError> {
        let (mut listed, mut after) = (Vec::new(), after.map(str::to_owned));
        loop {
            let waiting = self.waiting(namespace, bucket, prefix, after.as_deref(), limit);
            let entries = self.store.list(namespace, bucket, prefix, after.as_deref(), limit).await?;
            let more = entries.len() >= limit;
            let Merged { listed: part, next } = merge(Side { entries, more }, waiting);
            listed.extend(part);
            let Some(next) = next.filter(|_| listed.len() < limit) else { break };
            after = Some(next.as_str().to_owned());
        }
        listed.truncate(limit);
        Ok(listed)
    }

    fn waiting(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Side<(nigh_terms::ObjectKey, Option<Listed>)> {
        let dirty = self.dirty.lock();
        let mut keys = dirty.keys(namespace, bucket, prefix, after);
        let shown = |becomes: &Becomes, key: &nigh_terms::ObjectKey| match becomes {
            Becomes::Gone | Becomes::Lost => None,
            Becomes::Put(meta) => {
                Some(Listed { key: key.clone(), size: meta.size, etag: meta.etag.clone(), modified: meta.modified })
            }
        };
        let entries = keys.by_ref().take(limit).map(|(key, waits)| (key.clone(), shown(&waits.becomes, key))).collect();
        Side { entries, more: keys.next().is_some() }
    }

    /// Removes an empty bucket.
    ///
    /// # Errors
    /// `BucketNotEmpty`, also for what only waits; the store's.
    pub(crate) async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        // Nobody writes into it from here on; who comes later finds that it is gone.
        let _alone = self.buckets.alone(namespace, bucket).await;
        loop {
            let first = {
                let dirty = self.dirty.lock();
                let mut keys = dirty.keys(namespace, bucket, "", None);
                keys.next().map(|(key, newest)| (key.clone(), newest.clone()))
            };
            let Some((key, newest)) = first else { break };
            let is_nothing = match newest.becomes {
                Becomes::Gone => true,
                Becomes::Put(_) => false,
                // An acknowledged write that is damaged is its writer's to give up; an ephemeral one never lasts.
                Becomes::Lost => newest.mode == WriteMode::Ephemeral,
            };
            if !is_nothing {
                return Err(ObjectError::BucketNotEmpty(bucket.clone()));
            }
            let object = ObjectId { namespace: namespace.clone(), bucket: bucket.clone(), key };
            self.flush(&object).await?;
            // Only what cannot come back may be forgotten with its bucket.
            let settled = self.dirty.lock().drop_newest(&object, newest.version);
            self.let_go(&object, settled).await;
            self.unmark(&object).await;
        }
        self.store.delete_bucket(namespace, bucket).await?;
        self.buckets.removed(namespace, bucket);
        if let Some(policies) = &self.policies
            && policies.of(namespace, bucket).is_some()
        {
            policies.set(namespace, bucket, None).await?;
        }
        Ok(())
    }

    /// Waits until a write of `bytes` may wait too: it has that room then.
    async fn wait_for_room(&self, object: &ObjectId, bytes: u64) -> Result<Room<'_>, ObjectError> {
        let promised = || self.dirty.lock().promise(object, bytes);
        if !promised() {
            self.dirty.lock().want_all(self.clock.monotonic());
            self.work.notify_one();
            self.until(self.settings.wait, promised, "the store has not taken what was written before").await?;
        }
        Ok(Room { back: self, bytes: Some(bytes) })
    }

    /// Sees to it that nothing of the object is pushed from now on: the store has what waited. What an earlier push
    /// without an answer may still do is the doubt of whoever writes next.
    /// It says what the store holds then, as far as it is known.
    async fn hand_over(&self, object: &ObjectId) -> Result<Option<Base>, ObjectError> {
        let left = {
            let dirty = self.dirty.lock();
            dirty.get(object).filter(|newest| newest.is_pushed_at_last()).map(|newest| newest.becomes.leaves())
        };
        self.flush(object).await?;
        let is_idle = || self.dirty.lock().is_idle(object);
        self.until(self.settings.wait, is_idle, "the store has not taken what was written before").await?;
        self.drop_where(object, Unpushed::is_pushed_at_last).await;
        Ok(left)
    }

    /// Drops what waits of an object, if it is as `fits` says.
    async fn drop_where(&self, object: &ObjectId, fits: impl Fn(&Unpushed) -> bool) {
        let settled = {
            let mut dirty = self.dirty.lock();
            let version = dirty.get(object).filter(|newest| fits(newest)).map(|newest| newest.version);
            version.map(|version| dirty.drop_newest(object, version)).unwrap_or_default()
        };
        self.let_go(object, settled).await;
    }

    /// The right to write into the bucket of `object`, if the store has that.
    async fn enter(&self, object: &ObjectId) -> Result<Inside, ObjectError> {
        let ObjectId { namespace, bucket, .. } = object;
        let inside = self.buckets.enter(namespace, bucket).await;
        if !self.buckets.is_there(namespace, bucket) {
            self.store.head_bucket(namespace, bucket).await?;
            self.buckets.found(namespace, bucket);
        }
        Ok(inside)
    }

    /// Refuses a bucket that is not there, as far as is known: a write looks again when it is its turn.
    ///
    /// # Errors
    /// `NoSuchBucket`, or the store's.
    pub(crate) async fn find_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        if !self.buckets.is_there(namespace, bucket) {
            let _inside = self.buckets.enter(namespace, bucket).await;
            self.store.head_bucket(namespace, bucket).await?;
            self.buckets.found(namespace, bucket);
        }
        Ok(())
    }

    /// Waits, bounded, until `holds`; it is looked at after each end of a push.
    async fn until(
        &self,
        within: Duration,
        holds: impl Fn() -> bool,
        why_not: &'static str,
    ) -> Result<(), ObjectError> {
        let mut pushes = self.pushes.subscribe();
        let waited = tokio::time::timeout(within, async {
            while !holds() {
                if pushes.changed().await.is_err() {
                    break;
                }
            }
        });
        waited.await.map_err(|_| ObjectError::SlowDown(why_not))
    }

    /// Waits until the store has, or has had, all of the object that was acknowledged.
    ///
    /// # Errors
    /// `SlowDown` if it takes longer than a write may wait.
    pub(crate) async fn flush(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let newest = self.dirty.lock().get(object).cloned();
        match newest {
            None | Some(Unpushed { mode: WriteMode::Ephemeral, .. } | Unpushed { becomes: Becomes::Lost, .. }) => {
                Ok(())
            }
            Some(Unpushed { version, .. }) => self.flushed(object, version).await,
        }
    }

    /// Waits, for so long, until the store has all that was acknowledged so far.
    ///
    /// # Errors
    /// `SlowDown` if it takes longer.
    pub(crate) async fn flush_all(&self, within: Duration) -> Result<(), ObjectError> {
        let waiting = {
            let mut dirty = self.dirty.lock();
            dirty.want_all(self.clock.monotonic());
            dirty.waiting()
        };
        self.work.notify_one();
        let all_had = || {
            let dirty = self.dirty.lock();
            waiting.iter().all(|(object, version)| dirty.has_had(object, *version))
        };
        self.until(within, all_had, "the store has not taken what was written before").await
    }

    async fn flushed(&self, object: &ObjectId, version: Version) -> Result<(), ObjectError> {
        self.dirty.lock().want(object);
        self.work.notify_one();
        let has_had = || self.dirty.lock().has_had(object, version);
        self.until(self.settings.wait, has_had, "the store has not taken the write yet").await
    }

    /// Tells the ledger which records may go. If it cannot be told they stay, and are pushed again after a restart, to
    /// the same effect.
    async fn let_go(&self, object: &ObjectId, settled: Vec<Version>) {
        if settled.is_empty() {
            return;
        }
        self.unsettled.lock().insert(object.clone());
        for version in settled {
            if let Err(error) = self.ledger.stored(SHARD, version).await {
                tracing::warn!(%object, %version, %error, "the ledger keeps the record of a write that is stored");
            }
        }
    }

    /// Makes sure that no older record of `object` comes back after a crash: the store is about to be written past the
    /// ledger.
    async fn settle(&self, object: &ObjectId) -> Result<(), ObjectError> {
        if !self.unsettled.lock().contains(object) {
            return Ok(());
        }
        self.settle_all().await
    }

    /// Makes durable what was let go.
    async fn settle_all(&self) -> Result<(), ObjectError> {
        let settling = std::mem::take(&mut *self.unsettled.lock());
        if settling.is_empty() {
            return Ok(());
        }
        let settled = self.ledger.settle(SHARD).await;
        if settled.is_err() {
            self.unsettled.lock().extend(settling);
        }
        Ok(settled?)
    }

    /// What waits.
    pub(crate) fn usage(&self) -> DirtyUsage {
        let usage = self.dirty.lock().usage(self.clock.monotonic());
        let missing = self.buckets.missing();
        let homeless = {
            let dirty = self.dirty.lock();
            missing.iter().map(|(namespace, bucket)| dirty.count(namespace, bucket)).sum()
        };
        DirtyUsage { conflicts: self.meter.conflicts(), homeless, ..usage }
    }
}

/// Room that a write was promised; free again when dropped.
struct Room<'a> {
    back: &'a WriteBack,
    bytes: Option<u64>,
}

impl Room<'_> {
    /// The write comes now, under the same lock.
    fn taken(mut self, dirty: &mut Dirty) {
        if let Some(bytes) = self.bytes.take() {
            dirty.release(bytes);
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.back.dirty.lock().release(bytes);
            // Others may wait for it.
            self.back.pushes.send_modify(|pushes| *pushes += 1);
        }
    }
}

fn unkept(object: &ObjectId, reason: &str) -> ObjectError {
    ObjectError::Memory { operation: "keep a write in the journal", reason: format!("{object}: {reason}") }
}
