//! Rounds of one function on one size: every scenario once a round, in an order of the round's own.

use std::collections::BTreeMap;
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::scenario::Scenario;
use super::stage::{Cast, Stage, WARM_UP_SIZE, input_key};
use crate::LabError;
use crate::instrument::platform::Reads;

/// The order of the scenarios is the same in every run.
const SEED: u64 = 7;
/// Times that a scenario runs before its runs count, on the smallest input: its imports, connections and log-in.
const WARM_UPS: usize = 2;
/// A whole round goes first and does not count, if it takes at most this share of the time there is.
const WARM_UP_SHARE: f64 = 0.25;

/// How many rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RoundLimits {
    /// At least.
    pub(super) rounds_min: usize,
    /// At most.
    pub(super) rounds_max: usize,
    /// No further one begins after so many seconds.
    pub(super) seconds: f64,
}

impl RoundLimits {
    /// True if one more round is to begin after `done` rounds that took `spent` seconds.
    fn go_on(&self, done: usize, spent: f64) -> bool {
        done < self.rounds_min || (done < self.rounds_max && spent < self.seconds)
    }
}

/// One invocation, measured in the handler's process but for `invocation_ms` and `servers_cpu_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// The handler, from its first line to its last.
    pub(super) total_ms: f64,
    pub(super) extract_ms: f64,
    pub(super) load_ms: f64,
    /// Processor time of the handler's process.
    pub(super) cpu_ms: f64,
    /// Processor time of all servers behind it.
    pub(super) servers_cpu_ms: Option<f64>,
    /// By who invoked it: with the runtime client, and for the sandbox with the Lambda door.
    pub(super) invocation_ms: f64,
}

impl Run {
    pub(super) fn transform_ms(&self) -> f64 {
        self.total_ms - self.extract_ms - self.load_ms
    }
}

/// A function on a size: the runs of each scenario, round by round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) function: String,
    pub(super) bytes: u64,
    pub(super) runs: BTreeMap<Scenario, Vec<Run>>,
}

/// What `measured.py` returns.
#[derive(Deserialize)]
struct MeasuredTimes {
    total_us: f64,
    extract_us: f64,
    load_us: f64,
    cpu_us: f64,
}

/// Plays the rounds while `keep_on` says so.
pub(super) async fn play(
    stage: &Stage,
    cast: &mut Cast<'_>,
    size: &str,
    limits: RoundLimits,
    keep_on: impl Fn() -> bool,
) -> Result<Cell, LabError> {
    let mut cell =
        Cell { function: cast.function.name.clone(), bytes: stage.input_bytes(size)?, runs: BTreeMap::new() };
    let mut order = cast.scenarios.clone();
    let mut random = StdRng::seed_from_u64(SEED);
    for scenario in cast.scenarios.clone() {
        for _ in 0..WARM_UPS {
            cast.play(scenario, &input_key(WARM_UP_SIZE)).await?;
        }
    }
    let (mut begin, mut counted, mut round) = (Instant::now(), 0, 0);
    while limits.go_on(counted, begin.elapsed().as_secs_f64()) {
        let unseen = stage.upload_unseen(size, &format!("{}-{size}-{round}", cell.function)).await?;
        order.shuffle(&mut random);
        let mut runs = Vec::with_capacity(order.len());
        for &scenario in &order {
            if !keep_on() {
                let kept = "what is done is kept if --html or --progress was given: run the same command again";
                return Err(LabError::Interrupted { kept });
            }
            let key = if scenario == Scenario::NighMiss { unseen.clone() } else { input_key(size) };
            runs.push((scenario, measured(stage, cast, scenario, &key).await?));
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

/// One invocation; a scenario of Nigh must be served as its name says.
async fn measured(stage: &Stage, cast: &mut Cast<'_>, scenario: Scenario, key: &str) -> Result<Run, LabError> {
    let reads = if scenario.is_nigh() { Some(Reads::of(stage.node())?) } else { None };
    let cpu = stage.servers_cpu(scenario);
    let played = cast.play(scenario, key).await?;
    let servers_cpu = stage.servers_cpu(scenario).zip(cpu).map(|(now, before)| now.saturating_sub(before));
    let failure = |reason: String| LabError::Function {
        function: format!("{} ({})", cast.function.name, scenario.name()),
        input: key.to_owned(),
        reason,
    };
    if let Some(before) = reads {
        let read = Reads::of(stage.node())?.since(before);
        let expected = match scenario {
            Scenario::NighMiss => Reads { hits: 0, misses: 1 },
            _ => Reads { hits: 1, misses: 0 },
        };
        if read != expected {
            return Err(failure(format!("Nigh served it by {read:?}, where {expected:?} was to be measured")));
        }
    }
    let answer: MeasuredTimes = serde_json::from_slice(&played.payload).map_err(|error| failure(error.to_string()))?;
    Ok(Run {
        total_ms: answer.total_us / 1e3,
        extract_ms: answer.extract_us / 1e3,
        load_ms: answer.load_us / 1e3,
        cpu_ms: answer.cpu_us / 1e3,
        servers_cpu_ms: servers_cpu.map(|cpu| cpu.as_secs_f64() * 1e3),
        invocation_ms: played.took.as_secs_f64() * 1e3,
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
        let run = Run {
            total_ms: 10.0,
            extract_ms: 2.0,
            load_ms: 3.0,
            cpu_ms: 1.0,
            servers_cpu_ms: None,
            invocation_ms: 11.0,
        };
        assert_eq!(run.transform_ms(), 5.0);
    }
}
