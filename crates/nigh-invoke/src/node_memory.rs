//! The node's memory at work: each sandbox's share of it, and the cache that gives way.
//!
//! The shell around `memory_budget` (who has how much) and `memory_growth` (how far a sandbox grows): it writes limits,
//! resizes the cache, and keeps both in the order that holds the law. A limit is lowered before the books say so, and
//! raised after; the cache gives way before its bytes are granted. An invocation begins as soon as it has what it uses
//! and a headroom; the rest comes while it runs. What threads do is in `memory_threads`. Without it (`NodeMemory::off`)
//! every sandbox is granted what its hooks say, at first all that it booked, and the cache has a budget of its own.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use nigh_objects::ObjectMemory;
use nigh_sandbox::booked_memory::BookedMemory;
use nigh_sandbox::sandbox::Sandbox;
use nigh_schedule::grant::{Grant, SandboxMemoryError};
use nigh_schedule::memory_budget::{BudgetLimits, Command, MemoryBudget};
use nigh_schedule::memory_growth::{HEADROOM, MemoryReading, growth, limit_for, look_again};
use nigh_schedule::memory_value::{CacheDemand, CacheMeter};
use nigh_schedule::prewarm::STEM_MEMORY;
use nigh_terms::{ByteSize, Clock, SandboxId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::invocation::InvokeError;
use crate::memory_threads::{Bell, start_keeper, start_watch};

/// What a new sandbox has until its first invocation begins: what the least of functions books, and a headroom.
const FIRST_GRANT: ByteSize = ByteSize(STEM_MEMORY.bytes() + HEADROOM.bytes());
/// What an idle sandbox keeps above what it uses: it stands still, and wakes up before it is granted more.
const IDLE_MARGIN: ByteSize = ByteSize::mib(4);
/// How long a new sandbox may wait for its first grant.
const FIRST_GRANT_WAIT: Duration = Duration::from_secs(5);
/// How long an invocation may wait for more than its sandbox uses; then it begins, and grows when there is room.
const BEGIN_WAIT: Duration = Duration::from_secs(2);
/// Idle sandboxes that may wait to be ended.
const ENDS_MAX: usize = 256;

/// The memory of the cache, as the budget resizes it.
pub trait CacheMemory: Send + Sync {
    /// What it takes now. Costs next to nothing.
    fn takes(&self) -> ByteSize;
    /// What has been asked of it since the start.
    fn demand(&self) -> CacheDemand;
    /// It may take more from now on.
    fn may_take(&self, budget: ByteSize);
    /// It may take less from now on; what it can free at once is free when this returns. Blocks for milliseconds.
    fn give_way(&self, budget: ByteSize);
}

impl CacheMemory for ObjectMemory {
    fn takes(&self) -> ByteSize {
        self.living()
    }

    fn demand(&self) -> CacheDemand {
        let usage = self.usage();
        CacheDemand { misses: usage.misses, miss_bytes: usage.miss_bytes, evictions: usage.evictions }
    }

    fn may_take(&self, budget: ByteSize) {
        self.set_cache_budget(budget);
    }

    fn give_way(&self, budget: ByteSize) {
        let _what_it_did = Self::give_way(self, budget);
    }
}

/// What becomes of the memory of a sandbox that stands still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdleMemory {
    /// It stays.
    #[default]
    Keep,
    /// The kernel takes back what it can: pages of files, and all where there is swap.
    Reclaim,
}

/// How a node shares out its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMemorySettings {
    /// What is shared out.
    pub limits: BudgetLimits,
    /// Hold sandboxes to their grants where a system call may fail for it (cgroup v1). Else they are held to what they
    /// booked there, and what one takes beyond its grant is the cache's some milliseconds later.
    pub park: bool,
    /// What becomes of idle sandboxes' memory.
    pub idle: IdleMemory,
}

/// How a node's memory is shared out, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// What sandboxes may book together.
    pub booked: ByteSize,
    /// The cache's own part beside that. `granted + cache_takes <= booked + cache_own`, always.
    pub cache_own: ByteSize,
    /// What the sandboxes' limits come to, prewarmed ones included.
    pub granted: ByteSize,
    /// What the cache may take now.
    pub cache: ByteSize,
    /// What it takes.
    pub cache_takes: ByteSize,
    /// What is to be kept free for grants that are raised.
    pub slack: ByteSize,
    /// What is free now.
    pub room: ByteSize,
    /// The most that was granted within one second, of the last windows of a minute.
    pub churn: ByteSize,
    /// Since the start: limits raised for sandboxes that came near theirs,
    pub grown: u64,
    /// bytes that the cache has given way by,
    pub yielded: ByteSize,
    /// limits that the kernel did not lower,
    pub refused: u64,
    /// idle sandboxes ended so that others could grow,
    pub idle_ended: u64,
    /// invocations that were ended for want of memory,
    pub killed: u64,
    /// invocations that were run again because their limit was below what they booked,
    pub retried: u64,
    /// times that the cache got more,
    pub scale_up: u64,
    /// and times that it had to give way.
    pub scale_down: u64,
}

