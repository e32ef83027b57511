//! `nigh experiment workflows`: Apta's six workflows of real functions on three nodes, under Nigh's coherence protocol and
//! under compared ones (docs/design/comparison.md), beside an uncached S3 server and Redis; and the cost of an input that
//! another node caches.
//!
//! In each round every side runs the workflow once, in an order of the round's own, each run on objects of its own. The
//! clusters differ in their protocol alone: same program, settings, functions, sandboxes and machine.

mod cluster_side;
mod pipeline;
mod remote_hit;
mod report;
mod rounds;
mod sides;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use nigh_node::status::CoherenceProtocol;
use serde::{Deserialize, Serialize};

use self::pipeline::{IntermediateMode, Pipeline};
use self::remote_hit::Distance;
use self::report::WorkflowsReport;
use self::rounds::Cell;
use self::sides::Sides;
use crate::LabError;
use crate::instrument::choice::chosen;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::python;
use crate::instrument::progress;
use crate::instrument::report::print_report;
use crate::instrument::sample_function::SampleFunction;

/// The one bucket of all sides.
const BUCKET: &str = "workflows";

struct StageInvocation {
    /// What the handler returned.
    payload: Vec<u8>,
    /// The caller's time, from the event's first byte to the answer's last.
    took: Duration,
}

#[derive(Clone, Debug, Args)]
pub(super) struct WorkflowsArgs {
    /// How many runs of each workflow on each contender
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// Only these workflows; `remote-hit` is the scenario of single functions
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Run only two workflows and one round, to test that the experiment works
    #[arg(long)]
    quick: bool,
    /// The progress file: stores finished parts, so that an interrupted run resumes
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// The part of single functions whose input is on another node.
const REMOTE_HIT: &str = "remote-hit";
const QUICK_PARTS: [&str; 3] = ["phi", "sentiment", REMOTE_HIT];

/// Where a workflow's objects are, and how its readers get them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    /// An S3 server that caches nothing, by boto3.
    S3,
    /// Redis, by redis-py with hiredis.
    Redis,
    /// Nigh's cluster without copies: each read of another node goes to the object's home.
    None,
    /// Nigh's cluster whose copies are checked at each read, as `Faa$T` does.
    VersionCheck,
    /// Nigh's cluster whose writes wait for all sharers.
    Synchronous,
    /// Nigh's cluster as it is, with intermediate objects as durable as all others.
    NighDurable,
    /// Nigh's cluster as it is.
    Nigh,
}

impl Side {
    const ALL: [Self; 7] =
        [Self::S3, Self::Redis, Self::None, Self::VersionCheck, Self::Synchronous, Self::NighDurable, Self::Nigh];

    /// The side whose cluster it uses.
    const fn cluster(self) -> Self {
        match self {
            Self::NighDurable => Self::Nigh,
            own => own,
        }
    }

    const fn between(self) -> IntermediateMode {
        match self {
            Self::NighDurable => IntermediateMode::Durable,
            _ => IntermediateMode::InMemory,
        }
    }

    /// The protocol of the cluster that is started for it, if one is.
    const fn protocol(self) -> Option<CoherenceProtocol> {
        match self {
            Self::S3 | Self::Redis | Self::NighDurable => None,
            Self::None => Some(CoherenceProtocol::None),
            Self::VersionCheck => Some(CoherenceProtocol::VersionCheck),
            Self::Synchronous => Some(CoherenceProtocol::Synchronous),
            Self::Nigh => Some(CoherenceProtocol::Nigh),
        }
    }
}

/// What decides the outcome of a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WorkflowsParameters {
    rounds: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Part {
    Workflow(Cell),
    RemoteHit(Vec<Distance>),
}

impl WorkflowsArgs {
    pub(super) async fn run(self, mut machine: Machine, json: bool) -> Result<(), LabError> {
        let project = std::env::current_dir().at(".")?;
        let pipelines = Pipeline::read_all(&project.join("functions/pipelines"))?;
        let parts = self.parts(&pipelines)?;
        let rounds = if self.quick { 1 } else { usize::from(self.rounds) };
        let kept = KeptProgress::open_if(self.progress.as_deref(), WorkflowsParameters { rounds })?;

        let progress = progress::ticking_bar(parts.len() as u64, "starting the clusters");
        let wanted: &[Side] = if parts == [REMOTE_HIT] { &[Side::S3, Side::Nigh] } else { &Side::ALL };
        let sides = Sides::start(&python()?, wanted, &mut machine, |said| progress.println(said)).await?;
        let stop = progress::stop_on_interrupt();
        let play = async {
            let (mut cells, mut distances) = (Vec::new(), Vec::new());
            for part in parts {
                progress.set_message(part.to_owned());
                let play = async || match pipelines.iter().find(|pipeline| pipeline.name == part) {
                    Some(pipeline) => rounds::play(&sides, pipeline, rounds, &stop).await.map(Part::Workflow),
                    None => {
                        let functions = SampleFunction::read_all(&project.join("functions"))?;
                        let inputs = project.join(".deps/inputs");
                        let few = self.quick.then_some(2);
                        let played = remote_hit::play(&sides, &functions, &inputs, (rounds, few), &stop).await;
                        played.map(Part::RemoteHit)
                    }
                };
                match kept.part(part, play).await? {
                    Part::Workflow(cell) => cells.push(cell),
                    Part::RemoteHit(found) => distances.extend(found),
                }
                progress.inc(1);
            }
            Ok::<_, LabError>((cells, distances))
        };
        let played = Box::pin(play).await;
        progress.set_message("ending the clusters");
        sides.end();
        progress.finish_and_clear();
        let (cells, distances) = played?;
        let report = WorkflowsReport::new(machine, rounds, &cells, &distances);
        print_report(&report, || report.text(), json)?;
        kept.finish()
    }

    /// What is played, in its order.
    fn parts<'a>(&self, pipelines: &'a [Pipeline]) -> Result<Vec<&'a str>, LabError> {
        let all: Vec<&str> = pipelines.iter().map(|pipeline| pipeline.name.as_str()).chain([REMOTE_HIT]).collect();
        let is_taken = |name: &&str| !self.quick || !self.only.is_empty() || QUICK_PARTS.contains(name);
        Ok(chosen("workflow", &self.only, &all, |name| name)?.into_iter().copied().filter(is_taken).collect())
    }
}
