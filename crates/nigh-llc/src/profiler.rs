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
mod tests {
    use super::*;
    use crate::time_curve::Tolerance;
    use crate::way_search::SearchExit;

    fn settings(form: SearchForm) -> ProfilerSettings {
        ProfilerSettings::of(SearchRule { form, whole: Ways(11), fewest: Ways(1), threshold: Tolerance::FIVE_PERCENT })
    }

    fn inputs(kib: &[u64]) -> Vec<ProfileInput> {
        let input =
            |&kib: &u64| ProfileInput { name: format!("{kib}.png"), size: ByteSize::kib(kib), features: vec![] };
        kib.iter().map(input).collect()
    }

    fn profile(mut profiler: Profiler, run: impl Fn(&Measure, u32) -> Observation) -> Profiler {
        while let Some(measure) = profiler.next() {
            let runs = profiler.cost().runs;
            profiler.record(run(&measure, runs)).unwrap();
            assert!(runs < 2000, "it does not end");
        }
        profiler
    }

    fn took(millis: f64) -> Observation {
        Observation::Took(Duration::from_secs_f64(millis / 1e3))
    }

    /// Table III's blur: needs of 1, 1, 4 and 7 ways.
    fn blur(measure: &Measure, run: u32) -> Observation {
        let need = [1, 1, 4, 7][measure.input];
        let noise = 1.0 + f64::from(run % 3) * 0.002;
        took(if measure.ways.0 < need { 116.0 } else { 100.0 } * noise)
    }