/// The node's memory. A clone is another handle to the same.
#[derive(Clone)]
pub struct NodeMemory(Option<Arc<NodeMemoryState>>);

pub(crate) struct NodeMemoryState {
    settings: NodeMemorySettings,
    /// Sandboxes are held to their grants wherever the kernel can do it.
    parks: OnceLock<bool>,
    budget: Mutex<MemoryBudget<SandboxId>>,
    meter: Mutex<CacheMeter>,
    sandboxes: Mutex<HashMap<SandboxId, Arc<WatchedSandbox>>>,
    cache: Arc<dyn CacheMemory>,
    clock: Arc<dyn Clock>,
    keeper: Arc<Bell>,
    watch: Arc<Bell>,
    /// Told each time the keeper has done its work.
    changed: Notify,
    ends: mpsc::Sender<SandboxId>,
    /// Until somebody takes it who ends them.
    to_end: Mutex<Option<mpsc::Receiver<SandboxId>>>,
    killed: AtomicU64,
    retried: AtomicU64,
}

/// One sandbox, as its limit is set.
struct WatchedSandbox {
    id: SandboxId,
    booked: ByteSize,
    /// Set when it runs.
    running: OnceLock<(Weak<dyn Sandbox>, Arc<BookedMemory>)>,
    /// It is being made or may use memory: it is looked at.
    is_busy: AtomicBool,
    /// Held while its limit changes, around the budget's lock.
    held: Mutex<LimitState>,
}

struct LimitState {
    limit: ByteSize,
    /// What it has asked for and is to get.
    coming: Option<ByteSize>,
    /// The kernel holds it to `limit`; else to what it booked.
    is_held: bool,
    /// How often it has grown since its run began.
    grown: u32,
    /// How often it had come to its limit when that was looked at last; and since its run began, below what it booked.
    hits: u64,
    hits_below: u64,
}

/// What an invocation begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BegunRun {
    /// What it is granted: what was asked for, or more where the kernel would not take it back.
    pub(crate) granted: ByteSize,
    /// How long it took to set it.
    pub(crate) step: Duration,
    /// How long it waited for the cache beside that.
    pub(crate) waited: Duration,
}

/// How a run stands before it begins.
struct Beginning {
    /// The limit.
    limit: ByteSize,
    /// It may begin with this.
    least: ByteSize,
    /// What is in use.
    used: ByteSize,
}

/// How an invocation's memory behaved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedRun {
    /// How often its limit was raised.
    pub(crate) grown: u32,
    /// It came to a limit below what it booked: what failed may have failed for that.
    pub(crate) came_short: bool,
}

impl NodeMemory {
    /// Nothing is shared out: sandboxes and cache have budgets of their own.
    #[must_use]
    pub const fn off() -> Self {
        Self(None)
    }

