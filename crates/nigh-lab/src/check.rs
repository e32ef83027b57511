//! `nigh check`: the consistency contract, explored in every order of events, and each of its rules left out.
//!
//! It runs what `nigh-check` lists and prints it; it decides nothing but what counts as failed: a broken promise,
//! a world that was not explored whole, work that cannot be finished, a rule that nobody misses.

mod murphi;

use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{Table, presets};
use nigh_check::{
    Configuration, Counterexample, Missed, MurphiModel, Weakening, configurations, explore, find_stuck,
    long_configurations, murphi_models, retell, weakenings,
};
use serde::Serialize;

use crate::LabError;
use crate::experiment::llc::print_report;
use crate::machine::Machine;

use murphi::MurphiRow;

/// Larger worlds are not searched for work that cannot be finished: each of their states must be held.
const STUCK_STATES_MAX: usize = 150_000;

/// What `nigh check` takes.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Explore the large worlds too; they take minutes each and may not be explored whole
    #[arg(long)]
    long: bool,
    /// Only worlds and rules whose name has this in it
    #[arg(long)]
    only: Option<String>,
    /// Print the events that lead to a broken promise when this rule is left out
    #[arg(long, value_name = "RULE")]
    explain: Option<String>,
    /// Run the second encoding too, and Apta's published rules: needs rumur and cc
    #[arg(long)]
    murphi: bool,
    /// Seconds after which a world is left unfinished
    #[arg(long, default_value_t = 120)]
    seconds: u64,
}

#[derive(Serialize)]
struct Violation {
    promise: &'static str,
    events: Vec<String>,
}

impl From<Counterexample> for Violation {
    fn from(Counterexample { promise, events }: Counterexample) -> Self {
        Self { promise, events }
    }
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    about: &'static str,
    states: usize,
    depth: usize,
    complete: bool,
    violations: Vec<Violation>,
    /// States from which a put, or anything begun, cannot be finished; absent if that was not searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    stuck: Option<usize>,
    seconds: f64,
}

#[derive(Serialize)]
struct Weakened {
    rule: String,
    about: &'static str,
    /// What is broken without it; `stuck` if work cannot be finished.
    breaks: &'static str,
    /// Absent if no counterexample was found.
    counterexample_steps: Option<usize>,
    seconds: f64,
}

#[derive(Serialize)]
struct Report {
    machine: Machine,
    configurations: Vec<Row>,
    weakened: Vec<Weakened>,
    /// With `--murphi`; absent where rumur is not installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    murphi: Option<Vec<MurphiRow>>,
    /// Of the configurations explored whole.
    states: usize,
    seconds: f64,
}

fn explored(config: &Configuration, limit: Duration) -> Row {
    let began = Instant::now();
    let found = explore(config, limit, false);
    let stuck = (found.complete && found.states <= STUCK_STATES_MAX)
        .then(|| find_stuck(config, STUCK_STATES_MAX))
        .flatten()
        .map(|stuck| stuck.writes + stuck.work);
    Row {
        name: config.name,
        about: config.about,
        states: found.states,
        depth: found.depth,
        complete: found.complete,
        violations: found.violations.into_iter().map(Violation::from).collect(),
        stuck,
        seconds: began.elapsed().as_secs_f64(),
    }
}

