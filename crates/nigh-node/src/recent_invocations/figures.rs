//! Figures of functions over the last minutes: rates, percentiles, shares of time. Pure.

use std::collections::HashMap;

use nigh_schedule::activation::SandboxStart;
use nigh_terms::{ByteSize, FunctionName, Timestamp};
use serde::Serialize;

use super::EndedInvocation;

/// The window of the figures, in seconds.
pub(crate) const WINDOW_S: u64 = 300;

/// Where the window begins that ends now.
pub(crate) const fn window_start(now: Timestamp) -> Timestamp {
    Timestamp(now.millis().saturating_sub(WINDOW_S * 1000))
}

/// What invocations took, of those that ended in the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct FunctionFigures {
    /// Invocations that ended.
    pub(crate) runs: u64,
    /// Of these, the failed ones.
    pub(crate) errors: u64,
    /// Of these, the ones for which a sandbox was made.
    pub(crate) cold: u64,
    /// Handlers' durations, in microseconds.
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    /// Waits for a sandbox, in microseconds.
    pub(crate) wait_p99_us: u64,
    /// The time of all runs together, from request to answer, by what it went to.
    pub(crate) wait_us: u64,
    pub(crate) init_us: u64,
    pub(crate) extract_us: u64,
    pub(crate) transform_us: u64,
    pub(crate) load_us: u64,
    /// Reads served from memory, and by the store.
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Of the last run.
    pub(crate) booked: ByteSize,
    pub(crate) granted: ByteSize,
    pub(crate) predicted: Option<ByteSize>,
    /// The highest peak.
    pub(crate) peak: Option<ByteSize>,
    /// The mean of how far predictions were from peaks, as a part of the peak; none without predictions.
    pub(crate) prediction_error: Option<f64>,
}

impl FunctionFigures {
    /// The figures of these runs, oldest first.
    pub(crate) fn of(runs: &[EndedInvocation]) -> Self {
        let mut figures = Self::default();
        let (mut durations, mut waits) = (Vec::with_capacity(runs.len()), Vec::with_capacity(runs.len()));
        let (mut error, mut predicted_runs) = (0.0, 0_u32);
        for run in runs {
            figures.runs += 1;
            figures.errors += u64::from(run.failed);
            figures.cold += u64::from(run.start != SandboxStart::Warm);
            figures.wait_us += run.wait_us;
            figures.init_us += run.init_us;
            figures.extract_us += run.phases.extract_us;
            figures.transform_us += run.phases.transform_us;
            figures.load_us += run.phases.load_us;
            figures.hits += run.hits;
            figures.misses += run.misses;
            (figures.booked, figures.granted, figures.predicted) = (run.booked, run.granted, run.predicted);
            figures.peak = figures.peak.max(run.peak);
            if let (Some(predicted), Some(peak)) = (run.predicted, run.peak.filter(|peak| peak.bytes() > 0)) {
                error += predicted.bytes().abs_diff(peak.bytes()) as f64 / peak.bytes() as f64;
                predicted_runs += 1;
            }
            durations.push(run.duration_us);
            waits.push(run.wait_us);
        }
        figures.p50_us = percentile(&mut durations, 50);
        figures.p99_us = percentile(&mut durations, 99);
        figures.wait_p99_us = percentile(&mut waits, 99);
        figures.prediction_error = (predicted_runs > 0).then(|| error / f64::from(predicted_runs));
        figures
    }

    /// The time of all runs together.
    pub(crate) const fn total_us(&self) -> u64 {
        self.wait_us + self.init_us + self.extract_us + self.transform_us + self.load_us
    }
}

/// The figures of each function that `runs` name.
pub(crate) fn by_function(runs: Vec<EndedInvocation>) -> HashMap<FunctionName, FunctionFigures> {
    let mut grouped: HashMap<FunctionName, Vec<EndedInvocation>> = HashMap::new();
    for run in runs {
        grouped.entry(run.function.clone()).or_default().push(run);
    }
    grouped.into_iter().map(|(function, runs)| (function, FunctionFigures::of(&runs))).collect()
}

/// The value that `percent` of the values do not exceed (nearest rank); 0 if there are none.
fn percentile(values: &mut [u64], percent: usize) -> u64 {
    let Some(last) = values.len().checked_sub(1) else { return 0 };
    let rank = (values.len() * percent).div_ceil(100).clamp(1, values.len()) - 1;
    let (_, value, _) = values.select_nth_unstable(rank.min(last));
    *value
}

#[cfg(test)]
mod tests {
    use nigh_schedule::activation::{Outcome, Phases};
    use nigh_schedule::test_support::activation;

    use super::*;

    fn run(function: &str, duration_us: u64, outcome: Outcome) -> EndedInvocation {
        let phases = Phases { extract_us: 1, transform_us: duration_us.saturating_sub(3), load_us: 2 };
        EndedInvocation { duration_us, phases, ..EndedInvocation::from(&activation("one", function, outcome)) }
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        assert_eq!(percentile(&mut [], 99), 0);
        assert_eq!(percentile(&mut [7], 50), 7);
        let mut hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!((percentile(&mut hundred, 50), percentile(&mut hundred, 99)), (50, 99));
        assert_eq!(percentile(&mut [3, 1, 2], 99), 3);
    }

    #[test]
    fn figures_count_each_run_for_its_own_function() {
        let mut runs: Vec<_> = (1..=10).map(|n| run("f", n * 100, Outcome::Answered)).collect();
        runs.push(run("g", 50, Outcome::TimedOut));
        let figures = by_function(runs);
        let (f, g) = (&figures[&FunctionName::new("f").unwrap()], &figures[&FunctionName::new("g").unwrap()]);
        assert_eq!((f.runs, f.errors, f.cold, f.p50_us, f.p99_us), (10, 0, 10, 500, 1000));
        assert_eq!((f.extract_us, f.load_us, f.transform_us), (10, 20, 5500 - 30));
        assert_eq!(f.total_us(), 10 * (2 + 3) + 5500);
        assert_eq!((g.runs, g.errors, g.prediction_error), (1, 1, None));
    }

    #[test]
    fn the_error_of_predictions_is_a_part_of_the_peak() {
        let (peak, predicted) = (Some(ByteSize::mib(100)), Some(ByteSize::mib(125)));
        let known = EndedInvocation { peak, predicted, ..run("f", 10, Outcome::Answered) };
        let figures = FunctionFigures::of(&[run("f", 10, Outcome::Answered), known]);
        assert_eq!((figures.peak, figures.prediction_error), (peak, Some(0.25)));
    }
}
