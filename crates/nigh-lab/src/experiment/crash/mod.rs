//! Kill -9 in a loop under load: no acknowledged write is lost, no read is old, no object is of two writes.
//!
//! A node with its journal before a store; clients write, copy, delete and read over HTTP, and write and read by the fast
//! path; at a random moment the node is killed and started anew, in another write mode now and then, and the store with
//! it where that is a server that can be. After every start all keys are read and listed. A part
//! of the run is a state folder of its own with up to `PART_KILLS` lives; at its end the node is left until nothing
//! waits for the store, ended, and every key compared with what the store holds. A part that is done is kept, so that
//! a run which was cut off goes on behind it.

mod node_lives;
mod service;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use self::node_lives::{Lives, PartOutcome, Totals};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::peer::installed::cache_folder;
use crate::instrument::progress;
use crate::instrument::report_text::tell;
use crate::instrument::stats::Sample;

/// Kills of one state folder. A run that is cut off loses at most these.
const PART_KILLS: u32 = 25;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Store {
    /// Nigh's own directory store.
    Directory,
    /// `MinIO`, which is killed too, behind a proxy that during some lives of the node stalls, refuses, breaks or cuts
    /// requests, or gives wrong entity tags.
    S3,
    /// OpenStack Swift by its own API, behind the same proxy.
    Swift,
}

#[derive(Clone, Debug, Args)]
pub(super) struct CrashArgs {
    #[command(flatten)]
    parameters: CrashParameters,
    /// The progress file: stores finished parts, so that an interrupted run resumes
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// What decides the outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Args, Serialize, Deserialize)]
struct CrashParameters {
    /// How many times the node is killed
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    kills: u32,
    /// The longest time from the start of the load to a kill, in seconds; the time of each kill is random
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    seconds: f64,
    /// The store behind the node
    #[arg(long, value_enum, default_value_t = Store::Directory)]
    store: Store,
    /// The random seed, which decides what clients do and when the node is killed
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Serialize)]
struct CrashReport {
    machine: Machine,
    store: Store,
    seed: u64,
    #[serde(flatten)]
    totals: Totals,
    /// From the start of the program until its doors are open, with the journal of the killed one to recover.
    restart_p50_ms: f64,
    restart_max_ms: f64,
    violations: Vec<String>,
}

impl CrashArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        let seconds = self.parameters.seconds;
        if !(0.05..=600.0).contains(&seconds) {
            let reason = format!("{seconds} s: expected 0.05 to 600");
            return Err(LabError::Request { what: "--seconds".to_owned(), reason });
        }
        let handle = tokio::runtime::Handle::current();
        let played = tokio::task::spawn_blocking(move || self.play(machine, &handle));
        let report = played.await.map_err(|error| LabError::Node(format!("the run ended: {error}")))??;
        tell(&report, json)?;
        report.totals.findings.verdict()
    }

    fn play(&self, machine: Machine, handle: &tokio::runtime::Handle) -> Result<CrashReport, LabError> {
        let CrashParameters { kills, seconds, store, seed } = self.parameters;
        let usual = || cache_folder().with_file_name(format!("crash-{store:?}.state"));
        let kept = KeptProgress::open(&self.progress.clone().unwrap_or_else(usual), self.parameters)?;
        let progress = progress::styled(kills.into(), "{bar:30} {pos}/{len} kills, {msg}{eta} left");
        let mut all = PartOutcome::default();
        for part in 0..kills.div_ceil(PART_KILLS) {
            let of_part = PART_KILLS.min(kills - part * PART_KILLS);
            let play = || {
                let work = tempfile::tempdir().at(std::env::temp_dir())?;
                let longest = Duration::from_secs_f64(seconds);
                let mut lives = Lives::begin(work.path(), store, seed.wrapping_add(u64::from(part) << 32), handle)?;
                for _ in 0..of_part {
                    lives.play_and_kill(longest)?;
                    progress.inc(1);
                }
                lives.end()
            };
            all.add(kept.part_now(&part.to_string(), play)?);
            progress.set_position(u64::from(part * PART_KILLS + of_part));
        }
        progress.finish_and_clear();
        kept.finish()?;
        let restarts = Sample::new(all.restarts_ms);
        Ok(CrashReport {
            machine,
            store,
            seed,
            totals: all.totals,
            restart_p50_ms: restarts.median(),
            restart_max_ms: restarts.percentile(1.0),
            violations: all.violations,
        })
    }
}
