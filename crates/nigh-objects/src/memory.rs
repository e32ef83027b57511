//! The object memory: the one way to objects, for both doors and the runtime.
//!
//! The shell around the decisions of the protocol (`coherence`) and of the cache: it authorises by `Principal`, orders the
//! writes of an object, moves bytes between callers, segments and what stands behind (`write_back`), and emits an event
//! for each data call. Here is what is asked of it; `reads`, `writes`, `copies` and `multipart` do it.

mod append_order;
pub(crate) mod cluster;
mod coherence;
mod copies;
mod fast;
mod foreign;
mod invocations;
mod machines;
mod multipart;
mod notify;
mod outside;
mod reads;
mod repeats;
mod shrink;
#[cfg(test)]
mod tests;
mod transactions;
mod write_ticket;
mod writes;

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nigh_data::account::{Account, segments_max};
use nigh_data::attributes::check_tags;
use nigh_data::listing::RollUp;
use nigh_data::segment::Segment;
use nigh_data::segment_cost::Cost;
use nigh_data::{
    BucketInfo, DataCall, ListPage, ListRequest, ObjectError, ObjectId, ObjectMeta, ObjectObserver, ServeOutcome, Tags,
    WriteConditions,
};
use nigh_protocol::{CacheLimits, HomeLimits, Member, NodeNumber};
use nigh_stores::Store;
use nigh_terms::{
    Admission, BucketName, ByteSize, Clock, Incarnation, Monotonic, Namespace, ObjectKey, Principal, ShardId, Token,
    Version,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::append_order::{AppendNumber, AppendOrder};
use self::cluster::{CopyUse, Frontiers, Holders, HomeUses, LeftCopy, Neighbours, Place, RemoteHomes};
use self::coherence::{Coherence, ShelfGuard};
pub use self::fast::{AbandonedSegment, OpenSegment, SealOutcome, SealedSegment, SegmentPut};
use self::machines::NewHome;
pub use self::notify::{NotificationTargets, Notifications, ReservedEvents, Writer};
pub use self::shrink::ShrinkResult;
pub use self::transactions::{CommittedTransaction, NewTransaction, TransactionName, WrittenObject};
use self::transactions::{Transactions, found_in, warn_of_lost};
use crate::cache::{DroppedCopies, OverheadCost, Shelf};
use crate::completed::CompletedUploads;
use crate::doubts::Doubts;
use crate::holdings::{HoldingsCursor, HoldingsPage};
use crate::kept::CachedCopy;
use crate::meter::Meter;
use crate::outside::{OutsideWrites, StoreNotice};
use crate::shards::Shards;
use crate::spool::{Spool, blocking};
use crate::sync::{Mutex, spawn};
use crate::uploads::Uploads;
use crate::write_back::{Copies, WriteBack, Writes};
use crate::write_order::WriteOrder;
use crate::{BucketPolicy, DirtyUsage, MemoryUsage, UnpushedObject};

/// Copies that are told of at a time, with the cache locked.
const HOLDINGS_AT_ONCE: u32 = 4096;

/// The limits of a memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// The bytes that all segments together may take.
    pub cache: ByteSize,
    /// Objects above this are not kept.
    pub cached_object: ByteSize,
    /// Objects above this are refused.
    pub object: ByteSize,
}

/// Coherent object memory. A clone is another handle to the same.
#[derive(Clone)]
pub struct ObjectMemory(Arc<ObjectMemoryState>);

struct ObjectMemoryState {
    back: Arc<WriteBack>,
    clock: Arc<dyn Clock>,
    observers: Arc<[Arc<dyn ObjectObserver>]>,
    limits: MemoryLimits,
    coherence: Coherence,
    /// Asked and changed under the lock of `coherence` or beside it, never around it.
    doubts: Mutex<Doubts>,
    /// As `doubts`.
    outside: Mutex<OutsideWrites>,
    /// What is being written here, and what was heard of it meanwhile. Around the cache's lock.
    writing: Mutex<HashMap<ObjectId, StoreNotice>>,
    account: Arc<Account>,
    order: WriteOrder,
    spool: Spool,
    uploads: Uploads,
    completed: Mutex<CompletedUploads>,
    meter: Arc<Meter>,
    /// The other processes of the cluster; none of a node alone.
    neighbours: Option<Arc<Neighbours>>,
    /// This life of this node, in a cluster.
    me: Option<Member>,
    /// Who holds what others gave up.
    holders: Holders,
    /// Where it goes what a shrink gives up, in a cluster.
    left: Option<mpsc::Sender<Vec<LeftCopy>>>,
    uses: HomeUses,
    transactions: Transactions,
    frontiers: OnceLock<Arc<dyn Frontiers>>,
    /// Absent where nobody is told of changes.
    notifications: OnceLock<Notifications>,
}

