//! A recorded run's curves on the simulated machine: models learn from them and are judged by them.
//!
//! The need is CASY's (the fewest ways within 5 % of the time with all), of a warm run alone. Curves come from the exact
//! counts of `curves.csv`, or from the simulator's own sweep of a trace; both are priced by the same cycles.

use nigh_llc::{
    CodeVersion, MissCurve, RunCurves, SizingInput, SizingModel, SizingRule, TimeCurve, Tolerance, TrainingRow,
    TrainingRows, Work,
};
use nigh_sim::llc::{CoreTiming, LINE_BYTES, LlcGeometry, MachineConfig, ReplayTrace, Warmth, alone_by_ways};

use super::one_run;
pub(crate) use super::one_run::{HERTZ, cycles};
use super::trace_library::RecordedInput;
use crate::LabError;

/// Lines of one way of the simulated cache.
pub(crate) const LINES_PER_WAY: f64 = (LlcGeometry::XEON_SILVER_4210R.way_bytes() / LINE_BYTES) as f64;

/// CASY's threshold.
pub(crate) const RULE: SizingRule = SizingRule { threshold: Tolerance::FIVE_PERCENT, lines_per_way: LINES_PER_WAY };

fn broken(input: &str, reason: &dyn std::fmt::Display) -> LabError {
    LabError::Simulation { what: input.to_owned(), reason: reason.to_string() }
}

/// Curves from the exact counts of a recorded stretch.
pub(crate) fn counted_curves(input: &RecordedInput, timing: &CoreTiming) -> Result<RunCurves, LabError> {
    let failed = |error| broken(&input.name, &error);
    let misses = input.warm.iter().map(|&misses| misses as f64).collect();
    let misses = MissCurve::new(input.requests as f64, misses).map_err(failed)?;
    let work = Work { instructions: input.instructions as f64, neighbour_share: 0.0 };
    let times = TimeCurve::from_misses(&misses, &work, &cycles(timing)).map_err(failed)?;
    Ok(RunCurves { misses, times })
}

/// Curves from a sweep in the simulator, warm.
pub(crate) fn simulated_curves(name: &str, trace: &ReplayTrace, config: &MachineConfig) -> Result<RunCurves, LabError> {
    let config = MachineConfig { rate: trace.rate(), ..*config };
    let runs = alone_by_ways(&config, trace, Warmth::Warm).map_err(|error| broken(name, &error))?;
    let failed = |error| broken(name, &error);
    let requests = trace.requests() * u64::from(trace.rate().one_in());
    let misses = runs.iter().map(|run| run.misses as f64).collect();
    let times = runs.iter().map(|run| run.time.seconds(HERTZ) * 1e6).collect();
    let misses = MissCurve::new(requests as f64, misses).map_err(failed)?;
    Ok(RunCurves { misses, times: TimeCurve::new(times).map_err(failed)? })
}

/// What is known of an input before it runs.
pub(crate) fn sizing_input(input: &RecordedInput) -> SizingInput {
    SizingInput { size: input.size, features: input.features.clone() }
}

/// The model that a function's profiled inputs give.
pub(crate) fn learn(function: &str, rows: impl Iterator<Item = TrainingRow>) -> Result<SizingModel, LabError> {
    let version = version(function);
    let mut set = TrainingRows::new(version.clone());
    for row in rows {
        set.add(&version, row).map_err(|error| broken(function, &error))?;
    }
    SizingModel::choose(set, RULE).ok_or_else(|| broken(function, &"no profiled input"))
}

/// The functions' code does not change within an experiment.
pub(crate) fn version(function: &str) -> CodeVersion {
    CodeVersion(function.to_owned())
}

/// A one-run profile: the misses of one traced run, priced.
pub(crate) fn profiled(input: &RecordedInput, timing: &CoreTiming) -> Result<TrainingRow, LabError> {
    let misses = counted_curves(input, timing)?.misses;
    one_run::priced(sizing_input(input), misses, input.instructions as f64, timing, LINES_PER_WAY)
        .map_err(|error| broken(&input.name, &error))
}

#[cfg(test)]
mod tests {
    use nigh_terms::Ways;

    use super::super::trace_library::tests::kept;
    use super::*;

    #[test]
    fn the_simulators_sweep_is_the_exact_count_within_two_percent() {
        let library = kept();
        let config = MachineConfig::XEON_SILVER_4210R;
        for name in ["blur-124k", "blur-361k"] {
            let input = library.input(name).unwrap();
            let trace = library.recorded_trace(input).unwrap();
            let simulated = simulated_curves(name, &trace, &config).unwrap();
            let counted = counted_curves(input, &config.timing).unwrap();
            for ways in (1..=11).map(Ways) {
                let ratio = simulated.times.micros(ways) / counted.times.micros(ways);
                assert!((ratio - 1.0).abs() < 0.02, "{name} at {ways} ways: {ratio}");
            }
        }
    }
}
