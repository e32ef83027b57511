//! How a workload went on a cluster.

use serde::Serialize;

use crate::instrument::stats::Sample;

#[derive(Debug)]
pub(super) struct Outcome {
    times_us: Vec<u32>,
    /// Time over that of the run alone.
    stretches: Vec<f32>,
    pub(super) cold: u64,
    pub(super) evicted: u64,
    pub(super) queued: u64,
    pub(super) failed: u64,
    pub(super) read_bytes: u64,
    pub(super) local_bytes: u64,
    pub(super) store_reads: u64,
    busy_us: Vec<f64>,
    nodes: usize,
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
    /// The part of reads that no node could answer.
    pub(super) store_reads: u64,
    pub(super) cold_starts: u64,
    pub(super) evicted: u64,
    pub(super) queued: u64,
    pub(super) failed: u64,
    /// The busiest node's processor time over the mean.
    pub(super) imbalance: f64,
}

impl Outcome {
    pub(super) const fn new(nodes: usize) -> Self {
        Self {
            times_us: Vec::new(),
            stretches: Vec::new(),
            cold: 0,
            evicted: 0,
            queued: 0,
            failed: 0,
            read_bytes: 0,
            local_bytes: 0,
            store_reads: 0,
            busy_us: Vec::new(),
            nodes,
        }
    }

    pub(super) fn ended(&mut self, time_us: u64, run_us: u64) {
        self.times_us.push(u32::try_from(time_us).unwrap_or(u32::MAX));
        self.stretches.push(time_us as f32 / run_us.max(1) as f32);
    }

    pub(super) fn busy(&mut self, us: f64) {
        self.busy_us.push(us);
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
            store_reads: self.store_reads,
            cold_starts: self.cold,
            evicted: self.evicted,
            queued: self.queued,
            failed: self.failed,
            imbalance: busiest * self.nodes as f64 / self.busy_us.iter().sum::<f64>().max(1.0),
        }
    }
}
