//! A cluster is upgraded under load: no request fails, and nothing that was acknowledged is lost.
//!
//! Three nodes run an older program: one that was built from an earlier commit (`--old`), or this one with the first
//! format. A seed decides in which order they are replaced by this program, which of them are downgraded, restarted and
//! drained meanwhile; then the cluster's format is raised, and the older program must be refused. Two kinds of clients
//! send at a fixed rate all the time: with boto3's defaults through two addresses with balancers, and without retries to
//! nodes that say that they are ready. Every answer counts, and all is read back.

mod older;
mod plan;
mod readiness;
mod stage;
mod tally;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use self::older::Releases;
use self::stage::{NODES, PlanParameters};
use self::tally::Outcome;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::peer::installed::cache_folder;
use crate::instrument::progress::{self, unless_stopped};
use crate::instrument::report_text::tell;

#[derive(Clone, Debug, Args)]
pub(super) struct UpgradeArgs {
    #[command(flatten)]
    parameters: UpgradeParameters,
    /// The progress file: stores finished plans, so that an interrupted run resumes
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// What decides the outcome of a run.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
struct UpgradeParameters {
    /// How many plans, each on a cluster of its own
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    plans: u32,
    /// The random seed of the first plan; the next plan has the next seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The older program: its file, or a commit that `make older COMMIT=...` has built [default: this program, with the
    /// first format]
    #[arg(long, value_name = "PATH|COMMIT")]
    old: Option<String>,
    /// Requests a second of each of the two kinds of clients
    #[arg(long, default_value_t = 20.0)]
    rate: f64,
    /// Seconds of load between two steps of a plan
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    hold: f64,
}

#[derive(Debug, Serialize)]
struct UpgradeReport {
    machine: Machine,
    /// The older program.
    old: String,
    nodes: usize,
    seed: u64,
    plans: u32,
    #[serde(flatten)]
    outcome: Outcome,
}

impl UpgradeArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        let UpgradeParameters { rate, hold, .. } = self.parameters;
        if !(0.1..=1000.0).contains(&rate) || !(0.0..=600.0).contains(&hold) {
            return Err(LabError::Usage("--rate is 0.1 to 1000 requests a second, --hold 0 to 600 seconds".to_owned()));
        }
        // A thread of its own: the processes live no longer than the thread that starts them.
        let (sender, ended) = tokio::sync::oneshot::channel();
        let (handle, interrupted) = (Handle::current(), progress::stop_on_interrupt());
        let work = move || {
            // Nobody listens only if the command is being ended.
            let _ = sender.send(self.play(machine, &handle, &interrupted));
        };
        let thread = std::thread::Builder::new().name("upgrade".to_owned()).spawn(work);
        thread.map_err(|error| LabError::Node(format!("no thread: {error}")))?;
        let report = ended.await.map_err(|error| LabError::Node(format!("the run ended: {error}")))??;
        tell(&report, json)?;
        report.outcome.verdict()
    }

    fn play(&self, machine: Machine, handle: &Handle, interrupted: &AtomicBool) -> Result<UpgradeReport, LabError> {
        let UpgradeParameters { plans, seed, old, rate, hold } = self.parameters.clone();
        let usual = || cache_folder().with_file_name("upgrade.state");
        let kept = KeptProgress::open(&self.progress.clone().unwrap_or_else(usual), self.parameters.clone())?;
        let bar = progress::styled(plans.into(), "{bar:30} {pos}/{len} plans, {msg}, {eta} left");
        let mut all = Outcome::default();
        for number in 0..plans {
            let seed = seed.wrapping_add(number.into());
            let told = |step: plan::Step| {
                bar.set_message(format!("seed {seed}: {step}"));
                unless_stopped(interrupted, "the same command goes on behind the last plan")
            };
            let played = kept.part_now(&seed.to_string(), || {
                let folder = tempfile::tempdir().at(std::env::temp_dir())?;
                let releases = Releases::find(old.as_deref(), folder.path())?;
                let parameters = PlanParameters { seed, rate, hold: Duration::from_secs_f64(hold) };
                stage::play(folder.path(), &releases, parameters, handle, told)
            });
            all.add(played?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        kept.finish()?;
        let old = old.unwrap_or_else(|| "this program, with the first format".to_owned());
        Ok(UpgradeReport { machine, old, nodes: NODES, seed, plans, outcome: all })
    }
}
