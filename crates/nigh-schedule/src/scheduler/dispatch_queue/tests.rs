//! Examples of the queue's decisions, and its properties under any order of events.

use proptest::prelude::*;

use super::*;

const LIMITS: DispatchLimits =
    DispatchLimits { entries_max: 40, tenant_entries_max: 20, passes_max: 4, hold_max: Duration::from_secs(5) };

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

fn entry<T>(tenant: usize, function: usize, deadline: u64, item: T) -> NewEntry<T> {
    NewEntry {
        namespace: format!("tenant-{tenant}").parse().unwrap(),
        function: format!("function-{function}").parse().unwrap(),
        run: Duration::from_millis(100),
        deadline: at(deadline),
        item,
    }
}

fn queue<T>() -> DispatchQueue<T> {
    DispatchQueue::new(LIMITS)
}

/// A place, if it fits; else nowhere.
fn place(fits: bool) -> Place<()> {
    if fits { Place::Here(()) } else { Place::Nowhere }
}

fn placed<T>(queue: &mut DispatchQueue<T>, fits: impl Fn(&T) -> bool) -> Option<T> {
    match queue.next(at(0), |item| place(fits(item))) {
        Some(Turn::Placed(_, item, ())) => Some(item),
        _ => None,
    }
}

#[test]
fn a_tenant_with_a_full_line_holds_nobody_else_up() {
    let mut queue = queue();
    for number in 0..10 {
        queue.push(entry(0, 0, 9, (0, number)), at(0)).unwrap();
    }
    queue.push(entry(1, 0, 9, (1, 0)), at(0)).unwrap();
    queue.push(entry(1, 0, 9, (1, 1)), at(0)).unwrap();
    let order: Vec<(usize, usize)> = std::iter::from_fn(|| placed(&mut queue, |_| true)).collect();
    assert_eq!(order[..5], [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]);
}

#[test]
fn a_function_with_a_full_line_holds_no_other_function_of_its_tenant_up() {
    let mut queue = queue();
    for number in 0..10 {
        queue.push(entry(0, 0, 9, (0, number)), at(0)).unwrap();
    }
    assert_eq!(std::iter::from_fn(|| placed(&mut queue, |_| true)).take(4).last(), Some((0, 3)));
    queue.push(entry(0, 1, 9, (1, 0)), at(0)).unwrap();
    queue.push(entry(0, 1, 9, (1, 1)), at(0)).unwrap();
    let heads: Vec<_> = queue.heads(at(0)).map(|head| (*head.item, head.waiting)).collect();
    assert_eq!(heads, [((1, 0), 2), ((0, 4), 6)]);
    let order: Vec<(usize, usize)> = std::iter::from_fn(|| placed(&mut queue, |_| true)).collect();
    assert_eq!(order[..5], [(1, 0), (0, 4), (1, 1), (0, 5), (0, 6)]);
}

#[test]
fn weights_are_shares_and_who_was_away_has_saved_nothing() {
    let mut queue = queue();
    queue.set_weight("tenant-1".parse().unwrap(), 3);
    let fill = |queue: &mut DispatchQueue<usize>, tenant| {
        for _ in 0..16 {
            queue.push(entry(tenant, 0, 9, tenant), at(0)).unwrap();
        }
    };
    let served = |queue: &mut DispatchQueue<usize>, most: usize| {
        let mut counts = [0; 3];
        (0..most).for_each(|_| counts[placed(queue, |_| true).unwrap()] += 1);
        counts
    };
    fill(&mut queue, 0);
    fill(&mut queue, 1);
    assert_eq!(served(&mut queue, 16), [4, 12, 0]);
    for _ in 0..8 {
        queue.push(entry(2, 0, 9, 2), at(0)).unwrap();
    }
    assert_eq!(served(&mut queue, 5), [1, 3, 1]);
}

#[test]
fn what_does_not_fit_is_passed_but_not_for_ever() {
    let mut queue = queue();
    queue.push(entry(0, 0, 100, "big"), at(0)).unwrap();
    let mut small = 0;
    for _ in 0..20 {
        queue.push(entry(1, 0, 100, "small"), at(0)).unwrap();
        small += usize::from(placed(&mut queue, |item| *item == "small").is_some());
    }
    assert_eq!(small, LIMITS.passes_max as usize, "then all wait for the big one");
    assert_eq!(placed(&mut queue, |_| true), Some("big"));
}

