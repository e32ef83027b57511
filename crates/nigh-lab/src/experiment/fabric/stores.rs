//! Section II: the part of each function's time that goes to gets and puts, by store.

use nigh_sim::fabric::{Hardware, Outcome, Step, System, simulate};
use serde_json::{Value, json};

use super::paper;
use super::speedups::FittedWorkflow;
use crate::instrument::stats::Sample;

/// The parts, from 0 to 1, of functions whose computing was measured.
pub(super) fn shares(fitted: &[FittedWorkflow], hardware: &Hardware) -> Vec<Value> {
    let of = |one: &FittedWorkflow| {
        let [s3, rdma, server, cache] = System::STORES.map(|system| simulate(&one.run(system, hardware)));
        let row = |at: usize| {
            let function = &one.workflow.functions[at];
            let computes = function.steps.iter().any(|step| matches!(step, Step::Compute(micros) if *micros > 0.0));
            let share = |outcome: &Outcome| outcome.functions[at].communication();
            computes.then(|| {
                json!({
                    "workflow": one.workflow.name,
                    "function": function.name,
                    "s3": share(&s3),
                    "rdma": share(&rdma),
                    "memory_server": share(&server),
                    "memory_server_and_cache": share(&cache),
                })
            })
        };
        (0..one.workflow.functions.len()).filter_map(row).collect::<Vec<_>>()
    };
    fitted.iter().flat_map(of).collect()
}

/// The means of all functions; the paper's are of nine other functions, one a workflow.
pub(super) fn means(rows: &[Value]) -> Vec<Value> {
    let published = |system| paper::COMMUNICATION.iter().find(|(one, _)| *one == system).map(|(_, share)| *share);
    let row = |(system, field): (System, &str)| {
        let mean = Sample::of_field(rows, field).mean();
        json!({ "store": system.name(), "mean": mean, "paper": published(system) })
    };
    System::STORES.into_iter().zip(["s3", "rdma", "memory_server", "memory_server_and_cache"]).map(row).collect()
}
