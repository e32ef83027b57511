//! Rounds of one workflow: every side once a round, in an order of the round's own.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pipeline::Pipeline;
use super::sides::{Cast, Sides};
use super::{Side, StageInvocation};
use crate::LabError;
use crate::instrument::progress::{PARTS_KEPT, unless_stopped};
use crate::instrument::report::name_of;

/// The order of the sides is the same in every run.
const SEED: u64 = 11;
/// Whole runs of each side that do not count: sandboxes start, connections open, stages settle on nodes.
const WARM_UPS: usize = 2;

/// One run of a workflow on one side, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// From the first stage's event to the last one's answer.
    pub(super) total_ms: f64,
    /// What all stages did, added up: waiting for objects,
    pub(super) extract_ms: f64,
    /// working,
    pub(super) transform_ms: f64,
    /// storing objects,
    pub(super) load_ms: f64,
    /// and the way to the handler and back: doors, placement, network.
    pub(super) around_ms: f64,
}

/// A workflow: the runs of each side, round by round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) workflow: String,
    pub(super) runs: BTreeMap<Side, Vec<Run>>,
    /// The nodes on which each cluster's stages ran, with how many functions each had.
    pub(super) nodes: BTreeMap<Side, Vec<usize>>,
}

/// What `measured.stage` returns.
#[derive(Deserialize)]
struct StageAnswer {
    answer: Value,
    total_us: f64,
    extract_us: f64,
    load_us: f64,
}

/// Plays `rounds` of a workflow until `stop`.
pub(super) async fn play(
    sides: &Sides,
    pipeline: &Pipeline,
    rounds: usize,
    stop: &AtomicBool,
) -> Result<Cell, LabError> {
    let mut cast = sides.cast(pipeline).await?;
    let mut cell = Cell { workflow: pipeline.name.clone(), runs: BTreeMap::new(), nodes: BTreeMap::new() };
    let mut order = sides.present();
    let mut random = StdRng::seed_from_u64(SEED);
    let mut first = None;
    for round in 0..WARM_UPS + rounds {
        order.shuffle(&mut random);
        for &side in &order {
            unless_stopped(stop, PARTS_KEPT)?;
            let run = format!("{}-{round}", name_of(&side));
            cast.furnish(side, &run).await?;
            let (measured, outcome) = one(&mut cast, pipeline, side, &run).await?;
            // Every side does the same work on the same data: another answer shows that the side has read other objects.
            let expected = first.get_or_insert_with(|| outcome.clone());
            if *expected != outcome {
                let reason = format!("{} answered {outcome}, where {expected} was the first answer", name_of(&side));
                return Err(LabError::Function { function: pipeline.name.clone(), input: run, reason });
            }
            if round >= WARM_UPS {
                cell.runs.entry(side).or_default().push(measured);
            }
        }
    }
    for &side in &order {
        if let Some(nodes) = sides.functions_by_node(side, pipeline)? {
            cell.nodes.insert(side, nodes);
        }
    }
    cast.end().await?;
    Ok(cell)
}

/// One run of one side, and what its last step answered.
async fn one(cast: &mut Cast<'_>, pipeline: &Pipeline, side: Side, run: &str) -> Result<(Run, Value), LabError> {
    let mut measured = Run { total_ms: 0.0, extract_ms: 0.0, transform_ms: 0.0, load_ms: 0.0, around_ms: 0.0 };
    let mut previous = Vec::new();
    let began = Instant::now();
    for step in &pipeline.steps {
        let event = |stage| pipeline.event(super::BUCKET, (run, side.between()), stage, &previous);
        let calls: Vec<_> = step.stages.iter().map(|stage| (pipeline.deployed(&stage.name), event(stage))).collect();
        let played = cast.invoke(side, &calls).await?;
        previous = Vec::new();
        for StageInvocation { payload, took } in played {
            let answer: StageAnswer = serde_json::from_slice(&payload).map_err(|error| LabError::Function {
                function: pipeline.name.clone(),
                input: run.to_owned(),
                reason: format!("{error}: {}", String::from_utf8_lossy(&payload)),
            })?;
            let StageAnswer { answer, total_us, extract_us, load_us } = answer;
            measured.extract_ms += extract_us / 1e3;
            measured.load_ms += load_us / 1e3;
            measured.transform_ms += (total_us - extract_us - load_us) / 1e3;
            measured.around_ms += took.as_secs_f64() * 1e3 - total_us / 1e3;
            previous.push(answer);
        }
    }
    measured.total_ms = began.elapsed().as_secs_f64() * 1e3;
    Ok((measured, Value::Array(previous)))
}
