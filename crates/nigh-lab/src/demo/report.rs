//! The result of the demonstration: its runs, and their summary by function and side. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::instrument::machine::Machine;
use crate::instrument::phase_log::PhasesMs;
use crate::instrument::stats::Sample;
use crate::instrument::template::{Columns, fill};

#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) function: String,
    pub(super) input: String,
    pub(super) side: Side,
    pub(super) round: usize,
    pub(super) took_ms: f64,
    pub(super) phases_ms: PhasesMs,
    /// Processor time of the handler and its children, from the first S3 call to the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) processor_ms: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Side {
    /// The function directly against the store.
    Direct,
    /// Through Nigh.
    Nigh,
}

/// A function's summary on one side.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) function: String,
    pub(super) side: Side,
    pub(super) runs: usize,
    pub(super) p50_ms: f64,
    pub(super) p95_ms: f64,
    /// Shares of the whole time, adding up to 1.
    pub(super) extract: f64,
    pub(super) transform: f64,
    pub(super) load: f64,
    /// Reads served from memory over all reads of objects; Nigh's own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hit_ratio: Option<f64>,
    /// The median, over inputs, of Nigh's median time over the direct one's; on Nigh's line only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_to_direct: Option<f64>,
    /// `ratio_to_direct` of the work's processor time: the sandbox's cost, whatever else the processors did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) processor_ratio_to_direct: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct DemoReport {
    pub(super) machine: Machine,
    pub(super) store: &'static str,
    pub(super) clients: usize,
    pub(super) rounds: usize,
    pub(super) failed: usize,
    pub(super) summaries: Vec<Summary>,
    pub(super) runs: Vec<Run>,
}

pub(super) const COLUMNS: Columns = Columns(
    "function | side | runs | p50 ms = {p50_ms:.1} | p95 ms = {p95_ms:.1} | extract = {extract:%} | transform = {transform:%} | \
     load = {load:%} | hits = {hit_ratio:%} | time, Nigh / direct = {ratio_to_direct:.2} | \
     processor time of its work, Nigh / direct = {processor_ratio_to_direct:.2}",
);
pub(super) const FOOT: &str = "store: {store}; {clients} clients, {rounds} rounds, {failed} failed invocations";

impl DemoReport {
    /// A sentence for a run with one side alone.
    pub(super) fn without_comparison(&self) -> Option<&'static str> {
        let is_alone = self.summaries.iter().all(|summary| summary.side == Side::Nigh);
        is_alone.then_some("There is no second store to compare with, so no improvement is claimed.")
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![COLUMNS.text(&self.summaries), fill(FOOT, self)];
        lines.extend(self.without_comparison().map(str::to_owned));
        lines.push(self.machine.to_string());
        lines.join("\n")
    }
}

/// One line a function and side; `records` are Nigh's own of the same runs.
pub(super) fn summarize(all: &[Run], records: &[Value]) -> Vec<Summary> {
    let mut groups: BTreeMap<(&str, Side), Vec<&Run>> = BTreeMap::new();
    for run in all {
        groups.entry((&run.function, run.side)).or_default().push(run);
    }
    let summary = |(&(function, side), runs): (&(&str, Side), &Vec<&Run>)| {
        let times = Sample::new(runs.iter().map(|run| run.took_ms).collect());
        let total: f64 = runs.iter().map(|run| run.phases_ms.total()).sum();
        let share = |phase: fn(&PhasesMs) -> f64| runs.iter().map(|run| phase(&run.phases_ms)).sum::<f64>() / total;
        let inputs: BTreeSet<&str> = runs.iter().map(|run| run.input.as_str()).collect();
        let ratio = |time: fn(&Run) -> Option<f64>| {
            let of = |side, input| median_of_input(all, function, side, input, time);
            let ratios = inputs.iter().map(|input| of(Side::Nigh, input) / of(Side::Direct, input));
            let ratios = Sample::new(ratios.collect());
            (side == Side::Nigh && !ratios.is_empty()).then(|| ratios.median())
        };
        Summary {
            function: function.to_owned(),
            side,
            runs: runs.len(),
            p50_ms: times.median(),
            p95_ms: times.percentile(0.95),
            extract: share(|phases| phases.extract),
            transform: share(|phases| phases.transform),
            load: share(|phases| phases.load),
            hit_ratio: (side == Side::Nigh).then(|| hit_ratio(function, records)).flatten(),
            ratio_to_direct: ratio(|run| Some(run.took_ms)),
            processor_ratio_to_direct: ratio(|run| run.processor_ms),
        }
    };
    groups.iter().map(summary).collect()
}

/// Not a number if there is no such run.
fn median_of_input(runs: &[Run], function: &str, side: Side, input: &str, time: impl Fn(&Run) -> Option<f64>) -> f64 {
    let runs = runs.iter().filter(|run| run.function == function && run.side == side && run.input == input);
    Sample::new(runs.filter_map(time).collect()).median()
}

fn hit_ratio(function: &str, records: &[Value]) -> Option<f64> {
    let of = |field: &str| {
        let records = records.iter().filter(|record| record["function"] == function);
        records.filter_map(|record| record[field].as_u64()).sum::<u64>() as f64
    };
    let (hits, misses) = (of("hits"), of("misses"));
    (hits + misses > 0.0).then(|| hits / (hits + misses))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(input: &str, side: Side, took_ms: f64) -> Run {
        let phases_ms = PhasesMs { extract: took_ms / 2.0, transform: took_ms / 4.0, load: took_ms / 4.0 };
        let processor_ms = Some(took_ms.min(600.0));
        Run { function: "f".to_owned(), input: input.to_owned(), side, round: 0, took_ms, phases_ms, processor_ms }
    }

    #[test]
    fn a_summary_compares_input_by_input() {
        let runs = [
            run("small", Side::Direct, 10.0),
            run("large", Side::Direct, 1000.0),
            run("small", Side::Nigh, 5.0),
            run("large", Side::Nigh, 900.0),
            run("large", Side::Nigh, 900.0),
        ];
        let records = [serde_json::json!({"function": "f", "hits": 3, "misses": 1})];
        let summaries = summarize(&runs, &records);
        assert_eq!(summaries.len(), 2);
        assert_eq!(
            (summaries[0].side, summaries[0].ratio_to_direct, summaries[0].hit_ratio),
            (Side::Direct, None, None)
        );
        assert_eq!(summaries[1].ratio_to_direct, Some(0.5), "the lower of the medians 0.5 and 0.9");
        assert_eq!(summaries[1].processor_ratio_to_direct, Some(0.5), "the lower of 0.5 and 1");
        assert_eq!(summaries[1].hit_ratio, Some(0.75));
        assert!((summaries[1].extract - 0.5).abs() < 1e-9);
    }
}
