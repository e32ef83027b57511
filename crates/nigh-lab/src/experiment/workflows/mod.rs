//! `nigh experiment workflows`: Apta's six workflows of real functions on three nodes, under Nigh's coherence protocol and
//! under compared ones (docs/design/comparison.md), beside an uncached S3 server and Redis; and what a function pays
//! whose input lies on another node.
//!
//! In each round every side runs the workflow once, in an order of the round's own, each run on objects of its own. The
//! clusters differ in their protocol alone: same program, settings, functions, sandboxes and machine.

mod bare_side;
mod cluster_side;
mod pipeline;
mod remote_hit;
mod report;
mod rounds;
mod side;
mod sides;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use self::pipeline::Pipeline;
use self::remote_hit::Distance;
use self::report::WorkflowsReport;
use self::rounds::Cell;
use self::side::Side;
use self::sides::Sides;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::python;
use crate::instrument::progress;
use crate::instrument::report::print_report;
use crate::instrument::sample_function::SampleFunction;

/// The one bucket of all sides.
const BUCKET: &str = "workflows";

/// An invocation's end.
struct StageInvocation {
    /// What the handler returned.
    payload: Vec<u8>,
    /// From the event's first byte to the answer's last, by who invoked it.
    took: Duration,
}

/// What `nigh experiment workflows` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct WorkflowsArgs {
    /// So many runs of each workflow on each side
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// Only these workflows; `remote-hit` is the scenario of single functions
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Two workflows, one round: to see that it runs
    #[arg(long)]
    quick: bool,
    /// Keeps what is done in this file, so that a run that is cut off goes on
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// The part of single functions whose input is on another node.
const REMOTE_HIT: &str = "remote-hit";
const QUICK_PARTS: [&str; 3] = ["phi", "sentiment", REMOTE_HIT];

/// What decides the outcome of a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WorkflowsParameters {
    rounds: usize,
}

/// The outcome of a part.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Part {
    Workflow(Cell),
    RemoteHit(Vec<Distance>),
}

impl WorkflowsArgs {
    pub(super) async fn run(self, mut machine: Machine, json: bool) -> Result<(), LabError> {
        let project = std::env::current_dir().at(".")?;
        let python = python()?;
        let pipelines = Pipeline::read_all(&project.join("functions/pipelines"))?;
        let parts = self.parts(&pipelines)?;
        let rounds = if self.quick { 1 } else { usize::from(self.rounds) };
        let kept: Option<KeptProgress<WorkflowsParameters, Part>> = self
            .progress
            .as_deref()
            .map(|path| KeptProgress::open(path, WorkflowsParameters { rounds }))
            .transpose()?;

        let progress = progress::bar(parts.len() as u64);
        progress.enable_steady_tick(Duration::from_millis(500));
        progress.set_message("starting the clusters");
        let wanted: &[Side] = if parts == [REMOTE_HIT] { &[Side::S3, Side::Nigh] } else { &Side::ALL };
        let sides = Sides::start(&python, wanted, &mut machine, |said| progress.println(said)).await?;
        let stop = progress::stop_on_interrupt();
        let mut done = Vec::new();
        let mut failed = None;
        for part in &parts {
            progress.set_message(part.clone());
            let outcome = match kept.as_ref().and_then(|kept| kept.done(part)) {
                Some(known) => Ok(known),
                None => {
                    let keep_on = || !stop.load(Ordering::Relaxed);
                    match pipelines.iter().find(|pipeline| pipeline.name == *part) {
                        Some(pipeline) => rounds::play(&sides, pipeline, rounds, keep_on).await.map(Part::Workflow),
                        None => {
                            let functions = SampleFunction::read_all(&project.join("functions"))?;
                            let inputs = project.join(".deps/inputs");
                            let few = self.quick.then_some(2);
                            let played = remote_hit::play(&sides, &functions, &inputs, (rounds, few), keep_on).await;
                            played.map(Part::RemoteHit)
                        }
                    }
                }
            };
            match outcome {
                Ok(outcome) => {
                    kept.as_ref().map_or(Ok(()), |kept| kept.add(part, &outcome))?;
                    done.push(outcome);
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
            progress.inc(1);
        }
        progress.set_message("ending the clusters");
        sides.end();
        progress.finish_and_clear();
        if let Some(error) = failed {
            return Err(error);
        }
        let (mut cells, mut distances) = (Vec::new(), Vec::new());
        for part in done {
            match part {
                Part::Workflow(cell) => cells.push(cell),
                Part::RemoteHit(found) => distances.extend(found),
            }
        }
        let report = WorkflowsReport::new(machine, rounds, &cells, &distances);
        print_report(&report, || report.text(), json)?;
        kept.map_or(Ok(()), KeptProgress::finish)
    }

    /// What is played, in its order.
    fn parts(&self, pipelines: &[Pipeline]) -> Result<Vec<String>, LabError> {
        let all: Vec<&str> = pipelines.iter().map(|pipeline| pipeline.name.as_str()).chain([REMOTE_HIT]).collect();
        if let Some(unknown) = self.only.iter().find(|name| !all.contains(&name.as_str())) {
            let reason = format!("there are {}", all.join(", "));
            return Err(LabError::Request { what: format!("workflow {unknown}"), reason });
        }
        let is_taken = |name: &&str| match (self.only.is_empty(), self.quick) {
            (false, _) => self.only.iter().any(|one| one == name),
            (true, true) => QUICK_PARTS.contains(name),
            (true, false) => true,
        };
        Ok(all.into_iter().filter(is_taken).map(str::to_owned).collect())
    }
}