fn weakened(weakening: &Weakening, limit: Duration) -> Weakened {
    let began = Instant::now();
    let (breaks, steps) = match weakening.shows {
        Missed::Promise => {
            let found = explore(&weakening.configuration, limit, true);
            let broken = found.violations.into_iter().min_by_key(|one| (one.events.len(), one.promise));
            (broken.as_ref().map_or("nothing", |one| one.promise), broken.map(|one| one.events.len()))
        }
        Missed::Stuck => {
            let stuck = find_stuck(&weakening.configuration, STUCK_STATES_MAX);
            ("stuck", stuck.and_then(|stuck| stuck.nearest))
        }
    };
    Weakened {
        rule: format!("{:?}", weakening.rule),
        about: weakening.about,
        breaks,
        counterexample_steps: steps,
        seconds: began.elapsed().as_secs_f64(),
    }
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
        let (began, limit) = (Instant::now(), Duration::from_secs(self.seconds));
        let wanted = |name: &str| self.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
        let mut configs = configurations();
        if self.long {
            configs.extend(long_configurations());
        }
        let configurations: Vec<Row> =
            configs.iter().filter(|config| wanted(config.name)).map(|config| explored(config, limit)).collect();
        let weakened: Vec<Weakened> = weakenings()
            .iter()
            .filter(|weakening| wanted(&format!("{:?}", weakening.rule)))
            .map(|weakening| weakened(weakening, limit))
            .collect();
        let report = Report {
            machine: Machine::of_this_command(),
            states: configurations.iter().filter(|row| row.complete).map(|row| row.states).sum(),
            configurations,
            weakened,
            murphi: self.murphi_rows()?,
            seconds: began.elapsed().as_secs_f64(),
        };
        print_report(&report, || text(&report), json)?;
        self.verdict(&report)
    }

    /// The rows of the second encoding, if it was asked for and can be run here; that it cannot is said and is no fault.
    fn murphi_rows(&self) -> Result<Option<Vec<MurphiRow>>, LabError> {
        if !self.murphi {
            return Ok(None);
        }
        if let Err(missing) = murphi::installed() {
            eprintln!("SKIPPED: nigh check --murphi: {missing}");
            return Ok(None);
        }
        let wanted = |model: &MurphiModel| {
            (self.long || !model.long) && self.only.as_ref().is_none_or(|only| model.name.contains(only.as_str()))
        };
        let models: Vec<MurphiModel> = murphi_models().into_iter().filter(wanted).collect();
        murphi::explored(&models, self.seconds).map(Some)
    }

    fn verdict(&self, report: &Report) -> Result<(), LabError> {
        let broken = |row: &&Row| !row.violations.is_empty() || row.stuck.is_some_and(|stuck| stuck > 0);
        let broken = report.configurations.iter().filter(broken).count();
        let long: Vec<&str> = long_configurations().iter().map(|config| config.name).collect();
        let cut = |row: &&Row| row.violations.is_empty() && !row.complete && !long.contains(&row.name);
        let unfinished = report.configurations.iter().filter(cut).count();
        let unmissed = report.weakened.iter().filter(|one| one.counterexample_steps.is_none()).count();
        let murphi = report.murphi.as_deref().unwrap_or_default();
        let broken = broken + murphi.iter().filter(|row| row.is_wrong()).count();
        let unfinished = unfinished + murphi.iter().filter(|row| row.is_cut()).count();
        if broken + unfinished + unmissed > 0 {
            return Err(LabError::Contract { broken, unfinished, unmissed });
        }
        Ok(())
    }

    fn explain(&self, rule: &str, json: bool) -> Result<(), LabError> {
        let limit = Duration::from_secs(self.seconds);
        let known = weakenings().into_iter().find(|one| format!("{:?}", one.rule).eq_ignore_ascii_case(rule));
        let told = known.and_then(|one| retell(&one.configuration, limit)).ok_or_else(|| LabError::Missing {
            missing: format!("a counterexample without the rule {rule}"),
            hint: "nigh check lists the rules, and which of them show by a broken promise",
        })?;
        let events: Vec<String> = told.iter().map(|(event, before)| before.describe(*event)).collect();
        print_report(&events, || events.join("\n"), json)
    }
}

fn text(report: &Report) -> String {
    let mut worlds = Table::new();
    worlds.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header([
        "configuration",
        "states",
        "depth",
        "complete",
        "violations",
        "stuck",
        "s",
    ]);
    for row in &report.configurations {
        let broken: Vec<&str> = row.violations.iter().map(|violation| violation.promise).collect();
        worlds.add_row([
            row.name.to_owned(),
            row.states.to_string(),
            row.depth.to_string(),
            if row.complete { "yes" } else { "no" }.to_owned(),
            if broken.is_empty() { "0".to_owned() } else { broken.join(" ") },
            row.stuck.map_or_else(String::new, |stuck| stuck.to_string()),
            format!("{:.1}", row.seconds),
        ]);
    }
    let mut rules = Table::new();
    rules.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(["left out", "breaks", "steps", "what goes wrong", "s"]);
    for row in &report.weakened {
        rules.add_row([
            row.rule.clone(),
            row.breaks.to_owned(),
            row.counterexample_steps.map_or_else(|| "not found".to_owned(), |steps| steps.to_string()),
            row.about.to_owned(),
            format!("{:.1}", row.seconds),
        ]);
    }
    let murphi = report.murphi.as_deref().map(|rows| murphi::text(rows) + "\n").unwrap_or_default();
    format!("{worlds}\n{rules}\n{murphi}{} states in complete configurations, {:.1} s", report.states, report.seconds)
}