    /// Shares out the memory by `settings`, with `cache` as what gives way.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn open(settings: NodeMemorySettings, cache: Arc<dyn CacheMemory>, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let (ends, to_end) = mpsc::channel(ENDS_MAX);
        let inner = Arc::new(NodeMemoryState {
            settings,
            parks: OnceLock::new(),
            budget: Mutex::new(MemoryBudget::new(settings.limits)),
            meter: Mutex::default(),
            sandboxes: Mutex::default(),
            cache,
            clock,
            keeper: Arc::default(),
            watch: Arc::default(),
            changed: Notify::new(),
            ends,
            to_end: Mutex::new(Some(to_end)),
            killed: AtomicU64::new(0),
            retried: AtomicU64::new(0),
        });
        let is_quick = start_watch(Arc::downgrade(&inner), Arc::clone(&inner.watch))?;
        // Nothing was asked for before.
        let _first = inner.parks.set(settings.park && is_quick);
        start_keeper(Arc::downgrade(&inner), Arc::clone(&inner.keeper))?;
        inner.keeper.ring();
        Ok(Self(Some(inner)))
    }

    /// True if sandboxes are held to their grants on cgroup v1 too.
    #[must_use]
    pub fn parks(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.parks())
    }

    /// How it is shared out; nothing where it is not.
    #[must_use]
    pub fn status(&self) -> Option<MemoryStatus> {
        let inner = self.0.as_ref()?;
        let (used, cache_takes) = {
            // Together: the cache gets more under this lock alone.
            let budget = inner.budget.lock();
            (budget.in_use(), inner.cache.takes())
        };
        let BudgetLimits { bookable, cache_own, .. } = inner.settings.limits;
        Some(MemoryStatus {
            booked: bookable,
            cache_own,
            granted: used.granted,
            cache: used.cache,
            cache_takes,
            slack: used.slack,
            room: used.room,
            churn: used.churn,
            grown: used.counts.grown,
            yielded: used.counts.yielded,
            refused: used.counts.refused,
            idle_ended: used.counts.idle_ended,
            killed: inner.killed.load(Ordering::Relaxed),
            retried: inner.retried.load(Ordering::Relaxed),
            scale_up: used.counts.scale_up,
            scale_down: used.counts.scale_down,
        })
    }

    /// The share of a sandbox that is to be made, with its first grant.
    pub(crate) async fn admit(&self, id: SandboxId, booked: ByteSize) -> Result<MemoryShare, InvokeError> {
        let first = if self.0.is_some() { booked.min(FIRST_GRANT) } else { booked };
        let held = LimitState { limit: first, coming: None, is_held: true, grown: 0, hits: 0, hits_below: 0 };
        let one = WatchedSandbox {
            id,
            booked,
            running: OnceLock::new(),
            is_busy: AtomicBool::new(true),
            held: Mutex::new(held),
        };
        let share = MemoryShare { inner: self.0.clone(), one: Arc::new(one) };
        let Some(inner) = &self.0 else { return Ok(share) };
        inner.budget.lock().admit(id, booked, inner.clock.monotonic());
        let until = Instant::now() + FIRST_GRANT_WAIT;
        loop {
            let changed = inner.changed.notified();
            let missing = inner.budget.lock().raise(id, first, first, inner.clock.monotonic()).missing;
            inner.keeper.ring();
            if missing == ByteSize::ZERO {
                return Ok(share);
            }
            if timeout_at(until, changed).await.is_err() {
                let held = inner.cache.takes();
                return Err(InvokeError::TooManyRequests(format!(
                    "the node's memory is in use: a new sandbox lacks {missing} of its first {first}, and of the cache's \
                     {held} none could be given back in {} s",
                    FIRST_GRANT_WAIT.as_secs()
                )));
            }
        }
    }

    /// Memory for a prewarmed sandbox, if it is free.
    pub(crate) fn hold_stem(&self) -> Option<StemShare> {
        if let Some(inner) = &self.0 {
            let fits = inner.budget.lock().hold_stem(STEM_MEMORY);
            inner.keeper.ring();
            if !fits {
                return None;
            }
        }
        Some(StemShare(self.clone()))
    }

    /// Tells of the idle sandboxes that are to be ended so that others can grow. Whoever asks first has it.
    pub(crate) fn take_ends(&self) -> Option<mpsc::Receiver<SandboxId>> {
        self.0.as_ref()?.to_end.lock().take()
    }

    /// An invocation was ended for want of memory.
    pub(crate) fn killed(&self) {
        if let Some(inner) = &self.0 {
            inner.killed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An invocation is run again because its limit was below what it booked.
    pub(crate) fn retried(&self) {
        if let Some(inner) = &self.0 {
            inner.retried.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The memory of a prewarmed sandbox, until it is dropped.
pub(crate) struct StemShare(NodeMemory);

impl Drop for StemShare {
    fn drop(&mut self) {
        if let NodeMemory(Some(inner)) = &self.0 {
            inner.budget.lock().free_stem(STEM_MEMORY);
            inner.keeper.ring();
        }
    }
}

/// The share of one sandbox, until it is released or dropped.
pub(crate) struct MemoryShare {
    inner: Option<Arc<NodeMemoryState>>,
    one: Arc<WatchedSandbox>,
}

impl MemoryShare {
    /// What the sandbox is to begin with.
    pub(crate) fn first(&self) -> Grant {
        let full = Grant::full(self.one.booked);
        match &self.inner {
            // Elsewhere it is held to its grant when it is known that the kernel can do it.
            Some(inner) if inner.parks() => Grant { memory: self.one.held.lock().limit, ..full },
            _ => full,
        }
    }

    /// The sandbox has begun with `first`.
    pub(crate) fn attach(&self, sandbox: &Arc<dyn Sandbox>, booked: Arc<BookedMemory>) {
        // It is attached once.
        let _first = self.one.running.set((Arc::downgrade(sandbox), booked));
        let Some(inner) = &self.inner else { return };
        inner.sandboxes.lock().insert(self.one.id, Arc::clone(&self.one));
        let memory = sandbox.memory();
        {
            let mut held = self.one.held.lock();
            held.is_held = inner.parks() || !memory.fails_at_limit();
            if !held.is_held {
                inner.watch.ring_if_asleep();
                return;
            }
            let limit = held.limit;
            inner.set(&self.one, &mut held, limit);
        }
        let (inner_of, one_of) = (Arc::downgrade(inner), Arc::downgrade(&self.one));
        let notice = move |used| {
            if let (Some(inner), Some(one)) = (inner_of.upgrade(), one_of.upgrade()) {
                inner.look_at(&one, used);
            }
        };
        match memory.on_pressure(Box::new(notice)) {
            Ok(()) | Err(SandboxMemoryError::NotControlled(_)) => {}
            Err(error) => {
                tracing::warn!(%error, sandbox = %self.one.id, "a sandbox at its limit is not heard of at once");
            }
        }
        inner.watch.ring_if_asleep();
    }

    /// It took `cold` until the sandbox was ready.
    pub(crate) fn was_made(&self, cold: Duration) {
        if let Some(inner) = &self.inner {
            inner.budget.lock().was_made(self.one.id, cold);
        }
    }

    /// An invocation is to run with `grant`: sets it, and waits for the cache only if it had too little to begin.
    pub(crate) async fn begin_run(&self, grant: Grant) -> BegunRun {
        let Some(inner) = &self.inner else {
            let granted = self.one.running.get().map_or(grant.memory, |(_, booked)| booked.grant(grant));
            return BegunRun { granted, step: Duration::ZERO, waited: Duration::ZERO };
        };
        let began = inner.clock.monotonic();
        let Beginning { mut limit, least, used } = inner.begin(&self.one, grant);
        let step = inner.clock.monotonic().since(began);
        let until = Instant::now() + BEGIN_WAIT;
        while limit < least {
            let changed = inner.changed.notified();
            limit = self.one.held.lock().limit;
            if limit >= least || timeout_at(until, changed).await.is_err() {
                break;
            }
        }
        let waited = inner.clock.monotonic().since(began).saturating_sub(step);
        // What it uses already is granted too.
        BegunRun { granted: grant.memory.max(used).min(grant.booked), step, waited }
    }

    /// An invocation that may come soon is thought to begin with `grant`: so much is kept for it, as far as it is free, or the
    /// cache's. What that comes to with what the sandbox uses already. `begin_run` or `unprepare` follows.
    pub(crate) fn prepare(&self, grant: Grant) -> ByteSize {
        let Some(inner) = &self.inner else { return grant.memory };
        let used = self.one.sandbox().and_then(|sandbox| sandbox.memory().used().ok());
        let wanted = used.map_or(self.one.booked, |used| limit_for(grant, used));
        let mut held = self.one.held.lock();
        let limit = inner.budget.lock().prepare(self.one.id, wanted, inner.clock.monotonic());
        if limit > held.limit {
            inner.set(&self.one, &mut held, limit);
        }
        inner.keeper.ring();
        wanted
    }

    /// The invocation has not come: what was kept for it is the cache's again.
    pub(crate) fn unprepare(&self) {
        let Some(inner) = &self.inner else { return };
        let mut held = self.one.held.lock();
        {
            let mut budget = inner.budget.lock();
            if budget.prepared(self.one.id) == ByteSize::ZERO {
                return;
            }
            budget.unprepare(self.one.id);
        }
        if let Some(Ok(used)) = self.one.sandbox().map(|sandbox| sandbox.memory().used()) {
            let keeps = (used + IDLE_MARGIN).min(held.limit);
            inner.set(&self.one, &mut held, keeps);
        }
        inner.keeper.ring();
    }

    /// The invocation has ended: how its memory behaved.
    pub(crate) fn end_run(&self) -> EndedRun {
        let Some(inner) = &self.inner else { return EndedRun::default() };
        let mut held = self.one.held.lock();
        inner.count_hits(&self.one, &mut held);
        EndedRun { grown: held.grown, came_short: held.hits_below > 0 }
    }

    /// The sandbox stands still: it keeps what it uses, which is what this returns; all that it booked where that cannot be
    /// told. Blocks where idle memory is to be reclaimed.
    pub(crate) fn rest(&self) -> ByteSize {
        let booked = self.one.booked;
        let Some(sandbox) = self.one.sandbox() else { return booked };
        let memory = sandbox.memory();
        let Some(inner) = &self.inner else {
            return memory.used().map_or(booked, |used| (used + IDLE_MARGIN).min(booked));
        };
        if inner.settings.idle == IdleMemory::Reclaim
            && let Err(error) = memory.reclaim()
        {
            tracing::debug!(%error, sandbox = %self.one.id, "an idle sandbox keeps its memory");
        }
        // From here on nobody looks at it: lowering a limit may take its time.
        self.one.is_busy.store(false, Ordering::Release);
        let mut keeps = booked;
        // Who cannot be counted cannot be held to less than it booked.
        if let Ok(used) = memory.used() {
            let mut held = self.one.held.lock();
            let ahead = inner.budget.lock().prepared(self.one.id);
            let limit = (used + IDLE_MARGIN).max(ahead).min(held.limit);
            inner.set(&self.one, &mut held, limit);
            held.coming = None;
            keeps = held.limit.min(booked);
        }
        inner.budget.lock().idle(self.one.id, inner.clock.monotonic());
        inner.keeper.ring();
        keeps
    }

    /// True if resting blocks.
    pub(crate) fn reclaims(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.settings.idle == IdleMemory::Reclaim)
    }

    /// Nothing is left of the sandbox.
    pub(crate) fn release(&self) {
        if let Some(inner) = &self.inner {
            inner.sandboxes.lock().remove(&self.one.id);
            inner.budget.lock().gone(self.one.id);
            inner.keeper.ring();
        }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.release();
    }
}

impl WatchedSandbox {
    fn sandbox(&self) -> Option<Arc<dyn Sandbox>> {
        self.running.get().and_then(|(sandbox, _)| sandbox.upgrade())
    }
}

impl NodeMemoryState {
    fn parks(&self) -> bool {
        self.parks.get().copied().unwrap_or(false)
    }

    /// Sets the limit of a sandbox, and tells the books where it stands.
    fn set(&self, one: &WatchedSandbox, held: &mut LimitState, limit: ByteSize) {
        let lowers = limit < held.limit;
        let stands = match one.running.get() {
            Some((_, booked)) if held.is_held => booked.grant(Grant { memory: limit, booked: one.booked }),
            _ => limit,
        };
        held.limit = stands;
        if lowers || stands != limit {
            self.budget.lock().stands(one.id, stands, lowers && stands != limit);
        }
    }

    /// Grants a run what it is to have.
    fn begin(&self, one: &WatchedSandbox, grant: Grant) -> Beginning {
        let used = one.sandbox().and_then(|sandbox| sandbox.memory().used().ok());
        // Who cannot be counted cannot be held to less than it booked.
        let wanted = used.map_or(one.booked, |used| limit_for(grant, used));
        let least = used.map_or(ByteSize::ZERO, |used| (used + HEADROOM).min(wanted));
        let mut held = one.held.lock();
        self.count_hits(one, &mut held);
        (held.grown, held.hits_below) = (0, 0);
        one.is_busy.store(true, Ordering::Release);
        let raise = self.budget.lock().raise(one.id, wanted, ByteSize::ZERO, self.clock.monotonic());
        let is_missing = raise.missing > ByteSize::ZERO;
        held.coming = is_missing.then_some(wanted);
        let limit = if is_missing { raise.limit } else { wanted };
        if is_missing || limit != held.limit {
            self.set(one, &mut held, limit);
            self.keeper.ring();
        }
        if held.limit < one.booked {
            self.watch.ring_if_asleep();
        }
        Beginning { limit: held.limit, least, used: used.unwrap_or_default() }
    }

    /// Counts how often a sandbox came to its limit, if that is below what it booked.
    fn count_hits(&self, one: &WatchedSandbox, held: &mut LimitState) {
        if !held.is_held {
            return;
        }
        if let Some(Ok(hits)) = one.sandbox().map(|sandbox| sandbox.memory().limit_hits()) {
            if held.limit < one.booked {
                held.hits_below += hits.saturating_sub(held.hits);
            }
            held.hits = hits;
        }
    }

    /// Looks at all that run: has those grow that are near their limits. How long until the next look; none, if nobody can
    /// grow.
    pub(crate) fn look_at_all(&self) -> Option<Duration> {
        let running: Vec<Arc<WatchedSandbox>> = {
            let sandboxes = self.sandboxes.lock();
            sandboxes.values().filter(|one| one.is_busy.load(Ordering::Acquire)).map(Arc::clone).collect()
        };
        let looks = running.iter().filter_map(|one| {
            let used = one.sandbox()?.memory().used().ok()?;
            self.look_at(one, used)
        });
        looks.min()
    }

    /// Has a sandbox that uses `used` grow, if it is near its limit. When to look again; none, if it cannot grow.
    fn look_at(&self, one: &WatchedSandbox, used: ByteSize) -> Option<Duration> {
        let mut held = one.held.lock();
        if held.limit >= one.booked {
            return None;
        }
        if used + HEADROOM <= held.limit {
            return Some(look_again(held.limit.saturating_sub(used)));
        }
        let memory = one.sandbox()?;
        let memory = memory.memory();
        let need = used.saturating_sub(memory.page_cache().unwrap_or(ByteSize::ZERO));
        let seen = MemoryReading { need, limit: held.limit, booked: one.booked, grown: held.grown };
        if held.coming.is_some() {
            // The keeper is on it.
            self.keeper.ring();
        } else if let Some(to) = growth(&seen) {
            self.count_hits(one, &mut held);
            let raise = {
                let mut budget = self.budget.lock();
                budget.has_grown();
                budget.raise(one.id, to, ByteSize::ZERO, self.clock.monotonic())
            };
            held.grown += 1;
            if raise.limit > held.limit {
                self.set(one, &mut held, raise.limit);
            }
            if raise.missing > ByteSize::ZERO {
                held.coming = Some(to);
            }
            self.keeper.ring();
            tracing::debug!(sandbox = %one.id, %used, limit = %held.limit, "a sandbox grows");
        }
        Some(look_again(held.limit.saturating_sub(need)))
    }

    /// Does what the budget asks for until it asks for nothing. True if somebody still waits for memory.
    pub(crate) fn settle(&self) -> bool {
        loop {
            let takes = self.cache.takes();
            let (command, before) = {
                let mut budget = self.budget.lock();
                let before = budget.in_use().cache;
                (budget.next(takes, self.clock.monotonic()), before)
            };
            match command {
                Some(Command::Cache(room)) if room < before => {
                    self.cache.give_way(room);
                    self.budget.lock().cache_has(room, self.cache.takes());
                }
                Some(Command::Cache(room)) => self.cache.may_take(room),
                Some(Command::Limit(sandbox, _)) => self.apply(sandbox),
                Some(Command::End(sandbox, why)) => self.end(sandbox, why),
                None => break,
            }
        }
        let now = self.clock.monotonic();
        let worth = self.meter.lock().judge(self.cache.takes(), now, || self.cache.demand());
        if let Some(worth) = worth {
            let weighed = self.budget.lock().weigh(worth, now);
            if let Some(Command::End(sandbox, why)) = weighed {
                self.end(sandbox, why);
            }
        }
        self.changed.notify_waiters();
        let budget = self.budget.lock();
        let used = budget.in_use();
        for (what, bytes) in
            [("granted", used.granted), ("cache", used.cache), ("slack", used.slack), ("room", used.room)]
        {
            metrics::gauge!("nigh_memory_bytes", "part" => what).set(bytes.bytes() as f64);
        }
        metrics::counter!("nigh_memory_grown_total").absolute(used.counts.grown);
        metrics::counter!("nigh_memory_yielded_bytes_total").absolute(used.counts.yielded.bytes());
        metrics::counter!("nigh_memory_idle_ended_total").absolute(used.counts.idle_ended);
        budget.is_awaited()
    }

    /// Has an idle sandbox ended.
    fn end(&self, sandbox: SandboxId, why: &'static str) {
        tracing::info!(%sandbox, why, "an idle sandbox is ended");
        // One more than can wait is idle still, and is used or expires.
        let _full = self.ends.try_send(sandbox);
    }

    /// Sets the limit that a sandbox has been granted.
    fn apply(&self, sandbox: SandboxId) {
        let one = self.sandboxes.lock().get(&sandbox).cloned();
        let Some(one) = one else { return };
        let mut held = one.held.lock();
        let granted = self.budget.lock().granted_to(sandbox);
        if granted > held.limit {
            self.set(&one, &mut held, granted);
        }
        if held.coming.is_some_and(|coming| held.limit >= coming) {
            held.coming = None;
        }
    }
}
