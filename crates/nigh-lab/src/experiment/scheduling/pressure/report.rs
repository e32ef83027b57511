//! What is reported of a node under pressure.

use nigh_terms::ByteSize;
use serde::Serialize;

use super::node::{END_US, WAIT_MAX_US};
use super::outcome::{PressureFigures, SHORTEST_RUN_US};
use super::workload::{HELD_MIN, HELD_PERCENT, PROCESSORS, START_MS, Setting};
use super::{CONTENDERS, ORACLE};
use crate::instrument::stats::geometric_mean;

/// One policy in one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(in super::super) struct PressureRow {
    pub(super) setting: String,
    #[serde(flatten)]
    percents: Setting,
    memory: ByteSize,
    pub(super) policy: &'static str,
    #[serde(flatten)]
    pub(super) figures: PressureFigures,
}

impl PressureRow {
    pub(super) fn new(percents: Setting, memory: ByteSize, policy: &'static str, figures: PressureFigures) -> Self {
        let Setting { memory_percent, processors_percent } = percents;
        let setting = format!("memory {memory_percent} %, processors {processors_percent} %");
        Self { setting, percents, memory, policy, figures }
    }
}

/// A policy's mean slowdowns over the oracle's.
#[derive(Clone, Debug, Serialize)]
struct OverOracle {
    policy: &'static str,
    /// The geometric mean of all settings.
    all: f64,
    by_setting: Vec<(String, f64)>,
}

/// What is to be read first.
#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct PressureSummary {
    simulated: String,
    slowdown_over_oracle: Vec<OverOracle>,
}

impl PressureSummary {
    pub(in super::super) fn of(rows: &[PressureRow]) -> Self {
        let simulated = format!(
            "{PROCESSORS} processors, shared evenly; a start {} to {} ms of work by function; an idle sandbox uses {HELD_PERCENT} % of its \
             booking, at least {HELD_MIN}; an end {} ms; refused after {} s of waiting, and counted as that and the run \
             alone; slowdowns of runs below {} ms as of that",
            START_MS.0,
            START_MS.1,
            END_US / 1000,
            WAIT_MAX_US / 1_000_000,
            SHORTEST_RUN_US / 1000
        );
        let contenders = CONTENDERS.iter().filter(|(policy, _)| rows.iter().any(|row| row.policy == *policy));
        let slowdown_over_oracle = contenders.map(|(policy, _)| over_oracle(policy, rows)).collect();
        Self { simulated, slowdown_over_oracle }
    }
}

fn over_oracle(policy: &'static str, rows: &[PressureRow]) -> OverOracle {
    let mut by_setting = Vec::new();
    for row in rows.iter().filter(|row| row.policy == policy) {
        let oracle = rows.iter().find(|one| one.policy == ORACLE && one.setting == row.setting);
        let oracle = oracle.map_or(f64::NAN, |one| one.figures.slowdown_mean);
        by_setting.push((row.setting.clone(), row.figures.slowdown_mean / oracle));
    }
    OverOracle { policy, all: geometric_mean(by_setting.iter().map(|(_, ratio)| *ratio)), by_setting }
}
