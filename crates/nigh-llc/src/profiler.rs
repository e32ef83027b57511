//! Chooses the next run to learn a function's needs, and evaluates the runs: CASY's algorithm 1 over all inputs.
//!
//! A state machine without I/O. The shell asks for [`Profiler::next`], binds the function to that many ways of an idle
//! cache, times its handler with the input already local, and reports to [`Profiler::record`]. A function that fails,
//! never ends or varies too much gets an outcome that says so, never a number. The state can be stored after each run
//! and resumed. The number of runs is bounded.

use std::time::Duration;

use nigh_terms::{ByteSize, Ways};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::counted_misses::{CountedMisses, along_ways, points};
use crate::miss_curve::{CurveError, WAYS_MAX};
use crate::profile_outcome::{InputOutcome, Measure, Observation, ProfileCost};
use crate::repeated_timing::{RepeatedTiming, Repetitions, TimingVerdict};
use crate::time_curve::{CacheClass, TimeCurve};
use crate::training_rows::{RunCurves, SizingInput, TrainingRow};
use crate::way_search::{SearchForm, SearchRule, SearchStep, TimedWays};

/// Inputs in one profile.
pub const INPUTS_MAX: usize = 64;

/// Bytes kept of a function's error.
const REASON_MAX: usize = 512;

/// Settings of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProfilerSettings {
    /// The search on each input.
    pub rule: SearchRule,
    /// The repeats of each run.
    pub repetitions: Repetitions,
    /// A run longer than this is ended and counts as one that never ends.
    pub run_limit: Duration,
    /// A run with fewer ways is stopped at this multiple of the time with the whole cache.
    pub slowdown_limit: u32,
    /// The failed runs after which an input is skipped.
    pub failures_max: u8,
    /// The most runs of a profile.
    pub runs_max: u32,
}

impl ProfilerSettings {
    /// A rule with sure repeats, one minute a run, three failures, a thousand runs; the printed form once each.
    #[must_use]
    pub const fn of(rule: SearchRule) -> Self {
        let repetitions = match rule.form {
            SearchForm::Literal => Repetitions::ONCE,
            SearchForm::Linear | SearchForm::Bisection => Repetitions::SURE,
        };
        Self {
            rule,
            repetitions,
            run_limit: Duration::from_secs(60),
            slowdown_limit: 20,
            failures_max: 3,
            runs_max: 1000,
        }
    }
}

/// One input to profile with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileInput {
    /// The shell's name for the input.
    pub name: String,
    /// Its size.
    pub size: ByteSize,
    /// Further features (pixels, seconds of sound), in the function's fixed order.
    pub features: Vec<f64>,
}

/// Why the profiler refuses.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ProfileError {
    /// Too few or too many inputs.
    #[error("{inputs} inputs to profile with: give 1 to {INPUTS_MAX}, of different sizes")]
    WrongInputs {
        /// How many were given.
        inputs: usize,
    },
    /// The rule fits no cache.
    #[error("a search cannot go from {} down to {} ways: a cache has 1 to {} ways", rule.whole, rule.fewest, WAYS_MAX)]
    WrongRule {
        /// The rule.
        rule: Box<SearchRule>,
    },
    /// The reported run was not asked for.
    #[error("a run was recorded although the profile is complete: ask next() before each run")]
    NothingAsked,
    /// The stored state is of another time or broken.
    #[error("the stored profile cannot be resumed ({reason}): profile the function anew")]
    NotResumable {
        /// What is wrong.
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Progress {
    timed: Vec<TimedWays>,
    current: RepeatedTiming,
    /// Empty in profiles that were stored before misses were counted.
    #[serde(default)]
    misses: CountedMisses,
    failures: u8,
    error: f64,
    outcome: Option<InputOutcome>,
}

/// The state of one function's profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profiler {
    settings: ProfilerSettings,
    inputs: Vec<ProfileInput>,
    progress: Vec<Progress>,
    cost: ProfileCost,
}

/// The stored form; a new one gets a new number.
#[derive(Serialize, Deserialize)]
struct StoredProfiler {
    format: u32,
    profiler: Profiler,
}

const FORMAT: u32 = 1;

impl Profiler {
    /// A profile of a function on these inputs.
    pub fn new(settings: ProfilerSettings, inputs: Vec<ProfileInput>) -> Result<Self, ProfileError> {
        let progress = vec![Progress::default(); inputs.len()];
        Self { settings, inputs, progress, cost: ProfileCost::default() }.checked()
    }

