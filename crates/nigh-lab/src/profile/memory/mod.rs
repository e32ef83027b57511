//! `nigh profile memory`: the sample functions invoked on made-up inputs of all sizes, and of each invocation what was known
//! before it and the memory it needed (docs/design/learning.md, data/function-memory).
//!
//! Every run is in a sandbox of a node of its own, as a tenant's would be, booked so large that none touches its limit. Rows
//! are appended as they come, a session of each function in turn, so that what was recorded is balanced whenever it ends;
//! the same command goes on where it stopped, and the same seed gives the same invocations.

mod arguments;
mod input_maker;
mod inputs;
mod plan;
mod recording;
mod sandbox_group;
mod stage;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;

use self::arguments::{PROFILED, ProfiledFunction};
use self::plan::{planned, session};
use self::recording::{ROWS_MAX, RecordingFile};
use self::stage::{BOOKED_MB, Stage};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::progress;
use crate::instrument::report::print_report;
use crate::instrument::table::table_of;

/// Beside the rows: how they were made.
const MADE: &str = "made.json";
/// Rows of one function that may fail one after another.
const FAILURES_MAX: u32 = 5;

/// What `nigh profile memory` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct MemoryArgs {
    /// Only these functions of `functions/`
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    functions: Vec<String>,
    /// Invocations of each function
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
    rows: u32,
    /// Decides inputs and arguments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder of the rows, one CSV file a function; what is there is gone on with
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

/// One function on its way.
struct Recorder {
    function: &'static ProfiledFunction,
    recording: RecordingFile,
    done: FunctionTally,
    failures_in_turn: u32,
    /// Its libraries are in memory: a sandbox that is gone has been charged for them.
    has_begun: bool,
}

impl MemoryArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        let functions = self.choose()?;
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
            self.record(&mut stage, &mut recorders, &mut failures, &progress).await?;
            progress.finish_and_clear();
        }
        let functions = recorders.into_iter().map(|one| one.done).collect();
        let report = MemoryProfileReport { machine, out: self.out, seed: self.seed, functions, failures };
        print_report(&report, || text(&report), json)
    }

    fn choose(&self) -> Result<Vec<&'static ProfiledFunction>, LabError> {
        if let Some(unknown) = self.functions.iter().find(|name| PROFILED.iter().all(|known| known.name != **name)) {
            let missing = format!("the sample function {unknown}");
            return Err(LabError::Missing { missing, hint: "each folder of functions/ is one" });
        }
        let wanted = |function: &&ProfiledFunction| {
            self.functions.is_empty() || self.functions.iter().any(|name| name == function.name)
        };
        Ok(PROFILED.iter().filter(wanted).collect())
    }

    /// Says beside the rows how they are made, if nobody has; another seed's rows are not mixed with them.
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

    async fn record(
        &self,
        stage: &mut Stage,
        recorders: &mut [Recorder],
        failures: &mut Vec<String>,
        progress: &ProgressBar,
    ) -> Result<(), LabError> {
        let stop = progress::stop_on_interrupt();
        let (last, _) = session(self.rows - 1);
        for number in 0..=last {
            for one in recorders.iter_mut() {
                self.record_session(number, stage, one, failures, (&stop, progress)).await?;
            }
        }
        Ok(())
    }

    /// Records what is missing of a function's session.
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
            if stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted { kept: "the rows are kept; the same command goes on behind them" });
            }
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

fn text(report: &MemoryProfileReport) -> String {
    let mut table = table_of("function | recorded | rows | failed | least MB | most MB");
    let megabytes = |of: Option<f64>| of.map_or_else(|| "-".to_owned(), |megabytes| format!("{megabytes:.0}"));
    for done in &report.functions {
        table.add_row([
            done.function.to_owned(),
            done.recorded.to_string(),
            done.rows.to_string(),
            done.failed.to_string(),
            megabytes(done.least_mb),
            megabytes(done.most_mb),
        ]);
    }
    let failures: String = report.failures.iter().map(|reason| format!("{reason}\n")).collect();
    format!("{table}\n{failures}rows in {}, seed {}\n", report.out.display(), report.seed)
}
