//! A real cluster under real faults, up to four at a time: no acknowledged write is lost, and no read is old. For how long
//! writes wait when one node fails alone is another experiment's (`failover`).
//!
//! Nodes, NATS servers and a store are processes in networks of their own. Clients read and write a few objects by all S3
//! doors; Python functions do by all Lambda doors, and call each other. A seed decides which faults strike meanwhile. What
//! everybody did and saw is a history, which two checkers judge that share no code: ours, and porcupine. With each blow the
//! clients go on to new objects, and those before are read back at all doors: an object's history is short enough to decide.
//!
//! A part of the run is a cluster of its own with up to `PART_FAULTS`; one that is done is kept, so that a run which was cut
//! off goes on behind it. With `--parts` results stay in a folder, with their histories, and those of several runs add up.

mod clients;
mod failed_invocations;
mod history_file;
mod invokers;
mod judgement;
mod long_lived;
mod part;
mod part_files;
mod plan;
mod record;
mod sharers;
mod values;
pub(super) mod world;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use self::judgement::{Checkers, judged};
use self::part::{PartOutcome, PartParameters, Totals, play, play_sharers};
use self::part_files::{AddedParts, KeptParts, PartFiles, PlayedPart, added};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::kept_progress::built_from::BuiltFrom;
use crate::instrument::machine::Machine;
use crate::instrument::peer::installed::cache_folder;
use crate::instrument::peer::porcupine;
use crate::instrument::progress::{self, unless_stopped};
use crate::instrument::report_text::tell;

const NODES: u8 = 3;
/// Faults of one cluster. A run that is cut off loses at most these.
const PART_FAULTS: u32 = 50;
/// The part in which puts are measured; it belongs to the runs that begin with part 0 and have one whole cluster.
const SHARERS: &str = "sharers";
/// The share of objects that a checker may leave undecided. Beyond it, that nothing was lost says too little.
const UNDECIDED_MAX: f64 = 0.005;

#[derive(Clone, Debug, Args)]
pub(super) struct ClusterFaultsArgs {
    #[command(flatten)]
    parameters: ClusterFaultsParameters,
    /// The progress file: stores finished parts, so that an interrupted run resumes
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
    /// Keep each part's result and history in this folder; a part that is there is not played again
    #[arg(long, value_name = "FOLDER", conflicts_with = "progress")]
    parts: Option<PathBuf>,
    /// Play nothing: add up the results that --parts has kept in this folder; all must be of one commit
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["faults", "seed", "from_part", "progress", "parts"])]
    add: Option<PathBuf>,
    /// Play nothing: have both checkers judge the history that --parts has kept in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["faults", "seed", "from_part", "progress", "parts", "add"])]
    judge: Option<PathBuf>,
}

/// What decides the outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Args, Serialize, Deserialize)]
struct ClusterFaultsParameters {
    /// How many faults to inject
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    faults: u32,
    /// The random seed, which decides the injected faults and what clients do
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first part, of 50 faults each: runs that play other parts of a seed add up
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    from_part: u32,
}

/// What the checkers say of a stored history.
#[derive(Debug, Serialize)]
struct JudgedHistory {
    part: u32,
    operations: u64,
    lost: u64,
    stale: u64,
    undecided_share: f64,
    checkers: Checkers,
    undecided: Vec<judgement::UndecidedObject>,
    violations: Vec<String>,
}

#[derive(Debug, Serialize)]
struct SkippedFault {
    kind: &'static str,
    why: &'static str,
}

#[derive(Debug, Serialize)]
struct ClusterFaultsReport {
    machine: Machine,
    /// The code that all parts were played with.
    built_from: BuiltFrom,
    nodes: u8,
    seed: u64,
    /// Clusters.
    parts: usize,
    faults: u64,
    skipped: Vec<SkippedFault>,
    #[serde(flatten)]
    totals: Totals,
    /// Until the cluster was whole after the last fault of a part, at most.
    recovery_max_s: f64,
    checkers: Checkers,
    /// Of all objects, those that one of the checkers could not decide: of the one that could decide fewer.
    undecided_share: f64,
}

