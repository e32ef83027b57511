//! One node under pressure: how do the node's pool, published ones and an oracle serve it?
//!
//! Minutes of the recorded day are squeezed onto one node (`workload`) until its memory or its processors are as full as a
//! setting says, and each policy plays all of them (`node`). Policies are compared by the mean slowdown, over that of an
//! oracle that knows what will be invoked (`oracle`). Sandboxes of the published policies keep what they book while they are
//! idle; each is also played with sandboxes that keep what they use only, so that the order in which invocations and
//! sandboxes are chosen can be told from the rule for memory. The node is cold at first.

mod foresight;
mod greedy_dual;
mod load;
mod node;
mod on_demand;
mod oracle;
mod outcome;
mod policy;
mod production;
mod report;
mod sandboxes;
mod workload;

use self::node::Node;
use self::on_demand::{at_once, openwhisk};
use self::oracle::Oracle;
use self::policy::{IdleTakes, Policy};
use self::production::Production;
pub(super) use self::report::{PressureRow, PressureSummary};
use self::workload::{NodeWorkload, RecordedMinutes, Setting};
use super::recorded_runs::RecordedRun;

/// Minutes of the recorded day that are played.
const RECORDED_MIN: usize = 120;
const QUICK_RECORDED_MIN: usize = 10;

/// Memory under pressure at a moderate load, processors under pressure with memory for all, and both.
const SETTINGS: [Setting; 10] = [
    setting(30, 40),
    setting(60, 40),
    setting(90, 40),
    setting(120, 40),
    setting(50, 30),
    setting(50, 60),
    setting(50, 90),
    setting(50, 120),
    setting(90, 90),
    setting(120, 120),
];
const QUICK_SETTINGS: [Setting; 3] = [setting(90, 40), setting(50, 90), setting(120, 120)];

const fn setting(memory_percent: u32, processors_percent: u32) -> Setting {
    Setting { memory_percent, processors_percent }
}

/// By whom all others are measured.
const ORACLE: &str = "oracle";

/// A policy's name, and how one is made for a workload.
type Contender = (&'static str, for<'a> fn(&'a NodeWorkload) -> Box<dyn Policy + 'a>);

const CONTENDERS: [Contender; 9] = [
    ("nigh", |workload| Box::new(Production::new(workload))),
    ("at once", |workload| at_once(&workload.functions, IdleTakes::Booked)),
    ("at once, holding what is used", |workload| at_once(&workload.functions, IdleTakes::Held)),
    ("OpenWhisk", |workload| openwhisk(&workload.functions, IdleTakes::Booked)),
    ("OpenWhisk, holding what is used", |workload| openwhisk(&workload.functions, IdleTakes::Held)),
    ("greedy dual", |workload| greedy_dual::greedy_dual(&workload.functions, IdleTakes::Booked)),
    ("greedy dual, holding what is used", |workload| greedy_dual::greedy_dual(&workload.functions, IdleTakes::Held)),
    ("oracle on demand", |workload| Box::new(Oracle::on_demand(workload))),
    (ORACLE, |workload| Box::new(Oracle::new(workload))),
];

pub(super) fn play(minutes: &[Vec<u32>], runs: &[RecordedRun], quick: bool) -> Vec<PressureRow> {
    let (settings, length_min): (&[Setting], usize) =
        if quick { (&QUICK_SETTINGS, QUICK_RECORDED_MIN) } else { (&SETTINGS, RECORDED_MIN) };
    let recorded = RecordedMinutes::new(minutes, runs, length_min);
    let mut rows = Vec::new();
    for setting in settings {
        let workload = recorded.on_node(*setting);
        for (policy, make) in CONTENDERS {
            let figures = Node::new(&workload, make(&workload)).play().figures();
            rows.push(PressureRow::new(*setting, workload.memory, policy, figures));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::experiment::scheduling::recorded_runs;
    use crate::instrument::recorded_invocations;

    /// The node asserts, at every event, that no more memory is taken than there is, and at the end, that every invocation
    /// ended or was refused.
    #[test]
    fn memory_holds_all_are_served_or_refused_and_no_policy_is_better_than_the_oracle() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let minutes = recorded_invocations::read_trace(&root.join(recorded_invocations::STORED)).unwrap();
        let runs = recorded_runs::read_runs(&root.join(recorded_runs::STORED)).unwrap();
        let rows = play(&minutes, &runs, true);
        assert_eq!(rows.len(), QUICK_SETTINGS.len() * CONTENDERS.len());
        for row in &rows {
            assert_eq!(row.figures.invocations, rows[0].figures.invocations);
            assert!(row.figures.slowdown_mean >= 1.0 && row.figures.cold_starts > 0.0);
            let oracle = rows.iter().find(|one| one.policy == ORACLE && one.setting == row.setting).unwrap();
            assert!(oracle.figures.slowdown_mean <= row.figures.slowdown_mean, "{row:?} {oracle:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_figures() {
        let minutes: Vec<Vec<u32>> = (0..40).map(|line| vec![line % 7; 1440]).collect();
        let quartiles_ms = [20.0, 80.0, 300.0, 3000.0];
        let runs = vec![RecordedRun { quartiles_ms, median_ms: 80.0, memory_mib: 150 }; 40];
        assert_eq!(play(&minutes, &runs, true), play(&minutes, &runs, true));
    }
}
