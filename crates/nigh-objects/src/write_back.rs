//! Write-back: the journal of acknowledged writes, those that the store does not have yet, and the store.
//!
//! A write is durable by its mode (`policy`) before it is acknowledged: in the store, or in the ledger with the store
//! to follow (`persistor`). A read here sees every acknowledged write, in the journal or in the store. The memory
//! orders the writes of one object, one after the other (`memory/write_modes.rs`). `dirty` decides what is pushed when.

mod about;
mod bucket_calls;
mod buckets;
mod dirty;
mod ephemeral;
mod freshness;
mod merged_page;
mod modes;
mod notices;
mod persistor;
mod policy;
mod reads;
mod repeated;
mod requests;
mod room;
mod settling;
mod shadow;
mod shards;
mod shared_bucket;
mod transactions;
mod trims;
mod unpushed;
mod unsettled;
mod writes;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nigh_data::{ObjectError, ObjectId, ObjectMeta};
use nigh_engine::journal::RecoveredRecord;
use nigh_engine::{Change, Ledger, Record, Registry, RequestId, StagedPiece, WriteThrough};
use nigh_protocol::Member;
use nigh_stores::{Payload, Store};
use nigh_terms::{ByteSize, Clock, Epoch, Namespace, ShardId, Version};
use nigh_trace::ContextMap;
use tokio::sync::{Notify, watch};

pub(crate) use self::about::WriteOrigin;
use self::buckets::Buckets;
pub use self::dirty::{
    Base, DirtyLimits, DirtyUsage, NextPush, ObjectState, PossibleBases, Push, StoreState, TrimmableVersions,
    UnpushedWrite, WriteBackQueue,
};
use self::ephemeral::EphemeralObjects;
pub(crate) use self::ephemeral::{HandedOverObject, mark_of};
use self::freshness::LastSeen;
pub use self::freshness::{Freshness, ParseFreshnessError};
pub(crate) use self::merged_page::joined;
pub use self::merged_page::{PagePart, Side, merge, waiting};
pub(crate) use self::notices::NoticeKind;
use self::notices::Sending;
pub use self::notices::StoreChange;
pub(crate) use self::persistor::Copies;
pub use self::policy::{Access, BucketPolicy, EntityTag, ModeRule, ParseWriteModeError, PolicyError, WriteMode};
pub(crate) use self::reads::AskElsewhere;
pub(crate) use self::requests::RequestRecord;
use self::requests::Requests;
pub(crate) use self::room::Room;
pub use self::shadow::PushOutcome;
pub(crate) use self::shadow::{PlaceholderGuard, PlaceholderOutcome};
use self::shadow::{RefusedRequests, UnannouncedWrites};
pub(crate) use self::shards::{fenced, token_in, written_by};
use self::trims::Trims;
pub use self::unpushed::UnpushedObject;
use self::unsettled::UnconfirmedTrims;
use crate::bucket_documents::BucketDocuments;
use crate::doubts::LANDS_WITHIN;
use crate::meter::WriteBackMeter;
use crate::shards::Shards;
use crate::sync::Mutex;

/// The registry's table of buckets' policies.
const POLICIES: &str = "bucket-policies";
/// The most unpushed objects whose traces are remembered.
const TRACED_MAX: usize = 10_000;

