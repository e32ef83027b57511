//! `nigh experiment scheduling`: which weights of the scheduler's criteria serve best?
//!
//! The scheduler, its queue and its index of hints place invocations on simulated clusters of 3 to 100 nodes (`cluster`),
//! under a recorded workload and four made up (`workload`). A weighting is judged by the mean and the 99th percentile of
//! the time from arrival to end, over the best of all on the same workload and cluster. The figures rank weightings under
//! one load; they do not foretell times on real machines.
//!
//! The second part is one node under pressure: which policy of a node's sandboxes serves best (`pressure`)?

mod cluster;
mod contenders;
mod outcome;
mod pressure;
mod processors;
mod recorded_runs;
mod report;
mod workload;

use clap::Args;
use nigh_schedule::scheduler::Weights;

use self::cluster::{Cluster, PROCESSORS};
use self::contenders::CONTENDERS;
use self::recorded_runs::RecordedRun;
use self::report::{Row, SchedulingReport};
use self::workload::Workload;
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::recorded_invocations;
use crate::instrument::report_text::tell;

const SIZES: [u16; 4] = [3, 10, 30, 100];
const QUICK_SIZES: [u16; 2] = [3, 10];
const SECONDS: u64 = 20;
const QUICK_SECONDS: u64 = 5;

#[derive(Clone, Debug, Args)]
pub(super) struct SchedulingArgs {
    /// Play only small clusters and short loads: takes seconds instead of minutes
    #[arg(long)]
    quick: bool,
}

impl SchedulingArgs {
    pub(super) fn run(&self, machine: Machine, json: bool) -> Result<(), LabError> {
        let minutes = recorded_invocations::read_trace(recorded_invocations::STORED.as_ref())?;
        let runs = recorded_runs::read_runs(recorded_runs::STORED.as_ref())?;
        let rows = weightings(CONTENDERS, &minutes, &runs, self.quick)?;
        let pressure = pressure::play(&minutes, &runs, self.quick);
        tell(&SchedulingReport::make(machine, self.quick, cluster::about(), rows, pressure), json)
    }
}

/// Each of `contenders` under each workload on each cluster.
fn weightings(
    contenders: &[(&'static str, Weights)],
    minutes: &[Vec<u32>],
    runs: &[RecordedRun],
    quick: bool,
) -> Result<Vec<Row>, LabError> {
    let (sizes, seconds): (&[u16], u64) = if quick { (&QUICK_SIZES, QUICK_SECONDS) } else { (&SIZES, SECONDS) };
    let mut rows = Vec::new();
    for &nodes in sizes {
        let processors = f64::from(nodes) * f64::from(PROCESSORS);
        for workload in Workload::all(minutes, runs, processors, seconds) {
            for &(weighting, weights) in contenders {
                let figures = Cluster::new(&workload, nodes, weights)?.play().figures();
                rows.push(Row { workload: workload.name, nodes, weighting, figures });
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_settled_weights_serve_better_than_load_hash_or_locality_alone() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let minutes = recorded_invocations::read_trace(&root.join(recorded_invocations::STORED)).unwrap();
        let runs = recorded_runs::read_runs(&root.join(recorded_runs::STORED)).unwrap();
        let names = ["least loaded", "hash only", "locality only", contenders::SETTLED];
        let played: Vec<_> = CONTENDERS.iter().copied().filter(|(name, _)| names.contains(name)).collect();
        let rows = weightings(&played, &minutes, &runs, true).unwrap();
        let machine = Machine::read("nigh experiment scheduling --quick".to_owned());
        let report = SchedulingReport::make(machine, true, cluster::about(), rows, Vec::new());
        assert_eq!(report.rows.len(), 2 * 5 * 4);
        assert!(report.rows.iter().all(|row| row.figures.invocations > 50 && row.figures.mean_ms > 0.0));
        let first = &report.ranking[0];
        assert_eq!(first.weighting, contenders::SETTLED, "{:?}", report.ranking);
    }
}
