//! `nigh experiment single`: OFC's figure 7, upper half. Six image functions on inputs from 1 KB to 3 MB, each against
//! Swift (by two clients), against Redis, and through Nigh with the input in its memory and not.
//!
//! One invocation at a time. In each round every scenario runs once, in an order of its own, so that what the machine does
//! beside meets all alike. All scenarios but one run the same handler in a process of its own under the vendor's runtime
//! client, with no walls around it; only where its client goes differs, and, for Redis and Swift's own API, which client it
//! is. The one other is the function as Nigh runs it: in a sandbox, through the Lambda door.

mod page;
mod report;
mod rounds;
mod scenario;
mod stage;

pub(super) use self::stage::left_out;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use self::report::{SingleReport, rows};
use self::rounds::{Cell, RoundLimits};
use self::scenario::Scenario;
use self::stage::Stage;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::python;
use crate::instrument::progress;
use crate::instrument::report::{print_report, write_page};
use crate::instrument::sample_function::SampleFunction;

/// OFC's own six functions on ImageMagick.
const FUNCTIONS: [&str; 6] = ["wand_blur", "wand_denoise", "wand_edge", "wand_resize", "wand_rotate", "wand_sepia"];
/// The sweep of inputs: one picture in six sizes, as OFC has it.
const SIZES: [&str; 6] = ["1k", "16k", "128k", "512k", "1024k", "3072k"];
const QUICK_FUNCTIONS: usize = 2;
const QUICK_SIZES: usize = 2;
/// Rounds of a function and size, however fast they are.
const ROUNDS_MAX: usize = 40;

/// What `nigh experiment single` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct SingleArgs {
    /// Write the page with the charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Begin no further round of a function and size after so many seconds
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// At least so many rounds of each function and size
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=40))]
    rounds: u8,
    /// Two functions, two sizes, two rounds: seconds instead of minutes
    #[arg(long)]
    quick: bool,
    /// Only these functions
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Only these sizes
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    sizes: Vec<String>,
    /// Keeps what is done in this file, so that a run that is cut off goes on; beside the page if that is written
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// What decides the outcome of a function and size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SingleParameters {
    limits: RoundLimits,
    scenarios: Vec<Scenario>,
}

impl SingleArgs {
    pub(super) async fn run(self, mut machine: Machine, json: bool) -> Result<(), LabError> {
        let project = std::env::current_dir().at(".")?;
        let python = python()?;
        let functions = self.functions(&SampleFunction::read_all(&project.join("functions"))?)?;
        let sizes = chosen("size", &self.sizes, &SIZES, if self.quick { QUICK_SIZES } else { SIZES.len() })?;
        let limits = self.limits();

        let progress = progress::bar((functions.len() * sizes.len()) as u64);
        progress.enable_steady_tick(Duration::from_millis(500));
        progress.set_message("starting Swift, Redis and Nigh");
        let stage = Stage::set(&project, &python, &mut machine, |said| progress.println(said))?;
        let kept = self.kept(SingleParameters { limits, scenarios: stage.scenarios() })?;
        stage.upload(&sizes).await?;

        let stop = progress::stop_on_interrupt();
        let mut cells = Vec::new();
        for function in &functions {
            let mut cast = None;
            for size in &sizes {
                let part = format!("{} {size}", function.name);
                progress.set_message(part.clone());
                let done = kept.as_ref().and_then(|kept| kept.done(&part));
                let cell = match done {
                    Some(cell) => cell,
                    None => {
                        if cast.is_none() {
                            cast = Some(stage.cast(function).await?);
                        }
                        let Some(cast) = cast.as_mut() else { continue };
                        let keep_on = || !stop.load(Ordering::Relaxed);
                        let cell = rounds::play(&stage, cast, size, limits, keep_on).await?;
                        kept.as_ref().map_or(Ok(()), |kept| kept.add(&part, &cell))?;
                        cell
                    }
                };
                cells.push(cell);
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        let report = SingleReport::new(machine, limits, rows(&cells));
        if let Some(path) = &self.html {
            write_page(path, &page::page(&report)?)?;
        }
        print_report(&report, || report.text(), json)?;
        kept.map_or(Ok(()), KeptProgress::finish)
    }

    fn limits(&self) -> RoundLimits {
        if self.quick {
            RoundLimits { rounds_min: 2, rounds_max: 2, seconds: 0.0 }
        } else {
            let seconds = self.seconds.clamp(0.0, 3600.0);
            RoundLimits { rounds_min: self.rounds.into(), rounds_max: ROUNDS_MAX, seconds }
        }
    }

    fn functions(&self, all: &[SampleFunction]) -> Result<Vec<SampleFunction>, LabError> {
        let names = chosen("function", &self.only, &FUNCTIONS, if self.quick { QUICK_FUNCTIONS } else { 6 })?;
        let find = |name: &String| {
            all.iter().find(|function| function.name == *name).cloned().ok_or_else(|| LabError::Missing {
                missing: format!("the sample function {name}"),
                hint: "run this in the project's folder; each folder of functions/ is one",
            })
        };
        names.iter().map(find).collect()
    }

    fn kept(&self, asked: SingleParameters) -> Result<Option<KeptProgress<SingleParameters, Cell>>, LabError> {
        let beside_the_page = || Some(self.html.as_ref()?.with_extension("state"));
        let Some(path) = self.progress.clone().or_else(beside_the_page) else { return Ok(None) };
        KeptProgress::open(&path, asked).map(Some)
    }
}

/// Those that were named, in their order here, else the first few.
fn chosen(what: &str, named: &[String], all: &[&str], few: usize) -> Result<Vec<String>, LabError> {
    if let Some(unknown) = named.iter().find(|name| !all.contains(&name.as_str())) {
        let reason = format!("there are {}", all.join(", "));
        return Err(LabError::Request { what: format!("{what} {unknown}"), reason });
    }
    let taken = |name: &&&str| if named.is_empty() { true } else { named.iter().any(|one| one == *name) };
    let count = if named.is_empty() { few } else { all.len() };
    Ok(all.iter().filter(taken).take(count).map(|&name| name.to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_taken_and_what_is_unknown_is_told_with_what_there_is() {
        let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(chosen("size", &[], &SIZES, 2).unwrap(), ["1k", "16k"]);
        assert_eq!(chosen("size", &named(&["3072k", "16k"]), &SIZES, 1).unwrap(), ["16k", "3072k"]);
        let error = chosen("size", &named(&["7k"]), &SIZES, 2).unwrap_err().to_string();
        assert!(error.contains("7k") && error.contains("1024k"), "{error}");
    }
}
