//! What happens when latencies vary, and when a sharer is dead.

use nigh_sim::fabric::{
    Failure, Hardware, Jitter, JitteredPart, Run, Server, System, Workflow, one_put, simulate, two_puts,
};
use serde_json::{Value, json};

use super::calibration::micros;
use super::speedups::FittedWorkflow;
use crate::instrument::stats::Sample;

/// Section IV-C: 40 % around the mean.
const DEVIATION: f64 = 0.4;
/// What is put beside dead sharers.
const OBJECT_BYTES: u64 = 1 << 20;
/// Sharers of it, of which one is dead.
const SHARERS: u8 = 2;

/// What varies: each message's latency; or also each window of a stream, as in the published simulator.
pub(super) const MESSAGES: &str = "messages";
pub(super) const STREAMS: &str = "messages and streams";
const PARTS: [(JitteredPart, &str); 2] =
    [(JitteredPart::Messages, MESSAGES), (JitteredPart::MessagesAndStreams, STREAMS)];

/// The standard deviation of the sample.
fn deviation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Standard deviations of the time of `runs` runs, by workflow.
pub(super) fn jitter(fitted: &[FittedWorkflow], hardware: &Hardware, runs: u64, seed: u64) -> Vec<Value> {
    let row = |one: &FittedWorkflow, (part, varying): (JitteredPart, &'static str)| {
        let of = |system| {
            let jitter = Some(Jitter { deviation: DEVIATION, part });
            let run = Run { jitter, ..one.run(system, hardware) };
            let times: Vec<f64> =
                (0..runs).map(|at| micros(&Run { seed: seed.wrapping_mul(runs).wrapping_add(at), ..run })).collect();
            deviation(&times)
        };
        let [cached_us, apta_us, nigh_us] = [System::CxlCached, System::Apta, System::Nigh].map(of);
        json!({
            "workflow": one.workflow.name,
            "varying": varying,
            "cached_us": cached_us,
            "apta_us": apta_us,
            "nigh_us": nigh_us,
            "apta_over_cached": apta_us / cached_us,
            "nigh_over_cached": nigh_us / cached_us,
        })
    };
    PARTS.into_iter().flat_map(|part| fitted.iter().map(move |one| row(one, part))).collect()
}

/// The means of the workflows' ratios.
pub(super) fn jitter_means(rows: &[Value], paper: f64) -> Vec<Value> {
    let of = |(_, varying): (JitteredPart, &'static str)| {
        let rows: Vec<Value> = rows.iter().filter(|row| row["varying"] == varying).cloned().collect();
        let mean = |field| Sample::of_field(&rows, field).mean();
        json!({
            "varying": varying,
            "apta_over_cached": mean("apta_over_cached"),
            "nigh_over_cached": mean("nigh_over_cached"),
            "paper": paper,
        })
    };
    PARTS.map(of).into()
}

/// A put, and two puts of one object, beside a dead sharer; null where one is never acknowledged.
pub(super) fn failures(hardware: &Hardware) -> Vec<Value> {
    let row = |system: System| {
        let time = |workflow: &Workflow, failures: &[Failure]| {
            simulate(&Run { failures, ..Run::plain(workflow, system, hardware) }).time.map(|time| time.micros())
        };
        let dead = [Failure { server: Server(1), stage: 0 }];
        let (one, two) = (one_put(OBJECT_BYTES, SHARERS), two_puts(OBJECT_BYTES, SHARERS));
        json!({
            "configuration": system.name(),
            "put_us": micros(&Run::plain(&one, system, hardware)),
            "put_with_dead_sharer_us": time(&one, &dead),
            "two_puts_us": micros(&Run::plain(&two, system, hardware)),
            "two_puts_with_dead_sharer_us": time(&two, &dead),
        })
    };
    System::COMPARED.map(row).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_the_sample() {
        assert!((deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) - 2.138_089_935).abs() < 1e-9);
    }

    #[test]
    fn only_eager_puts_never_end_and_nighs_second_put_ends_too() {
        for row in failures(&Hardware::APTA) {
            let configuration = row["configuration"].as_str().unwrap();
            assert_eq!(row["put_with_dead_sharer_us"].is_null(), configuration == "CXL cached");
            let stalls = ["CXL cached", "Apta", "RDMAf+Apta"].contains(&configuration);
            assert_eq!(row["two_puts_with_dead_sharer_us"].is_null(), stalls, "{configuration}");
        }
    }
}
