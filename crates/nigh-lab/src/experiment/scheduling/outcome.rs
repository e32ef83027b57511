//! How a workload went on a cluster.

use serde::Serialize;

use crate::instrument::stats::Sample;

#[derive(Debug, Default)]
pub(super) struct Outcome {
    times_us: Vec<u32>,
    /// Time over that of the run alone.
    stretches: Vec<f32>,
    pub(super) counts: Counts,
    pub(super) read_bytes: u64,
    pub(super) local_bytes: u64,
    /// Processor time of each node.
    pub(super) busy_us: Vec<f64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Counts {
    /// Reads that no node could answer.
    pub(super) store_reads: u64,
    pub(super) cold_starts: u64,
    pub(super) evicted: u64,
    pub(super) queued: u64,
    pub(super) failed: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) invocations: usize,
    pub(super) mean_ms: f64,
    pub(super) p99_ms: f64,
    /// The mean of time over the time of the run alone.
    pub(super) stretch: f64,
    /// The part of the inputs' bytes that was read where it was.
    pub(super) local_share: f64,
    #[serde(flatten)]
    pub(super) counts: Counts,
    /// The busiest node's processor time over the mean.
    pub(super) imbalance: f64,
}

impl Outcome {
    pub(super) fn ended(&mut self, time_us: u64, run_us: u64) {
        self.times_us.push(u32::try_from(time_us).unwrap_or(u32::MAX));
        self.stretches.push(time_us as f32 / run_us.max(1) as f32);
    }

    pub(super) fn figures(&self) -> Figures {
        let times = Sample::new(self.times_us.iter().map(|us| f64::from(*us) / 1000.0).collect());
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let stretches: Vec<f64> = self.stretches.iter().map(|one| f64::from(*one)).collect();
        let busiest = self.busy_us.iter().copied().fold(0.0, f64::max);
        Figures {
            invocations: times.len(),
            mean_ms: mean(times.values()),
            p99_ms: times.percentile(0.99),
            stretch: mean(&stretches),
            local_share: self.local_bytes as f64 / self.read_bytes.max(1) as f64,
            counts: self.counts,
            imbalance: busiest * self.busy_us.len() as f64 / self.busy_us.iter().sum::<f64>().max(1.0),
        }
    }
}
