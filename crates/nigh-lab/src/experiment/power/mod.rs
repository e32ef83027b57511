//! Power cuts under load: of what was acknowledged nothing is lost when everything that was not synced is.
//!
//! A node with its state, journal and store lies on a disk of this program's own: an image behind FUSE and a loop device,
//! with a write cache that keeps, of what was not synced, a random part by sectors. A cut kills the node and empties the
//! cache in the same moment; then ext4 replays its journal, the node starts, and all keys are read, as in `crash`. With
//! `--nodes 3` a cluster's nodes, NATS servers and store have a disk each, and all are cut at once. Each run ends with a
//! control: a disk that acknowledges syncs and forgets them must be seen to lose writes.

mod backup_probe;
mod case;
mod disk;
mod lives;
mod machines;
mod older_format;
mod one_node;
mod open_uploads;
mod served_image;
mod three_nodes;
mod write_cache;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use self::case::Case;
use self::disk::Options;
use self::lives::{Lives, PartOutcome, Plan, Totals};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::peer::installed::cache_folder;
use crate::instrument::progress::{self, unless_stopped};
use crate::instrument::report_text::tell;
use crate::instrument::stats::Sample;

/// Cuts of one set of disks, at most. A run that is cut off loses at most these.
const PART_CUTS: u32 = 10;
/// Cuts of the disk that lies.
const CONTROL_CUTS: u32 = 2;
const CONTROL: &str = "control";
/// What Ctrl-C leaves.
const KEPT: &str = "the same command goes on behind the last part";

#[derive(Clone, Debug, Args)]
pub(super) struct PowerArgs {
    #[command(flatten)]
    parameters: PowerParameters,
    /// The progress file: stores finished parts, so that an interrupted run resumes
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// What decides the outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Args, Serialize, Deserialize)]
struct PowerParameters {
    /// How many times the power is cut under load
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    cuts: u32,
    /// The longest time from the start of the load to a cut, in seconds; the time of each cut is random
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    seconds: f64,
    /// One node, or three with three NATS servers (`make peers`) and a store, all cut at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3))]
    nodes: u8,
    /// Cut the power only in this case [default: all cases, in turn]
    #[arg(long, value_enum)]
    case: Option<Case>,
    /// Only the control: disks that acknowledge syncs and forget them; fails if nothing is lost
    #[arg(long)]
    lying: bool,
    /// The random seed, which decides what clients do, when the power is cut and what the disks keep
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Serialize)]
struct CaseRow {
    case: Case,
    cuts: u32,
    acknowledged: u64,
    lost: u64,
}

#[derive(Debug, Serialize)]
struct PowerReport {
    machine: Machine,
    nodes: u8,
    seed: u64,
    lying: bool,
    #[serde(flatten)]
    totals: Totals,
    cases: Vec<CaseRow>,
    /// Writes that a disk lost which lies about syncs; 0 means that this experiment would not notice a loss.
    control_lost: u64,
    /// From the start of the processes until the doors answer, with all that a cut left to recover.
    restart_p50_ms: f64,
    restart_max_ms: f64,
    violations: Vec<String>,
}