    fn checked(self) -> Result<Self, ProfileError> {
        if self.inputs.is_empty() || self.inputs.len() > INPUTS_MAX || self.progress.len() != self.inputs.len() {
            return Err(ProfileError::WrongInputs { inputs: self.inputs.len() });
        }
        let rule = &self.settings.rule;
        if rule.fewest.0 == 0 || rule.fewest > rule.whole || rule.whole > WAYS_MAX {
            return Err(ProfileError::WrongRule { rule: Box::new(*rule) });
        }
        Ok(self)
    }

    /// The settings.
    #[must_use]
    pub const fn settings(&self) -> &ProfilerSettings {
        &self.settings
    }

    /// The state, to be stored.
    #[must_use]
    pub fn store(&self) -> String {
        let stored = StoredProfiler { format: FORMAT, profiler: self.clone() };
        // Fields of numbers and text always serialise.
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Resumes from a stored state.
    pub fn resume(stored: &str) -> Result<Self, ProfileError> {
        let broken = |reason: String| ProfileError::NotResumable { reason };
        let stored: StoredProfiler = serde_json::from_str(stored).map_err(|error| broken(error.to_string()))?;
        if stored.format != FORMAT {
            return Err(broken(format!("format {}, this version reads {FORMAT}", stored.format)));
        }
        stored.profiler.checked()
    }

    /// The next run, or `None` when the profile is complete.
    #[must_use]
    pub fn next(&self) -> Option<Measure> {
        let input = self.progress.iter().position(|progress| progress.outcome.is_none())?;
        let progress = &self.progress[input];
        match progress.step(&self.settings.rule) {
            SearchStep::Time(ways) => Some(Measure { input, ways, limit: self.limit(&progress.timed) }),
            SearchStep::Found(_) => None,
        }
    }

    fn limit(&self, timed: &[TimedWays]) -> Duration {
        let whole = timed.first().map(|reference| Duration::from_secs_f64(reference.micros / 1e6));
        let slow = whole.map(|whole| whole.saturating_mul(self.settings.slowdown_limit.max(2)));
        slow.unwrap_or(Duration::MAX).min(self.settings.run_limit)
    }

    /// Takes the end of the run that [`Self::next`] asked for.
    pub fn record(&mut self, observation: Observation) -> Result<(), ProfileError> {
        self.record_counted(observation, None)
    }

    /// The same as [`Self::record`], with the lines that the run fetched from memory, if they were counted.
    pub fn record_counted(&mut self, observation: Observation, misses: Option<f64>) -> Result<(), ProfileError> {
        let Some(measure) = self.next() else { return Err(ProfileError::NothingAsked) };
        let settings = self.settings;
        let progress = &mut self.progress[measure.input];
        self.cost.runs += 1;
        match observation {
            Observation::Took(took) => {
                self.cost.time += took;
                if let Some(misses) = misses {
                    progress.misses.add(misses);
                }
                progress.take(took, measure.ways, &settings);
            }
            Observation::StillRunning(after) => {
                self.cost.time += after;
                progress.give_up(&settings.rule, InputOutcome::NeverEnds { ways: measure.ways, after });
            }
            Observation::Failed(mut reason) => {
                progress.failures += 1;
                if progress.failures >= settings.failures_max {
                    reason.truncate(reason.floor_char_boundary(REASON_MAX));
                    progress.give_up(&settings.rule, InputOutcome::Failed { failures: progress.failures, reason });
                }
            }
        }
        if self.cost.runs >= settings.runs_max {
            for progress in self.progress.iter_mut().filter(|progress| progress.outcome.is_none()) {
                progress.give_up(&settings.rule, InputOutcome::NotReached);
            }
        }
        Ok(())
    }

    /// Each input with its outcome so far.
    pub fn outcomes(&self) -> impl Iterator<Item = (&ProfileInput, Option<&InputOutcome>)> {
        self.inputs.iter().zip(self.progress.iter().map(|progress| progress.outcome.as_ref()))
    }

    /// The cost so far.
    #[must_use]
    pub const fn cost(&self) -> ProfileCost {
        self.cost
    }

    /// The most that isolation saves an invocation: the time with the fewest ways, which neighbours may leave it, minus
    /// the time with the found ways. The mean over the inputs with a found need; zero if the fewest ways are enough.
    #[must_use]
    pub fn saved_per_invocation(&self) -> Duration {
        let fewest = self.settings.rule.fewest;
        let saved: Vec<f64> = (0..self.inputs.len())
            .filter_map(|input| {
                let Some(InputOutcome::Found { found, .. }) = &self.progress[input].outcome else { return None };
                // Times that make no curve save nothing that is known.
                let curve = self.time_curve(input)?.ok()?;
                Some(if found.ways > fewest { curve.micros(fewest) - curve.micros(found.ways) } else { 0.0 })
            })
            .collect();
        let mean = saved.iter().sum::<f64>() / saved.len().max(1) as f64;
        Duration::from_secs_f64(mean.max(0.0) / 1e6)
    }

    /// The class found for an input, by equation 1; the printed form, which has no run at one way, by its ways.
    #[must_use]
    pub fn class(&self, input: usize) -> Option<CacheClass> {
        let Some(InputOutcome::Found { found, .. }) = &self.progress.get(input)?.outcome else { return None };
        let threshold = self.settings.rule.threshold.0;
        let sensitive = found.sensitivity.map_or(found.ways.0 > 1, |sensitivity| sensitivity > threshold);
        Some(if sensitive { CacheClass::Sensitive } else { CacheClass::Insensitive })
    }

    /// A training row for each input that was found.
    pub fn training_rows(&self) -> impl Iterator<Item = TrainingRow> {
        self.outcomes().enumerate().filter_map(|(at, (input, outcome))| {
            let Some(InputOutcome::Found { found, .. }) = outcome else { return None };
            let class = self.class(at)?;
            let input = SizingInput { size: input.size, features: input.features.clone() };
            Some(TrainingRow { input, ways: found.ways, class, curves: self.curves(at) })
        })
    }

    /// Time by way count of an input that was found: measured where it was run, on the line between where not.
    pub fn time_curve(&self, input: usize) -> Option<Result<TimeCurve, CurveError>> {
        let progress = self.progress.get(input)?;
        let Some(InputOutcome::Found { .. }) = progress.outcome else { return None };
        let timed = points(progress.timed.iter().map(|timed| (timed.ways, timed.micros)));
        Some(TimeCurve::new(along_ways(&timed, self.settings.rule.whole)))
    }

    /// Both curves of an input that was found, where its misses were counted with enough way counts.
    fn curves(&self, input: usize) -> Option<RunCurves> {
        let misses = self.progress.get(input)?.misses.curve(self.settings.rule.whole)?;
        Some(RunCurves { misses, times: self.time_curve(input)?.ok()? })
    }
}

impl Progress {
    /// The search's next step, or one more way count for a curve when it has ended.
    fn step(&self, rule: &SearchRule) -> SearchStep {
        match rule.next(&self.timed) {
            SearchStep::Found(found) => {
                self.misses.missing(rule, &self.timed).map_or(SearchStep::Found(found), SearchStep::Time)
            }
            time @ SearchStep::Time(_) => time,
        }
    }

