//! One sandbox's share of the node's memory, from its first grant until nothing is left of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nigh_sandbox::booked_memory::BookedMemory;
use nigh_sandbox::sandbox::Sandbox;
use nigh_schedule::memory::grant::{Grant, SandboxMemoryError};
use nigh_schedule::memory::growth::limit_for;
use nigh_terms::ByteSize;
use tokio::time::{Instant, timeout_at};

use super::IdleMemory;
use super::limits::{Beginning, NodeMemoryState, WatchedSandbox};

/// What an idle sandbox keeps above what it uses: it is frozen, and wakes up before it is granted more.
const IDLE_MARGIN: ByteSize = ByteSize::mib(4);
/// How long an invocation may wait for more than its sandbox uses; then it begins, and grows when there is room.
const BEGIN_WAIT: Duration = Duration::from_secs(2);

/// What an invocation begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BegunRun {
    /// What it is granted: what was asked for, or more if the kernel did not lower the limit.
    pub(crate) granted: ByteSize,
    /// How long setting the limit took.
    pub(crate) step: Duration,
    /// How long it waited for the cache after that.
    pub(crate) waited: Duration,
}

/// How an invocation's memory behaved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedRun {
    /// How often its limit was raised.
    pub(crate) grown: u32,
    /// It reached a limit below what it booked: a failure may come from that.
    pub(crate) came_short: bool,
}

/// The share of one sandbox, until it is released or dropped.
pub(crate) struct MemoryShare {
    pub(super) inner: Option<Arc<NodeMemoryState>>,
    pub(super) one: Arc<WatchedSandbox>,
}

impl MemoryShare {
    /// The grant that the sandbox starts with.
    pub(crate) fn first(&self) -> Grant {
        let full = Grant::full(self.one.booked);
        match &self.inner {
            // Without parking, `attach` sets the grant once it knows that the kernel can hold it.
            Some(inner) if inner.parks() => Grant { memory: self.one.held.lock().limit, ..full },
            _ => full,
        }
    }

    /// The sandbox has started with the grant `first`.
    pub(crate) fn attach(&self, sandbox: &Arc<dyn Sandbox>, booked: Arc<BookedMemory>) {
        // A sandbox is attached once.
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
                tracing::warn!(%error, sandbox = %self.one.id, "a sandbox at its limit is seen only at the next look");
            }
        }
        inner.watch.ring_if_asleep();
    }

    /// The sandbox was made within `cold`.
    pub(crate) fn was_made(&self, cold: Duration) {
        if let Some(inner) = &self.inner {
            inner.budget.lock().was_made(self.one.id, cold);
        }
    }

    /// Sets `grant` for a run, and waits for the cache only if the sandbox has too little to begin.
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
        // What the sandbox uses already is granted too.
        BegunRun { granted: grant.memory.max(used).min(grant.booked), step, waited }
    }

    /// Reserves memory for an invocation that may come soon and is expected to begin with `grant`, as far as it is free or the
    /// cache's. Returns the limit that this needs. `begin_run` or `unprepare` follows.
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

    /// The invocation did not come: the reserved memory is the cache's again.
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

    /// The sandbox is frozen: its limit becomes what it uses, or stays what it booked where its use cannot be read. Returns
    /// that. Blocks where idle memory is reclaimed (`reclaims`).
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
        // The watch does not look at it from here on: lowering a limit may take its time.
        self.one.is_busy.store(false, Ordering::Release);
        let mut keeps = booked;
        // A sandbox whose use cannot be read keeps all that it booked.
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

    /// True if `rest` blocks.
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
