//! The tables of the report, and what of them breaks a promise. Pure.

use serde::Serialize;

use super::honest::{HonestCall, HonestOutcome};
use super::kind::{Door, SlowKind};
use super::ratio::{Round, pooled, ratio};
use super::swarm::SlowEnds;
use super::windows::{NodeUse, PairOutcome, WATCHED, WatchedClients, WindowOutcome};
use crate::instrument::report::name_of;
use crate::instrument::stats::{Estimate, Sample};

/// The target: the 99th percentile beside slow clients over that without.
pub(super) const RATIO_MAX: f64 = 1.1;
/// With fewer rounds the interval says nothing, and the ratio is not judged.
pub(super) const JUDGED_ROUNDS_MIN: usize = 4;

/// What the honest clients of one call noticed of one kind of slow clients.
#[derive(Debug, Serialize)]
pub(super) struct CallRow {
    pub(super) door: Door,
    pub(super) kind: SlowKind,
    pub(super) call: HonestCall,
    rounds: usize,
    /// Answered in all windows, without slow clients and with them.
    calls: usize,
    p50_quiet_ms: f64,
    p50_ms: f64,
    p50_ratio: f64,
    p99_quiet_ms: f64,
    p99_ms: f64,
    pub(super) p99_ratio: Estimate,
    /// Medians of a new client's first call, with the time to connect; and the longest beside slow clients.
    first_quiet_ms: f64,
    first_ms: f64,
    first_max_ms: f64,
    pub(super) failed: usize,
    pub(super) first_failure: Option<String>,
    sent_again: usize,
}

/// What became of one kind of slow clients, and what the node had to bear.
#[derive(Debug, Serialize)]
pub(super) struct SlowRow {
    pub(super) door: Door,
    pub(super) kind: SlowKind,
    /// Connections in all windows. Of these, in the windows: refused for want of room, ended by the node, and completed.
    opened: usize,
    refused: usize,
    ended: usize,
    completed: usize,
    /// Attempts to connect that this machine refused.
    unopened: usize,
    /// Rounds whose window began before all clients were slow.
    begun_late: usize,
    /// Clients that came once and were watched for a minute: ended by the node, completed, and left.
    watched: usize,
    watched_ended: usize,
    watched_completed: usize,
    watched_refused: usize,
    left: usize,
    /// From the beginning of a watched connection to its end by the node.
    ended_after_p50_s: Option<f64>,
    ended_after_max_s: Option<f64>,
    memory_quiet_mib: f64,
    memory_mib: f64,
    descriptors_quiet: u64,
    descriptors: u64,
    node_processors_quiet: f64,
    node_processors: f64,
    /// Of the slow clients' thread.
    slow_processors: f64,
}

/// A row for each honest call of each cell.
pub(super) fn call_rows(cells: &[(Door, SlowKind)], pairs: &[PairOutcome]) -> Vec<CallRow> {
    let calls = cells.iter().flat_map(|&(door, kind)| HonestCall::of(door).iter().map(move |&call| (door, kind, call)));
    calls.map(|(door, kind, call)| call_row(door, kind, call, &of_cell(pairs, door, kind))).collect()
}

fn of_cell(pairs: &[PairOutcome], door: Door, kind: SlowKind) -> Vec<&PairOutcome> {
    pairs.iter().filter(|pair| (pair.door, pair.kind) == (door, kind)).collect()
}

fn of_call(window: &WindowOutcome, call: HonestCall) -> Option<&HonestOutcome> {
    window.honest.iter().find(|outcome| outcome.call == call)
}

