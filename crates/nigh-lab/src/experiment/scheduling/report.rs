//! The report: every figure, the ranking that the weights were settled by, and a node under pressure.

use nigh_schedule::scheduler::Weights;
use serde::Serialize;

use super::contenders::{CONTENDERS, SETTLED};
use super::outcome::Figures;
use super::pressure::{PressureRow, PressureSummary};
use crate::instrument::machine::Machine;
use crate::instrument::stats::geometric_mean;

/// One weighting under one workload on one cluster.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) workload: &'static str,
    pub(super) nodes: u16,
    pub(super) weighting: &'static str,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// One weighting over all workloads and clusters: geometric means over the best of each.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RankedWeighting {
    pub(super) weighting: &'static str,
    /// The mean time, over the best weighting's.
    pub(super) mean: f64,
    /// The same of the 99th percentile.
    pub(super) p99: f64,
    /// What it is ranked by: the geometric mean of the two.
    pub(super) both: f64,
    /// The mean of the parts of bytes read where they were.
    pub(super) local_share: f64,
    pub(super) cold_starts: u64,
    pub(super) failed: u64,
    /// The largest.
    pub(super) imbalance_most: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct SchedulingReport {
    machine: Machine,
    quick: bool,
    simulated: String,
    settled: &'static str,
    weights: Vec<(&'static str, Weights)>,
    pub(super) ranking: Vec<RankedWeighting>,
    pub(super) rows: Vec<Row>,
    summary: PressureSummary,
    pressure: Vec<PressureRow>,
}

impl SchedulingReport {
    pub(super) fn make(
        machine: Machine,
        quick: bool,
        simulated: String,
        rows: Vec<Row>,
        pressure: Vec<PressureRow>,
    ) -> Self {
        let played = |name: &str| rows.iter().any(|row| row.weighting == name);
        let weights: Vec<_> = CONTENDERS.iter().copied().filter(|(name, _)| played(name)).collect();
        let mut ranking: Vec<RankedWeighting> = weights.iter().map(|(name, _)| rank(name, &rows)).collect();
        ranking.sort_by(|one, other| one.both.total_cmp(&other.both));
        Self {
            machine,
            quick,
            simulated,
            settled: SETTLED,
            weights,
            ranking,
            rows,
            summary: PressureSummary::of(&pressure),
            pressure,
        }
    }
}

fn rank(weighting: &'static str, rows: &[Row]) -> RankedWeighting {
    let own = || rows.iter().filter(|row| row.weighting == weighting);
    let over_best = |of: fn(&Figures) -> f64| {
        geometric_mean(own().map(|row| {
            let peers = rows.iter().filter(|peer| (peer.workload, peer.nodes) == (row.workload, row.nodes));
            of(&row.figures) / peers.map(|peer| of(&peer.figures)).fold(f64::INFINITY, f64::min)
        }))
    };
    let (mean, p99) = (over_best(|figures| figures.mean_ms), over_best(|figures| figures.p99_ms));
    RankedWeighting {
        weighting,
        mean,
        p99,
        both: (mean * p99).sqrt(),
        local_share: own().map(|row| row.figures.local_share).sum::<f64>() / own().count().max(1) as f64,
        cold_starts: own().map(|row| row.figures.counts.cold_starts).sum(),
        failed: own().map(|row| row.figures.counts.failed).sum(),
        imbalance_most: own().map(|row| row.figures.imbalance).fold(0.0, f64::max),
    }
}
