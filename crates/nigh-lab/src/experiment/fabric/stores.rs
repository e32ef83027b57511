//! Section II: the part of each function's time that goes to gets and puts, by store.

use nigh_sim::fabric::{Hardware, Outcome, Step, System, simulate};
use serde::Serialize;

use super::paper;
use super::speedups::FittedWorkflow;

/// A function's parts, from 0 to 1.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ShareRow {
    pub(super) workflow: &'static str,
    pub(super) function: &'static str,
    pub(super) s3: f64,
    pub(super) rdma: f64,
    pub(super) memory_server: f64,
    pub(super) memory_server_and_cache: f64,
}

/// The mean of all functions.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ShareMean {
    pub(super) store: &'static str,
    pub(super) mean: f64,
    /// Of nine other functions, one a workflow.
    pub(super) paper: Option<f64>,
}

/// Functions whose computing was measured.
pub(super) fn shares(fitted: &[FittedWorkflow], hardware: &Hardware) -> Vec<ShareRow> {
    let of = |one: &FittedWorkflow| {
        let [s3, rdma, server, cache] = System::STORES.map(|system| simulate(&one.run(system, hardware)));
        let row = |at: usize| {
            let function = &one.workflow.functions[at];
            let computes = function.steps.iter().any(|step| matches!(step, Step::Compute(micros) if *micros > 0.0));
            let share = |outcome: &Outcome| outcome.functions[at].communication();
            computes.then(|| ShareRow {
                workflow: one.workflow.name,
                function: function.name,
                s3: share(&s3),
                rdma: share(&rdma),
                memory_server: share(&server),
                memory_server_and_cache: share(&cache),
            })
        };
        (0..one.workflow.functions.len()).filter_map(row).collect::<Vec<_>>()
    };
    fitted.iter().flat_map(of).collect()
}

pub(super) fn means(rows: &[ShareRow]) -> Vec<ShareMean> {
    let mean = |share: fn(&ShareRow) -> f64| rows.iter().map(share).sum::<f64>() / rows.len() as f64;
    let means = [
        mean(|row| row.s3),
        mean(|row| row.rdma),
        mean(|row| row.memory_server),
        mean(|row| row.memory_server_and_cache),
    ];
    let published = |system| paper::COMMUNICATION.iter().find(|(one, _)| *one == system).map(|(_, share)| *share);
    let row = |(system, mean): (System, f64)| ShareMean { store: system.name(), mean, paper: published(system) };
    System::STORES.into_iter().zip(means).map(row).collect()
}
