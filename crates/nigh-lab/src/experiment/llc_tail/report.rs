//! The report.

use nigh_terms::Ways;
use serde::Serialize;

use super::findings::{BestTail, GuardResult, LargerIsWorse, Reach};
use super::server_machine::SimulatedMachine;
use super::sweep::Row;
use crate::instrument::machine::Machine;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Paper {
    source: &'static str,
    pub(super) small_ratio: f64,
    pub(super) large_ratio: f64,
    note: &'static str,
}

pub(super) const PAPER: Paper = Paper {
    source: "CPU Cache Partitioning for Networked Systems (CMU poster)",
    small_ratio: 5.3,
    large_ratio: 1.8,
    note: "maxima over an axis that the poster does not state; machine, ways and loads are not on it either",
};

#[derive(Clone, Debug, Serialize)]
pub(super) struct SetReport {
    pub(super) working_set: String,
    /// Of the whole cache.
    pub(super) cache_ways: Ways,
    pub(super) items_bytes: u64,
    pub(super) index_bytes: u64,
    /// Lines a request that leave the store's core.
    pub(super) lines_per_request: f64,
    pub(super) rows: Vec<Row>,
    pub(super) best: Option<BestTail>,
    /// The same on the paper's axis alone, without the loads close to what no CAT serves.
    pub(super) best_on_axis: Option<BestTail>,
    pub(super) paper_ratio: Option<f64>,
    pub(super) reaches: Vec<Reach>,
    pub(super) larger_is_worse: Option<LargerIsWorse>,
    pub(super) guard: Vec<GuardResult>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct TailReport {
    pub(super) machine: Machine,
    pub(super) paper: Paper,
    pub(super) simulated: SimulatedMachine,
    pub(super) quick: bool,
    pub(super) slo_us: f64,
    pub(super) seconds: f64,
    pub(super) sets: Vec<SetReport>,
}
