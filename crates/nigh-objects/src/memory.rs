//! The object memory: every door and the runtime reach objects through it.
//!
//! The shell around the decisions of the protocol (`coherence`) and of the cache: it authorises by `Principal`, orders
//! the writes of an object, moves bytes between callers, segments and `write_back`, and emits an event for each data
//! call. This file reports on the memory; opening it, reads, writes, copies, buckets, tags and multipart uploads have a
//! file each.

mod append_order;
mod buckets;
pub(crate) mod cluster;
mod coherence;
mod copies;
mod current;
mod detached;
mod draft;
mod fast;
mod fetch;
mod foreign;
mod intake;
mod invocations;
mod machines;
mod multipart;
mod notify;
mod opening;
mod outside;
mod reads;
mod repeats;
mod room;
mod shrink;
mod tags;
#[cfg(test)]
mod tests;
mod transactions;
mod whereabouts;
mod write_modes;
mod write_ticket;
mod writes;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nigh_data::account::Account;
use nigh_data::segment::Segment;
use nigh_data::segment_cost::Cost;
use nigh_data::{DataCall, DataOperation, ObjectError, ObjectId, ObjectMeta, ObjectObserver};
use nigh_protocol::Member;
use nigh_terms::{BucketName, ByteSize, Clock, Monotonic, Namespace, ObjectKey, Principal, Version};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::append_order::{AppendNumber, AppendOrder};
use self::cluster::{Frontiers, Holders, HomeUses, LeftCopy, Neighbours};
use self::coherence::Coherence;
use self::detached::to_the_end;
pub use self::fast::{AbandonedSegment, OpenSegment, SealOutcome, SealedSegment, SegmentPut};
pub use self::notify::{NotificationTargets, Notifications, ReservedEvents, Writer};
pub use self::shrink::ShrinkResult;
use self::transactions::Transactions;
pub use self::transactions::{CommittedTransaction, NewTransaction, TransactionName, WrittenObject};
pub use self::whereabouts::{CachedVersion, KnownCopies, Whereabouts};
use crate::completed::CompletedUploads;
use crate::doubts::Doubts;
use crate::holdings::{HoldingsCursor, HoldingsPage};
use crate::meter::Meter;
use crate::outside::{OutsideWrites, StoreNotice};
use crate::spool::Spool;
use crate::sync::Mutex;
use crate::uploads::Uploads;
use crate::write_back::{Copies, WriteBack};
use crate::write_order::WriteOrder;
use crate::{DirtyUsage, MemoryUsage, UnpushedObject};

/// The copies in one page of holdings, for which the cache is locked.
const HOLDINGS_AT_ONCE: u32 = 4096;

/// The limits of a memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// The most bytes of all segments together.
    pub cache: ByteSize,
    /// Larger objects are not cached.
    pub cached_object: ByteSize,
    /// Larger objects are refused.
    pub object: ByteSize,
}

/// The coherent object memory. A clone is another handle to the same memory.
#[derive(Clone)]
pub struct ObjectMemory(Arc<ObjectMemoryState>);

struct ObjectMemoryState {
    back: Arc<WriteBack>,
    clock: Arc<dyn Clock>,
    observers: Arc<[Arc<dyn ObjectObserver>]>,
    limits: MemoryLimits,
    coherence: Coherence,
    /// Locked inside the lock of `coherence` or without it, never around it.
    doubts: Mutex<Doubts>,
    /// The outside writes of objects whose homes are here. Locked like `doubts`.
    outside: Mutex<OutsideWrites>,
    /// The outside writes that the store has announced to this node of a cluster, to be announced to each next home.
    announced: Mutex<OutsideWrites>,
    /// The objects that are being written here, and the store's notice about each meanwhile. Locked around the cache's
    /// lock.
    writing: Mutex<HashMap<ObjectId, StoreNotice>>,
    account: Arc<Account>,
    order: WriteOrder,
    spool: Spool,
    uploads: Uploads,
    completed: Mutex<CompletedUploads>,
    meter: Arc<Meter>,
    /// The other processes of the cluster; none if the node is alone.
    neighbours: Option<Arc<Neighbours>>,
    /// This incarnation of the node; none if the node is alone.
    me: Option<Member>,
    /// The holders of objects that other nodes have evicted.
    holders: Holders,
    /// Receives the copies that a shrink drops; none if the node is alone.
    left: Option<mpsc::Sender<Vec<LeftCopy>>>,
    uses: HomeUses,
    transactions: Transactions,
    frontiers: OnceLock<Arc<dyn Frontiers>>,
    /// Not set if no function is notified of changes.
    notifications: OnceLock<Notifications>,
}

impl ObjectMemoryState {
    fn begin(
        &self,
        who: &Principal,
        operation: DataOperation,
        bucket: &BucketName,
        key: Option<&ObjectKey>,
    ) -> DataCall {
        let (observers, clock) = (Arc::clone(&self.observers), Arc::clone(&self.clock));
        DataCall::begin(observers, clock, who.clone(), operation, bucket.clone(), key.cloned())
    }

    fn now(&self) -> Monotonic {
        self.clock.monotonic()
    }

    /// Refuses a bucket that does not exist.
    async fn find_bucket(&self, who: &Principal, bucket: &BucketName) -> Result<(), ObjectError> {
        self.back.find_bucket(&who.namespace, bucket).await
    }
}

fn object(who: &Principal, bucket: &BucketName, key: &ObjectKey) -> ObjectId {
    ObjectId { namespace: who.namespace.clone(), bucket: bucket.clone(), key: key.clone() }
}

