//! The tables of the report, and what of them breaks a promise. Pure.

use serde::Serialize;

use super::flood::FloodOutcome;
use super::{DOORS, Greed, WindowOutcome};
use crate::experiment::slow_clients::honest::{HonestCall, HonestOutcome};
use crate::experiment::slow_clients::kind::Door;
use crate::experiment::slow_clients::ratio::{Round, pooled, ratio};
use crate::instrument::report::name_of;
use crate::instrument::stats::Estimate;

/// The target: the 99th percentile beside ten times the quota over that beside the quota.
pub(super) const RATIO_MAX: f64 = 1.1;
/// With fewer rounds the interval says nothing, and the ratio is not judged.
pub(super) const JUDGED_ROUNDS_MIN: usize = 4;
/// The clocks of the node and of this process may differ by this share.
const CLOCK_SHARE: f64 = 0.05;

/// What the neighbour noticed at one door.
#[derive(Debug, Serialize)]
pub(super) struct CallRow {
    pub(super) door: Door,
    pub(super) call: HonestCall,
    rounds: usize,
    /// Answered in all windows.
    calls: usize,
    p50_alone_ms: f64,
    p50_quota_ms: f64,
    p50_ms: f64,
    p99_alone_ms: f64,
    p99_quota_ms: f64,
    p99_ms: f64,
    pub(super) p99_ratio: Estimate,
    pub(super) failed: usize,
    pub(super) first_failure: Option<String>,
}

/// What became of the greedy tenant's requests at one door.
#[derive(Debug, Serialize)]
pub(super) struct FloodRow {
    pub(super) door: Door,
    /// How many times its quota it sent.
    pub(super) times: u32,
    sent_per_s: f64,
    accepted_per_s: f64,
    accepted: usize,
    /// The seconds in which it sent, and the windows, each of which begins with a burst of one second's requests.
    seconds: f64,
    windows: usize,
    pub(super) refused: usize,
    pub(super) silent: usize,
    pub(super) failed: usize,
    pub(super) first_failure: Option<String>,
    refused_p50_ms: Option<f64>,
}

/// A row for each call at each door.
pub(super) fn call_rows(windows: &[WindowOutcome]) -> Vec<CallRow> {
    let calls = DOORS.into_iter().flat_map(|door| HonestCall::of(door).iter().map(move |&call| (door, call)));
    calls.map(|(door, call)| call_row(windows, door, call)).collect()
}

fn call_row(windows: &[WindowOutcome], door: Door, call: HonestCall) -> CallRow {
    let of = |greed: Greed| -> Vec<(u16, &HonestOutcome)> {
        let own = windows.iter().filter(|window| window.door == door && window.greed == greed);
        let called = |outcome: &&HonestOutcome| outcome.call == call;
        own.filter_map(|window| Some((window.round, window.neighbour.iter().find(called)?))).collect()
    };
    let (alone, quota, tenfold) = (of(Greed::Absent), of(Greed::Quota), of(Greed::Tenfold));
    let rounds: Vec<Round<'_>> = tenfold
        .iter()
        .filter_map(|(round, tenfold)| {
            let (_, quota) = quota.iter().find(|(other, _)| other == round)?;
            Some(Round { quiet: &quota.latencies_us, slow: &tenfold.latencies_us })
        })
        .collect();
    let ms = |outcomes: &[(u16, &HonestOutcome)], share: f64| {
        pooled(outcomes.iter().map(|(_, outcome)| outcome.latencies_us.as_slice()), share) / 1e3
    };
    let all = || [&alone, &quota, &tenfold].into_iter().flatten().map(|(_, outcome)| *outcome);
    CallRow {
        door,
        call,
        rounds: rounds.len(),
        calls: all().map(|outcome| outcome.latencies_us.len()).sum(),
        p50_alone_ms: ms(&alone, 0.5),
        p50_quota_ms: ms(&quota, 0.5),
        p50_ms: ms(&tenfold, 0.5),
        p99_alone_ms: ms(&alone, 0.99),
        p99_quota_ms: ms(&quota, 0.99),
        p99_ms: ms(&tenfold, 0.99),
        p99_ratio: ratio(&rounds, 0.99),
        failed: all().map(|outcome| outcome.failed).sum(),
        first_failure: all().find_map(|outcome| outcome.first_failure.clone()),
    }
}

/// A row for each door and each load of the greedy tenant.
pub(super) fn flood_rows(windows: &[WindowOutcome]) -> Vec<FloodRow> {
    let loads = DOORS.into_iter().flat_map(|door| [(door, Greed::Quota), (door, Greed::Tenfold)]);
    loads
        .map(|(door, greed)| {
            let mut all = FloodOutcome::default();
            let own = windows.iter().filter(|window| window.door == door && window.greed == greed);
            let mut count = 0;
            for window in own {
                all.join(window.flood.clone());
                count += 1;
            }
            let per_second = |count: usize| count as f64 / all.took.as_secs_f64().max(f64::EPSILON);
            let refused_p50 = pooled([all.refused_us.as_slice()].into_iter(), 0.5);
            FloodRow {
                door,
                times: greed.times(),
                sent_per_s: per_second(all.sent),
                accepted_per_s: per_second(all.accepted),
                accepted: all.accepted,
                seconds: all.took.as_secs_f64(),
                windows: count,
                refused: all.refused,
                silent: all.silent,
                failed: all.failed,
                first_failure: all.first_failure,
                refused_p50_ms: refused_p50.is_finite().then_some(refused_p50 / 1e3),
            }
        })
        .collect()
}

