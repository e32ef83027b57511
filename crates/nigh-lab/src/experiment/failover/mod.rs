//! For how long writes wait when one node of a real cluster fails alone, and where that time goes.
//!
//! Three nodes, three NATS servers and a store are processes in networks of their own. One node at a time is killed, stopped or
//! cut off: by turns the dispatch owner of the clients' namespace and one that is not. Clients write to every shard at every
//! living door all the time. The longest time without an acknowledged write is told of the shards of the failed node and of the
//! others. The nodes log each step of a takeover (tracing target `failover`); the steps of the shard that waited longest are
//! told beside it. `Load::Busy` computes on every processor meanwhile.

mod blows;
mod node_log;
mod probes;
mod rows;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::{Args, ValueEnum};
use nigh_engine::nats::TTL;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use self::blows::{Failover, PartOutcome, play};
use self::rows::{StepRow, UnavailableRow, step_rows, unavailable_rows};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::peer::installed::cache_folder;
use crate::instrument::progress::{self, unless_stopped};
use crate::instrument::report::name_of;
use crate::instrument::report_text::tell;

/// Failures of one cluster. A run that is cut off loses at most these.
const PART_FAILURES: u32 = 10;
/// How long beyond the lease writes may wait.
const BEYOND_LEASE_MS: u64 = 1000;

fn bound_ms() -> f64 {
    (TTL.as_millis() as u64 + BEYOND_LEASE_MS) as f64
}

/// How a node fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    /// The node is killed: its machine refuses connections.
    Kill,
    /// The node is stopped (SIGSTOP): its connections stay open, and it answers nothing.
    Stop,
    /// The node's network link is down: its packets are lost.
    Cut,
}

impl Way {
    const ALL: [Self; 3] = [Self::Kill, Self::Stop, Self::Cut];
}

/// What else the machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Load {
    /// Nothing.
    Quiet,
    /// The machine computes on every processor.
    Busy,
}

#[derive(Clone, Debug, Args)]
pub(super) struct FailoverArgs {
    #[command(flatten)]
    parameters: FailoverParameters,
    /// The progress file: stores finished parts, so that an interrupted run resumes
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// What decides the outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Args, Serialize, Deserialize)]
struct FailoverParameters {
    /// How many nodes fail in each way
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    each: u32,
    /// What else the machine does
    #[arg(long, value_enum, default_value_t = Load::Quiet)]
    load: Load,
    /// Let nodes fail in this way only
    #[arg(long, value_enum)]
    only: Option<Way>,
    /// Milliseconds from the answer of a client's write to its next write
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1000))]
    every: u64,
}

#[derive(Debug, Serialize)]
struct FailoverReport {
    machine: Machine,
    load: Load,
    every_ms: u64,
    lease_ms: u64,
    /// The lease and a second.
    bound_ms: f64,
    seconds: f64,
    /// The longest time in which a client at a living door had no write acknowledged.
    unavailable: Vec<UnavailableRow>,
    /// Where that time went for the failed node's shard that waited longest.
    steps: Vec<StepRow>,
    /// Each failure.
    failures: Vec<Failover>,
}

impl FailoverArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        if !rustix::process::geteuid().is_root() {
            let missing = "root".to_owned();
            return Err(LabError::Missing { missing, hint: "every process is in a network namespace of its own" });
        }
        // A thread of its own: the processes live no longer than the thread that starts them.
        let (sender, ended) = tokio::sync::oneshot::channel();
        let (handle, interrupted) = (Handle::current(), progress::stop_on_interrupt());
        let work = move || {
            // Nobody listens only if the command is being ended.
            let _ = sender.send(self.play(machine, &handle, &interrupted));
        };
        let thread = std::thread::Builder::new().name("failover".to_owned()).spawn(work);
        thread.map_err(|error| LabError::Node(format!("no thread: {error}")))?;
        let report = ended.await.map_err(|error| LabError::Node(format!("the run ended: {error}")))??;
        tell(&report, json)
    }

    fn play(&self, machine: Machine, handle: &Handle, interrupted: &AtomicBool) -> Result<FailoverReport, LabError> {
        let FailoverParameters { each, load, only, every } = self.parameters;
        let usual = || cache_folder().with_file_name("failover.state");
        let kept = KeptProgress::open(&self.progress.clone().unwrap_or_else(usual), self.parameters)?;
        let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| only.is_none_or(|only| only == *way)).collect();
        let bar =
            progress::styled(u64::from(each) * ways.len() as u64, "{bar:30} {pos}/{len} failures, {msg}, {eta} left");
        let mut all = PartOutcome::default();
        for way in ways {
            for part in 0..each.div_ceil(PART_FAILURES) {
                let name = format!("{}-{part}", name_of(&way));
                bar.set_message(name.clone());
                let count = PART_FAILURES.min(each - part * PART_FAILURES);
                let before = bar.position();
                let told = || {
                    bar.inc(1);
                    unless_stopped(interrupted, "the same command goes on behind the last cluster")
                };
                let played = kept.part_now(&name, || {
                    let folder = tempfile::tempdir().at(std::env::temp_dir())?;
                    play(folder.path(), (way, count, load, every), handle, told)
                });
                all.add(played?);
                bar.set_position(before + u64::from(count));
            }
        }
        bar.finish_and_clear();
        kept.finish()?;
        Ok(FailoverReport {
            machine,
            load,
            every_ms: every,
            lease_ms: TTL.as_millis() as u64,
            bound_ms: bound_ms(),
            seconds: all.seconds,
            unavailable: unavailable_rows(&all.failures, bound_ms()),
            steps: step_rows(&all.failures),
            failures: all.failures,
        })
    }
}
