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

use std::path::PathBuf;

use clap::{Args, ValueEnum};

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
    /// A file of recorded invocations: counts per minute, one line per function
    #[arg(long, value_name = "FILE", default_value = recorded_invocations::STORED)]
    trace: PathBuf,
    /// A file with run times and memory of the same functions
    #[arg(long, value_name = "FILE", default_value = recorded_runs::STORED)]
    runs: PathBuf,
    /// Play only small clusters and short loads: takes seconds instead of minutes
    #[arg(long)]
    quick: bool,
    /// Play only these weightings
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Play only this part
    #[arg(long, value_name = "PART")]
    part: Option<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The scheduler's weightings on clusters
    Weightings,
    /// Policies of one node under pressure
    Pressure,
}

impl SchedulingArgs {
    pub(super) fn run(&self, machine: Machine, json: bool) -> Result<(), LabError> {
        tell(&self.report(machine)?, json)
    }

    fn report(&self, machine: Machine) -> Result<SchedulingReport, LabError> {
        let minutes = recorded_invocations::read_trace(&self.trace)?;
        let runs = recorded_runs::read_runs(&self.runs)?;
        let wanted = |part| self.part.is_none_or(|only| only == part);
        let rows = if wanted(Part::Weightings) { self.weightings(&minutes, &runs)? } else { Vec::new() };
        let pressure = if wanted(Part::Pressure) { pressure::play(&minutes, &runs, self.quick) } else { Vec::new() };
        Ok(SchedulingReport::make(machine, self.quick, cluster::about(), rows, pressure))
    }

    fn weightings(&self, minutes: &[Vec<u32>], runs: &[RecordedRun]) -> Result<Vec<Row>, LabError> {
        let (sizes, seconds): (&[u16], u64) =
            if self.quick { (&QUICK_SIZES, QUICK_SECONDS) } else { (&SIZES, SECONDS) };
        let mut rows = Vec::new();
        for &nodes in sizes {
            let processors = f64::from(nodes) * f64::from(PROCESSORS);
            for workload in Workload::all(minutes, runs, processors, seconds) {
                let wanted = |name: &str| self.only.is_empty() || self.only.iter().any(|only| only == name);
                for contender in CONTENDERS.iter().filter(|contender| wanted(contender.name)) {
                    let figures = Cluster::new(&workload, nodes, contender.weights)?.play().figures();
                    rows.push(Row { workload: workload.name, nodes, weighting: contender.name, figures });
                }
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_settled_weights_serve_better_than_load_hash_or_locality_alone() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let arguments = SchedulingArgs {
            trace: root.join(recorded_invocations::STORED),
            runs: root.join(recorded_runs::STORED),
            quick: true,
            only: ["least loaded", "hash only", "locality only", contenders::SETTLED].map(str::to_owned).into(),
            part: Some(Part::Weightings),
        };
        let report = arguments.report(Machine::read("nigh experiment scheduling --quick".to_owned())).unwrap();
        assert_eq!(report.rows.len(), 2 * 5 * 4);
        assert!(report.rows.iter().all(|row| row.figures.invocations > 50 && row.figures.mean_ms > 0.0));
        let first = &report.ranking[0];
        assert_eq!(first.weighting, contenders::SETTLED, "{:?}", report.ranking);
    }
}