#[test]
fn who_fits_nowhere_holds_the_others_for_a_while_only() {
    let mut queue = queue();
    queue.push(entry(0, 0, 100, "huge"), at(0)).unwrap();
    for _ in 0..16 {
        queue.push(entry(1, 0, 100, "small"), at(0)).unwrap();
    }
    let mut at_second = |second| {
        let fits = |item: &&str| place(*item == "small");
        std::iter::from_fn(|| queue.next(at(second), fits)).count()
    };
    assert_eq!([0, 1, 4, 5, 6, 10].map(&mut at_second), [4, 0, 0, 4, 0, 4]);
}

#[test]
fn who_had_better_wait_is_passed_for_ever() {
    let mut queue = queue();
    queue.push(entry(0, 0, 100, "later"), at(0)).unwrap();
    for _ in 0..20 {
        queue.push(entry(1, 0, 100, "now"), at(0)).unwrap();
        let turn = queue.next(at(0), |item| if *item == "now" { Place::Here(()) } else { Place::Later });
        assert!(matches!(turn, Some(Turn::Placed(_, "now", ()))));
    }
}

#[test]
fn refusals_have_reasons_and_one_tenant_cannot_fill_the_queue() {
    let mut queue = queue();
    assert_eq!(queue.push(entry(0, 0, 5, 0), at(5)), Err(DispatchRefusal::Late));
    for _ in 0..LIMITS.tenant_entries_max {
        queue.push(entry(0, 0, 9, 0), at(0)).unwrap();
    }
    assert_eq!(queue.push(entry(0, 1, 9, 0), at(0)), Err(DispatchRefusal::TenantFull(20)));
    for _ in 0..LIMITS.tenant_entries_max {
        queue.push(entry(1, 0, 9, 0), at(0)).unwrap();
    }
    assert_eq!(queue.push(entry(2, 0, 9, 0), at(0)), Err(DispatchRefusal::Full(40)));
}

#[test]
fn nothing_is_kept_of_tenants_that_are_done() {
    let mut queue = queue();
    let tickets: Vec<DispatchTicket> =
        (0..30).map(|number| queue.push(entry(number % 7, number % 3, 9, number), at(0)).unwrap()).collect();
    for _ in 0..20 {
        placed(&mut queue, |_| true).unwrap();
    }
    let left = tickets.into_iter().filter_map(|ticket| queue.leave(ticket)).count();
    assert_eq!(left, 10);
    assert!(queue.is_empty() && queue.tenants.is_empty() && queue.turns.is_empty() && queue.resting.is_empty());
    assert!(queue.deadlines.is_empty() && queue.first_deadline().is_none());
}

#[derive(Clone, Debug)]
enum Step {
    Push { tenant: usize, function: usize, lives: u64 },
    Next { fits: [bool; 3] },
    Leave(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = (0usize..3, 0usize..3, 0u64..8);
    prop::collection::vec(
        prop_oneof![
            4 => push.prop_map(|(tenant, function, lives)| Step::Push { tenant, function, lives }),
            4 => prop::array::uniform3(any::<bool>()).prop_map(|fits| Step::Next { fits }),
            1 => (0usize..100).prop_map(Step::Leave),
            2 => (0u64..4).prop_map(Step::Pass),
        ],
        0..200,
    )
}

/// An entry as the test knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueuedEntry {
    ticket: DispatchTicket,
    tenant: usize,
    function: usize,
    deadline: u64,
}

