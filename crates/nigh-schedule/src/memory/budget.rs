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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::slack::SlackBounds;
    use crate::memory::value::{CacheDemand, CacheMeter};

    const NOW: Monotonic = Monotonic(0);

    fn mib(mib: u64) -> ByteSize {
        ByteSize::mib(mib)
    }

    /// 1000 MiB for sandboxes, 200 for the cache, 100 to be kept free.
    fn budget() -> MemoryBudget<u32> {
        let slack = SlackBounds { first: mib(100), min: mib(100), max: mib(100) };
        MemoryBudget::new(BudgetLimits { bookable: mib(1000), cache_own: mib(200), slack })
    }

    /// A cache that uses its whole limit, of which it cannot free `held`.
    struct Cache {
        takes: ByteSize,
        held: ByteSize,
    }

    impl Cache {
        /// Carries out the budget's commands for the cache. Returns the other commands.
        fn settle(&mut self, budget: &mut MemoryBudget<u32>) -> Vec<Command<u32>> {
            let mut others = Vec::new();
            while let Some(command) = budget.next(self.takes, NOW) {
                match command {
                    Command::Cache(room) => {
                        self.takes = room.max(self.held.min(self.takes));
                        budget.cache_has(room, self.takes);
                    }
                    other => others.push(other),
                }
                lawful(budget);
            }
            others
        }
    }

    fn lawful(budget: &MemoryBudget<u32>) {
        let used = budget.in_use();
        let taken = used.granted + used.cache.max(used.cache_takes);
        assert!(taken <= mib(1200), "{used:?}");
        for (sandbox, share) in &budget.shares {
            assert!(share.granted <= share.booked, "{sandbox}: {share:?}");
        }
    }

    fn settled() -> (MemoryBudget<u32>, Cache) {
        let (mut budget, mut cache) = (budget(), Cache { takes: mib(0), held: mib(0) });
        assert!(cache.settle(&mut budget).is_empty());
        (budget, cache)
    }

    #[test]
    fn the_cache_has_what_is_not_granted_but_for_the_slack() {
        let (mut budget, mut cache) = settled();
        assert_eq!(cache.takes, mib(1100));
        budget.admit(1, mib(512), NOW);
        assert_eq!(budget.raise(1, mib(60), mib(60), NOW), RaiseOutcome { limit: mib(60), missing: mib(0) });
        assert_eq!(budget.in_use().room, mib(40));
        cache.settle(&mut budget);
        assert_eq!((cache.takes, budget.in_use().room), (mib(1040), mib(100)));
        budget.gone(1);
        cache.settle(&mut budget);
        assert_eq!(cache.takes, mib(1100));
    }

    #[test]
    fn a_grant_beyond_the_slack_comes_when_the_cache_has_given_way() {
        let (mut budget, mut cache) = settled();
        budget.admit(1, mib(512), NOW);
        budget.raise(1, mib(50), mib(50), NOW);
        assert_eq!(budget.raise(1, mib(512), mib(0), NOW), RaiseOutcome { limit: mib(100), missing: mib(412) });
        assert_eq!(cache.settle(&mut budget), [Command::Limit(1, mib(512))]);
        assert_eq!((cache.takes, budget.in_use().counts.yielded), (mib(588), mib(512)));
    }

    #[test]
    fn all_that_can_be_booked_can_be_granted_and_leaves_the_cache_its_own() {
        let (mut budget, mut cache) = settled();
        for sandbox in 0..2 {
            budget.admit(sandbox, mib(500), NOW);
            budget.raise(sandbox, mib(40), mib(40), NOW);
            cache.settle(&mut budget);
            budget.raise(sandbox, mib(500), mib(0), NOW);
            cache.settle(&mut budget);
        }
        assert_eq!((budget.in_use().granted, cache.takes), (mib(1000), mib(200)));
    }

    #[test]
    fn what_a_next_run_needs_comes_from_the_cache_ahead_of_it_and_nobody_ends_or_waits_for_it() {
        let (mut budget, mut cache) = settled();
        for sandbox in [1, 2] {
            budget.admit(sandbox, mib(400), NOW);
            budget.raise(sandbox, mib(20), mib(20), NOW);
            cache.settle(&mut budget);
            budget.idle(sandbox, Monotonic(u64::from(sandbox)));
        }
        // The slack at once, and the rest when the cache has shrunk.
        assert_eq!(budget.prepare(1, mib(300), NOW), mib(120));
        assert_eq!(cache.settle(&mut budget), [Command::Limit(1, mib(300))]);
        assert_eq!((budget.in_use().granted, budget.in_use().room), (mib(320), mib(100)), "and there is slack again");
        assert_eq!(budget.raise(1, mib(280), mib(0), NOW), RaiseOutcome { limit: mib(300), missing: mib(0) });
        budget.stands(1, mib(280), false);
        budget.idle(1, Monotonic(3));
        assert_eq!(budget.prepared(1), mib(0), "it has begun");

        // Memory that the cache cannot free is not taken from others. A running sandbox goes first, and a prepared one
        // ends last.
        budget.prepare(1, mib(400), NOW);
        cache.held = cache.takes;
        assert!(cache.settle(&mut budget).is_empty());
        budget.admit(3, mib(300), NOW);
        budget.raise(3, mib(10), mib(10), NOW);
        budget.raise(3, mib(300), mib(0), NOW);
        let ended = cache.settle(&mut budget);
        assert!(matches!(ended[..], [Command::End(2, _), Command::End(1, _)]), "{ended:?}");
        budget.unprepare(1);
        assert_eq!(budget.prepare(1, mib(400), NOW), mib(0), "one that ends is not prepared");
    }

    #[test]
    fn what_is_held_counts_as_used_and_the_idle_sandbox_worth_least_ends_for_growth() {
        let (mut budget, mut cache) = settled();
        for (sandbox, since) in [(1, 20), (2, 10), (3, 30)] {
            budget.admit(sandbox, mib(200), NOW);
            budget.raise(sandbox, mib(50), mib(50), NOW);
            cache.settle(&mut budget);
            budget.idle(sandbox, Monotonic(since));
        }
        cache.held = cache.takes;
        budget.admit(4, mib(400), NOW);
        assert_eq!(budget.raise(4, mib(60), mib(60), NOW).limit, mib(60));
        assert_eq!(budget.raise(4, mib(160), mib(0), NOW), RaiseOutcome { limit: mib(100), missing: mib(60) });
        let ended = cache.settle(&mut budget);
        assert!(matches!(ended[..], [Command::End(2, why), Command::End(1, _)] if why.contains("hold")), "{ended:?}");
        budget.gone(2);
        assert_eq!(cache.settle(&mut budget), [Command::Limit(4, mib(150))]);
        // A sandbox that runs again is not ended.
        budget.raise(1, mib(50), mib(0), NOW);
        budget.gone(1);
        assert_eq!(cache.settle(&mut budget), [Command::Limit(4, mib(160))]);
        assert_eq!(budget.in_use().counts.idle_ended, 2);
    }

    #[test]
    fn who_runs_grows_before_anybody_begins() {
        let (mut budget, mut cache) = settled();
        budget.admit(1, mib(500), NOW);
        budget.raise(1, mib(90), mib(90), NOW);
        budget.raise(1, mib(400), mib(0), NOW);
        budget.admit(2, mib(100), NOW);
        assert_eq!(budget.raise(2, mib(64), mib(64), NOW), RaiseOutcome { limit: mib(0), missing: mib(64) });
        assert_eq!(cache.settle(&mut budget), [Command::Limit(1, mib(400))]);
        assert_eq!(budget.raise(2, mib(64), mib(64), NOW), RaiseOutcome { limit: mib(64), missing: mib(0) });
    }

    #[test]
    fn a_limit_that_the_kernel_refuses_to_lower_counts_as_it_stands() {
        let (mut budget, mut cache) = settled();
        budget.admit(1, mib(500), NOW);
        budget.raise(1, mib(100), mib(100), NOW);
        cache.settle(&mut budget);
        budget.stands(1, mib(90), true);
        budget.idle(1, NOW);
        cache.settle(&mut budget);
        assert_eq!((budget.granted_to(1), cache.takes), (mib(90), mib(1010)));
        assert_eq!(budget.in_use().counts.refused, 1);
    }

    #[test]
    fn a_prewarmed_sandbox_waits_until_the_cache_has_made_room() {
        let (mut budget, mut cache) = settled();
        assert!(!budget.hold_prewarmed(mib(128)));
        cache.settle(&mut budget);
        assert!(budget.hold_prewarmed(mib(128)));
        assert_eq!(budget.in_use().granted, mib(128));
        budget.free_prewarmed(mib(128));
        cache.settle(&mut budget);
        assert_eq!(cache.takes, mib(1100));
    }

    #[test]
    fn the_idle_sandbox_that_is_worth_least_ends_where_the_cache_makes_far_more_of_its_memory() {
        let (mut budget, mut cache) = settled();
        for (sandbox, runs) in [(1, 50), (2, 1)] {
            budget.admit(sandbox, mib(200), NOW);
            budget.raise(sandbox, mib(40), mib(40), NOW);
            cache.settle(&mut budget);
            budget.was_made(sandbox, Duration::from_millis(200));
            (0..runs).for_each(|_| budget.idle(sandbox, NOW));
        }
        let late = NOW.after(Duration::from_secs(300));
        let judge = |misses| {
            let demand = CacheDemand { misses, miss_bytes: misses << 20, evictions: misses };
            CacheMeter::default().judge(mib(1000), late, || demand).unwrap()
        };
        assert_eq!(budget.weigh(judge(1), late), None);
        assert!(matches!(budget.weigh(judge(1000), late), Some(Command::End(2, _))));
        assert_eq!(budget.weigh(judge(1000), late), None, "the other one is worth more");
    }

    #[test]
    fn a_cache_without_a_part_of_its_own_gets_nothing() {
        let slack = SlackBounds { first: mib(10), min: mib(10), max: mib(10) };
        let mut budget = MemoryBudget::<u32>::new(BudgetLimits { bookable: mib(100), cache_own: mib(0), slack });
        assert_eq!(budget.next(mib(0), NOW), None);
        assert_eq!(budget.in_use().room, mib(100));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Admit(u32, u64),
        Raise(u32, u64, u64),
        Stands(u32, u64),
        Prepare(u32, u64),
        Unprepare(u32),
        Idle(u32, u64),
        Gone(u32),
        Prewarmed(bool),
        /// The cache's use and the part of it that is held.
        Takes(u64, u64),
        Settle,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (0u32..5, 1u64..200).prop_map(|(one, booked)| Step::Admit(one, booked)),
            4 => (0u32..5, 0u64..250, 0u64..250).prop_map(|(one, to, least)| Step::Raise(one, to, least)),
            2 => (0u32..5, 0u64..200).prop_map(|(one, limit)| Step::Stands(one, limit)),
            2 => (0u32..5, 0u64..250).prop_map(|(one, to)| Step::Prepare(one, to)),
            1 => (0u32..5).prop_map(Step::Unprepare),
            2 => (0u32..5, 0u64..100).prop_map(|(one, since)| Step::Idle(one, since)),
            1 => (0u32..5).prop_map(Step::Gone),
            1 => any::<bool>().prop_map(Step::Prewarmed),
            2 => (0u64..1200, 0u64..1200).prop_map(|(takes, held)| Step::Takes(takes, held)),
            4 => Just(Step::Settle),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_grants_and_cache_are_within_the_nodes_memory(
            steps in prop::collection::vec(step(), 0..150),
        ) {
            let (mut budget, mut cache) = settled();
            let mut stems = 0u64;
            for step in steps {
                match step {
                    Step::Admit(one, booked) if !budget.shares.contains_key(&one) => budget.admit(one, mib(booked), NOW),
                    Step::Admit(..) => {}
                    Step::Raise(one, to, least) => {
                        let raise = budget.raise(one, mib(to), mib(least), NOW);
                        prop_assert_eq!(raise.limit, budget.granted_to(one));
                    }
                    // The kernel keeps the old limit, or a lower one.
                    Step::Stands(one, limit) => {
                        let limit = mib(limit).min(budget.granted_to(one));
                        budget.stands(one, limit, false);
                    }
                    Step::Prepare(one, to) => {
                        let limit = budget.prepare(one, mib(to), NOW);
                        prop_assert!(limit == budget.granted_to(one) || limit == ByteSize::ZERO);
                    }
                    Step::Unprepare(one) => budget.unprepare(one),
                    Step::Idle(one, since) => budget.idle(one, Monotonic(since)),
                    Step::Gone(one) => budget.gone(one),
                    Step::Prewarmed(true) => stems += u64::from(budget.hold_prewarmed(mib(64))),
                    Step::Prewarmed(false) if stems > 0 => {
                        stems -= 1;
                        budget.free_prewarmed(mib(64));
                    }
                    Step::Prewarmed(false) => {}
                    Step::Takes(takes, held) => {
                        cache.takes = mib(takes).min(budget.cache.max(cache.takes));
                        cache.held = mib(held);
                    }
                    Step::Settle => drop(cache.settle(&mut budget)),
                }
                lawful(&budget);
            }
            // When all sandboxes have gone and nothing is held, the cache has all but the slack.
            (0..5).for_each(|one| budget.gone(one));
            (0..stems).for_each(|_| budget.free_prewarmed(mib(64)));
            cache.held = ByteSize::ZERO;
            cache.settle(&mut budget);
            // A pre-warmed sandbox that was wanted gets its grant now, and ends too.
            prop_assert!(budget.hold_prewarmed(mib(64)));
            budget.free_prewarmed(mib(64));
            cache.settle(&mut budget);
            prop_assert!(budget.cache + mib(101) > mib(1200), "{:?}", budget.in_use());
        }
    }
}