fn call_row(door: Door, kind: SlowKind, call: HonestCall, pairs: &[&PairOutcome]) -> CallRow {
    let outcomes: Vec<(&HonestOutcome, &HonestOutcome)> =
        pairs.iter().filter_map(|pair| of_call(&pair.quiet, call).zip(of_call(&pair.slow, call))).collect();
    let rounds: Vec<Round<'_>> =
        outcomes.iter().map(|(quiet, slow)| Round { quiet: &quiet.latencies_us, slow: &slow.latencies_us }).collect();
    let quiet_ms = |share| pooled(rounds.iter().map(|round| round.quiet), share) / 1e3;
    let slow_ms = |share| pooled(rounds.iter().map(|round| round.slow), share) / 1e3;
    let first_quiet = || outcomes.iter().map(|(quiet, _)| quiet.first_us.as_slice());
    let first = || outcomes.iter().map(|(_, slow)| slow.first_us.as_slice());
    let all = || outcomes.iter().flat_map(|(quiet, slow)| [*quiet, *slow]);
    CallRow {
        door,
        kind,
        call,
        rounds: rounds.len(),
        calls: all().map(|outcome| outcome.latencies_us.len()).sum(),
        p50_quiet_ms: quiet_ms(0.5),
        p50_ms: slow_ms(0.5),
        p50_ratio: ratio(&rounds, 0.5).value,
        p99_quiet_ms: quiet_ms(0.99),
        p99_ms: slow_ms(0.99),
        p99_ratio: ratio(&rounds, 0.99),
        first_quiet_ms: pooled(first_quiet(), 0.5) / 1e3,
        first_ms: pooled(first(), 0.5) / 1e3,
        first_max_ms: pooled(first(), 1.0) / 1e3,
        failed: all().map(|outcome| outcome.failed).sum(),
        first_failure: all().find_map(|outcome| outcome.first_failure.clone()),
        sent_again: all().map(|outcome| outcome.sent_again).sum(),
    }
}

/// A row for each cell.
pub(super) fn slow_rows(cells: &[(Door, SlowKind)], pairs: &[PairOutcome], watched: &[WatchedClients]) -> Vec<SlowRow> {
    let row = |&(door, kind): &(Door, SlowKind)| {
        let once = watched.iter().find(|once| (once.door, once.kind) == (door, kind));
        slow_row(door, kind, &of_cell(pairs, door, kind), once)
    };
    cells.iter().map(row).collect()
}

