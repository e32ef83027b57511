//! `nigh experiment pipelines`: OFC's figure 7, lower half. Four applications of several stages, whose intermediates are objects:
//! against Swift, against Redis, and on Nigh, where they stay in memory; with the input cached and not.
//!
//! An application is a state machine (`functions/pipelines/*/machine.asl.json`). One execution at a time; in each round every
//! scenario runs once, in an order of the round's own. The same code (`nigh_workflow::run`) executes the machine with as many
//! tasks at a time: for Nigh on a node, with functions in sandboxes; for Swift and Redis in the experiment's process
//! (`bare_engine`), with functions as bare processes.

mod application;
mod bare_engine;
mod report;
mod rounds;
mod stage;

use clap::Args;
use serde::{Deserialize, Serialize};

use self::application::{Application, Size};
use self::report::PipelinesReport;
use self::stage::Stage;
use crate::LabError;
use crate::instrument::choice::chosen;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::python;
use crate::instrument::progress;
use crate::instrument::report::{OutputArgs, publish};

/// Rounds of the short form.
const QUICK_ROUNDS: usize = 1;

#[derive(Clone, Debug, Args)]
pub(super) struct PipelinesArgs {
    /// How many runs of each application and size in each scenario
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// Only these applications
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Only inputs of these sizes, by their names in application.toml
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    sizes: Vec<String>,
    /// Run only the smallest inputs and one round: takes seconds instead of minutes
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Where an application's objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Scenario {
    /// Swift by its S3 API and boto3. OFC's OWK-Swift, of which the ceiling is a share.
    Swift,
    /// Redis by redis-py with hiredis. OFC's OWK-Redis.
    Redis,
    /// Nigh in front of that Swift, by boto3; Nigh has never seen the input. OFC's M.
    NighMiss,
    /// Nigh in front of that Swift, by boto3; Nigh has cached the input. OFC's LH.
    NighHit,
}

impl Scenario {
    /// All; the first show how many tasks an execution has.
    const ALL: [Self; 4] = [Self::Swift, Self::Redis, Self::NighMiss, Self::NighHit];

    const fn is_nigh(self) -> bool {
        matches!(self, Self::NighMiss | Self::NighHit)
    }
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
        let applications = Application::read_all(&project.join("functions/pipelines"))?;
        let parts = self.parts(&applications)?;
        let rounds = if self.quick { QUICK_ROUNDS } else { usize::from(self.rounds) };

        let progress = progress::ticking_bar(parts.len() as u64, "starting Swift, Redis and Nigh");
        let stage = Stage::set(&python()?, &mut machine, |said| progress.println(said)).await?;
        let asked = PipelinesParameters { rounds, at_once: stage.at_once(), scenarios: stage.scenarios() };
        let kept = self.output.kept(asked)?;
        let stop = progress::stop_on_interrupt();
        let (mut cells, mut cast) = (Vec::new(), None);
        for (application, size) in parts {
            let part = format!("{} {}", application.name, size.name);
            progress.set_message(part.clone());
            let play = async || {
                let fresh = stage.cast(cast.take(), application).await?;
                let cast = cast.insert(fresh);
                rounds::play(&stage, cast, size, rounds, &stop).await
            };
            cells.push(kept.part(&part, play).await?);
            progress.inc(1);
        }
        progress.finish_and_clear();
        let report = PipelinesReport::new(machine, rounds, stage.at_once(), &cells);
        publish(&report, self.output.html.as_deref(), PipelinesReport::page, PipelinesReport::text, json)?;
        kept.finish()
    }

    /// What is played, in its order.
    fn parts<'a>(&self, all: &'a [Application]) -> Result<Vec<(&'a Application, &'a Size)>, LabError> {
        let applications = chosen("application", &self.only, all, |application| &application.name)?;
        let of = |application: &'a Application| application.sizes.iter().map(move |size| (application, size));
        let all: Vec<_> = applications.into_iter().flat_map(of).collect();
        let parts = chosen("size", &self.sizes, &all, |(_, size)| &size.name)?;
        Ok(parts.into_iter().copied().filter(|(_, size)| size.quick || !self.quick).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(only: &[&str], sizes: &[&str], quick: bool) -> PipelinesArgs {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        PipelinesArgs { rounds: 1, only: words(only), sizes: words(sizes), quick, output: OutputArgs::default() }
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
