//! What happens when latencies vary, and when a sharer is dead.

use nigh_sim::fabric::{
    Failure, Hardware, Jitter, JitteredPart, Run, Server, System, Workflow, one_put, simulate, two_puts,
};
use serde::Serialize;

use super::calibration::micros;
use super::speedups::FittedWorkflow;

/// Section IV-C: 40 % around the mean.
const DEVIATION: f64 = 0.4;
/// What is put beside dead sharers.
const OBJECT_BYTES: u64 = 1 << 20;
/// Sharers of it, of which one is dead.
const SHARERS: u8 = 2;

/// One workflow's standard deviations of the time of all runs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct JitterRow {
    pub(super) workflow: &'static str,
    /// `messages`: each message's latency; `messages and streams`: also each window of a stream, as the published simulator.
    pub(super) varying: &'static str,
    pub(super) cached_us: f64,
    pub(super) apta_us: f64,
    pub(super) nigh_us: f64,
    pub(super) apta_over_cached: f64,
    pub(super) nigh_over_cached: f64,
}

/// The means of the workflows' ratios.
#[derive(Clone, Debug, Serialize)]
pub(super) struct JitterMean {
    pub(super) varying: &'static str,
    pub(super) apta_over_cached: f64,
    pub(super) nigh_over_cached: f64,
    pub(super) paper: f64,
}

/// A put beside a dead sharer; none where it is never acknowledged.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FailureRow {
    pub(super) configuration: &'static str,
    pub(super) put_us: f64,
    pub(super) put_with_dead_sharer_us: Option<f64>,
    /// It and another put of the same object.
    pub(super) two_puts_us: f64,
    pub(super) two_puts_with_dead_sharer_us: Option<f64>,
}

/// What varies, by name.
pub(super) const MESSAGES: &str = "messages";
pub(super) const STREAMS: &str = "messages and streams";
const PARTS: [(JitteredPart, &str); 2] =
    [(JitteredPart::Messages, MESSAGES), (JitteredPart::MessagesAndStreams, STREAMS)];

/// Of the sample.
fn deviation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// `runs` runs of each workflow under each protocol.
pub(super) fn jitter(fitted: &[FittedWorkflow], hardware: &Hardware, runs: u64, seed: u64) -> Vec<JitterRow> {
    let row = |one: &FittedWorkflow, (part, varying): (JitteredPart, &'static str)| {
        let of = |system| {
            let jitter = Some(Jitter { deviation: DEVIATION, part });
            let run = Run { jitter, ..one.run(system, hardware) };
            let times: Vec<f64> =
                (0..runs).map(|at| micros(&Run { seed: seed.wrapping_mul(runs).wrapping_add(at), ..run })).collect();
            deviation(&times)
        };
        let [cached_us, apta_us, nigh_us] = [System::CxlCached, System::Apta, System::Nigh].map(of);
        JitterRow {
            workflow: one.workflow.name,
            varying,
            cached_us,
            apta_us,
            nigh_us,
            apta_over_cached: apta_us / cached_us,
            nigh_over_cached: nigh_us / cached_us,
        }
    };
    PARTS.into_iter().flat_map(|part| fitted.iter().map(move |one| row(one, part))).collect()
}

pub(super) fn jitter_means(rows: &[JitterRow], paper: f64) -> Vec<JitterMean> {
    let of = |(_, varying): (JitteredPart, &'static str)| {
        let rows: Vec<&JitterRow> = rows.iter().filter(|row| row.varying == varying).collect();
        let mean = |ratio: fn(&JitterRow) -> f64| rows.iter().map(|row| ratio(row)).sum::<f64>() / rows.len() as f64;
        JitterMean {
            varying,
            apta_over_cached: mean(|row| row.apta_over_cached),
            nigh_over_cached: mean(|row| row.nigh_over_cached),
            paper,
        }
    };
    PARTS.map(of).into()
}

pub(super) fn failures(hardware: &Hardware) -> Vec<FailureRow> {
    let row = |system: System| {
        let time = |workflow: &Workflow, failures: &[Failure]| {
            simulate(&Run { failures, ..Run::plain(workflow, system, hardware) }).time.map(|time| time.micros())
        };
        let dead = [Failure { server: Server(1), stage: 0 }];
        let (one, two) = (one_put(OBJECT_BYTES, SHARERS), two_puts(OBJECT_BYTES, SHARERS));
        FailureRow {
            configuration: system.name(),
            put_us: micros(&Run::plain(&one, system, hardware)),
            put_with_dead_sharer_us: time(&one, &dead),
            two_puts_us: micros(&Run::plain(&two, system, hardware)),
            two_puts_with_dead_sharer_us: time(&two, &dead),
        }
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
            assert_eq!(row.put_with_dead_sharer_us.is_none(), row.configuration == "CXL cached");
            let stalls = ["CXL cached", "Apta", "RDMAf+Apta"].contains(&row.configuration);
            assert_eq!(row.two_puts_with_dead_sharer_us.is_none(), stalls, "{}", row.configuration);
        }
    }
}