impl PowerArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        let PowerParameters { seconds, nodes, .. } = self.parameters;
        if !(0.05..=600.0).contains(&seconds) {
            let reason = format!("{seconds} s: expected 0.05 to 600");
            return Err(LabError::Request { what: "--seconds".to_owned(), reason });
        }
        if nodes == 2 {
            return Err(LabError::Usage("--nodes: expected 1 or 3".to_owned()));
        }
        if self.cases().is_empty() {
            return Err(LabError::Usage("--case: this case is of one node".to_owned()));
        }
        disk::possible()?;
        disk::with_own_mounts()?;
        // A thread of its own: the processes live no longer than the thread that starts them.
        let (sender, ended) = tokio::sync::oneshot::channel();
        let (handle, interrupted) = (Handle::current(), progress::stop_on_interrupt());
        let work = move || {
            // Nobody listens only if the command is being ended.
            let _ = sender.send(self.play(machine, &handle, &interrupted));
        };
        let thread = std::thread::Builder::new().name("power".to_owned()).spawn(work);
        thread.map_err(|error| LabError::Node(format!("no thread: {error}")))?;
        let report = ended.await.map_err(|error| LabError::Node(format!("the run ended: {error}")))??;
        tell(&report, json)?;
        if report.control_lost == 0 {
            return Err(LabError::Request {
                what: "the control".to_owned(),
                reason: "a disk that lies about syncs lost nothing: this experiment would not notice a loss".to_owned(),
            });
        }
        if report.lying { Ok(()) } else { report.totals.findings.verdict() }
    }

    /// The cases that the parts take turns in.
    fn cases(&self) -> Vec<Case> {
        let PowerParameters { nodes, case, .. } = self.parameters;
        let all: &[Case] = if nodes == 1 { &Case::OF_ONE } else { &Case::OF_THREE };
        all.iter().copied().filter(|one| case.is_none_or(|case| case == *one)).collect()
    }

    fn play(&self, machine: Machine, handle: &Handle, interrupted: &AtomicBool) -> Result<PowerReport, LabError> {
        let PowerParameters { cuts, seconds, nodes, lying, seed, .. } = self.parameters;
        let usual = || cache_folder().with_file_name(format!("power-{nodes}.state"));
        let kept = KeptProgress::open(&self.progress.clone().unwrap_or_else(usual), self.parameters)?;
        let bar = progress::styled(cuts.into(), "{bar:30} {pos}/{len} power cuts, {msg} {eta} left");
        let (cases, longest) = (self.cases(), Duration::from_secs_f64(seconds));
        let a_part = (cuts / cases.len() as u32).clamp(1, PART_CUTS);
        let mut all = PartOutcome::default();
        let mut rows: BTreeMap<Case, CaseRow> = BTreeMap::new();
        let play = |plan: Plan, cuts: u32| {
            let work = tempfile::tempdir().at(std::env::temp_dir())?;
            let lived = || {
                let mut lives = Lives::begin(work.path(), plan, handle)?;
                for _ in 0..cuts {
                    unless_stopped(interrupted, KEPT)?;
                    lives.play_and_cut(longest)?;
                    bar.inc(1);
                }
                lives.end()
            };
            let played = lived();
            // What ends for an interrupt fails somehow.
            unless_stopped(interrupted, KEPT)?;
            played
        };
        for part in 0..cuts.div_ceil(a_part) {
            let number = part as usize;
            let of_part = a_part.min(cuts - part * a_part);
            let case = cases[number % cases.len()];
            let options = [Options::Usual, Options::Bare][number / cases.len() % 2];
            let plan = Plan { nodes, case, options, lying, seed: seed.wrapping_add(u64::from(part) << 32) };
            let outcome = kept.part_now(&part.to_string(), || play(plan, of_part))?;
            let row = rows.entry(case).or_insert(CaseRow { case, cuts: 0, acknowledged: 0, lost: 0 });
            row.cuts += outcome.totals.cuts;
            row.acknowledged += outcome.totals.findings.acknowledged;
            row.lost += outcome.totals.findings.lost;
            all.add(outcome);
            bar.set_position(u64::from(part * a_part + of_part));
        }
        let control_lost = if lying {
            all.totals.findings.lost
        } else {
            bar.set_message("the control,");
            let plan = Plan { nodes: 1, case: Case::Load, options: Options::Usual, lying: true, seed };
            kept.part_now(CONTROL, || play(plan, CONTROL_CUTS))?.totals.findings.lost
        };
        bar.finish_and_clear();
        kept.finish()?;
        let restarts = Sample::new(all.restarts_ms);
        Ok(PowerReport {
            machine,
            nodes,
            seed,
            lying,
            totals: all.totals,
            cases: rows.into_values().collect(),
            control_lost,
            restart_p50_ms: restarts.median(),
            restart_max_ms: restarts.percentile(1.0),
            violations: all.violations,
        })
    }
}