/// Room in the cache, until it is used or dropped.
struct Reservation {
    inner: Arc<ObjectMemoryState>,
    cost: Cost,
}

impl Reservation {
    /// The room, now the caller's to keep a copy in.
    fn take(mut self) -> Cost {
        std::mem::take(&mut self.cost)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.cost != Cost::default() {
            self.inner.shelf().release(self.cost);
        }
    }
}

/// Runs `work` to its end, also if the caller no longer waits: a client that hangs up leaves nothing half done.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ObjectError>> + Send + 'static,
) -> Result<T, ObjectError> {
    let ended = spawn(work).await;
    ended.unwrap_or_else(|error| Err(ObjectError::Memory { operation: "commit", reason: error.to_string() }))
}

impl ObjectMemoryState {
    fn begin(&self, who: &Principal, bucket: &BucketName, key: Option<&ObjectKey>) -> DataCall {
        DataCall::begin(Arc::clone(&self.observers), Arc::clone(&self.clock), who.clone(), bucket.clone(), key.cloned())
    }

    /// The copies in memory.
    fn shelf(&self) -> ShelfGuard<'_> {
        self.coherence.shelf()
    }

    fn now(&self) -> Monotonic {
        self.clock.monotonic()
    }

    /// Tells the meter what is kept now, and frees what left the cache, outside its lock.
    fn settle<T>(&self, dropped: Vec<T>) {
        let (kept, budget, orphans) = {
            let mut shelf = self.shelf();
            (shelf.kept(), shelf.budget(), shelf.take_orphans())
        };
        self.meter.holds(kept, budget);
        for (object, orphan) in orphans {
            self.back.gone_from_memory(&object, orphan.meta.unpack().version);
        }
        drop(dropped);
    }

    /// As `settle`, for what had to make room.
    fn evict(&self, dropped: DroppedCopies<CachedCopy>) {
        self.meter.evicted(dropped.len());
        self.settle(dropped);
    }

    /// What readers hold beyond the cache, and what goes by itself when copies go.
    fn beyond(&self, cache: &Shelf<CachedCopy>) -> OverheadCost {
        let slack = self.account.slack();
        let lingering = self.account.living().minus(slack).minus(cache.kept()).minus(cache.reserved());
        OverheadCost { lingering, slack }
    }

    /// Whether what is read with `admission` may be brought into memory now.
    fn admits(&self, admission: Admission) -> bool {
        match admission {
            Admission::Always => true,
            Admission::Spare => self.shelf().is_spare(),
            Admission::Never => false,
        }
    }

    /// Room for `cost`, if the cache can give it.
    fn reserve(self: &Arc<Self>, cost: Cost) -> Option<Reservation> {
        let (granted, dropped) = {
            let mut cache = self.shelf();
            let beyond = self.beyond(&cache);
            cache.reserve(cost, beyond)
        };
        if !dropped.is_empty() {
            self.evict(dropped);
        }
        granted.then(|| Reservation { inner: Arc::clone(self), cost })
    }

    /// Refuses a bucket that is not there.
    async fn find_bucket(&self, who: &Principal, bucket: &BucketName) -> Result<(), ObjectError> {
        self.back.find_bucket(&who.namespace, bucket).await
    }

    /// Where the bucket asks for it: drops the copy that the store has something else for.
    async fn revalidate(&self, object: &ObjectId) -> Result<(), ObjectError> {
        if !self.back.revalidates(object) {
            return Ok(());
        }
        let Some(kept) = self.shelf().peek(object).map(|kept| kept.meta.unpack()) else {
            return Ok(());
        };
        match self.back.head(object).await {
            Ok(meta) if meta.etag == kept.etag => {}
            Ok(_) | Err(ObjectError::NoSuchKey(_)) => self.forget(object, kept.version),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Somebody else has written an object in the store: a new version, of which nothing is kept.
    fn written_by_others(self: &Arc<Self>, object: &ObjectId) {
        if !self.coherence.is_home(self.coherence.shards.of(object)) {
            return self.outside_there(object);
        }
        self.written_by_others_here(object);
    }

    /// As `written_by_others`, of an object whose home is here.
    fn written_by_others_here(&self, object: &ObjectId) {
        let kept = self.shelf().peek(object).map(|kept| kept.meta.version());
        let only_copy = kept.filter(|_| self.back.is_ephemeral(object));
        let forgotten = self.coherence.outside(self.now(), object);
        if let Some(version) = only_copy {
            self.back.gone_from_memory(object, version);
        }
        self.settle(forgotten);
    }

    /// The object's metadata as it is now, shown to `who`.
    async fn current(self: &Arc<Self>, who: &Principal, object: &ObjectId) -> Result<Arc<ObjectMeta>, ObjectError> {
        let found = if who.invocation.is_none() && !self.coherence.is_alone() {
            self.current_from_outside(object).await
        } else {
            self.current_of(object).await
        };
        match &found {
            Ok(meta) => self.shows(who, object, meta),
            Err(_) => self.shows_newest(who),
        }
        found
    }

    /// The object's metadata as it is now.
    async fn current_of(self: &Arc<Self>, object: &ObjectId) -> Result<Arc<ObjectMeta>, ObjectError> {
        self.revalidate(object).await?;
        let mut attempts = 0;
        loop {
            let kept = self.shelf().peek(object).map(|kept| kept.meta.unpack());
            if let Some(meta) = kept
                && self.copies_are(object) == CopyUse::Shown
            {
                return Ok(meta);
            }
            attempts += 1;
            match self.look(object).await {
                // A write that has ended in between has put it back.
                Err(ObjectError::EphemeralLost(_)) if attempts < reads::EPHEMERAL_ATTEMPTS => {}
                other => return other,
            }
        }
    }

    /// The object's metadata as it is now, or that there is none.
    async fn current_if_any(self: &Arc<Self>, object: &ObjectId) -> Result<Option<Arc<ObjectMeta>>, ObjectError> {
        match self.current_of(object).await {
            Ok(meta) => Ok(Some(meta)),
            Err(ObjectError::NoSuchKey(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }
}

fn object(who: &Principal, bucket: &BucketName, key: &ObjectKey) -> ObjectId {
    ObjectId { namespace: who.namespace.clone(), bucket: bucket.clone(), key: key.clone() }
}

/// The machines of a node alone: it and the home of its one shard, under the journal's new epoch, which is its
/// incarnation too. Between the two nothing is lost: neither asks again.
fn alone(writes: &Writes, budget: Cost) -> Coherence {
    let (shard, ledger) = (ShardId(0), &writes.ledger);
    let epoch = ledger.epoch(shard);
    let me = Member { node: NodeNumber(0), incarnation: Incarnation(epoch.0) };
    let limits = CacheLimits { resend: Duration::MAX, ..CacheLimits::default() };
    let coherence = Coherence::open((me, Shards::ONE), Arc::clone(ledger), limits, budget, None);
    let records = writes.recovered.iter().chain(&writes.lost).cloned().collect();
    let new = NewHome { shard, epoch, records, decided: ledger.place(shard), summary: Token::empty() };
    // The node's limit holds for both.
    let limits = HomeLimits { puts_max: usize::MAX, ..HomeLimits::default() };
    // There is nothing yet that could be dropped.
    let _ = coherence.take(Monotonic::default(), new, limits);
    coherence
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
        let dropped = self.coherence.tick(self.now());
        self.settle(dropped);
    }
}

impl ObjectMemory {
    /// A memory in front of `store`. Unfinished uploads found in the spool live on, if they are not a week old.
    ///
    /// The spool is the store's own if it has one, so that a spooled file can be renamed into the store, and
    /// `spool` else. One memory at a time may use it. The metrics recorder is to be installed before.
    ///
    /// What `writes` has recovered is visible at once; it is pushed by `persist`.
    ///
    /// # Errors
    /// If the spool or the journal cannot be used, or the kernel makes no memfd.
    pub async fn open(
        store: Arc<dyn Store>,
        writes: Writes,
        clock: Arc<dyn Clock>,
        observers: Vec<Arc<dyn ObjectObserver>>,
        spool: PathBuf,
        limits: MemoryLimits,
    ) -> Result<Self, ObjectError> {
        Self::open_at(None, store, writes, clock, observers, spool, limits).await
    }

    /// As `open`, of a member of a cluster: homes come by `take_home`, and what has its home elsewhere is asked for there.
    /// `writes` has the ledger of the homes to come, and has recovered nothing.
    ///
    /// # Errors
    /// As `open`.
    pub async fn open_in_cluster(
        place: Place,
        store: Arc<dyn Store>,
        writes: Writes,
        clock: Arc<dyn Clock>,
        observers: Vec<Arc<dyn ObjectObserver>>,
        spool: PathBuf,
        limits: MemoryLimits,
    ) -> Result<Self, ObjectError> {
        Self::open_at(Some(place), store, writes, clock, observers, spool, limits).await
    }

    async fn open_at(
        place: Option<Place>,
        store: Arc<dyn Store>,
        writes: Writes,
        clock: Arc<dyn Clock>,
        observers: Vec<Arc<dyn ObjectObserver>>,
        spool: PathBuf,
        limits: MemoryLimits,
    ) -> Result<Self, ObjectError> {
        // Of a cluster's store others have the same.
        let own = store.spool().filter(|_| place.is_none());
        let folder = own.map_or(spool, Path::to_path_buf);
        let uploads = folder.join("uploads");
        let uploads = blocking(move || Uploads::open(uploads)).await?;
        let spool = Spool::open(folder.join("bodies")).await?;
        let meter = Arc::new(Meter::new());
        let mut all: Vec<Arc<dyn ObjectObserver>> = vec![Arc::clone(&meter) as Arc<dyn ObjectObserver>];
        all.extend(observers);
        let mut writes = writes;
        let transactions = found_in(&mut writes.recovered)?;
        warn_of_lost(&mut writes.lost);
        let budget = Cost { bytes: limits.cache.bytes(), segments: segments_max() };
        meter.holds(Cost::default(), budget);
        let (member, neighbours, carried, coherence) = match place {
            None => (None, None, None, alone(&writes, budget)),
            Some(Place { me, shards, neighbours, events, coherence: compared }) => {
                let (happens, happened) = mpsc::unbounded_channel();
                let limits = cluster::limits().1;
                let ledger = Arc::clone(&writes.ledger);
                let coherence = Coherence::open((me, shards), ledger, limits, budget, Some(happens)).compared(compared);
                (Some(me), Some(Arc::clone(&neighbours)), Some((neighbours, happened, events)), coherence)
            }
        };
        let left = carried.as_ref().map(|_| mpsc::channel(cluster::SHRINKS_WAITING));
        let back = Arc::new(WriteBack::open(store, (member, coherence.shards), Arc::clone(&clock), writes).await?);
        let inner = Arc::new(ObjectMemoryState {
            back,
            clock,
            observers: all.into(),
            limits,
            coherence,
            doubts: Mutex::default(),
            outside: Mutex::default(),
            writing: Mutex::default(),
            account: Account::open()?,
            order: WriteOrder::default(),
            spool,
            uploads,
            completed: Mutex::default(),
            meter,
            neighbours,
            me: member,
            holders: Holders::default(),
            left: left.as_ref().map(|(left, _)| left.clone()),
            uses: HomeUses::default(),
            transactions: Transactions::default(),
            frontiers: OnceLock::new(),
            notifications: OnceLock::new(),
        });
        if let Some((neighbours, happened, events)) = carried {
            spawn(cluster::carry_all(Arc::downgrade(&inner), neighbours, happened, events));
            if let Some((_, left)) = left {
                spawn(cluster::hand_over_all(Arc::downgrade(&inner), left));
            }
            spawn(cluster::tick(Arc::downgrade(&inner)));
        }
        if inner.coherence.is_alone() {
            inner.find_transactions(ShardId(0), transactions).await?;
            inner.resume_transactions(ShardId(0));
        }
        inner.abandon_uploads().await;
        Ok(Self(inner))
    }

    /// What the memory holds and has done.
    #[must_use]
    pub fn usage(&self) -> MemoryUsage {
        let (kept, reserved, budget, objects) = {
            let cache = self.0.shelf();
            (cache.kept(), cache.reserved(), cache.budget(), cache.copies())
        };
        self.0.meter.usage(MemoryUsage {
            budget: ByteSize(budget.bytes),
            kept: ByteSize(kept.bytes),
            reserved: ByteSize(reserved.bytes),
            living: ByteSize(self.0.account.living().bytes),
            objects: objects as u64,
            segments: kept.segments,
            segments_max: budget.segments,
            ..MemoryUsage::default()
        })
    }

    /// What one who stands at `cursor` is to be told of the copies here: a page at a time, so that nobody waits long.
    #[must_use]
    pub fn holdings(&self, cursor: HoldingsCursor) -> HoldingsPage {
        self.0.shelf().holdings(cursor, HOLDINGS_AT_ONCE)
    }

    /// What was acknowledged and is not in the store.
    #[must_use]
    pub fn dirty(&self) -> DirtyUsage {
        self.0.back.usage()
    }

    /// Pushes into the store what was acknowledged before it was there, until `stop`. To be run once, as long as the
    /// memory lives; what waits when it ends is in the journal.
    pub async fn persist(self, stop: CancellationToken) {
        let copies = Arc::clone(&self.0) as Arc<dyn Copies>;
        Arc::clone(&self.0.back).persist(copies, stop).await;
    }

    /// Waits until the store has what was acknowledged of an object.
    ///
    /// # Errors
    /// `SlowDown` if it takes longer than a write may wait.
    pub async fn flush(&self, who: &Principal, bucket: &BucketName, key: &ObjectKey) -> Result<(), ObjectError> {
        self.0.back.flush(&object(who, bucket, key)).await
    }

    /// Waits, for so long, until the store has all that was acknowledged so far.
    ///
    /// # Errors
    /// `SlowDown` if it takes longer; what is left waits on.
    pub async fn flush_all(&self, within: Duration) -> Result<(), ObjectError> {
        self.0.back.flush_all(within).await
    }

    /// Up to `limit` objects and deletions of a namespace that the store does not have, by name; of one bucket if that
    /// is named, and of keys that begin with `prefix`.
    /// Ephemeral ones are not among them.
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

    /// Gives up a write that was acknowledged, if it is still the newest of its object and is not being pushed. For
    /// operators, where it can never be pushed.
    pub async fn drop_unpushed(&self, object: &ObjectId, version: Version) -> bool {
        let dropped = self.0.back.drop_unpushed(object, version).await;
        if dropped {
            self.0.forget(object, version);
        }
        dropped
    }

    /// Somebody else has written an object, or may have: the next read asks the store.
    pub fn invalidate(&self, who: &Principal, bucket: &BucketName, key: &ObjectKey) {
        self.0.written_by_others(&object(who, bucket, key));
    }

    /// How a bucket's writes are kept.
    ///
    /// # Errors
    /// `NoSuchBucket`, or the store's.
    pub async fn bucket_policy(&self, who: &Principal, bucket: &BucketName) -> Result<BucketPolicy, ObjectError> {
        self.head_bucket(who, bucket).await?;
        Ok(self.0.back.bucket_policy(&who.namespace, bucket))
    }

    /// Replaces how a bucket's writes are kept; the default removes it. Writes acknowledged before stay as they are.
    ///
    /// # Errors
    /// `NoSuchBucket`; `InvalidArgument` for a policy that contradicts itself or that the store cannot keep.
    pub async fn set_bucket_policy(
        &self,
        who: &Principal,
        bucket: &BucketName,
        policy: BucketPolicy,
    ) -> Result<(), ObjectError> {
        self.head_bucket(who, bucket).await?;
        self.0.back.set_bucket_policy(&who.namespace, bucket, policy).await
    }

    /// Changes the bytes that segments may take. Copies beyond a lower budget are dropped before this returns;
    /// what readers hold of them is freed when they let go.
    pub fn set_cache_budget(&self, bytes: ByteSize) {
        let dropped = {
            let mut cache = self.0.shelf();
            let budget = Cost { bytes: bytes.bytes(), ..cache.budget() };
            let beyond = self.0.beyond(&cache);
            cache.set_budget(budget, beyond)
        };
        self.0.evict(dropped);
    }

    /// Makes a bucket.
    ///
    /// # Errors
    /// `BucketAlreadyOwnedByYou`, or the store's.
    pub async fn create_bucket(&self, who: &Principal, bucket: &BucketName) -> Result<(), ObjectError> {
        let mut call = self.0.begin(who, bucket, None);
        self.0.back.create_bucket(&who.namespace, bucket).await?;
        call.succeeded(ServeOutcome::Metadata, None, Token::empty());
        Ok(())
    }

    /// Removes an empty bucket, and its unfinished uploads.
    ///
    /// # Errors
    /// `NoSuchBucket`, `BucketNotEmpty`, or the store's.
    pub async fn delete_bucket(&self, who: &Principal, bucket: &BucketName) -> Result<(), ObjectError> {
        let mut call = self.0.begin(who, bucket, None);
        self.0.check_empty_elsewhere(&who.namespace, bucket).await?;
        self.0.back.delete_bucket(&who.namespace, bucket).await?;
        self.0.forget_notifications(&who.namespace, bucket).await;
        self.0.completed.lock().forget(&who.namespace, bucket);
        for upload in self.0.uploads.list(&who.namespace, bucket, "") {
            self.0.end_upload(upload).await?;
        }
        call.succeeded(ServeOutcome::Delete, None, Token::empty());
        Ok(())
    }

    /// What is known of a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, or the store's.
    pub async fn head_bucket(&self, who: &Principal, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        let mut call = self.0.begin(who, bucket, None);
        let info = self.0.back.head_bucket(&who.namespace, bucket).await?;
        call.succeeded(ServeOutcome::Metadata, None, Token::empty());
        Ok(info)
    }

    /// The namespace's buckets. It names no bucket, so it emits no event.
    ///
    /// # Errors
    /// The store's.
    pub async fn list_buckets(&self, who: &Principal) -> Result<Vec<BucketInfo>, ObjectError> {
        self.0.back.list_buckets(&who.namespace).await
    }

    /// What is in memory of an object, and its bytes if they are, for whoever looks at it beside its readers: nobody is
    /// told, nothing is counted, and no copy becomes more recent by it.
    #[must_use]
    pub fn peek(&self, object: &ObjectId) -> Option<(Arc<ObjectMeta>, Option<Segment>)> {
        let (meta, segment) = {
            let shelf = self.0.shelf();
            let kept = shelf.peek(object)?;
            (kept.meta.clone(), kept.segment.clone())
        };
        Some((meta.unpack(), segment))
    }

    /// Lists a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, or the store's.
    pub async fn list(
        &self,
        who: &Principal,
        bucket: &BucketName,
        request: ListRequest,
    ) -> Result<ListPage, ObjectError> {
        let mut call = self.0.begin(who, bucket, None);
        let prefix = request.prefix.clone();
        for _ in 0..reads::READ_RETRIES_MAX {
            let (mut roll_up, mut question) = RollUp::begin(request.clone());
            if question.is_none() {
                self.0.back.head_bucket(&who.namespace, bucket).await?;
            }
            let elsewhere = RemoteHomes::new(&self.0, (&who.namespace, bucket), &prefix);
            while let Some(asked) = question {
                let (after, back) = (asked.after.as_deref(), &self.0.back);
                let listed = back.list(&who.namespace, bucket, &prefix, after, asked.limit, &elsewhere).await?;
                question = roll_up.answer(listed);
            }
            if elsewhere.until_covered().await? {
                self.0.shows_newest(who);
                call.succeeded(ServeOutcome::Metadata, None, Token::empty());
                return Ok(roll_up.page());
            }
        }
        Err(ObjectError::SlowDown("the homes of the bucket's objects move faster than it can be listed"))
    }

    /// An object's tags.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, or the store's.
    pub async fn get_tags(&self, who: &Principal, bucket: &BucketName, key: &ObjectKey) -> Result<Tags, ObjectError> {
        let mut call = self.0.begin(who, bucket, Some(key));
        let meta = self.0.current(who, &object(who, bucket, key)).await?;
        call.succeeded(ServeOutcome::Metadata, Some(meta.version), meta.token.clone());
        Ok(meta.tags.clone())
    }

    /// Replaces an object's tags; none removes them. The object has a new version then, and the same bytes.
    ///
    /// # Errors
    /// `InvalidTag`, `NoSuchBucket`, `NoSuchKey`, or the store's.
    pub async fn put_tags(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        tags: Tags,
    ) -> Result<(), ObjectError> {
        let call = self.0.begin_write(who, bucket, key);
        check_tags(&tags)?;
        to_the_end(Arc::clone(&self.0).write_tags(call, object(who, bucket, key), tags)).await
    }
}
