//! `nigh experiment storm`: clusters in virtual time under many faults at once, one for each seed; no promise may break.
//!
//! It plays what `nigh_check::storm` makes of each seed, and decides nothing but what counts as failed: a broken promise.
//! With `--weakened` it tells how many storms it takes until a rule or a duty is missed. Parts that are done are kept, so
//! that a run which was cut off goes on behind them.

mod weakened;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use nigh_check::storm::{Breach, LeftOut, StormEnd, Strikes, shrink, storm, traced};
use serde::{Deserialize, Serialize};

use self::weakened::left_out_by_name;
use crate::LabError;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::parallel::in_parallel;
use crate::instrument::peer::installed::cache_folder;
use crate::instrument::progress;
use crate::instrument::report::print_report;
use crate::instrument::table::table_of;

/// Storms of a part. A run that is cut off loses at most these.
const PART_SEEDS: u64 = 50;
/// Broken promises that the report tells in full.
const DETAILS_MAX: usize = 20;

/// What `nigh experiment storm` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct StormArgs {
    /// How many storms; each is decided by its seed
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Play this one storm, and with --trace tell every event of it; one that breaks something is made small first
    #[arg(long, conflicts_with_all = ["seeds", "from", "weakened"])]
    seed: Option<u64>,
    /// Tell every event of --seed
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Play --seed without this rule or duty
    #[arg(long, requires = "seed", value_name = "RULE")]
    without: Option<String>,
    /// Leave out each rule and each duty in turn, and count the seeds until that is missed
    #[arg(long, conflicts_with = "from")]
    weakened: bool,
    /// Keeps what is done in this file, so that a run that is cut off goes on
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// What a kept run was asked.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct StormParameters {
    from: u64,
    seeds: u64,
}

/// A storm that broke a promise.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct BrokenStorm {
    seed: u64,
    breaks: String,
    what: String,
    /// How to see it.
    command: String,
}

/// What some storms came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct PartOutcome {
    faults_by_kind: BTreeMap<String, u64>,
    violations: Vec<BrokenStorm>,
    /// Of all of them, those not told in full too.
    broken: u64,
    operations: u64,
    events: u64,
    virtual_seconds: f64,
    /// Of one processor.
    seconds: f64,
    trace_hash: u64,
}

impl PartOutcome {
    fn of(seeds: std::ops::Range<u64>) -> Self {
        let (began, mut sum, mut strikes) = (Instant::now(), Self::default(), Strikes::default());
        for seed in seeds {
            let StormEnd { violation, strikes: struck, operations, events, virtual_seconds, trace_hash, .. } =
                storm(seed, LeftOut::Nothing);
            if let Some(violation) = violation {
                sum.violations.push(BrokenStorm {
                    seed,
                    breaks: breach_name(violation.breach),
                    what: violation.what,
                    command: format!("nigh experiment storm --seed {seed} --trace"),
                });
                sum.broken += 1;
            }
            strikes.join(&struck);
            sum.operations += operations;
            sum.events += events;
            sum.virtual_seconds += virtual_seconds;
            sum.trace_hash = sum.trace_hash.rotate_left(1) ^ trace_hash;
        }
        sum.faults_by_kind = strikes.iter().map(|(kind, count)| (kind.name().to_owned(), count)).collect();
        sum.seconds = began.elapsed().as_secs_f64();
        sum
    }

    fn add(&mut self, other: Self) {
        for (kind, count) in other.faults_by_kind {
            *self.faults_by_kind.entry(kind).or_default() += count;
        }
        self.violations.extend(other.violations);
        self.violations.truncate(DETAILS_MAX);
        self.broken += other.broken;
        self.operations += other.operations;
        self.events += other.events;
        self.virtual_seconds += other.virtual_seconds;
        self.seconds += other.seconds;
        self.trace_hash = self.trace_hash.rotate_left(1) ^ other.trace_hash;
    }
}

