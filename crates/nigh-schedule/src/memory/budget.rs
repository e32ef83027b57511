//! The node's memory, divided between sandboxes and the cache: pure (OFC, sections 4.3 and 6.4).
//!
//! The law: the grants of all sandboxes, pre-warmed ones included, and the cache's limit or its use, whichever is more,
//! together never exceed the node's memory. A sandbox's grant is its kernel limit, at most its booking. The cache has
//! the rest, except for the slack, from which grants are raised before the cache has shrunk. The pool lets sandboxes
//! book at most their own part and what the cache lends (`sandbox_pool`), so the cache can always free what growth
//! needs. Memory that a reader still maps counts as used. If a sandbox waits for such memory, or if the cache would use
//! their memory far better, idle sandboxes end, the one worth least for each byte first (`value`). Memory may be
//! reserved for the next run of an idle sandbox: it comes from free memory and from the cache, and no sandbox ends or
//! waits for it. If the kernel refuses to lower a limit, the old limit counts. The budget chooses no limit itself
//! (`growth`), nor who is admitted (`sandbox_pool`).

mod command;
mod share;

use std::collections::BTreeMap;
use std::time::Duration;

use nigh_terms::{ByteSize, Monotonic, invariant};

pub use self::command::{BudgetCounts, BudgetLimits, BudgetUse, Command, RaiseOutcome};
use self::share::{Share, State};
use super::slack::Slack;
use super::value::{SandboxUse, Worth};

/// The cache grows by at least this much at a time.
const GRAIN: ByteSize = ByteSize::mib(1);

/// The division of a node's memory; `S` names a sandbox.
#[derive(Clone, Debug)]
pub struct MemoryBudget<S> {
    limits: BudgetLimits,
    shares: BTreeMap<S, Share>,
    /// The grants of all pre-warmed sandboxes, and what the next one waits for.
    stems: ByteSize,
    stem_wanted: ByteSize,
    /// The cache's limit, and its use at the last look.
    cache: ByteSize,
    cache_takes: ByteSize,
    slack: Slack,
    counts: BudgetCounts,
}

impl<S: Copy + Ord> MemoryBudget<S> {
    /// A budget without sandboxes; the cache has its own part.
    #[must_use]
    pub fn new(limits: BudgetLimits) -> Self {
        Self {
            limits,
            shares: BTreeMap::new(),
            stems: ByteSize::ZERO,
            stem_wanted: ByteSize::ZERO,
            cache: limits.cache_own,
            cache_takes: ByteSize::ZERO,
            slack: Slack::new(limits.slack),
            counts: BudgetCounts::default(),
        }
    }

    fn total(&self) -> ByteSize {
        self.limits.bookable + self.limits.cache_own
    }

    fn granted(&self) -> ByteSize {
        self.shares.values().map(|share| share.granted).sum::<ByteSize>() + self.stems
    }

    /// The memory that is granted, wanted or reserved.
    fn wanted(&self) -> ByteSize {
        self.shares.values().map(|share| share.granted.max(share.wanted).max(share.ahead)).sum::<ByteSize>()
            + self.stems
            + self.stem_wanted
    }

    /// The free memory: neither granted nor the cache's.
    fn room(&self) -> ByteSize {
        self.total().saturating_sub(self.granted()).saturating_sub(self.cache.max(self.cache_takes))
    }

    /// The memory that the cache should have: all that is neither wanted nor kept free.
    fn cache_target(&self) -> ByteSize {
        if self.limits.cache_own == ByteSize::ZERO {
            return ByteSize::ZERO;
        }
        let wanted = self.wanted();
        // No more memory is kept free than can still be booked.
        let slack = self.slack.now().min(self.limits.bookable.saturating_sub(wanted));
        self.total().saturating_sub(wanted).saturating_sub(slack)
    }

    /// The present division of the memory.
    #[must_use]
    pub fn in_use(&self) -> BudgetUse {
        BudgetUse {
            granted: self.granted(),
            cache: self.cache,
            cache_takes: self.cache_takes,
            slack: self.slack.now(),
            room: self.room(),
            churn: self.slack.churn(),
            counts: self.counts,
        }
    }

    /// The grant of `sandbox`; zero if it is unknown.
    #[must_use]
    pub fn granted_to(&self, sandbox: S) -> ByteSize {
        self.shares.get(&sandbox).map_or(ByteSize::ZERO, |share| share.granted)
    }

    /// A sandbox of a function that books `booked` will be made. It has no grant yet: `raise` gives it the first.
    pub fn admit(&mut self, sandbox: S, booked: ByteSize, now: Monotonic) {
        let nothing = ByteSize::ZERO;
        let usage = SandboxUse { made: now, cold: Duration::ZERO, runs: 0 };
        self.shares.insert(
            sandbox,
            Share { booked, granted: nothing, wanted: nothing, ahead: nothing, state: State::Busy, usage },
        );
    }

