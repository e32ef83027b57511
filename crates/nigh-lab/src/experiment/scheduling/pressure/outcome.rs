//! How a workload went on a node.

use std::collections::BTreeMap;

use serde::Serialize;

use super::node::WAIT_MAX_US;
use crate::instrument::stats::Sample;

/// A run that is shorter counts as this long when slowdowns are taken, in microseconds: a millisecond that waits ten is
/// no harm that anybody sees.
pub(super) const SHORTEST_RUN_US: u64 = 10_000;

#[derive(Debug, Default)]
pub(super) struct Outcome {
    slowdowns: Vec<f64>,
    by_tenant: BTreeMap<usize, (f64, u64)>,
    refused: u64,
    starts: u64,
    starts_us: u64,
    runs_us: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PressureFigures {
    pub(super) invocations: usize,
    /// The time from arrival to end over the time of the run alone, both at least 10 ms, so never below 1.
    pub(super) slowdown_mean: f64,
    pub(super) slowdown_p50: f64,
    pub(super) slowdown_p99: f64,
    /// The mean of the tenant that fares worst.
    pub(super) slowdown_worst_tenant: f64,
    /// Sandboxes that started, an invocation.
    pub(super) cold_starts: f64,
    /// The part of the invocations that waited too long for their run to begin.
    pub(super) refused_share: f64,
    /// The part of the processors' work that starts were.
    pub(super) starts_share: f64,
}

impl Outcome {
    /// Work begins on the processors.
    pub(super) const fn works(&mut self, us: u64, is_start: bool) {
        if is_start {
            self.starts += 1;
            self.starts_us += us;
        } else {
            self.runs_us += us;
        }
    }

    /// An invocation has ended, so long after it came.
    pub(super) fn ended(&mut self, tenant: usize, time_us: u64, run_us: u64) {
        let slowdown = (time_us as f64 / run_us.max(SHORTEST_RUN_US) as f64).max(1.0);
        self.slowdowns.push(slowdown);
        let (sum, number) = self.by_tenant.entry(tenant).or_default();
        *sum += slowdown;
        *number += 1;
    }

    /// An invocation was refused: it counts as if it had waited as long as it may, and then had run alone.
    pub(super) fn refused(&mut self, tenant: usize, run_us: u64) {
        self.refused += 1;
        self.ended(tenant, WAIT_MAX_US + run_us, run_us);
    }

    pub(super) fn figures(self) -> PressureFigures {
        let tenants = self.by_tenant.values().map(|(sum, number)| sum / *number as f64);
        let worst = tenants.fold(1.0, f64::max);
        let slowdowns = Sample::new(self.slowdowns);
        let number = slowdowns.len().max(1) as f64;
        PressureFigures {
            invocations: slowdowns.len(),
            slowdown_mean: slowdowns.values().iter().sum::<f64>() / number,
            slowdown_p50: slowdowns.median(),
            slowdown_p99: slowdowns.percentile(0.99),
            slowdown_worst_tenant: worst,
            cold_starts: self.starts as f64 / number,
            refused_share: self.refused as f64 / number,
            starts_share: self.starts_us as f64 / (self.starts_us + self.runs_us).max(1) as f64,
        }
    }
}
