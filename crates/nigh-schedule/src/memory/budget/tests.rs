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
        budget.idle(sandbox, Monotonic(10 * u64::from(sandbox)));
    }
    // The slack at once, and the rest when the cache has shrunk.
    assert_eq!(budget.prepare(1, mib(300), NOW), mib(120));
    assert_eq!(budget.prepared(1), mib(300));
    assert_eq!(cache.settle(&mut budget), [Command::Limit(1, mib(300))]);
    assert_eq!((budget.in_use().granted, budget.in_use().room), (mib(320), mib(100)), "and there is slack again");
    assert_eq!(budget.raise(1, mib(280), mib(0), NOW), RaiseOutcome { limit: mib(300), missing: mib(0) });
    budget.stands(1, mib(280), false);
    budget.idle(1, Monotonic(15));
    assert_eq!(budget.prepared(1), mib(0), "it has begun");

    // Memory that the cache cannot free is not taken from others. A running sandbox goes first, and a prepared one
    // ends last, although it has been idle for longer.
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
fn a_prepared_sandbox_that_has_its_memory_holds_up_no_other_and_ends_after_those_worth_more() {
    let (mut budget, mut cache) = settled();
    for sandbox in [1, 2] {
        budget.admit(sandbox, mib(400), NOW);
        budget.raise(sandbox, mib(20), mib(20), NOW);
        cache.settle(&mut budget);
        budget.idle(sandbox, Monotonic(10));
    }
    assert_eq!(budget.prepare(1, mib(20), NOW), mib(20), "it has that already");
    assert_eq!(budget.prepare(2, mib(300), NOW), mib(120));
    assert_eq!(cache.settle(&mut budget), [Command::Limit(2, mib(300))]);

    // It has run more often.
    budget.raise(2, mib(300), mib(0), NOW);
    budget.idle(2, Monotonic(20));
    cache.held = cache.takes;
    budget.admit(3, mib(300), NOW);
    budget.raise(3, mib(10), mib(10), NOW);
    budget.raise(3, mib(300), mib(0), NOW);
    assert!(matches!(cache.settle(&mut budget)[..], [Command::End(2, _), ..]));
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
fn memory_that_becomes_free_goes_to_who_runs_before_who_begins() {
    let (mut budget, mut cache) = settled();
    for sandbox in [1, 2] {
        budget.admit(sandbox, mib(300), NOW);
        budget.raise(sandbox, mib(50), mib(50), NOW);
        cache.settle(&mut budget);
    }
    budget.raise(1, mib(300), mib(0), NOW);
    assert!(budget.is_awaited());
    budget.gone(2);
    assert_eq!(budget.in_use().room, mib(50));
    budget.admit(3, mib(40), NOW);
    assert_eq!(budget.raise(3, mib(40), mib(40), NOW), RaiseOutcome { limit: mib(0), missing: mib(40) });
}

#[test]
fn only_who_misses_memory_is_waited_for() {
    let (mut budget, mut cache) = settled();
    assert!(!budget.is_awaited());
    budget.admit(1, mib(500), NOW);
    budget.raise(1, mib(60), mib(60), NOW);
    assert!(!budget.is_awaited(), "it has what it wants");
    budget.raise(1, mib(400), mib(0), NOW);
    assert!(budget.is_awaited());
    cache.settle(&mut budget);
    assert!(!budget.is_awaited());
}

#[test]
fn what_the_budget_did_is_counted() {
    let (mut budget, mut cache) = settled();
    budget.admit(1, mib(500), NOW);
    budget.raise(1, mib(60), mib(60), NOW);
    budget.has_grown();
    budget.has_grown();
    assert_eq!(budget.in_use().churn, mib(60));
    cache.settle(&mut budget);
    budget.gone(1);
    cache.settle(&mut budget);
    let counts = budget.in_use().counts;
    assert_eq!((counts.grown, counts.scale_up, counts.scale_down), (2, 2, 1), "it grew at the start, too");
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
    assert_eq!(budget.in_use().counts.idle_ended, 1);
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
