//! Examples of the pool's decisions.

mod random_run;

use nigh_functions::test_support::function;

use super::*;

pub(super) const LIMITS: PoolLimits = PoolLimits {
    sandboxes_max: 4,
    memory_max: ByteSize::mib(512),
    invocations_max: 4,
    waiting_max: 2,
    ..PoolLimits::LAMBDA
};

pub(super) fn pool(limits: PoolLimits) -> SandboxPool<u32> {
    let keep_alive = KeepAlive { idle_for: Duration::from_secs(600), ..KeepAlive::default() };
    SandboxPool::new(PoolLimits { processors: limits.processors.max(2), ..limits }, keep_alive)
}

pub(super) fn sized(name: &str, mib: u64) -> Arc<Function> {
    Arc::new(Function { memory: ByteSize::mib(mib), ..function(name) })
}

pub(super) fn at(ms: u64) -> Monotonic {
    Monotonic::default().after(Duration::from_millis(ms))
}

fn waits(pool: &mut SandboxPool<u32>, function: &Arc<Function>, now: Monotonic) -> Ticket {
    match pool.ask(function, now) {
        PoolAnswer::Waiting(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

/// The starts among the commands, each with the sandboxes that end for it.
fn starts(commands: Vec<Command<u32>>) -> Vec<(StartId, Vec<u32>)> {
    let start = |command| match command {
        Command::Start(start) => Some((start.id, start.after)),
        _ => None,
    };
    commands.into_iter().filter_map(start).collect()
}

/// The runs among the commands.
fn runs(commands: Vec<Command<u32>>) -> Vec<(Ticket, u32)> {
    let run = |command| match command {
        Command::Run { ticket, sandbox, .. } => Some((ticket, sandbox)),
        _ => None,
    };
    commands.into_iter().filter_map(run).collect()
}

/// An invocation arrives, a sandbox is made for it in 100 ms, and it runs.
fn runs_cold(pool: &mut SandboxPool<u32>, function: &Arc<Function>, sandbox: u32, now: Monotonic) {
    let ticket = waits(pool, function, now);
    let (start, after) = starts(pool.serve(now)).pop().expect("a sandbox is made");
    assert!(after.is_empty(), "{after:?} end");
    assert_eq!(pool.started(start, sandbox, Duration::from_millis(100), now), None);
    assert_eq!(runs(pool.serve(now)), [(ticket, sandbox)]);
}

/// The run ends, after 20 ms.
fn ends(pool: &mut SandboxPool<u32>, function: &Function, sandbox: u32, now: Monotonic) {
    pool.finished(function);
    assert_eq!(pool.give_back(sandbox, Some(Duration::from_millis(20)), now), None);
}

/// An invocation has run, and its sandbox is frozen with 40 MiB.
fn warm_up(pool: &mut SandboxPool<u32>, function: &Arc<Function>, sandbox: u32, now: Monotonic) {
    runs_cold(pool, function, sandbox, now);
    ends(pool, function, sandbox, now);
    pool.rests(&sandbox, ByteSize::mib(40));
}

#[test]
fn the_sandbox_used_last_is_used_again_by_its_own_version_only() {
    let mut pool = pool(LIMITS);
    let f = sized("f", 128);
    runs_cold(&mut pool, &f, 1, at(0));
    runs_cold(&mut pool, &f, 2, at(1));
    ends(&mut pool, &f, 1, at(10));
    ends(&mut pool, &f, 2, at(11));
    let updated = Arc::new(Function { revision_id: "revision-2".to_owned(), ..(*f).clone() });
    let other = waits(&mut pool, &updated, at(12));
    assert_eq!(starts(pool.serve(at(12))).len(), 1);
    assert!(pool.leave(other, at(12)).is_some());
    let ticket = waits(&mut pool, &f, at(13));
    assert_eq!(runs(pool.serve(at(13))), [(ticket, 2)]);
    assert_eq!(pool.take_expired(at(14), |idle| idle.revision_id == "revision-1"), [(1, SandboxEndReason::Changed)]);
}

#[test]
fn an_idle_sandbox_takes_what_it_uses_and_its_booking_when_it_runs() {
    let mut pool = pool(LIMITS);
    // Four functions that book 256 MiB each, in 512 MiB.
    let functions: Vec<_> = (0..4).map(|number| sized(&format!("f{number}"), 256)).collect();
    for (number, function) in functions.iter().enumerate() {
        warm_up(&mut pool, function, number as u32, at(number as u64));
    }
    assert_eq!((pool.in_use().booked, pool.in_use().idle_held), (ByteSize::ZERO, ByteSize::mib(160)));
    let first = waits(&mut pool, &functions[0], at(10));
    assert_eq!(runs(pool.serve(at(10))), [(first, 0)]);
    assert_eq!(pool.in_use().booked, ByteSize::mib(256));
    // With a second busy sandbox nothing is left for the frozen ones: they end for the waiting invocation.
    let second = waits(&mut pool, &functions[1], at(10));
    assert!(runs(pool.serve(at(11))).is_empty());
    let after = pool.serve(at(400));
    assert!(
        matches!(&after[..], [Command::Run { ticket, sandbox: 1, after }] if *ticket == second && after.len() == 2)
    );
}

#[test]
fn who_waits_gets_the_sandbox_of_its_function_that_comes_first_and_nothing_more_is_made() {
    let mut pool = pool(LIMITS);
    let f = sized("f", 128);
    runs_cold(&mut pool, &f, 1, at(0));
    ends(&mut pool, &f, 1, at(20));
    let first = waits(&mut pool, &f, at(30));
    assert_eq!(runs(pool.serve(at(30))), [(first, 1)]);
    let second = waits(&mut pool, &f, at(31));
    assert_eq!(pool.serve(at(31)), [], "in 20 ms the first is over, and a start takes 100");
    ends(&mut pool, &f, 1, at(50));
    assert_eq!(runs(pool.serve(at(50))), [(second, 1)]);
    // A run that never ends is waited for as long as a start takes.
    let third = waits(&mut pool, &f, at(60));
    assert_eq!(pool.serve(at(100)), []);
    let (start, _) = starts(pool.serve(at(170))).pop().expect("it has waited for long enough");
    assert_eq!(pool.waits_for(&f, at(200)), WaitsFor::Making);
    assert_eq!(pool.started(start, 2, Duration::from_millis(100), at(270)), None);
    assert_eq!(runs(pool.serve(at(270))), [(third, 2)]);
}

#[test]
fn no_more_sandboxes_are_made_at_once_than_there_are_processors() {
    let mut pool = pool(PoolLimits { waiting_max: 3, ..LIMITS });
    for name in ["a", "b", "c"] {
        waits(&mut pool, &sized(name, 64), at(0));
    }
    assert_eq!(starts(pool.serve(at(0))).len(), 2);
    assert_eq!(starts(pool.serve(at(1))), []);
    assert_eq!((pool.in_use().starting, pool.waits_for(&sized("c", 64), at(200))), (2, WaitsFor::Starts));
}

#[test]
fn a_sandbox_that_fails_to_be_made_frees_its_room_and_another_is_made() {
    let mut pool = pool(LIMITS);
    let f = sized("f", 512);
    let ticket = waits(&mut pool, &f, at(0));
    let (start, _) = starts(pool.serve(at(0))).pop().unwrap();
    pool.start_failed(start);
    assert_eq!(pool.in_use().booked, ByteSize::ZERO);
    assert_eq!(starts(pool.serve(at(1))).len(), 1);
    assert_eq!(pool.leave(ticket, at(2)), Some(WaitsFor::Making));
    assert_eq!(pool.leave(ticket, at(2)), None);
}

#[test]
fn nobody_waits_longer_than_is_allowed() {
    let mut pool = pool(LIMITS);
    let f = sized("f", 128);
    runs_cold(&mut pool, &f, 1, at(0));
    let ticket = waits(&mut pool, &f, at(0));
    let refused = |commands: Vec<Command<u32>>| {
        commands.into_iter().any(|one| matches!(one, Command::Refuse { ticket: late, .. } if late == ticket))
    };
    assert!(!refused(pool.serve(at(9_999))) && refused(pool.serve(at(10_000))));
    assert_eq!(pool.in_use().waiting, 0);
}

#[test]
fn what_is_full_or_too_large_is_refused_at_once() {
    let mut pool = pool(LIMITS);
    assert!(matches!(pool.ask(&sized("huge", 513), at(0)), PoolAnswer::Refused(why) if why.contains("512 MiB")));
    let f = sized("f", 512);
    runs_cold(&mut pool, &f, 1, at(0));
    // One of four allowed invocations runs, and two more may wait.
    for _ in 0..5 {
        waits(&mut pool, &f, at(0));
    }
    assert!(matches!(pool.ask(&f, at(0)), PoolAnswer::Refused(why) if why.contains("5 invocations waiting")));
}

#[test]
fn a_function_that_does_not_fit_beside_busy_ones_gets_the_memory_that_gathers_for_it() {
    let mut pool = pool(PoolLimits { waiting_max: 100, ..LIMITS });
    let (small, big) = (sized("small", 256), sized("big", 512));
    runs_cold(&mut pool, &small, 1, at(0));
    let waiting = waits(&mut pool, &big, at(0));
    // The small function's callers follow each other closely and would never let the large one in.
    waits(&mut pool, &small, at(900));
    ends(&mut pool, &small, 1, at(910));
    assert_eq!(runs(pool.serve(at(910))).len(), 1);
    let next = waits(&mut pool, &small, at(1_100));
    ends(&mut pool, &small, 1, at(1_110));
    assert_eq!(pool.serve(at(1_110)), [Command::Freeze(1)], "for who waits longest it gathers");
    pool.rests(&1, ByteSize::mib(40));
    assert_eq!(starts(pool.serve(at(1_120))), [(StartId(2), vec![1])]);
    assert!(pool.leave(waiting, at(1_120)).is_some() && pool.leave(next, at(1_120)).is_some());
}

fn reserve(pool: &mut SandboxPool<u32>, function: &Function, concurrency: Option<usize>) {
    pool.set_reserved(&function.namespace, &function.name, concurrency);
}

#[test]
fn what_is_reserved_is_one_functions_alone_and_all_that_it_has() {
    let mut pool = pool(LIMITS);
    let (own, other) = (sized("own", 64), sized("other", 64));
    reserve(&mut pool, &own, Some(1));
    (1..4).for_each(|sandbox| runs_cold(&mut pool, &other, sandbox, at(0)));
    let waiting = waits(&mut pool, &other, at(0));
    assert_eq!((pool.serve(at(0)), pool.waits_for(&other, at(200))), (Vec::new(), WaitsFor::Turn));
    // An invocation that waits for its turn does not block the one that may run.
    let first = waits(&mut pool, &own, at(1));
    assert_eq!(pool.ask(&own, at(1)), PoolAnswer::OverReserved(1), "the one that waits has the reserve");
    let (start, _) = starts(pool.serve(at(1))).pop().unwrap();
    assert_eq!(pool.started(start, 9, Duration::from_millis(100), at(2)), None);
    assert_eq!(runs(pool.serve(at(2))), [(first, 9)]);
    assert_eq!(pool.ask(&own, at(2)), PoolAnswer::OverReserved(1));
    ends(&mut pool, &other, 1, at(3));
    assert_eq!(runs(pool.serve(at(3))), [(waiting, 1)]);
    reserve(&mut pool, &own, Some(0));
    assert_eq!(pool.ask(&own, at(4)), PoolAnswer::OverReserved(0));
}

#[test]
fn stems_take_free_room_only_and_give_it_back_first() {
    let mut pool = pool(LIMITS);
    let stem = ByteSize::mib(128);
    assert!((0..4).all(|_| pool.book_prewarmed(stem)) && !pool.book_prewarmed(stem));
    // 192 MiB of 512 for a sandbox: two pre-warmed sandboxes must end, and no idle sandbox.
    runs_cold(&mut pool, &sized("f", 192), 1, at(0));
    assert_eq!(pool.prewarmed_in_the_way(stem), 2);
    (0..2).for_each(|_| pool.release_prewarmed(stem));
    assert_eq!((pool.prewarmed_in_the_way(stem), pool.in_use().prewarmed), (0, ByteSize::mib(256)));
    // One pre-warmed sandbox becomes a function's, whose booking counts.
    runs_cold(&mut pool, &sized("g", 128), 2, at(0));
    pool.release_prewarmed(stem);
    assert_eq!(pool.prewarmed_in_the_way(stem), 0);
    waits(&mut pool, &sized("huge", 512), at(0));
    pool.release_prewarmed(stem);
    assert!(!pool.book_prewarmed(stem), "somebody waits for room");
}

#[test]
fn stems_yield_to_the_number_of_sandboxes_too() {
    let mut pool = pool(PoolLimits { sandboxes_max: 2, ..LIMITS });
    assert!(pool.book_prewarmed(ByteSize::mib(1)) && pool.book_prewarmed(ByteSize::mib(1)));
    runs_cold(&mut pool, &sized("f", 128), 1, at(0));
    assert_eq!(pool.prewarmed_in_the_way(ByteSize::mib(1)), 1);
}

fn start_ahead(pool: &mut SandboxPool<u32>, function: &Arc<Function>) -> Option<StartId> {
    let _known = pool.expect(&function.namespace, &function.name);
    pool.start_ahead(function, at(0)).map(|start| start.id)
}

#[test]
fn a_sandbox_is_made_ahead_in_free_room_only_and_not_beside_an_idle_one() {
    let mut pool = pool(PoolLimits { sandboxes_max: 2, memory_max: ByteSize::mib(1024), ..LIMITS });
    let (one, other) = (sized("one", 128), sized("other", 128));
    let start = start_ahead(&mut pool, &one).unwrap();
    assert_eq!(start_ahead(&mut pool, &one), None, "it is being made");
    assert_eq!(pool.started(start, 7, Duration::from_millis(100), at(0)), None);
    assert_eq!(start_ahead(&mut pool, &one), None, "one is idle");
    assert_eq!(start_ahead(&mut pool, &sized("large", 1024)), None, "there is no memory for it");
    assert!(start_ahead(&mut pool, &other).is_some());
    assert_eq!(start_ahead(&mut pool, &sized("third", 128)), None, "there is no place for it");
}

#[test]
fn an_invocation_takes_the_sandbox_that_is_being_made_ahead_and_none_is_made_for_one_that_has_come() {
    let mut pool = pool(LIMITS);
    let f = sized("f", 128);
    assert!(pool.start_ahead(&f, at(0)).is_none(), "none is expected");
    let start = start_ahead(&mut pool, &f).unwrap();
    let ticket = waits(&mut pool, &f, at(0));
    assert_eq!((pool.serve(at(0)), pool.waits_for(&f, at(200))), (Vec::new(), WaitsFor::Making));
    assert_eq!(pool.started(start, 7, Duration::from_millis(100), at(100)), None);
    assert_eq!(runs(pool.serve(at(100))), [(ticket, 7)]);
    // A start that hangs is not waited for.
    let hangs = sized("hangs", 128);
    start_ahead(&mut pool, &hangs).unwrap();
    waits(&mut pool, &hangs, at(101));
    assert!(starts(pool.serve(at(1_999))).is_empty());
    assert_eq!(starts(pool.serve(at(2_001))).len(), 1);
    let g = sized("g", 128);
    assert!(pool.expect(&g.namespace, &g.name) && !pool.expect(&g.namespace, &g.name));
    let ticket = waits(&mut pool, &g, at(101));
    assert!(pool.leave(ticket, at(101)).is_some() && pool.start_ahead(&g, at(101)).is_none(), "it has come");
}

#[test]
fn a_closed_pool_admits_and_keeps_nothing() {
    let mut pool = pool(LIMITS);
    let (f, g) = (sized("f", 128), sized("g", 128));
    warm_up(&mut pool, &f, 1, at(0));
    runs_cold(&mut pool, &g, 2, at(0));
    waits(&mut pool, &g, at(0));
    assert_eq!(pool.close(), [1]);
    assert_eq!((pool.ask(&f, at(1)), pool.serve(at(1))), (PoolAnswer::Closed, Vec::new()));
    pool.finished(&g);
    assert_eq!(pool.give_back(2, None, at(1)), Some(2));
    assert!(!pool.book_prewarmed(ByteSize(1)));
    [1, 2].iter().for_each(|sandbox| pool.gone(sandbox));
    assert_eq!(pool.in_use(), PoolUse::default());
}

#[test]
fn an_idle_sandbox_ends_after_the_keep_alive_and_can_be_taken_by_name() {
    let mut pool = pool(LIMITS);
    let f = sized("f", 128);
    warm_up(&mut pool, &f, 1, at(0));
    warm_up(&mut pool, &sized("g", 128), 2, at(500_000));
    assert_eq!(pool.idle_functions().len(), 2);
    assert_eq!(pool.take_expired(at(601_000), |_| false), [(1, SandboxEndReason::KeepAlive)]);
    assert!(pool.take(&2, &SandboxEndReason::Memory) && !pool.take(&2, &SandboxEndReason::Memory));
    assert_eq!(pool.in_use().idle, 0);
}

#[test]
fn a_start_says_why_it_is_needed() {
    let mut pool = pool(LIMITS);
    let f = sized("f", 128);
    let reason = |pool: &mut SandboxPool<u32>, now| {
        let ticket = waits(pool, &f, now);
        let reason = pool.serve(now).into_iter().find_map(|command| match command {
            Command::Start(start) => Some((start.reason, start.id)),
            _ => None,
        });
        assert!(pool.leave(ticket, now).is_some());
        let (reason, start) = reason.unwrap();
        assert_eq!(pool.started(start, 1, Duration::from_millis(100), now), None);
        reason
    };
    assert_eq!(reason(&mut pool, at(0)), ColdReason::First);
    assert_eq!(pool.take_expired(at(700_000), |_| false), [(1, SandboxEndReason::KeepAlive)]);
    pool.gone(&1);
    assert_eq!(reason(&mut pool, at(700_000)), ColdReason::Ended(SandboxEndReason::KeepAlive));
    assert!(pool.take(&1, &SandboxEndReason::To("g".parse().unwrap())));
    pool.gone(&1);
    let ended = reason(&mut pool, at(700_001));
    assert!(ended.to_string().ends_with("had been ended to make room for g"), "{ended}");
}