impl Copies for ObjectMemoryState {
    fn copy_of(&self, object: &ObjectId, version: Version) -> Option<Segment> {
        let shelf = self.shelf();
        let kept = shelf.peek(object).filter(|kept| kept.meta.version() == version)?;
        kept.segment.clone()
    }

    fn forget(&self, object: &ObjectId, version: Version) {
        if self.shelf().peek(object).is_none_or(|kept| kept.meta.version() <= version) {
            self.written_by_others_here(object);
        }
    }

    fn pushed(&self, object: &ObjectId, version: Version) {
        let dropped = self.coherence.pushed(self.now(), object, version);
        self.settle(dropped);
    }

    fn tick(&self) {
        let now = self.now();
        let dropped = self.coherence.tick(now);
        self.settle(dropped);
        self.account.look_at_pool(now);
        self.meter.pools(self.account.pooled(), self.account.pool_counts());
    }
}

impl ObjectMemory {
    /// What the memory holds, and counts since it was opened.
    #[must_use]
    pub fn usage(&self) -> MemoryUsage {
        let (kept, reserved, budget, objects) = {
            let cache = self.0.shelf();
            (cache.kept(), cache.reserved(), cache.budget(), cache.copies())
        };
        let pool = self.0.account.pool_counts();
        self.0.meter.usage(MemoryUsage {
            budget: ByteSize(budget.bytes),
            kept: ByteSize(kept.bytes),
            reserved: ByteSize(reserved.bytes),
            living: ByteSize(self.0.account.living().bytes),
            pooled: ByteSize(self.0.account.pooled().bytes),
            segments_pooled: pool.pooled,
            segments_made: pool.made,
            objects: objects as u64,
            segments: kept.segments,
            segments_max: budget.segments,
            ..MemoryUsage::default()
        })
    }

    /// The changes of the copies here since `cursor`, a page at a time, so that readers do not wait long for the cache.
    #[must_use]
    pub fn holdings(&self, cursor: HoldingsCursor) -> HoldingsPage {
        self.0.shelf().holdings(cursor, HOLDINGS_AT_ONCE)
    }

    /// The unpushed writes, counted.
    #[must_use]
    pub fn dirty(&self) -> DirtyUsage {
        self.0.back.usage()
    }

    /// Pushes unpushed writes into the store until `stop`. Run it once, as long as the memory lives. The journal has
    /// the writes that are unpushed at the end.
    pub async fn persist(self, stop: CancellationToken) {
        let copies = Arc::clone(&self.0) as Arc<dyn Copies>;
        Arc::clone(&self.0.back).persist(copies, stop).await;
    }

    /// Waits until the store has every acknowledged write of an object.
    ///
    /// # Errors
    /// `SlowDown` if it takes longer than a write may wait.
    pub async fn flush(&self, who: &Principal, bucket: &BucketName, key: &ObjectKey) -> Result<(), ObjectError> {
        self.0.back.flush(&object(who, bucket, key)).await
    }

    /// Waits until the store has every write acknowledged so far, at most `within`.
    ///
    /// # Errors
    /// `SlowDown` if it takes longer; the remaining writes stay unpushed.
    pub async fn flush_all(&self, within: Duration) -> Result<(), ObjectError> {
        self.0.back.flush_all(within).await
    }

    /// Up to `limit` unpushed objects and deletions of a namespace, by name; of `bucket` if it is given, and of keys
    /// that begin with `prefix`. Ephemeral objects are not included.
    #[must_use]
    pub fn unpushed(
        &self,
        namespace: &Namespace,
        bucket: Option<&BucketName>,
        prefix: &str,
        limit: usize,
    ) -> Vec<UnpushedObject> {
        self.0.back.unpushed(namespace, bucket, prefix, limit)
    }

    /// Drops an unpushed write, if it is the newest of its object and is not being pushed. For operators, when the
    /// write can never be pushed.
    pub async fn drop_unpushed(&self, object: &ObjectId, version: Version) -> bool {
        let dropped = self.0.back.drop_unpushed(object, version).await;
        if dropped {
            self.0.forget(object, version);
        }
        dropped
    }

    /// A write from outside may have changed an object: the next read asks the store.
    pub fn invalidate(&self, who: &Principal, bucket: &BucketName, key: &ObjectKey) {
        self.0.written_by_others(&object(who, bucket, key));
    }

    /// Changes the bytes that segments may take. Free pages and then copies beyond a lower budget are dropped before
    /// this returns; bytes that readers hold of them are freed when the readers release them.
    pub fn set_cache_budget(&self, bytes: ByteSize) {
        let (freed, dropped) = {
            let mut cache = self.0.shelf();
            let budget = Cost { bytes: bytes.bytes(), ..cache.budget() };
            let freed = self.0.account.set_pool_limit(budget);
            let beyond = self.0.beyond(&cache);
            (freed, cache.set_budget(budget, beyond))
        };
        drop(freed);
        self.0.evict(dropped);
    }

    /// The metadata of an object's cached copy, and its bytes if they are in memory. This is no read: it emits no
    /// event, counts nothing, and does not make the copy more recent.
    #[must_use]
    pub fn peek(&self, object: &ObjectId) -> Option<(Arc<ObjectMeta>, Option<Segment>)> {
        let (meta, segment) = {
            let shelf = self.0.shelf();
            let kept = shelf.peek(object)?;
            (kept.meta.clone(), kept.segment.clone())
        };
        Some((meta.unpack(), segment))
    }
}