/// Each promise that the rows show to be broken, in a sentence.
pub(super) fn broken(calls: &[CallRow], floods: &[FloodRow], quota: u32) -> Vec<String> {
    let mut broken = Vec::new();
    for row in calls {
        let what = format!("{} at {}", name_of(&row.call), name_of(&row.door));
        if row.failed > 0 {
            let first = row.first_failure.as_deref().unwrap_or("no reason is known");
            broken.push(format!("{what}: {} calls of the neighbour failed, the first one: {first}", row.failed));
        }
        let Estimate { value, low, high } = row.p99_ratio;
        if row.rounds >= JUDGED_ROUNDS_MIN && low > RATIO_MAX {
            broken.push(format!(
                "{what}: the 99th percentile beside ten times the quota is {value:.2} times that beside the quota \
                 ({low:.2} to {high:.2}), at most {RATIO_MAX} is promised"
            ));
        }
    }
    for row in floods {
        let what = format!("{} times the quota at {}", row.times, name_of(&row.door));
        let allowed = f64::from(quota) * (row.seconds + row.windows as f64) * (1.0 + CLOCK_SHARE) + row.windows as f64;
        if row.accepted as f64 > allowed {
            broken.push(format!("{what}: {} requests were accepted, {allowed:.0} are allowed", row.accepted));
        }
        if row.times > 1 && row.refused == 0 {
            broken.push(format!("{what}: nothing was refused"));
        }
        if row.silent > 0 {
            broken.push(format!("{what}: {} refusals did not say when to try again", row.silent));
        }
        if row.failed > 0 {
            let first = row.first_failure.as_deref().unwrap_or("no reason is known");
            broken.push(format!("{what}: {} requests failed, the first one: {first}", row.failed));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const QUOTA: u32 = 10;

    fn window(greed: Greed, round: u16, from_us: u32, accepted: usize) -> WindowOutcome {
        let outcome = HonestOutcome {
            call: HonestCall::Invoke,
            latencies_us: (from_us..from_us + 100).collect(),
            first_us: Vec::new(),
            failed: 0,
            first_failure: None,
            sent_again: 0,
        };
        let flood = FloodOutcome {
            sent: accepted + 90,
            accepted,
            refused: 90,
            refused_us: vec![200; 90],
            took: Duration::from_secs(1),
            ..FloodOutcome::default()
        };
        WindowOutcome { door: Door::Lambda, greed, round, neighbour: vec![outcome], flood }
    }

    fn windows(tenfold_us: u32, accepted: usize) -> Vec<WindowOutcome> {
        (0..5)
            .flat_map(|round| {
                [
                    window(Greed::Absent, round, 900, 0),
                    window(Greed::Quota, round, 1000, QUOTA as usize),
                    window(Greed::Tenfold, round, tenfold_us, accepted),
                ]
            })
            .collect()
    }

    fn judged(windows: &[WindowOutcome]) -> Vec<String> {
        // Nothing was measured at the S3 door here.
        let of = |door: Door| door == Door::Lambda;
        let calls: Vec<CallRow> = call_rows(windows).into_iter().filter(|row| of(row.door)).collect();
        let floods: Vec<FloodRow> = flood_rows(windows).into_iter().filter(|row| of(row.door)).collect();
        broken(&calls, &floods, QUOTA)
    }

    #[test]
    fn a_neighbour_that_is_not_slowed_and_requests_within_the_quota_break_nothing() {
        let windows = windows(1000, 10);
        assert_eq!(judged(&windows), Vec::<String>::new());
        let row = call_rows(&windows).into_iter().find(|row| row.call == HonestCall::Invoke).unwrap();
        assert_eq!((row.calls, row.rounds, row.p99_ratio.value), (1500, 5, 1.0));
        assert_eq!((row.p99_alone_ms, row.p99_quota_ms), (0.998, 1.098));
        let flood = flood_rows(&windows).into_iter().find(|row| row.door == Door::Lambda && row.times == 10).unwrap();
        assert_eq!((flood.accepted_per_s, flood.refused, flood.refused_p50_ms), (10.0, 450, Some(0.2)));
    }

    #[test]
    fn a_neighbour_that_is_slowed_and_requests_beyond_the_quota_break_promises() {
        let broken = judged(&windows(2000, 40));
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(
            broken[0].contains("99th percentile") && broken[1].contains("200 requests were accepted"),
            "{broken:?}"
        );
    }
}