/// A breach by its name: a promise by its letter and number.
fn breach_name(breach: Breach) -> String {
    match breach {
        Breach::Promise(promise) => format!("{promise:?}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

#[derive(Debug, Serialize)]
struct StormReport {
    machine: Machine,
    from: u64,
    seeds: u64,
    /// Strikes of all kinds: every lost message counts.
    faults: u64,
    faults_by_kind: BTreeMap<String, u64>,
    /// Storms that broke a promise; the first of them are told.
    broken: u64,
    violations: Vec<BrokenStorm>,
    operations: u64,
    events: u64,
    /// Of all storms in their order, in hexadecimal: the same program gives the same.
    trace_hash: String,
    virtual_seconds: f64,
    /// Of one processor, all storms together.
    seconds: f64,
    operations_per_second: f64,
    /// Virtual seconds in a second of one processor.
    speed: f64,
}

impl StormArgs {
    pub(super) fn run(&self, machine: Machine, json: bool) -> Result<(), LabError> {
        if let Some(seed) = self.seed {
            return self.one(seed, json);
        }
        if self.weakened {
            return weakened::run(machine, self.seeds, json);
        }
        let report = self.play(machine)?;
        print_report(&report, || text(&report), json)?;
        match report.broken {
            0 => Ok(()),
            broken => Err(broken_storms(broken)),
        }
    }

    fn play(&self, machine: Machine) -> Result<StormReport, LabError> {
        let Self { from, seeds, .. } = *self;
        let path = self.progress.clone().unwrap_or_else(|| cache_folder().with_file_name("storm.state"));
        let kept: KeptProgress<StormParameters, PartOutcome> =
            KeptProgress::open(&path, StormParameters { from, seeds })?;
        let bar = progress::bar(seeds).with_message("storms");
        let parts: Vec<u64> = (0..seeds.div_ceil(PART_SEEDS)).collect();
        let outcomes = in_parallel(&parts, |part| {
            let (first, last) = (part * PART_SEEDS, seeds.min((part + 1) * PART_SEEDS));
            let name = part.to_string();
            let outcome = match kept.done(&name) {
                Some(done) => done,
                None => {
                    let outcome = PartOutcome::of(from + first..from + last);
                    kept.add(&name, &outcome)?;
                    outcome
                }
            };
            bar.inc(last - first);
            Ok(outcome)
        })?;
        bar.finish_and_clear();
        kept.finish()?;
        let mut all = PartOutcome::default();
        outcomes.into_iter().for_each(|outcome| all.add(outcome));
        Ok(StormReport {
            machine,
            from,
            seeds,
            faults: all.faults_by_kind.values().sum(),
            faults_by_kind: all.faults_by_kind,
            broken: all.broken,
            violations: all.violations,
            operations: all.operations,
            events: all.events,
            trace_hash: format!("{:016x}", all.trace_hash),
            virtual_seconds: all.virtual_seconds,
            seconds: all.seconds,
            operations_per_second: all.operations as f64 / all.seconds,
            speed: all.virtual_seconds / all.seconds,
        })
    }

    /// One storm; one that breaks something is made small before it is told.
    fn one(&self, seed: u64, json: bool) -> Result<(), LabError> {
        let left_out = self.without.as_deref().map_or(Ok(LeftOut::Nothing), left_out_by_name)?;
        let shrunk = self.trace.then(|| shrink(seed, left_out)).flatten();
        let (faults, end) = match shrunk {
            Some(shrunk) => (shrunk.faults.iter().map(|fault| format!("{fault:?}")).collect(), shrunk.end),
            None if self.trace => (Vec::new(), traced(seed, left_out)),
            None => (Vec::new(), storm(seed, left_out)),
        };
        let told = StormTrace {
            seed,
            broken: end
                .violation
                .as_ref()
                .map(|violation| format!("{}: {}", breach_name(violation.breach), violation.what)),
            faults,
            operations: end.operations,
            virtual_seconds: end.virtual_seconds,
            trace_hash: format!("{:016x}", end.trace_hash),
            trace: end.trace,
        };
        print_report(&told, || told.text(), json)?;
        match told.broken {
            Some(_) if left_out == LeftOut::Nothing => Err(broken_storms(1)),
            _ => Ok(()),
        }
    }
}

fn broken_storms(count: u64) -> LabError {
    LabError::Found(format!("{count} storms break a promise"))
}

/// One storm as it is told.
#[derive(Debug, Serialize)]
struct StormTrace {
    seed: u64,
    broken: Option<String>,
    /// The faults that are needed to break it.
    faults: Vec<String>,
    operations: u64,
    virtual_seconds: f64,
    trace_hash: String,
    trace: Vec<String>,
}

impl StormTrace {
    fn text(&self) -> String {
        let mut lines = self.trace.clone();
        lines.extend(self.faults.iter().map(|fault| format!("needs {fault}")));
        let end = self.broken.clone().unwrap_or_else(|| "no promise is broken".to_owned());
        lines.push(format!(
            "seed {}: {end}\n{} operations in {:.1} virtual seconds, trace {}",
            self.seed, self.operations, self.virtual_seconds, self.trace_hash
        ));
        lines.join("\n")
    }
}

fn text(report: &StormReport) -> String {
    let mut table = table_of("fault | strikes");
    for (kind, count) in &report.faults_by_kind {
        table.add_row([kind.clone(), count.to_string()]);
    }
    let mut text = format!(
        "{table}\n{} storms from seed {}: {} faults, {} operations, {} promises broken\n{:.0} virtual seconds at {:.0} \
         times real time, {:.0} operations a second of one processor, trace {}",
        report.seeds,
        report.from,
        report.faults,
        report.operations,
        report.broken,
        report.virtual_seconds,
        report.speed,
        report.operations_per_second,
        report.trace_hash
    );
    for BrokenStorm { seed, breaks, what, command } in &report.violations {
        text.push_str(&format!("\nseed {seed}: {breaks}: {what}; {command}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_figures_and_parts_add_up() {
        let (whole, again) = (PartOutcome::of(0..4), PartOutcome::of(0..4));
        assert_eq!((whole.trace_hash, &whole.faults_by_kind), (again.trace_hash, &again.faults_by_kind));
        let mut sum = PartOutcome::of(0..2);
        sum.add(PartOutcome::of(2..4));
        assert_eq!((sum.operations, sum.events, sum.broken), (whole.operations, whole.events, 0));
        assert_eq!(sum.faults_by_kind, whole.faults_by_kind);
        assert_ne!(sum.trace_hash, 0);
    }

    #[test]
    fn what_is_left_out_is_found_by_its_name() {
        assert_eq!(left_out_by_name("floor").unwrap(), LeftOut::Rule(nigh_protocol::Rule::Floor));
        assert!(left_out_by_name("PushStands").is_ok() && left_out_by_name("nothing").is_err());
    }
}