    /// `sandbox` was made in the time `cold`.
    pub fn was_made(&mut self, sandbox: S, cold: Duration) {
        if let Some(share) = self.shares.get_mut(&sandbox) {
            share.usage.cold = cold;
        }
    }

    /// `sandbox` wants the limit `to`. It gets the free part of that at once, and the rest later (`next`). If not even
    /// `least` can be granted, it gets nothing now.
    pub fn raise(&mut self, sandbox: S, to: ByteSize, least: ByteSize, now: Monotonic) -> RaiseOutcome {
        // Running sandboxes grow before a new one gets its first grant.
        let growing = self.shares.iter().filter(|(one, share)| **one != sandbox && share.grows());
        let growing: ByteSize = growing.map(|(_, share)| share.missing()).sum();
        let room = self.room();
        let Some(share) = self.shares.get_mut(&sandbox) else {
            return RaiseOutcome { limit: ByteSize::ZERO, missing: to };
        };
        let room = if share.granted == ByteSize::ZERO { room.saturating_sub(growing) } else { room };
        share.state = State::Busy;
        share.ahead = ByteSize::ZERO;
        share.wanted = to.min(share.booked);
        let limit = share.wanted.min(share.granted + room).max(share.granted);
        if limit >= least.min(share.wanted) {
            let raised = limit.saturating_sub(share.granted);
            // The law: a grant is never raised by more than the free memory.
            invariant!(raised <= room, "a grant is raised by {raised} to {limit}, and {room} is free");
            share.granted = limit;
            if raised > ByteSize::ZERO {
                self.slack.raised(raised, now);
            }
        }
        RaiseOutcome { limit: share.granted, missing: share.missing() }
    }

    /// Reserves `to` for the next run of `sandbox`, which is idle. Returns the limit that is granted now. The rest is granted when
    /// the cache has shrunk, unless a running sandbox waits for it.
    pub fn prepare(&mut self, sandbox: S, to: ByteSize, now: Monotonic) -> ByteSize {
        let Some(share) = self.shares.get_mut(&sandbox).filter(|share| share.state != State::Ending) else {
            return ByteSize::ZERO;
        };
        share.ahead = to.min(share.booked);
        self.give_ahead(Some(sandbox), now);
        self.granted_to(sandbox)
    }

    /// The memory reserved for the next run of `sandbox`; zero once the run has begun.
    #[must_use]
    pub fn prepared(&self, sandbox: S) -> ByteSize {
        self.shares.get(&sandbox).map_or(ByteSize::ZERO, |share| share.ahead)
    }

    /// Ends the reservation for the next run of `sandbox`. The caller lowers its limit.
    pub fn unprepare(&mut self, sandbox: S) {
        if let Some(share) = self.shares.get_mut(&sandbox) {
            share.ahead = ByteSize::ZERO;
        }
    }

    /// Counts a running sandbox whose grant was raised because it came near its limit.
    pub const fn has_grown(&mut self) {
        self.counts.grown += 1;
    }

    /// The kernel limit of `sandbox` is `limit` now. `refused`: the kernel did not lower it as requested.
    pub fn stands(&mut self, sandbox: S, limit: ByteSize, refused: bool) {
        if let Some(share) = self.shares.get_mut(&sandbox) {
            share.granted = limit;
            share.wanted = limit;
        }
        self.counts.refused += u64::from(refused);
    }

