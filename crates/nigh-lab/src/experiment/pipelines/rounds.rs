//! Rounds of one application on one input: every scenario once a round, in an order of the round's own.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Scenario;
use super::application::{SCRATCH, Size};
use super::stage::{Cast, Execution, Figures, Stage};
use crate::LabError;
use crate::instrument::progress::{PARTS_KEPT, unless_stopped};
use crate::instrument::report::name_of;

/// The order of the scenarios is the same in every run.
const SEED: u64 = 17;
/// How late Swift's log may be.
const LOG_LATE: Duration = Duration::from_secs(1);

/// One execution, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// From its start to its answer.
    pub(super) total_ms: f64,
    /// What all tasks' processes did, added up: waiting for objects,
    pub(super) extract_ms: f64,
    /// working,
    pub(super) transform_ms: f64,
    /// storing objects.
    pub(super) load_ms: f64,
}

/// An application on an input: the runs of each scenario, round by round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) application: String,
    pub(super) size: String,
    pub(super) bytes: u64,
    /// Tasks of one execution.
    pub(super) tasks: usize,
    pub(super) runs: BTreeMap<Scenario, Vec<Run>>,
    /// Bytes of intermediates that Swift was sent by its own scenario, for each execution,
    pub(super) swift_intermediates: u64,
    /// and by Nigh, for all executions together.
    pub(super) bytes_to_store: u64,
}

/// Plays `rounds` of what was cast, on a size, until `stop`.
pub(super) async fn play(
    stage: &Stage,
    cast: &Cast<'_>,
    size: &Size,
    rounds: usize,
    stop: &AtomicBool,
) -> Result<Cell, LabError> {
    let (application, body) = (cast.application, stage.made(&size.file)?);
    let known = application.input_key(size);
    let mut order = stage.scenarios();
    let mut cell = Cell {
        application: application.name.clone(),
        size: size.name.clone(),
        bytes: body.len() as u64,
        tasks: 0,
        runs: BTreeMap::new(),
        swift_intermediates: 0,
        bytes_to_store: 0,
    };
    let written = |scenario, folder| stage.sent_to_swift(scenario, folder);
    let before = [Scenario::Swift, Scenario::NighHit].map(|scenario| written(scenario, SCRATCH));
    let outputs_before = written(Scenario::NighHit, "out");
    let mut first: Option<Value> = None;
    let mut random = StdRng::seed_from_u64(SEED);
    // The first does not count: processes, sandboxes and connections start, and Nigh caches the input.
    for round in 0..=rounds {
        if round > 0 {
            order.shuffle(&mut random);
        }
        for &scenario in &order {
            unless_stopped(stop, PARTS_KEPT)?;
            let key = match scenario {
                Scenario::NighMiss => format!("unseen/{}/{}-{round}", application.name, size.name),
                _ => known.clone(),
            };
            if round == 0 || scenario == Scenario::NighMiss {
                stage.put(scenario, &key, &body).await?;
            }
            let played = stage.play(cast, scenario, &key, cell.tasks).await?;
            cell.tasks = cell.tasks.max(played.figures.len());
            let expected = first.get_or_insert_with(|| played.output.clone());
            check(&cell, scenario, &played, expected, round > 0)?;
            if scenario.is_nigh() {
                // The node's work after the answer must not slow the next scenario.
                stage.until_pushed().await?;
            }
            if round > 0 {
                cell.runs.entry(scenario).or_default().push(run_of(&played));
            }
        }
    }
    tokio::time::sleep(LOG_LATE).await;
    let [swift, nigh] = [Scenario::Swift, Scenario::NighHit].map(|scenario| written(scenario, SCRATCH));
    cell.swift_intermediates = (swift - before[0]) / (rounds as u64 + 1);
    cell.bytes_to_store = nigh - before[1];
    if cell.swift_intermediates == 0 || written(Scenario::NighHit, "out") == outputs_before {
        return Err(LabError::Node("Swift's access log names no write".to_owned()));
    }
    Ok(cell)
}

fn run_of(played: &Execution) -> Run {
    let sum = |figure: fn(&Figures) -> f64| played.figures.iter().map(figure).sum::<f64>() / 1e3;
    Run {
        total_ms: played.took.as_secs_f64() * 1e3,
        extract_ms: sum(|task| task.extract_us),
        transform_ms: sum(|task| task.total_us - task.extract_us - task.load_us),
        load_ms: sum(|task| task.load_us),
    }
}

/// Fails unless the answer is that of all others, every task printed its figures, and `nigh_hit` was a hit.
fn check(cell: &Cell, scenario: Scenario, played: &Execution, expected: &Value, counts: bool) -> Result<(), LabError> {
    let failure = |reason: String| LabError::Function {
        function: format!("{} ({})", cell.application, name_of(&scenario)),
        input: cell.size.clone(),
        reason,
    };
    if played.output != *expected {
        return Err(failure(format!("it answered {}, where {expected} was the first answer", played.output)));
    }
    if played.figures.len() != cell.tasks {
        return Err(failure(format!("{} of {} tasks told their figures", played.figures.len(), cell.tasks)));
    }
    // Nigh may prefetch the input of `nigh_miss` before the function reads it.
    if counts && scenario == Scenario::NighHit && played.misses > 0 {
        return Err(failure(format!("Nigh had {} reads from the store", played.misses)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(misses: u64) -> Execution {
        let task = Figures { total_us: 10_000.0, extract_us: 2000.0, load_us: 3000.0 };
        Execution { output: Value::from(1), took: Duration::from_millis(12), figures: vec![task; 2], misses }
    }

    fn cell(tasks: usize) -> Cell {
        let (application, size) = ("a".to_owned(), "s".to_owned());
        let (runs, swift_intermediates, bytes_to_store) = (BTreeMap::new(), 0, 0);
        Cell { application, size, bytes: 1, tasks, runs, swift_intermediates, bytes_to_store }
    }

    #[test]
    fn the_phases_of_all_tasks_are_added_up() {
        let run = run_of(&played(0));
        assert_eq!(run, Run { total_ms: 12.0, extract_ms: 4.0, transform_ms: 10.0, load_ms: 6.0 });
    }

    #[test]
    fn another_answer_a_task_without_figures_and_a_hit_that_is_none_are_refused() {
        let one = Value::from(1);
        assert!(check(&cell(2), Scenario::NighHit, &played(0), &one, true).is_ok());
        assert!(check(&cell(2), Scenario::NighHit, &played(3), &one, true).is_err());
        assert!(check(&cell(2), Scenario::NighHit, &played(3), &one, false).is_ok(), "it warms up");
        assert!(check(&cell(2), Scenario::NighMiss, &played(0), &one, true).is_ok(), "it was brought in time");
        assert!(check(&cell(3), Scenario::Swift, &played(0), &one, true).is_err());
        assert!(check(&cell(2), Scenario::Swift, &played(0), &Value::Null, true).is_err());
    }
}
