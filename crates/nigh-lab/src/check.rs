//! `nigh check`: the consistency contract, explored in every order of events, and each of its rules left out.
//!
//! It runs what `nigh-check` lists and prints it; it decides nothing but what counts as failed: a broken promise,
//! a world that was not explored whole, work that cannot be finished, a rule that nobody misses.

mod murphi;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use nigh_check::{
    Counterexample, ExplorationResult, Limits, MurphiModel, MutationSymptom, SearchLimit, configurations, explore,
    explore_transactions, long_configurations, murphi_models, retell, transaction_configurations,
    weakened_transactions, weakenings,
};
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::{Machine, memory_available};
use crate::instrument::peer::installed::cache_folder;
use crate::instrument::report::print_report;
use crate::instrument::report_text::tell;
use murphi::MurphiRow;

/// What `nigh check` takes.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Also explore the large worlds (a world: some nodes, homes, programs and faults); takes minutes; an interrupted
    /// run resumes after the finished worlds
    #[arg(long)]
    long: bool,
    /// The progress file of --long: stores finished worlds until all are done
    #[arg(long, value_name = "FILE", requires = "long")]
    progress: Option<PathBuf>,
    /// Explore only worlds, and leave out only rules, whose name contains this text
    #[arg(long)]
    only: Option<String>,
    /// Leave out this rule, and print the events that lead to a broken promise
    #[arg(long, value_name = "RULE")]
    explain: Option<String>,
    /// Check the Murphi models instead: the contract's second encoding, and Apta's published rules; needs rumur and cc
    #[arg(long)]
    murphi: bool,
    /// Stop exploring a world after this many seconds [default: 120; 1800 with --long]
    #[arg(long)]
    seconds: Option<u64>,
    /// Stop exploring a world when it takes this much memory [default: three quarters of what is free at the start]
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
}

