//! `nigh profile memory` invokes the sample functions on generated inputs of all sizes, and records of each invocation its
//! features and the memory that it needed (docs/design/learning.md, data/function-memory).
//!
//! Every run is in a sandbox of a node, as a tenant's would be, with a booking that no run reaches. Rows are appended at once, a
//! session of each function in turn, so that an interrupted recording is balanced. The same command continues it, and the same
//! seed gives the same invocations.

mod arguments;
mod input_maker;
mod inputs;
mod plan;
mod recording;
mod sandbox_group;
mod stage;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;

use self::arguments::{PROFILED, ProfiledFunction};
use self::plan::{planned, session};
use self::recording::{ROWS_MAX, RecordingFile};
use self::stage::{BOOKED_MB, Stage};
use crate::LabError;
use crate::instrument::choice::chosen;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::progress::{self, unless_stopped};
use crate::instrument::report::print_report;
use crate::instrument::template::{Columns, fill};

/// Beside the rows: how they were made.
const MADE: &str = "made.json";
/// Rows of one function that may fail one after another.
const FAILURES_MAX: u32 = 5;

const COLUMNS: Columns =
    Columns("function | recorded | rows | failed | least MB = {least_mb:.0} | most MB = {most_mb:.0}");

/// What `nigh profile memory` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct MemoryArgs {
    /// Only these functions (names of folders in `functions/`)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    functions: Vec<String>,
    /// How many invocations of each function to record
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
    rows: u32,
    /// The random seed, which decides inputs and arguments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder for the training rows, one CSV file per function; continues recordings in it that have fewer rows
    #[arg(long, default_value = "data/function-memory")]
    out: PathBuf,
}

/// How a folder's rows were made: the first command that recorded into it.
#[derive(Debug, Serialize)]
struct FolderOrigin {
    seed: u64,
    booked_mb: u64,
    machine: Machine,
}

/// What became of one function.
#[derive(Debug, Serialize)]
struct FunctionTally {
    function: &'static str,
    /// Rows recorded by this run.
    recorded: u32,
    /// Rows up to which the file goes now.
    rows: u32,
    failed: u32,
    /// Peaks of this run's rows, million bytes.
    least_mb: Option<f64>,
    most_mb: Option<f64>,
}

#[derive(Debug, Serialize)]
struct MemoryProfileReport {
    machine: Machine,
    out: PathBuf,
    seed: u64,
    functions: Vec<FunctionTally>,
    /// Why rows are missing, the first few.
    failures: Vec<String>,
}

/// The recording of one function.
struct Recorder {
    function: &'static ProfiledFunction,
    recording: RecordingFile,
    done: FunctionTally,
    failures_in_turn: u32,
    /// An earlier sandbox has been charged for its libraries, which are in memory.
    has_begun: bool,
}

impl MemoryArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        let functions = chosen("sample function", &self.functions, &PROFILED, |function| function.name)?;
        let project = std::env::current_dir().at(".")?;
        self.sign(&machine)?;
        let mut recorders = Vec::new();
        for &function in &functions {
            let recording = RecordingFile::open(&self.out, function)?;
            let rows = recording.next();
            let done =
                FunctionTally { function: function.name, recorded: 0, rows, failed: 0, least_mb: None, most_mb: None };
            recorders.push(Recorder { function, recording, done, failures_in_turn: 0, has_begun: false });
        }
        let missing: u32 = recorders.iter().map(|one| self.rows.saturating_sub(one.recording.next())).sum();
        let mut failures = Vec::new();
        if missing > 0 {
            let progress = progress::bar(u64::from(missing));
            let mut stage = Stage::set(&project, &functions).await?;
            let stop = progress::stop_on_interrupt();
            let (last, _) = session(self.rows - 1);
            for number in 0..=last {
                for one in &mut recorders {
                    self.record_session(number, &mut stage, one, &mut failures, (&stop, &progress)).await?;
                }
            }
            progress.finish_and_clear();
        }
        let functions = recorders.into_iter().map(|one| one.done).collect();
        let report = MemoryProfileReport { machine, out: self.out, seed: self.seed, functions, failures };
        print_report(&report, || report.text(), json)
    }

    /// Writes beside the rows how they are made, unless that is written; fails if they are of another seed.
    fn sign(&self, machine: &Machine) -> Result<(), LabError> {
        std::fs::create_dir_all(&self.out).at(&self.out)?;
        let path = self.out.join(MADE);
        let wrong = |reason: &dyn std::fmt::Display| LabError::file(&path, reason);
        match std::fs::read(&path) {
            Ok(text) => {
                let made: Value = serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
                if made["seed"] != self.seed {
                    return Err(wrong(&format!("its rows are of seed {}; record into another folder", made["seed"])));
                }
                Ok(())
            }
            Err(_) => {
                let made = FolderOrigin { seed: self.seed, booked_mb: BOOKED_MB, machine: machine.clone() };
                let text = serde_json::to_string_pretty(&made).map_err(|error| wrong(&error))?;
                std::fs::write(&path, text + "\n").map_err(|error| wrong(&error))
            }
        }
    }

    /// Records the missing rows of a function's session.
    async fn record_session(
        &self,
        number: u32,
        stage: &mut Stage,
        one: &mut Recorder,
        failures: &mut Vec<String>,
        (stop, progress): (&AtomicBool, &ProgressBar),
    ) -> Result<(), LabError> {
        let function = one.function;
        let (of_next, is_first) = session(one.recording.next());
        if of_next != number || one.recording.next() >= self.rows {
            return Ok(());
        }
        progress.set_message(function.name);
        if !one.has_begun {
            let row = planned(function, self.seed, one.recording.next());
            stage.input(&row.input).await?;
            stage.begin_session();
            stage.warm(function, number + 1, &row).await?;
            one.has_begun = true;
        }
        stage.begin_session();
        if !is_first {
            let before = planned(function, self.seed, one.recording.next() - 1);
            stage.input(&before.input).await?;
            stage.warm(function, number, &before).await?;
        }
        while one.recording.next() < self.rows && session(one.recording.next()).0 == number {
            unless_stopped(stop, "the rows are kept; the same command goes on behind them")?;
            let row = planned(function, self.seed, one.recording.next());
            let known = stage.input(&row.input).await?;
            match stage.measure(function, number, &row).await {
                Ok(measured) => {
                    one.recording.append(&row, &known, &measured)?;
                    one.done.recorded += 1;
                    one.failures_in_turn = 0;
                    let peak_mb = measured.peak as f64 / 1e6;
                    one.done.least_mb = Some(one.done.least_mb.unwrap_or(f64::INFINITY).min(peak_mb));
                    one.done.most_mb = Some(one.done.most_mb.unwrap_or(0.0).max(peak_mb));
                }
                Err(error) if one.failures_in_turn < FAILURES_MAX => {
                    failures.extend((failures.len() < 20).then(|| error.to_string()));
                    one.recording.pass_over();
                    one.done.failed += 1;
                    one.failures_in_turn += 1;
                }
                Err(error) => return Err(error),
            }
            one.done.rows = one.recording.next();
            progress.inc(1);
        }
        Ok(())
    }
}

impl MemoryProfileReport {
    fn text(&self) -> String {
        let failures: String = self.failures.iter().map(|reason| format!("{reason}\n")).collect();
        format!("{}\n{failures}{}\n", COLUMNS.text(&self.functions), fill("rows in {out}, seed {seed}", self))
    }
}