fn slow_row(door: Door, kind: SlowKind, pairs: &[&PairOutcome], once: Option<&WatchedClients>) -> SlowRow {
    let mut ends = SlowEnds::default();
    pairs.iter().for_each(|pair| ends.join(&pair.ends));
    let none = SlowEnds::default();
    let watched = once.map_or(&none, |once| &once.ends);
    let after = Sample::new(watched.ended_after_ms.iter().map(|&ms| f64::from(ms) / 1e3).collect());
    let most = |of: fn(&NodeUse) -> u64, window: fn(&PairOutcome) -> &WindowOutcome| {
        pairs.iter().map(|pair| of(&window(pair).node)).max().unwrap_or_default()
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mean = |of: fn(&PairOutcome) -> f64| Sample::new(pairs.iter().map(|pair| of(pair)).collect()).mean();
    SlowRow {
        door,
        kind,
        opened: ends.opened,
        refused: ends.refused,
        ended: ends.ended_after_ms.len(),
        completed: ends.completed,
        unopened: ends.unopened,
        begun_late: pairs.iter().filter(|pair| !pair.all_begun).count(),
        watched: once.map_or(0, |once| once.clients),
        watched_ended: watched.ended_after_ms.len(),
        watched_completed: watched.completed,
        watched_refused: watched.refused,
        left: watched.open,
        ended_after_p50_s: after.known_percentile(0.5),
        ended_after_max_s: after.known_percentile(1.0),
        memory_quiet_mib: mib(most(|node| node.memory_bytes, |pair| &pair.quiet)),
        memory_mib: mib(most(|node| node.memory_bytes, |pair| &pair.slow)),
        descriptors_quiet: most(|node| node.descriptors, |pair| &pair.quiet),
        descriptors: most(|node| node.descriptors, |pair| &pair.slow),
        node_processors_quiet: mean(|pair| pair.quiet.node.processors),
        node_processors: mean(|pair| pair.slow.node.processors),
        slow_processors: mean(|pair| pair.slow_processors),
    }
}

/// Each promise that the rows show to be broken, in a sentence.
pub(super) fn broken(calls: &[CallRow], slow: &[SlowRow]) -> Vec<String> {
    let mut broken = Vec::new();
    for row in calls {
        let what = format!("{} at {} beside {}", name_of(&row.call), name_of(&row.door), name_of(&row.kind));
        if row.failed > 0 {
            let first = row.first_failure.as_deref().unwrap_or("no reason is known");
            broken.push(format!("{what}: {} honest calls failed, the first one: {first}", row.failed));
        }
        let Estimate { value, low, high } = row.p99_ratio;
        if row.rounds >= JUDGED_ROUNDS_MIN && low > RATIO_MAX {
            broken.push(format!(
                "{what}: the 99th percentile is {value:.2} times that without slow clients ({low:.2} to {high:.2}), \
                 at most {RATIO_MAX} is promised"
            ));
        }
    }
    for row in slow {
        let what = format!("{} clients at {}", name_of(&row.kind), name_of(&row.door));
        if row.left > 0 {
            let (left, watched, seconds) = (row.left, row.watched, WATCHED.as_secs());
            broken.push(format!("{what}: {left} of {watched} were not ended within {seconds} s"));
        }
        if row.kind == SlowKind::BodyAbove && row.watched_ended > 0 {
            broken.push(format!("{what}: {} were ended though they kept the least rate", row.watched_ended));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(call: HonestCall, from_us: u32, failed: usize) -> WindowOutcome {
        let first_failure = (failed > 0).then(|| "connecting: refused".to_owned());
        let (latencies_us, first_us) = ((from_us..from_us + 100).collect(), vec![from_us, 3 * from_us]);
        let honest = vec![HonestOutcome { call, latencies_us, first_us, failed, first_failure, sent_again: 1 }];
        let node = NodeUse { processors: 0.25, memory_bytes: u64::from(from_us) << 20, descriptors: 40 };
        WindowOutcome { honest, node }
    }

    fn pairs(slow_us: u32, failed: usize, rounds: usize) -> Vec<PairOutcome> {
        let call = HonestCall::Invoke;
        let ends = SlowEnds { opened: 9, refused: 2, ended_after_ms: vec![10, 20], ..SlowEnds::default() };
        let pair = PairOutcome {
            door: Door::Lambda,
            kind: SlowKind::BodyBelow,
            quiet: window(call, 1000, 0),
            slow: window(call, slow_us, failed),
            ends,
            slow_processors: 0.01,
            all_begun: true,
        };
        vec![pair; rounds]
    }

    const CELLS: [(Door, SlowKind); 1] = [(Door::Lambda, SlowKind::BodyBelow)];

    fn watched(kind: SlowKind, open: usize) -> WatchedClients {
        let ends = SlowEnds { opened: 5, open, ended_after_ms: vec![30_500; 5 - open], ..SlowEnds::default() };
        WatchedClients { door: Door::Lambda, kind, clients: 5, ends }
    }

    #[test]
    fn calls_that_are_not_slower_break_nothing_and_the_rows_have_both_sides() {
        let pairs = pairs(1000, 0, 5);
        let (calls, slow) = (call_rows(&CELLS, &pairs), slow_rows(&CELLS, &pairs, &[watched(SlowKind::BodyBelow, 0)]));
        assert_eq!(broken(&calls, &slow), Vec::<String>::new());
        let [row] = &calls[..] else { panic!("{calls:?}") };
        assert_eq!((row.calls, row.rounds, row.sent_again), (1000, 5, 10));
        assert_eq!((row.p99_ms, row.p99_ratio.value, row.first_max_ms), (1.098, 1.0, 3.0));
        let [row] = &slow[..] else { panic!("{slow:?}") };
        assert_eq!((row.opened, row.refused, row.ended, row.left), (45, 10, 10, 0));
        assert_eq!((row.watched, row.ended_after_p50_s, row.ended_after_max_s), (5, Some(30.5), Some(30.5)));
        assert_eq!((row.memory_mib, row.descriptors, row.node_processors), (1000.0, 40, 0.25));
    }

    #[test]
    fn failures_a_ratio_beyond_the_target_and_clients_that_are_left_break_promises() {
        let pairs = pairs(2000, 1, 5);
        let (calls, slow) = (call_rows(&CELLS, &pairs), slow_rows(&CELLS, &pairs, &[watched(SlowKind::BodyBelow, 2)]));
        let broken = broken(&calls, &slow);
        assert_eq!(broken.len(), 3, "{broken:?}");
        assert!(
            broken[0].contains("invoke at lambda beside body-below: 5 honest calls failed, the first one: connecting")
        );
        assert!(broken[1].contains("1.91 times") && broken[2].contains("2 of 5 were not ended"), "{broken:?}");
    }

    #[test]
    fn a_ratio_of_few_rounds_is_not_judged_and_a_client_that_keeps_the_least_rate_may_not_be_ended() {
        let pairs = pairs(2000, 0, JUDGED_ROUNDS_MIN - 1);
        assert_eq!(broken(&call_rows(&CELLS, &pairs), &[]), Vec::<String>::new());
        let above = [(Door::Lambda, SlowKind::BodyAbove)];
        let slow = slow_rows(&above, &[], &[watched(SlowKind::BodyAbove, 0)]);
        assert!(broken(&[], &slow)[0].contains("though they kept the least rate"));
    }
}
