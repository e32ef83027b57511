//! Sets what the budget decides: limits of sandboxes, and the size of the cache.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use nigh_sandbox::booked_memory::BookedMemory;
use nigh_sandbox::sandbox::Sandbox;
use nigh_schedule::memory::budget::{Command, MemoryBudget};
use nigh_schedule::memory::grant::Grant;
use nigh_schedule::memory::growth::{HEADROOM, MemoryReading, growth, limit_for, look_again};
use nigh_schedule::memory::value::CacheMeter;
use nigh_terms::{ByteSize, Clock, SandboxId};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::NodeMemorySettings;
use super::cache::CacheMemory;
use super::threads::Bell;

/// The state that all handles share.
pub(super) struct NodeMemoryState {
    pub(super) settings: NodeMemorySettings,
    /// Sandboxes are held to their grants on cgroup v1 too.
    pub(super) parks: OnceLock<bool>,
    pub(super) budget: Mutex<MemoryBudget<SandboxId>>,
    pub(super) meter: Mutex<CacheMeter>,
    pub(super) sandboxes: Mutex<HashMap<SandboxId, Arc<WatchedSandbox>>>,
    pub(super) cache: Arc<dyn CacheMemory>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) keeper: Arc<Bell>,
    pub(super) watch: Arc<Bell>,
    /// Notified each time the keeper has done its work.
    pub(super) changed: Notify,
    pub(super) ends: mpsc::Sender<SandboxId>,
    /// Until the task that ends them takes it.
    pub(super) to_end: Mutex<Option<mpsc::Receiver<SandboxId>>>,
    pub(super) killed: AtomicU64,
    pub(super) retried: AtomicU64,
}

/// A sandbox whose limit is set.
pub(super) struct WatchedSandbox {
    pub(super) id: SandboxId,
    pub(super) booked: ByteSize,
    /// Set when it has started.
    pub(super) running: OnceLock<(Weak<dyn Sandbox>, Arc<BookedMemory>)>,
    /// It is being made or is not frozen: the watch looks at it.
    pub(super) is_busy: AtomicBool,
    /// Held while its limit changes, around the budget's lock.
    pub(super) held: Mutex<LimitState>,
}

/// The limit of a sandbox.
pub(super) struct LimitState {
    pub(super) limit: ByteSize,
    /// The limit that it has asked for and will get.
    pub(super) coming: Option<ByteSize>,
    /// The kernel's limit is `limit`; else it is what the function booked.
    pub(super) is_held: bool,
    /// How often it has grown since its run began.
    pub(super) grown: u32,
    /// How often the sandbox had reached its limit at the last look.
    pub(super) hits: u64,
    /// How often the sandbox has reached a limit below its booking since its run began.
    pub(super) hits_below: u64,
}

/// What a run begins with.
pub(super) struct Beginning {
    /// The limit.
    pub(super) limit: ByteSize,
    /// The limit that it needs to begin.
    pub(super) least: ByteSize,
    /// What is in use.
    pub(super) used: ByteSize,
}

impl WatchedSandbox {
    pub(super) fn sandbox(&self) -> Option<Arc<dyn Sandbox>> {
        self.running.get().and_then(|(sandbox, _)| sandbox.upgrade())
    }
}

impl NodeMemoryState {
    pub(super) fn parks(&self) -> bool {
        self.parks.get().copied().unwrap_or(false)
    }

    /// Sets the limit of a sandbox, and tells the budget what the kernel's limit is now.
    pub(super) fn set(&self, one: &WatchedSandbox, held: &mut LimitState, limit: ByteSize) {
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
    pub(super) fn begin(&self, one: &WatchedSandbox, grant: Grant) -> Beginning {
        let used = one.sandbox().and_then(|sandbox| sandbox.memory().used().ok());
        // A sandbox whose use cannot be read is granted all that it booked.
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
    pub(super) fn count_hits(&self, one: &WatchedSandbox, held: &mut LimitState) {
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

    /// Has running sandboxes grow that are near their limits. How long until the next look; None if none can grow.
    pub(super) fn look_at_all(&self) -> Option<Duration> {
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

    /// Has a sandbox that uses `used` grow if it is near its limit. How long until the next look; None if it cannot grow.
    pub(super) fn look_at(&self, one: &WatchedSandbox, used: ByteSize) -> Option<Duration> {
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
            // The keeper will raise it.
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

    /// Does what the budget commands until it commands nothing. True if a sandbox still waits for memory.
    pub(super) fn settle(&self) -> bool {
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

    /// Asks the invoker to end an idle sandbox.
    fn end(&self, sandbox: SandboxId, why: &'static str) {
        tracing::info!(%sandbox, why, "an idle sandbox is ended");
        // If too many wait already, the sandbox stays idle until it is used or expires.
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
