//! The node's memory at work: each sandbox's share of it, and the cache that shrinks for them.
//!
//! The shell around `memory::budget` (who has how much) and `memory::growth` (how far a sandbox grows). It writes limits and
//! resizes the cache in the order that holds the law: a limit is lowered before the budget counts it as lower, and raised
//! after it counts as higher; the cache shrinks before its bytes are granted. An invocation begins as soon as it has what
//! its sandbox uses and a headroom; the rest comes while it runs. Without it (`NodeMemory::off`) every sandbox is granted
//! what its hooks say, at first all that it booked, and the cache has a budget of its own.

mod cache;
mod limits;
mod share;
mod status;
mod threads;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nigh_schedule::memory::budget::{BudgetLimits, MemoryBudget};
use nigh_schedule::memory::growth::HEADROOM;
use nigh_schedule::prewarm::PREWARMED_MEMORY;
use nigh_terms::{ByteSize, Clock, SandboxId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout_at};

pub use self::cache::CacheMemory;
use self::limits::{LimitState, NodeMemoryState, WatchedSandbox};
pub(crate) use self::share::{BegunRun, MemoryShare};
pub use self::status::{MemoryStatus, SandboxShare};
use self::threads::{start_keeper, start_watch};
use crate::invocation::InvokeError;

/// What a new sandbox has until its first invocation begins: what the least of functions books, and a headroom.
const FIRST_GRANT: ByteSize = ByteSize(PREWARMED_MEMORY.bytes() + HEADROOM.bytes());
/// How long a new sandbox may wait for its first grant.
const FIRST_GRANT_WAIT: Duration = Duration::from_secs(5);
/// Idle sandboxes that may wait to be ended.
const ENDS_MAX: usize = 256;

/// What becomes of the memory of a frozen sandbox.
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
    /// Hold sandboxes to their grants also on cgroup v1, where a system call may fail at the limit. Else their limit there is
    /// what they booked, and the cache shrinks some milliseconds after a sandbox has used more than its grant.
    pub park: bool,
    /// What becomes of idle sandboxes' memory.
    pub idle: IdleMemory,
}

/// The node's memory. A clone is another handle to the same.
#[derive(Clone)]
pub struct NodeMemory(Option<Arc<NodeMemoryState>>);

impl NodeMemory {
    /// Nothing is shared out: sandboxes and cache have budgets of their own.
    #[must_use]
    pub const fn off() -> Self {
        Self(None)
    }

    /// Shares out the memory by `settings`; `cache` shrinks for sandboxes.
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
        let memory = Arc::downgrade(&inner);
        let is_quick = start_watch(Arc::clone(&inner.watch), move || Some(memory.upgrade()?.look_at_all()))?;
        // It is set here alone.
        let _first = inner.parks.set(settings.park && is_quick);
        let memory = Arc::downgrade(&inner);
        start_keeper(Arc::clone(&inner.keeper), move || Some(memory.upgrade()?.settle()))?;
        inner.keeper.ring();
        Ok(Self(Some(inner)))
    }

    /// True if sandboxes are held to their grants on cgroup v1 too.
    #[must_use]
    pub fn parks(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.parks())
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
                    "the node's memory is in use: a new sandbox lacks {missing} of its first {first}, and the cache could \
                     free nothing of its {held} within {} s; invoke again later",
                    FIRST_GRANT_WAIT.as_secs()
                )));
            }
        }
    }

    /// Memory for a pre-warmed sandbox, if it is free.
    pub(crate) fn hold_prewarmed(&self) -> Option<PrewarmedShare> {
        if let Some(inner) = &self.0 {
            let fits = inner.budget.lock().hold_prewarmed(PREWARMED_MEMORY);
            inner.keeper.ring();
            if !fits {
                return None;
            }
        }
        Some(PrewarmedShare(self.clone()))
    }

    /// The idle sandboxes that are to be ended so that others can grow, for the first caller.
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

/// The memory of a pre-warmed sandbox, until this is dropped.
pub(crate) struct PrewarmedShare(NodeMemory);

impl Drop for PrewarmedShare {
    fn drop(&mut self) {
        if let NodeMemory(Some(inner)) = &self.0 {
            inner.budget.lock().free_prewarmed(PREWARMED_MEMORY);
            inner.keeper.ring();
        }
    }
}