    /// True if a sandbox waits for memory that is not free.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.shares.values().any(|share| share.missing() > ByteSize::ZERO)
    }

    /// `sandbox` is idle from `now` on.
    pub fn idle(&mut self, sandbox: S, now: Monotonic) {
        if let Some(share) = self.shares.get_mut(&sandbox) {
            share.wanted = share.granted;
            share.state = State::Idle(now);
            share.usage.runs += 1;
        }
    }

    /// `sandbox` has ended and its memory is free.
    pub fn gone(&mut self, sandbox: S) {
        self.shares.remove(&sandbox);
    }

    /// Grants `memory` to a pre-warmed sandbox. False if it is not free: the cache will shrink for it.
    pub fn hold_prewarmed(&mut self, memory: ByteSize) -> bool {
        let growing: ByteSize = self.shares.values().map(Share::missing).sum();
        let fits = self.room().saturating_sub(growing) >= memory;
        self.stem_wanted = if fits { ByteSize::ZERO } else { memory };
        if fits {
            self.stems += memory;
        }
        fits
    }

    /// A pre-warmed sandbox of `memory` has ended, or has become a function's.
    pub fn free_prewarmed(&mut self, memory: ByteSize) {
        // `PrewarmedShare` frees each grant once.
        invariant!(self.stems >= memory, "a pre-warmed sandbox frees {memory}, and all have {}", self.stems);
        self.stems = self.stems.saturating_sub(memory);
        self.stem_wanted = ByteSize::ZERO;
    }

    /// The cache's limit is `cache` now, and its use `takes`.
    pub fn cache_has(&mut self, cache: ByteSize, takes: ByteSize) {
        self.counts.yielded += self.cache_takes.saturating_sub(takes);
        self.cache = cache;
        self.cache_takes = takes;
    }

    /// The next command, if the cache uses `cache_takes`. Ask again after each command until there is none.
    pub fn next(&mut self, cache_takes: ByteSize, now: Monotonic) -> Option<Command<S>> {
        self.cache_takes = cache_takes;
        self.slack.pass(now);
        if let Some(limit) = self.grow(now) {
            return Some(limit);
        }
        let target = self.cache_target();
        if target < self.cache {
            self.counts.scale_down += 1;
            return Some(Command::Cache(target));
        }
        if let Some(limit) = self.give_ahead(None, now) {
            return Some(limit);
        }
        if let Some(end) = self.end_idle(now) {
            return Some(end);
        }
        // A larger limit counts from now on, whatever the cache uses.
        if target >= self.cache + GRAIN {
            self.cache = target;
            // The law: the cache's limit never exceeds the memory that is not granted.
            invariant!(
                self.granted() + self.cache <= self.total(),
                "the cache may take {}, {} is granted, and the node has {}",
                self.cache,
                self.granted(),
                self.total()
            );
            self.counts.scale_up += 1;
            return Some(Command::Cache(target));
        }
        None
    }

    /// Grants free memory to a running sandbox that wants more.
    fn grow(&mut self, now: Monotonic) -> Option<Command<S>> {
        let room = self.room();
        let (sandbox, share) = self.shares.iter_mut().find(|(_, share)| share.grows())?;
        let more = share.missing().min(room);
        if more == ByteSize::ZERO {
            return None;
        }
        share.granted += more;
        self.slack.raised(more, now);
        Some(Command::Limit(*sandbox, share.granted))
    }

    /// Grants free memory that no sandbox waits for to a sandbox that has reserved it: to `one`, or to any if None.
    fn give_ahead(&mut self, one: Option<S>, now: Monotonic) -> Option<Command<S>> {
        let missing: ByteSize = self.shares.values().map(Share::missing).sum();
        let room = self.room().saturating_sub(missing);
        let is_it = |sandbox: &S, share: &Share| {
            one.is_none_or(|one| one == *sandbox) && share.ahead > share.granted && share.state != State::Ending
        };
        let (sandbox, share) = self.shares.iter_mut().find(|(sandbox, share)| is_it(sandbox, share))?;
        let more = share.ahead.saturating_sub(share.granted).min(room);
        if more == ByteSize::ZERO {
            return None;
        }
        share.granted += more;
        self.slack.raised(more, now);
        Some(Command::Limit(*sandbox, share.granted))
    }

    /// Ends the idle sandbox that is worth least for each byte, if its memory is worth far more to the cache.
    pub fn weigh(&mut self, cache: Worth, now: Monotonic) -> Option<Command<S>> {
        let idle = self.shares.iter_mut().filter_map(|(sandbox, share)| match share.state {
            // A sandbox with reserved memory is about to run.
            State::Idle(_) if share.ahead == ByteSize::ZERO => {
                Some((share.usage.worth(share.granted, now)?, sandbox, share))
            }
            State::Idle(_) | State::Busy | State::Ending => None,
        });
        let (worth, sandbox, share) = idle.min_by(|(one, ..), (other, ..)| one.order(other))?;
        if !worth.yields_to(cache) {
            return None;
        }
        share.state = State::Ending;
        self.counts.idle_ended += 1;
        Some(Command::End(*sandbox, "the cache uses its memory better"))
    }

    /// If a growing sandbox waits for memory that the cache cannot free, ends the idle sandbox that is worth least for
    /// each byte; one with reserved memory only if there is no other.
    fn end_idle(&mut self, now: Monotonic) -> Option<Command<S>> {
        let missing: ByteSize = self.shares.values().map(Share::missing).sum();
        let ending = self.shares.values().filter(|share| share.state == State::Ending);
        let coming: ByteSize = ending.map(|share| share.granted).sum();
        if missing <= self.room() + coming {
            return None;
        }
        let idle = self.shares.iter_mut().filter_map(|(sandbox, share)| match share.state {
            State::Idle(since) => {
                let worth = share.usage.worth_so_far(share.granted, now);
                Some(((share.ahead > ByteSize::ZERO, worth, since), sandbox, share))
            }
            State::Busy | State::Ending => None,
        });
        let least = idle.min_by(|((kept, worth, since), ..), ((other_kept, other_worth, other_since), ..)| {
            kept.cmp(other_kept).then(worth.order(other_worth)).then(since.cmp(other_since))
        });
        let (_, sandbox, share) = least?;
        (share.state, share.ahead) = (State::Ending, ByteSize::ZERO);
        self.counts.idle_ended += 1;
        Some(Command::End(*sandbox, "others grow, and readers hold what the cache has"))
    }
}

#[cfg(test)]
mod tests;
