//! `nigh experiment pipelines`: OFC's figure 7, lower half. Four applications of several stages, whose intermediates pass as
//! objects: against Swift, against Redis, and on Nigh, where they stay in memory; with the input in Nigh's memory and not.
//!
//! An application is a state machine (`functions/pipelines/*/machine.asl.json`). One execution at a time; in each round every
//! scenario runs once, in an order of the round's own. All sides go through the machine by the same code
//! (`nigh_workflow::run`) with as many tasks at a time: on Nigh a node's own, its functions in sandboxes; for Swift and
//! Redis within the experiment's process (`bare_engine`), their functions bare processes.

mod application;
mod bare_engine;
mod figures;
mod page;
mod report;
mod rounds;
mod scenario;
mod stage;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use self::application::{Application, Size};
use self::report::PipelinesReport;
use self::rounds::Cell;
use self::scenario::Scenario;
use self::stage::Stage;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::python;
use crate::instrument::progress;
use crate::instrument::report::{print_report, write_page};

/// Rounds of the short form.
const QUICK_ROUNDS: usize = 1;

/// What `nigh experiment pipelines` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct PipelinesArgs {
    /// Write the page with the charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// So many runs of each application and size in each scenario
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// Only these applications
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Only inputs of these sizes, as their application.toml calls them
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    sizes: Vec<String>,
    /// The smallest inputs, one round: seconds instead of minutes
    #[arg(long)]
    quick: bool,
    /// Keeps what is done in this file, so that a run that is cut off goes on; beside the page if that is written
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// What decides the outcome of an application and size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PipelinesParameters {
    rounds: usize,
    at_once: usize,
    scenarios: Vec<Scenario>,
}

impl PipelinesArgs {
    pub(super) async fn run(self, mut machine: Machine, json: bool) -> Result<(), LabError> {
        let project = std::env::current_dir().at(".")?;
        let python = python()?;
        let applications = Application::read_all(&project.join("functions/pipelines"))?;
        let parts = self.parts(&applications)?;
        let rounds = if self.quick { QUICK_ROUNDS } else { usize::from(self.rounds) };

        let progress = progress::bar(parts.len() as u64);
        progress.enable_steady_tick(Duration::from_millis(500));
        progress.set_message("starting Swift, Redis and Nigh");
        let stage = Stage::set(&python, &mut machine, |said| progress.println(said)).await?;
        let kept = self.kept(PipelinesParameters { rounds, at_once: stage.at_once(), scenarios: stage.scenarios() })?;
        let stop = progress::stop_on_interrupt();
        let mut cells = Vec::new();
        let mut cast = None;
        for (application, size) in parts {
            let part = format!("{} {}", application.name, size.name);
            progress.set_message(part.clone());
            let cell = match kept.as_ref().and_then(|kept| kept.done(&part)) {
                Some(cell) => cell,
                None => {
                    cast = match cast.take() {
                        Some(cast) => stage.recast(cast, application).await?.into(),
                        None => stage.cast(application).await?.into(),
                    };
                    let Some(cast) = cast.as_mut() else { continue };
                    let keep_on = || !stop.load(Ordering::Relaxed);
                    let cell = rounds::play(&stage, cast, size, rounds, keep_on).await?;
                    kept.as_ref().map_or(Ok(()), |kept| kept.add(&part, &cell))?;
                    cell
                }
            };
            cells.push(cell);
            progress.inc(1);
        }
        progress.finish_and_clear();
        let report = PipelinesReport::new(machine, rounds, stage.at_once(), &cells);
        if let Some(path) = &self.html {
            write_page(path, &page::page(&report)?)?;
        }
        print_report(&report, || report.text(), json)?;
        kept.map_or(Ok(()), KeptProgress::finish)
    }

    /// What is played, in its order.
    fn parts<'a>(&self, all: &'a [Application]) -> Result<Vec<(&'a Application, &'a Size)>, LabError> {
        let unknown = |what: &str, name: &str, there: Vec<&str>| {
            let reason = format!("there are {}", there.join(", "));
            Err(LabError::Request { what: format!("{what} {name}"), reason })
        };
        let names: Vec<&str> = all.iter().map(|application| application.name.as_str()).collect();
        if let Some(name) = self.only.iter().find(|name| !names.contains(&name.as_str())) {
            return unknown("application", name, names);
        }
        let is_named = |named: &[String], name: &str| named.is_empty() || named.iter().any(|one| one == name);
        let chosen = || all.iter().filter(|application| is_named(&self.only, &application.name));
        let sizes: Vec<&str> =
            chosen().flat_map(|application| &application.sizes).map(|size| size.name.as_str()).collect();
        if let Some(name) = self.sizes.iter().find(|name| !sizes.contains(&name.as_str())) {
            return unknown("size", name, sizes);
        }
        let is_taken = |size: &&Size| is_named(&self.sizes, &size.name) && (size.quick || !self.quick);
        let of = |application: &'a Application| {
            application.sizes.iter().filter(is_taken).map(move |size| (application, size))
        };
        Ok(chosen().flat_map(of).collect())
    }

    fn kept(&self, asked: PipelinesParameters) -> Result<Option<KeptProgress<PipelinesParameters, Cell>>, LabError> {
        let beside_the_page = || Some(self.html.as_ref()?.with_extension("state"));
        let Some(path) = self.progress.clone().or_else(beside_the_page) else { return Ok(None) };
        KeptProgress::open(&path, asked).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(only: &[&str], sizes: &[&str], quick: bool) -> PipelinesArgs {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        PipelinesArgs { html: None, rounds: 1, only: words(only), sizes: words(sizes), quick, progress: None }
    }

    #[test]
    fn what_is_named_is_played_and_what_is_unknown_is_told_with_what_there_is() {
        let all = application::tests::all();
        let parts = |arguments: PipelinesArgs| arguments.parts(&all).map(|parts| parts.len());
        assert_eq!(parts(arguments(&[], &[], true)).unwrap(), 4, "one size each");
        assert_eq!(parts(arguments(&["word_count"], &[], false)).unwrap(), 3);
        assert_eq!(parts(arguments(&["word_count"], &["20m"], false)).unwrap(), 1);
        let error = parts(arguments(&["word_count"], &["7m"], false)).unwrap_err().to_string();
        assert!(error.contains("7m") && error.contains("20m"), "{error}");
        let error = parts(arguments(&["words"], &[], false)).unwrap_err().to_string();
        assert!(error.contains("words") && error.contains("thumbnails"), "{error}");
    }
}