/// The mode of writes for buckets without their own, and the limits of unpushed writes.
#[derive(Clone, Debug)]
pub struct WriteSettings {
    /// The node's mode.
    pub mode: WriteMode,
    /// The modes of namespaces that differ from the node's.
    pub modes: BTreeMap<Namespace, WriteMode>,
    /// The most bytes of unpushed writes.
    pub dirty_max: ByteSize,
    /// The most unpushed objects and deletions.
    pub dirty_objects_max: usize,
    /// How long a write waits for a newer one of its object before it is pushed.
    pub delay: Duration,
    /// The wait after the first failure of a push; it doubles up to `back_off_max`.
    pub back_off: Duration,
    /// The longest wait after a failure.
    pub back_off_max: Duration,
    /// The most pushes under way at a time.
    pub pushes_max: usize,
    /// How long a write waits for room, or for the push of an earlier one of its object, before its client must come
    /// back.
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

/// A write of an object.
pub(crate) struct Write<'a> {
    pub(crate) object: &'a ObjectId,
    /// The object's metadata. The ledger gives the version.
    pub(crate) meta: ObjectMeta,
    pub(crate) payload: Payload,
    /// The pieces of the bytes in the ledger; none if they did not go there while they were received.
    pub(crate) staged: Option<Vec<StagedPiece>>,
    pub(crate) mode: WriteMode,
    pub(crate) request: Option<RequestId>,
    /// In a bucket that is also written from outside: the state that the conditions were checked on, and everything
    /// that the write may replace.
    pub(crate) below: Option<PossibleBases>,
    /// True if the write is too large for the journal.
    pub(crate) past_journal: bool,
    /// The writer; none if homes do not move.
    pub(crate) by: Option<WriteOrigin>,
}

/// A write that is durable.
pub(crate) struct CommittedWrite {
    pub(crate) meta: Arc<ObjectMeta>,
    /// True if it was made before. This is the answer of then, and there may be newer writes.
    pub(crate) repeated: bool,
}

/// Everything behind the cache: journal, unpushed writes, store.
pub(crate) struct WriteBack {
    store: Arc<dyn Store>,
    ledger: Arc<dyn Ledger>,
    shards: Shards,
    clock: Arc<dyn Clock>,
    settings: WriteSettings,
    policies: Option<BucketDocuments<BucketPolicy>>,
    dirty: Mutex<WriteBackQueue>,
    /// The epoch of each home here, if homes move. Read and changed under the lock of `dirty`, whose writes are of
    /// these epochs.
    epochs: Mutex<BTreeMap<ShardId, Epoch>>,
    unsettled: Mutex<UnconfirmedTrims>,
    trims: Mutex<Trims>,
    /// This node, if homes move. Then only pushes write the store, because a former home may not know that it is one.
    member: Option<Member>,
    /// Writes in mode `shadow` of which nobody knows whether the store shows them.
    unannounced: Mutex<UnannouncedWrites>,
    refused: Mutex<RefusedRequests>,
    /// Objects whose placeholder is on its way to the store.
    announcing: Mutex<HashSet<ObjectId>>,
    sending: Sending,
    /// What the store was last seen to have, in buckets with a bound on the age of copies.
    seen: Mutex<LastSeen>,
    /// The number of pushes and placeholders that have ended.
    pushes: watch::Sender<u64>,
    /// Notified when there is something to push.
    work: Notify,
    buckets: Buckets,
    ephemeral: EphemeralObjects,
    requests: Mutex<Requests>,
    meter: WriteBackMeter,
    /// The traces of unpushed writes, by object.
    traced: ContextMap<ObjectId>,
}

/// What the memory needs for its writes.
pub struct Writes {
    /// Orders the writes, and makes them durable before the store has them.
    pub ledger: Arc<dyn Ledger>,
    /// The writes that an earlier incarnation has acknowledged and not pushed.
    pub recovered: Vec<RecoveredRecord>,
    /// The damaged ones of these: reads of their objects fail until they are written again.
    pub lost: Vec<RecoveredRecord>,
    /// The journal is damaged where nobody can say which writes it has lost.
    pub may_lack_writes: bool,
    /// The settings for buckets without their own.
    pub settings: WriteSettings,
    /// The registry with the policies of buckets; with none, buckets have no policies.
    pub registry: Option<Arc<dyn Registry>>,
}

impl Writes {
    /// Every write goes through to the store. `epoch` must be higher than in any earlier incarnation of the memory.
    #[must_use]
    pub fn through(epoch: Epoch) -> Self {
        let settings = WriteSettings { mode: WriteMode::Through, ..WriteSettings::default() };
        Self {
            ledger: Arc::new(WriteThrough::new(epoch)),
            recovered: Vec::new(),
            lost: Vec::new(),
            may_lack_writes: false,
            settings,
            registry: None,
        }
    }
}

