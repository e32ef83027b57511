//! Rounds of one function on one size: every scenario once a round, in an order of the round's own.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::Scenario;
use super::stage::{Cast, WARM_UP_SIZE, input_key};
use crate::LabError;
use crate::instrument::platform::Reads;
use crate::instrument::progress::{PARTS_KEPT, unless_stopped};
use crate::load::run::InvocationTimes;

/// The order of the scenarios is the same in every run.
const SEED: u64 = 7;
/// Each scenario first runs so often on the smallest input, for its imports, connections and log-in.
const WARM_UPS: usize = 2;
/// The first round does not count if it takes at most this share of the time there is.
const WARM_UP_SHARE: f64 = 0.25;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RoundLimits {
    pub(super) rounds_min: usize,
    pub(super) rounds_max: usize,
    /// No round begins after this many seconds.
    pub(super) seconds: f64,
}

impl RoundLimits {
    /// True if one more round is to begin after `done` rounds that took `spent` seconds.
    fn go_on(&self, done: usize, spent: f64) -> bool {
        done < self.rounds_min || (done < self.rounds_max && spent < self.seconds)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// As the handler's process measured them.
    pub(super) times: InvocationTimes,
    /// Processor time of all servers behind it.
    pub(super) servers_cpu_ms: Option<f64>,
    /// The caller's time, with the runtime client, or for the sandbox the Lambda door.
    pub(super) invocation_ms: f64,
}

/// A function on a size: the runs of each scenario, round by round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) function: String,
    pub(super) bytes: u64,
    pub(super) runs: BTreeMap<Scenario, Vec<Run>>,
}

/// Plays the rounds of what was cast, on a size, until `stop`.
pub(super) async fn play(
    cast: &mut Cast<'_>,
    size: &str,
    limits: RoundLimits,
    stop: &AtomicBool,
) -> Result<Cell, LabError> {
    let stage = cast.stage;
    let body = stage.input(size)?;
    let function = cast.function.name.clone();
    let mut order = stage.scenarios();
    let mut random = StdRng::seed_from_u64(SEED);
    for &scenario in &order {
        for _ in 0..WARM_UPS {
            cast.play(scenario, &input_key(WARM_UP_SIZE)).await?;
        }
    }
    let mut cell = Cell { function, bytes: body.len() as u64, runs: BTreeMap::new() };
    let (mut begin, mut counted, mut round) = (Instant::now(), 0, 0);
    while limits.go_on(counted, begin.elapsed().as_secs_f64()) {
        let unseen = format!("unseen/{}-{size}-{round}.jpg", cell.function);
        stage.put_unseen(&unseen, &body).await?;
        order.shuffle(&mut random);
        let mut runs = Vec::with_capacity(order.len());
        for &scenario in &order {
            unless_stopped(stop, PARTS_KEPT)?;
            let key = if scenario == Scenario::NighMiss { unseen.clone() } else { input_key(size) };
            runs.push((scenario, measured(cast, scenario, &key).await?));
        }
        round += 1;
        if round == 1 && begin.elapsed().as_secs_f64() <= limits.seconds * WARM_UP_SHARE {
            begin = Instant::now();
            continue;
        }
        for (scenario, run) in runs {
            cell.runs.entry(scenario).or_default().push(run);
        }
        counted += 1;
    }
    Ok(cell)
}

/// One invocation. Nigh must serve its input as the scenario's name says.
async fn measured(cast: &mut Cast<'_>, scenario: Scenario, key: &str) -> Result<Run, LabError> {
    let stage = cast.stage;
    let reads = if scenario.is_nigh() { Some(Reads::of(&stage.node)?) } else { None };
    let cpu = stage.servers_cpu(scenario);
    let (payload, took) = cast.play(scenario, key).await?;
    let servers_cpu = stage.servers_cpu(scenario).zip(cpu).map(|(now, before)| now.saturating_sub(before));
    if let Some(before) = reads {
        let read = Reads::of(&stage.node)?.since(before);
        let expected = match scenario {
            Scenario::NighMiss => Reads { hits: 0, misses: 1 },
            _ => Reads { hits: 1, misses: 0 },
        };
        if read != expected {
            let reason = format!("Nigh served it by {read:?}, where {expected:?} was to be measured");
            return Err(cast.failure(scenario, key, reason));
        }
    }
    Ok(Run {
        times: InvocationTimes::read(&payload).map_err(|reason| cast.failure(scenario, key, reason))?,
        servers_cpu_ms: servers_cpu.map(|cpu| cpu.as_secs_f64() * 1e3),
        invocation_ms: took.as_secs_f64() * 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_go_on_until_the_time_is_up_within_their_bounds() {
        let limits = RoundLimits { rounds_min: 3, rounds_max: 5, seconds: 10.0 };
        assert!(limits.go_on(2, 100.0), "too few");
        assert!(limits.go_on(4, 9.0));
        assert!(!limits.go_on(3, 10.0), "the time is up");
        assert!(!limits.go_on(5, 0.0), "enough");
    }

    #[test]
    fn what_is_neither_read_nor_written_is_transformation() {
        let times = InvocationTimes { total_ms: 10.0, extract_ms: 2.0, load_ms: 3.0, ..InvocationTimes::default() };
        assert_eq!(times.transform_ms(), 5.0);
    }
}