    /// Ends with this outcome, unless the need is found already and only the curve was wanting.
    fn give_up(&mut self, rule: &SearchRule, outcome: InputOutcome) {
        self.outcome = Some(match rule.next(&self.timed) {
            SearchStep::Found(found) => InputOutcome::Found { found, error: self.error },
            SearchStep::Time(_) => outcome,
        });
    }

    fn take(&mut self, took: Duration, ways: Ways, settings: &ProfilerSettings) {
        self.current.add(took);
        let (median, error) = match self.current.verdict(&settings.repetitions) {
            TimingVerdict::More => return,
            TimingVerdict::Known { median, error } => (median, error),
            TimingVerdict::Unstable { spread } => {
                return self.give_up(&settings.rule, InputOutcome::Unstable { ways, spread });
            }
        };
        if self.is_close_call(median, error, settings) {
            return;
        }
        self.error = self.error.max(error);
        self.timed.push(TimedWays { ways, micros: median });
        self.misses.conclude(ways, self.current.runs());
        self.current = RepeatedTiming::default();
        if let SearchStep::Found(found) = self.step(&settings.rule) {
            self.outcome = Some(InputOutcome::Found { found, error: self.error });
        }
    }

    /// Whether the threshold lies within two standard errors and more repeats are allowed.
    fn is_close_call(&self, median: f64, error: f64, settings: &ProfilerSettings) -> bool {
        let Some(reference) = self.timed.first() else { return false };
        let off = (median / reference.micros - 1.0 - settings.rule.threshold.0).abs();
        off < 2.0 * error && self.current.runs() < usize::from(settings.repetitions.most)
    }
}

#[cfg(test)]
mod tests;
