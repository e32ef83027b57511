//! What the state machines of the coherence protocol cost: steps of one home, its directory's memory, a hit at a node, and a
//! placement by the scheduler over a thousand nodes and ten million objects.
//!
//! The state machines run alone, on one processor: no network, no ledger, no object bytes. Times are CPU times of this
//! thread, so that other programs affect them only through the processor's caches. Beside each figure stands what bounds it: an object
//! drawn from millions is in no cache of the processor, and an access to memory takes 80 to 100 ns.

mod decision;
mod directory;
mod home_steps;
mod local_hit;

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;

use self::decision::DecisionRow;
use self::directory::DirectoryRow;
use self::home_steps::StepsRow;
use self::local_hit::HitRow;
use super::{Figures, RatioTarget};
use crate::LabError;
use crate::instrument::machine::Machine;

#[derive(Clone, Debug, Args)]
pub(super) struct CoherenceLength {
    /// How many rounds each measurement has; the report shows their median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// How many objects the largest measurements use; the others use a tenth
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(10_000..=40_000_000))]
    objects: u64,
}

#[derive(Clone, Copy, Debug)]
struct Length {
    rounds: usize,
    operations: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct CoherenceReport {
    machine: Machine,
    steps: Vec<StepsRow>,
    directory: Vec<DirectoryRow>,
    decisions: Vec<DecisionRow>,
    hits: Vec<HitRow>,
    #[serde(flatten)]
    figures: Figures,
    bound_by: BTreeMap<&'static str, &'static str>,
}

pub(super) fn run(length: &CoherenceLength, machine: Machine) -> Result<CoherenceReport, LabError> {
    let (many, fewer) = (length.objects, length.objects / 10);
    let length = Length { rounds: length.rounds as usize, operations: (many / 10).clamp(1_000, 1_000_000) as usize };
    // This must run first: it would reuse memory that the others have freed, and not count it.
    let directory = directory::run(&[fewer, many])?;
    let steps = home_steps::run(&[1_000, fewer, many], length)?;
    let decisions = decision::run(many, length.rounds);
    let hits = local_hit::run(&[1_000, fewer], length)?;
    let (mut figures, mut bound_by) = (Figures::default(), BTreeMap::new());
    let mut add = |name, figure, asked, bound| {
        figures.add(name, figure, asked);
        bound_by.insert(name, bound);
    };
    if let Some(row) = steps.iter().find(|row| row.objects == fewer && row.names == "numbers") {
        let bound = "one or two accesses to memory a step of a million objects, 80 to 200 ns; hashing";
        add("home_steps_per_second", row.per_second, RatioTarget::AtLeast(2_000_000.0), bound);
    }
    if let Some(row) = directory.last() {
        let bound = "40 bytes of an entry, a byte of the table, and the part of the table that is empty: 1/8 to 9/16";
        add("directory_bytes_per_object", row.bytes_per_object, RatioTarget::AtMost(128.0), bound);
    }
    if let Some(row) = decisions.last() {
        let bound = "72 KB of the nodes' views read twice, and an access to memory for each input";
        add("decision_p50_us", row.p50_us, RatioTarget::AtMost(50.0), bound);
        add("decision_p99_us", row.p99_us, RatioTarget::AtMost(50.0), bound);
    }
    if let Some(row) = hits.last() {
        let bound = "no message: the node's own table and coverage answer";
        add("messages_per_local_hit", row.messages as f64, RatioTarget::AtMost(0.0), bound);
    }
    Ok(CoherenceReport { machine, steps, directory, decisions, hits, figures, bound_by })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_has_every_figure_and_hits_send_nothing() {
        let length = CoherenceLength { rounds: 1, objects: 10_000 };
        let report = run(&length, Machine::read("nigh bench coherence".to_owned())).unwrap();
        let summary = &report.figures.summary;
        assert_eq!(summary.len(), 5, "{summary:?}");
        assert_eq!(summary["messages_per_local_hit"], 0.0);
        assert!(report.steps.iter().all(|row| row.per_second > 1000.0), "{:?}", report.steps);
    }
}