impl ClusterFaultsArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        if let Some(file) = &self.judge {
            return judge_again(file, json);
        }
        let report = match &self.add {
            Some(folder) => {
                let AddedParts { seed, built_from, parts, outcome } = added(folder)?;
                let has_netem = outcome.totals.kinds.contains_key("bad_packets");
                ClusterFaultsReport::of(machine, (seed, built_from), parts, outcome, has_netem)
            }
            None => self.play_in_thread(machine).await?,
        };
        tell(&report, json)?;
        let Totals { lost, stale, mixed, not_recovered, .. } = report.totals;
        if lost + stale + mixed + not_recovered > 0 {
            return Err(LabError::Found(format!(
                "{lost} reads miss acknowledged writes, {stale} are old, {mixed} objects are of no one write, and \
                 {not_recovered} times the cluster was not whole again in time"
            )));
        }
        if report.undecided_share > UNDECIDED_MAX {
            let percent = report.undecided_share * 100.0;
            return Err(LabError::Found(format!("the checkers could not decide {percent:.1} % of the objects")));
        }
        Ok(())
    }

    async fn play_in_thread(self, machine: Machine) -> Result<ClusterFaultsReport, LabError> {
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
        let thread = std::thread::Builder::new().name("cluster-faults".to_owned()).spawn(work);
        thread.map_err(|error| LabError::Node(format!("no thread: {error}")))?;
        ended.await.map_err(|error| LabError::Node(format!("the run ended: {error}")))?
    }

    fn play(
        &self,
        machine: Machine,
        handle: &Handle,
        interrupted: &AtomicBool,
    ) -> Result<ClusterFaultsReport, LabError> {
        let ClusterFaultsParameters { faults, seed, from_part } = self.parameters;
        porcupine::expect_installed()?;
        let built_from = BuiltFrom::read()?;
        let usual = || cache_folder().with_file_name("cluster-faults.state");
        let kept = match &self.parts {
            Some(folder) => KeptParts::Files(PartFiles::open(folder, &machine)?),
            None => {
                let path = self.progress.clone().unwrap_or_else(usual);
                KeptParts::Progress(KeptProgress::open(&path, self.parameters)?)
            }
        };
        let played = |part: String, faults: u32| PlayedPart { part, seed, faults, built_from: built_from.clone() };
        let bar = progress::styled(faults.into(), "{bar:30} {pos}/{len} faults, {msg}, {eta} left");
        let mut all = PartOutcome::default();
        let has_netem = world::has_netem();
        let parts = faults.div_ceil(PART_FAULTS);
        for number in 0..parts {
            let (part, of_part) = (from_part + number, PART_FAULTS.min(faults - number * PART_FAULTS));
            let told = |faults: usize| {
                bar.inc(faults as u64);
                unless_stopped(interrupted, "the same command goes on behind the last cluster")
            };
            let play = || -> Result<_, LabError> {
                bar.set_message(format!("cluster {}", part + 1));
                let parameters = PartParameters { part, faults: of_part as usize, seed, has_netem };
                let (outcome, history) = play(work_folder()?.path(), parameters, handle, told)?;
                Ok((outcome, Some((part, history))))
            };
            all.add(kept.part(&played(part.to_string(), of_part), play)?);
            bar.set_position(u64::from(number * PART_FAULTS + of_part));
        }
        if from_part == 0 && faults >= PART_FAULTS {
            bar.set_message("puts with all sharers dead");
            let play = || -> Result<_, LabError> { Ok((play_sharers(work_folder()?.path(), handle)?, None)) };
            all.add(kept.part(&played(SHARERS.to_owned(), 0), play)?);
        }
        bar.finish_and_clear();
        kept.finish()?;
        Ok(ClusterFaultsReport::of(machine, (seed, built_from), parts as usize, all, has_netem))
    }
}

impl ClusterFaultsReport {
    fn of(
        machine: Machine,
        (seed, built_from): (u64, BuiltFrom),
        parts: usize,
        all: PartOutcome,
        has_netem: bool,
    ) -> Self {
        let mut skipped = vec![
            SkippedFault {
                kind: "clock_an_hour_off",
                why: "no namespace shifts the date of a process alone; what leases depend on is a monotonic clock, and is \
                      tested by itself",
            },
            SkippedFault {
                kind: "loss_and_reordering_in_relays",
                why: "a relay carries TCP, whose streams lose and reorder nothing: it delays, holds, resets and forgets",
            },
        ];
        if !has_netem {
            skipped.push(SkippedFault { kind: "bad_packets", why: "this kernel has no netem (sch_netem)" });
        }
        let faults = all.totals.kinds.values().sum();
        Self {
            machine,
            built_from,
            nodes: NODES,
            seed,
            parts,
            faults,
            skipped,
            recovery_max_s: all.recovery_s.iter().copied().fold(0.0, f64::max),
            undecided_share: all.checkers.undecided_share(),
            checkers: all.checkers,
            totals: all.totals,
        }
    }
}

fn judge_again(file: &Path, json: bool) -> Result<(), LabError> {
    let (part, history) = history_file::read(file)?;
    let mut outcome = PartOutcome::default();
    judged(&history, part, &mut outcome)?;
    let Totals { operations, lost, stale, undecided, violations, .. } = outcome.totals;
    let checkers = outcome.checkers;
    let undecided_share = checkers.undecided_share();
    let told = JudgedHistory { part, operations, lost, stale, undecided_share, checkers, undecided, violations };
    tell(&told, json)?;
    match lost + stale {
        0 => Ok(()),
        _ => Err(LabError::Found(format!("{lost} reads miss acknowledged writes, and {stale} are old"))),
    }
}

fn work_folder() -> Result<tempfile::TempDir, LabError> {
    tempfile::tempdir().at(std::env::temp_dir())
}