proptest! {
    #[test]
    fn each_comes_out_once_in_its_functions_order_before_its_deadline_and_no_room_stands_idle(steps in steps()) {
        let mut queue = queue();
        let mut known: Vec<QueuedEntry> = Vec::new();
        let mut second = 0;
        for step in steps {
            match step {
                Step::Push { tenant, function, lives } => {
                    match queue.push(entry(tenant, function, second + lives, (tenant, function)), at(second)) {
                        Ok(ticket) => known.push(QueuedEntry { ticket, tenant, function, deadline: second + lives }),
                        Err(DispatchRefusal::Late) => prop_assert_eq!(lives, 0),
                        Err(DispatchRefusal::Full(waiting)) => prop_assert_eq!(waiting, LIMITS.entries_max),
                        Err(DispatchRefusal::TenantFull(waiting)) => {
                            prop_assert_eq!(waiting, known.iter().filter(|one| one.tenant == tenant).count());
                        }
                    }
                }
                Step::Next { fits } => {
                    match queue.next(at(second), |(_, function)| place(fits[*function])) {
                        Some(Turn::Placed(ticket, (tenant, function), _)) => {
                            let first = known.iter().position(|one| (one.tenant, one.function) == (tenant, function));
                            let first = known.remove(first.unwrap());
                            prop_assert_eq!(first.ticket, ticket, "the first of its function");
                            prop_assert!(first.deadline > second && fits[function]);
                        }
                        Some(Turn::Expired(ticket, _)) => {
                            let at = known.iter().position(|one| one.ticket == ticket).unwrap();
                            prop_assert!(known.remove(at).deadline <= second);
                        }
                        None => {
                            prop_assert!(known.iter().all(|one| one.deadline > second), "an expired one stays");
                            let held = queue.tenants.values().flat_map(|tenant| tenant.lines.values()).any(|line| {
                                line.entries.front().is_some_and(|head| head.is_waited_for(at(second), &LIMITS))
                            });
                            prop_assert!(held || known.iter().all(|one| !fits[one.function]), "room stands idle");
                        }
                    }
                }
                Step::Leave(which) => {
                    if !known.is_empty() {
                        let one = known.remove(which % known.len());
                        prop_assert_eq!(queue.leave(one.ticket), Some((one.tenant, one.function)));
                        prop_assert_eq!(queue.leave(one.ticket), None);
                    }
                }
                Step::Pass(seconds) => second += seconds,
            }
            prop_assert_eq!(queue.len(), known.len());
        }
    }

    #[test]
    fn while_two_wait_neither_gets_more_than_its_share_and_one_entry(
        weights in prop::array::uniform2(1u32..9),
        runs in prop::array::uniform2(1u64..500),
    ) {
        let limits = DispatchLimits { entries_max: 4000, tenant_entries_max: 2000, ..LIMITS };
        let mut queue = DispatchQueue::new(limits);
        for tenant in 0..2 {
            queue.set_weight(format!("tenant-{tenant}").parse().unwrap(), weights[tenant]);
            for _ in 0..2000 {
                let run = Duration::from_millis(runs[tenant]);
                queue.push(NewEntry { run, ..entry(tenant, 0, 9, tenant) }, at(0)).unwrap();
            }
        }
        let mut had = [0.0; 2];
        for _ in 0..1000 {
            let tenant = placed(&mut queue, |_| true).unwrap();
            had[tenant] += runs[tenant] as f64 / f64::from(weights[tenant]);
            let one_entry = (0..2).map(|tenant| runs[tenant] as f64 / f64::from(weights[tenant])).sum::<f64>();
            prop_assert!((had[0] - had[1]).abs() <= one_entry + 0.01, "{had:?}");
        }
    }

    #[test]
    fn a_big_one_among_a_stream_of_small_ones_is_placed(before in 0usize..10, small in 1usize..4) {
        let mut queue = queue();
        // Four places; the small entry takes one of them for a second, the big one needs all.
        let mut ends: Vec<u64> = Vec::new();
        for _ in 0..before {
            queue.push(entry(1, 0, 1000, 1), at(0)).unwrap();
        }
        queue.push(entry(0, 0, 1000, 4), at(0)).unwrap();
        for second in 0..100 {
            ends.retain(|end| *end > second);
            for _ in 0..small {
                let _ = queue.push(entry(1, 0, second + 3, 1), at(second));
            }
            while let Some(turn) = queue.next(at(second), |need| place(ends.len() + need <= 4)) {
                match turn {
                    Turn::Placed(_, 4, ()) => return Ok(()),
                    Turn::Placed(..) => ends.push(second + 2),
                    Turn::Expired(..) => {}
                }
            }
        }
        prop_assert!(false, "it starved");
    }
}