impl WriteBack {
    /// Opens the write-back in front of `store`.
    ///
    /// # Errors
    /// Which record or policy cannot be read.
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        (member, shards): (Option<Member>, Shards),
        clock: Arc<dyn Clock>,
        writes: Writes,
    ) -> Result<Self, ObjectError> {
        let Writes { ledger, recovered, lost, may_lack_writes, settings, registry } = writes;
        let failed = |operation, reason| ObjectError::Memory { operation, reason };
        let policies = match registry {
            None => None,
            Some(registry) => {
                let opened = async {
                    let policies = BucketDocuments::open(registry, POLICIES, "write policies").await?;
                    if member.is_some() {
                        policies.follow().await?;
                    }
                    Ok::<_, nigh_engine::RegistryError>(policies)
                };
                Some(opened.await.map_err(|error| failed("read the write policies", error.to_string()))?)
            }
        };
        let buckets = Buckets::default();
        let (meter, pushes) = (WriteBackMeter::new(), watch::Sender::new(0));
        let dirty = Mutex::new(WriteBackQueue::new(settings.limits()));
        let (epochs, unsettled) = (Mutex::default(), Mutex::default());
        let (work, requests) = (Notify::new(), Mutex::default());
        let (unannounced, refused, announcing) = (Mutex::default(), Mutex::default(), Mutex::default());
        let back = Self {
            store,
            ledger,
            shards,
            clock,
            settings,
            policies,
            dirty,
            epochs,
            unsettled,
            trims: Mutex::default(),
            member,
            unannounced,
            refused,
            announcing,
            sending: Sending::default(),
            seen: Mutex::default(),
            pushes,
            work,
            buckets,
            ephemeral: EphemeralObjects::default(),
            requests,
            meter,
            traced: ContextMap::new(TRACED_MAX),
        };
        // Homes hand ephemeral objects over in clusters alone, where nothing is recovered here.
        let _handed_over = back.recover(recovered, lost, may_lack_writes)?;
        Ok(back)
    }

    /// The store, for calls about buckets.
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The newest unpushed write of `object` here.
    pub(crate) fn newest_waiting(&self, object: &ObjectId) -> Option<UnpushedWrite> {
        self.dirty.lock().get(object).cloned()
    }

    /// True if the newest write of `object` is only in memory.
    pub(crate) fn is_ephemeral(&self, object: &ObjectId) -> bool {
        self.dirty.lock().get(object).is_some_and(|newest| newest.mode == WriteMode::Ephemeral)
    }

    /// The copy of `object` that `version` wrote has left memory. If it was the only one, the object is lost.
    pub(crate) fn gone_from_memory(&self, object: &ObjectId, version: Version) {
        if self.dirty.lock().lost(object, version) {
            tracing::debug!(%object, %version, "an ephemeral object is lost: its memory was needed");
            // Wakes writes that wait for room.
            self.pushes.send_modify(|_| {});
        }
    }

    /// The unpushed writes, counted.
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

/// The `about` of a write's record: `meta` is the object's metadata, none for a deletion.
pub(crate) fn about_write(
    object: &ObjectId,
    mode: WriteMode,
    meta: Option<&ObjectMeta>,
    below: &PossibleBases,
    by: Option<WriteOrigin>,
) -> Result<Bytes, ObjectError> {
    about::encode(mode, meta, below, by).map_err(|reason| unkept(object, &reason))
}

/// The ledger's record of a change of `object`. A request without a name from its client gets a name here.
pub(crate) fn record_of(object: &ObjectId, request: Option<RequestId>, change: Change) -> Record {
    let ObjectId { namespace, bucket, key } = object.clone();
    let request = request.unwrap_or_else(|| RequestId(uuid::Uuid::new_v4().as_u128()));
    Record { request, namespace, bucket, key, change }
}

fn unkept(object: &ObjectId, reason: &str) -> ObjectError {
    ObjectError::Memory { operation: "keep a write in the journal", reason: format!("{object}: {reason}") }
}