    #[test]
    fn table_3_is_found_by_both_forms_and_bisection_runs_less() {
        let mut runs = Vec::new();
        for form in [SearchForm::Linear, SearchForm::Bisection] {
            let done = profile(Profiler::new(settings(form), inputs(&[124, 361, 699, 1434])).unwrap(), blur);
            let ways: Vec<_> = done
                .outcomes()
                .map(|(_, outcome)| match outcome {
                    Some(InputOutcome::Found { found, .. }) => found.ways.0,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(ways, [1, 1, 4, 7], "{form:?}");
            let classes: Vec<_> = (0..4).map(|input| done.class(input).unwrap()).collect();
            assert_eq!(classes[1..3], [CacheClass::Insensitive, CacheClass::Sensitive]);
            let curve = done.time_curve(3).unwrap().unwrap();
            assert!(curve.micros(Ways(6)) > curve.micros(Ways(7)) * 1.1);
            assert_eq!(done.training_rows().map(|row| row.ways.0).collect::<Vec<_>>(), ways);
            // Two of four inputs take 16 ms less with their ways than with one.
            let saved = done.saved_per_invocation().as_secs_f64() * 1e3;
            assert!((saved - 8.0).abs() < 0.3, "{saved}");
            runs.push(done.cost().runs);
        }
        assert!(runs[1] * 2 < runs[0], "{runs:?}");
    }

    #[test]
    fn the_printed_form_runs_once_each_and_finds_two() {
        let done = profile(Profiler::new(settings(SearchForm::Literal), inputs(&[1434])).unwrap(), |measure, _| {
            took(if measure.ways.0 < 7 { 116.0 } else { 100.0 })
        });
        let (_, outcome) = done.outcomes().next().unwrap();
        assert!(matches!(outcome, Some(InputOutcome::Found { found, .. }) if found.ways == Ways(2)), "{outcome:?}");
        assert_eq!(done.cost().runs, 12, "the reference and eleven steps");
    }

    #[test]
    fn counted_misses_become_curves_of_every_row_those_that_need_one_way_too() {
        let mut profiler = Profiler::new(settings(SearchForm::Bisection), inputs(&[124, 361, 699, 1434])).unwrap();
        let mut tried = std::collections::BTreeMap::<usize, std::collections::BTreeSet<u8>>::new();
        while let Some(measure) = profiler.next() {
            tried.entry(measure.input).or_default().insert(measure.ways.0);
            let runs = profiler.cost().runs;
            let misses = 1e6 / f64::from(measure.ways.0);
            profiler.record_counted(blur(&measure, runs), Some(misses)).unwrap();
        }
        // The first input needs one way: with the whole cache and one way its need is known, the middle is for the
        // curve.
        assert_eq!(tried[&0], std::collections::BTreeSet::from([1, 6, 11]));
        let rows: Vec<_> = profiler.training_rows().collect();
        assert_eq!(rows.iter().map(|row| row.ways.0).collect::<Vec<_>>(), [1, 1, 4, 7]);
        for row in &rows {
            let curves = row.curves.as_ref().unwrap();
            assert_eq!(curves.misses.misses(Ways(1)), 1e6);
            assert!((curves.misses.misses(Ways(11)) - 1e6 / 11.0).abs() < 1.0);
            assert_eq!(curves.times.ways(), Ways(11));
        }
    }

    #[test]
    fn a_need_that_is_found_stands_whatever_becomes_of_the_run_for_the_curve() {
        for (end, kept) in [
            (Observation::StillRunning(Duration::from_secs(1)), true),
            (Observation::Failed("killed".to_owned()), false),
        ] {
            let mut profiler = Profiler::new(settings(SearchForm::Bisection), inputs(&[1])).unwrap();
            while profiler.next().unwrap().ways != Ways(6) {
                profiler.record_counted(took(100.0), Some(1e6)).unwrap();
            }
            // One failure fails only its run; after three the input is skipped.
            profiler.record(end.clone()).unwrap();
            assert_eq!(profiler.next().is_none(), kept, "{end:?}");
            while profiler.next().is_some() {
                profiler.record(end.clone()).unwrap();
            }
            let row = profiler.training_rows().next().unwrap();
            assert!(row.ways == Ways(1) && row.curves.is_none());
        }
    }

    #[test]
    fn what_fails_swings_or_never_ends_gets_its_outcome_and_the_rest_goes_on() {
        let done =
            profile(Profiler::new(settings(SearchForm::Bisection), inputs(&[1, 2, 3, 4])).unwrap(), |measure, run| {
                match measure.input {
                    0 => Observation::Failed("ValueError: not a picture".to_owned()),
                    1 => Observation::StillRunning(measure.limit),
                    2 => took(if run % 2 == 0 { 100.0 } else { 150.0 }),
                    _ => took(100.0),
                }
            });
        let outcomes: Vec<_> = done.outcomes().map(|(_, outcome)| outcome.unwrap().clone()).collect();
        assert!(matches!(&outcomes[0], InputOutcome::Failed { failures: 3, reason } if reason.contains("picture")));
        assert!(matches!(outcomes[1], InputOutcome::NeverEnds { ways: Ways(11), after } if after.as_secs() == 60));
        assert!(matches!(outcomes[2], InputOutcome::Unstable { ways: Ways(11), spread } if spread > 0.3));
        assert!(matches!(&outcomes[3], InputOutcome::Found { found, .. } if found.exit == SearchExit::ReachedFewest));
        assert!(done.class(0).is_none() && done.time_curve(1).is_none());
        assert_eq!(done.training_rows().count(), 1, "no row without a finding");
    }

    #[test]
    fn a_run_with_fewer_ways_is_ended_by_the_time_it_took_with_all() {
        let mut profiler = Profiler::new(settings(SearchForm::Bisection), inputs(&[1])).unwrap();
        assert_eq!(profiler.next().unwrap().limit, Duration::from_secs(60));
        for _ in 0..3 {
            profiler.record(took(100.0)).unwrap();
        }
        let next = profiler.next().unwrap();
        assert_eq!((next.ways, next.limit), (Ways(1), Duration::from_secs(2)));
    }

    #[test]
    fn a_close_call_is_repeated_until_it_is_decided() {
        let close = |measure: &Measure, run: u32| {
            let noise = [0.985, 1.0, 1.015][run as usize % 3];
            took(100.0 * if measure.ways.0 < 11 { 1.055 * noise } else { 1.0 })
        };
        let done = profile(Profiler::new(settings(SearchForm::Bisection), inputs(&[1])).unwrap(), close);
        assert!(done.cost().runs > 5 * 3, "{:?}", done.cost());
    }

    #[test]
    fn the_runs_are_bounded() {
        let tight = ProfilerSettings { runs_max: 4, ..settings(SearchForm::Linear) };
        let done = profile(Profiler::new(tight, inputs(&[1, 2])).unwrap(), |_, _| took(100.0));
        assert_eq!(done.cost().runs, 4);
        assert!(done.outcomes().all(|(_, outcome)| outcome == Some(&InputOutcome::NotReached)));
        assert_eq!(done.clone().record(took(1.0)), Err(ProfileError::NothingAsked));
    }

    #[test]
    fn a_stored_profile_goes_on_where_it_was() {
        let mut profiler = Profiler::new(settings(SearchForm::Linear), inputs(&[124, 361, 699, 1434])).unwrap();
        let whole = profile(profiler.clone(), blur);
        while let Some(measure) = profiler.next() {
            let runs = profiler.cost().runs;
            profiler.record(blur(&measure, runs)).unwrap();
            profiler = Profiler::resume(&profiler.store()).unwrap();
        }
        assert_eq!(profiler, whole);
        assert!(matches!(Profiler::resume("{"), Err(ProfileError::NotResumable { .. })));
        let other = whole.store().replace("\"format\":1", "\"format\":9");
        assert!(Profiler::resume(&other).unwrap_err().to_string().contains("format 9"));
    }

    #[test]
    fn a_profile_of_the_first_form_goes_on_where_it_was() {
        let mut profiler = Profiler::resume(include_str!("../tests/fixtures/profile-1.json")).unwrap();
        assert_eq!(profiler.cost().runs, 6);
        assert_eq!(profiler.next().unwrap().ways, Ways(1), "the whole cache was timed before");
        profiler.record(took(130.0)).unwrap();
        assert_eq!(profiler.cost().runs, 7);
    }

    #[test]
    fn what_cannot_be_profiled_is_refused() {
        assert!(matches!(Profiler::new(settings(SearchForm::Linear), vec![]), Err(ProfileError::WrongInputs { .. })));
        let mut wrong = settings(SearchForm::Linear);
        wrong.rule.fewest = Ways(12);
        assert!(matches!(Profiler::new(wrong, inputs(&[1])), Err(ProfileError::WrongRule { .. })));
    }
}