#[derive(PartialEq, Serialize, Deserialize)]
struct CheckParameters {
    seconds: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<ByteSize>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Violation {
    promise: String,
    events: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Row {
    name: String,
    about: String,
    states: usize,
    depth: usize,
    complete: bool,
    /// The limit that it was cut off by: `time` or `memory`; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut: Option<String>,
    violations: Vec<Violation>,
    /// States from which a put, or anything begun, cannot be finished; absent if not all were seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stuck: Option<usize>,
    seconds: f64,
}

#[derive(Serialize)]
struct MutationRow {
    rule: String,
    about: &'static str,
    /// What is broken without it; `stuck` if work cannot be finished.
    breaks: String,
    /// Absent if no counterexample was found.
    counterexample_steps: Option<usize>,
    seconds: f64,
}

#[derive(Serialize)]
struct CheckReport {
    machine: Machine,
    configurations: Vec<Row>,
    weakened: Vec<MutationRow>,
    /// Of the configurations explored whole.
    states: usize,
    seconds: f64,
}

#[derive(Serialize)]
struct MurphiReport {
    machine: Machine,
    murphi: Vec<MurphiRow>,
    /// Of the models searched to their end.
    states: u64,
    seconds: f64,
}

fn row(name: &str, about: &str, found: ExplorationResult) -> Row {
    let violation = |Counterexample { promise, events }| Violation { promise: format!("{promise:?}"), events };
    Row {
        name: name.to_owned(),
        about: about.to_owned(),
        states: found.states,
        depth: found.depth,
        complete: found.complete,
        cut: found.cut.map(|cut| match cut {
            SearchLimit::Time => "time".to_owned(),
            SearchLimit::Memory => "memory".to_owned(),
        }),
        violations: found.violations.into_iter().map(violation).collect(),
        stuck: found.stuck.map(|stuck| stuck.writes + stuck.work),
        seconds: found.took.as_secs_f64(),
    }
}

/// What exploring without a rule has shown.
fn mutation(rule: String, about: &'static str, shows: MutationSymptom, found: &ExplorationResult) -> MutationRow {
    let broken = found.violations.iter().min_by_key(|one| one.promise);
    let (breaks, counterexample_steps) = match shows {
        MutationSymptom::Promise => {
            let breaks = broken.map_or_else(|| "nothing".to_owned(), |one| format!("{:?}", one.promise));
            (breaks, broken.map(|one| one.events.len()))
        }
        MutationSymptom::Stuck => ("stuck".to_owned(), found.stuck.and_then(|stuck| stuck.nearest)),
    };
    MutationRow { rule, about, breaks, counterexample_steps, seconds: found.took.as_secs_f64() }
}

/// The events that lead to a broken promise of transactions without a rule.
fn explained_transaction(rule: &str, limits: &Limits) -> Option<Vec<String>> {
    let transactions = weakened_transactions();
    let one = transactions.iter().find(|one| format!("{:?}", one.rule).eq_ignore_ascii_case(rule))?;
    let found = explore_transactions(&one.configuration, limits);
    found.violations.into_iter().min_by_key(|one| one.promise).map(|one| one.events)
}

impl CheckArgs {
    /// Explores, and prints what was found.
    ///
    /// # Errors
    /// If a promise is broken, work cannot be finished, a world is not explored whole, or a rule is not missed.
    pub fn run(self, json: bool) -> Result<(), LabError> {
        if let Some(rule) = &self.explain {
            return self.explain(rule, json);
        }
        if self.murphi {
            return self.run_murphi(json);
        }
        let began = Instant::now();
        let limits = self.limits();
        let wanted = |name: &str| self.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
        let mut configs = configurations();
        if self.long {
            configs.extend(long_configurations());
        }
        configs.retain(|config| wanted(config.name));
        let kept = self.kept()?;
        let mut configurations = Vec::new();
        for config in &configs {
            let row = match kept.done(config.name) {
                Some(row) => row,
                None => {
                    let row = row(config.name, config.about, explore(config, &limits));
                    kept.add(config.name, &row)?;
                    row
                }
            };
            configurations.push(row);
        }
        for config in transaction_configurations().iter().filter(|config| wanted(config.name)) {
            configurations.push(row(config.name, config.about, explore_transactions(config, &limits)));
        }
        let mut weakened = Vec::new();
        for one in weakenings() {
            let rule = format!("{:?}", one.rule);
            if wanted(&rule) {
                weakened.push(mutation(rule, one.about, one.shows, &explore(&one.configuration, &limits)));
            }
        }
        for one in weakened_transactions() {
            let (rule, shows) = (format!("{:?}", one.rule), MutationSymptom::Promise);
            if wanted(&rule) {
                weakened.push(mutation(rule, one.about, shows, &explore_transactions(&one.configuration, &limits)));
            }
        }
        let report = CheckReport {
            machine: Machine::of_this_command(),
            states: configurations.iter().filter(|row| row.complete).map(|row| row.states).sum(),
            configurations,
            weakened,
            seconds: began.elapsed().as_secs_f64(),
        };
        tell(&report, json)?;
        // A part of the worlds is no end of the run.
        if self.only.is_none() {
            kept.finish()?;
        }
        Self::verdict(&report)
    }

    fn kept(&self) -> Result<KeptProgress<CheckParameters, Row>, LabError> {
        let path = || self.progress.clone().unwrap_or_else(|| cache_folder().with_file_name("check.state"));
        let asked = CheckParameters { seconds: self.limit_seconds(), memory: self.memory };
        KeptProgress::open_if(self.long.then(path).as_deref(), asked)
    }

    /// The second encoding; that it cannot be run here is said and is no fault.
    #[expect(clippy::print_stderr, reason = "the report goes to standard output")]
    fn run_murphi(&self, json: bool) -> Result<(), LabError> {
        if let Err(missing) = murphi::installed() {
            eprintln!("SKIPPED: nigh check --murphi: {missing}");
            return Ok(());
        }
        let began = Instant::now();
        let wanted = |model: &MurphiModel| {
            (self.long || !model.long) && self.only.as_ref().is_none_or(|only| model.name.contains(only.as_str()))
        };
        let models: Vec<MurphiModel> = murphi_models().into_iter().filter(wanted).collect();
        let rows = murphi::explored(&models, self.limit_seconds())?;
        let report = MurphiReport {
            machine: Machine::of_this_command(),
            states: rows.iter().filter(|row| row.complete).map(|row| row.states).sum(),
            murphi: rows,
            seconds: began.elapsed().as_secs_f64(),
        };
        tell(&report, json)?;
        let broken = report.murphi.iter().filter(|row| row.is_wrong()).count();
        let unfinished = report.murphi.iter().filter(|row| row.is_cut()).count();
        confirmed(broken, unfinished, 0)
    }

    fn limit_seconds(&self) -> u64 {
        self.seconds.unwrap_or(if self.long { 1800 } else { 120 })
    }

    fn limits(&self) -> Limits {
        let memory = self.memory.unwrap_or_else(|| ByteSize(memory_available().bytes() / 4 * 3));
        Limits { time: Duration::from_secs(self.limit_seconds()), memory }
    }

    fn verdict(report: &CheckReport) -> Result<(), LabError> {
        let broken = |row: &&Row| !row.violations.is_empty() || row.stuck.is_some_and(|stuck| stuck > 0);
        let broken = report.configurations.iter().filter(broken).count();
        let long: Vec<&str> = long_configurations().iter().map(|config| config.name).collect();
        let cut = |row: &&Row| row.violations.is_empty() && !row.complete && !long.contains(&row.name.as_str());
        let unfinished = report.configurations.iter().filter(cut).count();
        let unmissed = report.weakened.iter().filter(|one| one.counterexample_steps.is_none()).count();
        confirmed(broken, unfinished, unmissed)
    }

    fn explain(&self, rule: &str, json: bool) -> Result<(), LabError> {
        let limits = self.limits();
        if let Some(events) = explained_transaction(rule, &limits) {
            return print_report(&events, || events.join("\n"), json);
        }
        let known = weakenings().into_iter().find(|one| format!("{:?}", one.rule).eq_ignore_ascii_case(rule));
        let told = known.and_then(|one| retell(&one.configuration, &limits)).ok_or_else(|| LabError::Missing {
            missing: format!("a counterexample without the rule {rule}"),
            hint: "nigh check lists the rules, and which of them show by a broken promise",
        })?;
        let events: Vec<String> = told.iter().map(|(event, before)| before.describe(*event)).collect();
        print_report(&events, || events.join("\n"), json)
    }
}

fn confirmed(broken: usize, unfinished: usize, unmissed: usize) -> Result<(), LabError> {
    if broken + unfinished + unmissed == 0 {
        return Ok(());
    }
    Err(LabError::Found(format!(
        "{broken} worlds break a promise or cannot finish, {unfinished} were not explored whole, and {unmissed} rules can \
         be left out unnoticed"
    )))
}
