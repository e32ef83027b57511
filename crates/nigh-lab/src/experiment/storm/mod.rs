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
use crate::instrument::report_text::tell;

/// The fewest storms of a part. A run that is cut off loses one part on each core.
const PART_SEEDS: u64 = 50;
/// The most parts of a run, about: each writes the progress of all.
const PARTS: u64 = 1000;
/// Broken promises that the report tells in full.
const DETAILS_MAX: usize = 20;

#[derive(Clone, Debug, Args)]
pub(super) struct StormArgs {
    /// How many storms to play; a storm's seed decides everything in it
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    seeds: u64,
    /// The seed of the first storm
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Play only the storm of this seed
    #[arg(long, conflicts_with_all = ["seeds", "from", "weakened"])]
    seed: Option<u64>,
    /// Print every event of the storm of --seed; if it breaks a promise, first remove the faults that are not needed
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Play the storm of --seed without this rule of the protocol or of the code around it; --weakened lists the names
    #[arg(long, requires = "seed", value_name = "RULE")]
    without: Option<String>,
    /// Leave out each rule of the protocol and of the code around it in turn, and count the storms until one breaks a
    /// promise
    #[arg(long, conflicts_with = "from")]
    weakened: bool,
    /// The progress file: stores finished parts, so that an interrupted run resumes
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct StormParameters {
    from: u64,
    seeds: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct BrokenStorm {
    seed: u64,
    breaks: String,
    what: String,
    /// How to see it.
    command: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct PartOutcome {
    faults_by_kind: BTreeMap<String, u64>,
    /// The first `DETAILS_MAX`.
    violations: Vec<BrokenStorm>,
    broken: u64,
    operations: u64,
    events: u64,
    virtual_seconds: f64,
    /// Of one processor.
    seconds: f64,
    /// Of the storms in their order: the same program gives the same.
    #[serde(with = "hexadecimal")]
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

/// A hash as a string of 16 digits.
mod hexadecimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(hash: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{hash:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        u64::from_str_radix(&String::deserialize(deserializer)?, 16).map_err(de::Error::custom)
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
    #[serde(flatten)]
    all: PartOutcome,
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
        tell(&report, json)?;
        match report.all.broken {
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
        let part_seeds = PART_SEEDS.max(seeds / PARTS);
        let parts: Vec<u64> = (0..seeds.div_ceil(part_seeds)).collect();
        let outcomes = in_parallel(&parts, |part| {
            let (first, last) = (part * part_seeds, seeds.min((part + 1) * part_seeds));
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
            operations_per_second: all.operations as f64 / all.seconds,
            speed: all.virtual_seconds / all.seconds,
            all,
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
        tell(&told, json)?;
        match told.broken {
            Some(_) if left_out == LeftOut::Nothing => Err(broken_storms(1)),
            _ => Ok(()),
        }
    }
}

fn broken_storms(count: u64) -> LabError {
    LabError::Found(format!("{count} storms break a promise"))
}

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
