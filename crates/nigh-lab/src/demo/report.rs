//! The result of the demonstration: its runs, and their summary by function and side. Pure.
//!
//! The first round is cold on both sides: processes and sandboxes start, and Nigh reads the inputs from the store. Summaries
//! are of the rounds behind it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use crate::instrument::machine::Machine;
use crate::instrument::phase_log::PhasesMs;
use crate::instrument::stats::{Estimate, Sample, grouped_estimate};

/// Ratios' intervals are the same for the same runs.
const BOOTSTRAP_SEED: u64 = 1;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) function: String,
    pub(super) input: String,
    pub(super) side: Side,
    /// From 0, the cold one.
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
    /// Of each input the median of each phase, as a mean over the inputs.
    pub(super) phases_ms: PhasesMs,
    /// The sum of these phases: the function's time.
    pub(super) time_ms: f64,
    /// The phases' shares of that time, adding up to 1.
    pub(super) extract: f64,
    pub(super) transform: f64,
    pub(super) load: f64,
    /// Reads served from memory over all reads of objects; Nigh's own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hit_ratio: Option<f64>,
    /// Nigh's time over the direct one; on Nigh's line only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_to_direct: Option<f64>,
    /// The interval that holds the ratio with 95 % confidence, by bootstrap of pairs: one run on each side, of one input in
    /// one round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_high: Option<f64>,
    /// The median, over inputs, of the same ratio of the work's processor time: the sandbox's cost, whatever else the
    /// processors did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) processor_ratio_to_direct: Option<f64>,
}

impl Summary {
    /// The part of its time that reads and writes objects.
    pub(super) fn objects_ms(&self) -> f64 {
        self.phases_ms.extract + self.phases_ms.load
    }
}

/// The memory of the functions' sandboxes at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct BookedMemory {
    /// What their functions booked, pre-warmed sandboxes included.
    pub(super) booked_bytes: u64,
    /// What the sandboxes may use of it now.
    pub(super) granted_bytes: u64,
}

impl BookedMemory {
    /// What the cache may use of the bookings.
    pub(super) const fn cache_bytes(&self) -> u64 {
        self.booked_bytes.saturating_sub(self.granted_bytes)
    }
}

/// The times of the first round, in which all is cold, added up over all functions and inputs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct FirstRound {
    pub(super) direct_s: f64,
    pub(super) nigh_s: f64,
}

impl FirstRound {
    pub(super) fn of(runs: &[Run]) -> Self {
        let sum = |side| {
            let first = runs.iter().filter(|run| run.side == side && run.round == 0);
            first.map(|run| run.took_ms).sum::<f64>() / 1e3
        };
        Self { direct_s: sum(Side::Direct), nigh_s: sum(Side::Nigh) }
    }
}

#[derive(Serialize)]
pub(super) struct DemoReport {
    pub(super) machine: Machine,
    pub(super) store: &'static str,
    pub(super) clients: usize,
    pub(super) failed: usize,
    pub(super) first_round: FirstRound,
    /// None where sandboxes and cache do not share memory.
    pub(super) memory: Option<BookedMemory>,
    /// Processor time of Nigh's own process for each invocation, its pushes to the store included.
    pub(super) node_processor_ms: f64,
    /// By function, the direct side first.
    pub(super) summaries: Vec<Summary>,
    pub(super) runs: Vec<Run>,
    /// Where the page is.
    #[serde(skip)]
    pub(super) page: Option<PathBuf>,
}

/// A function's two sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison<'a> {
    /// None if there is no second store.
    pub(super) direct: Option<&'a Summary>,
    pub(super) nigh: &'a Summary,
}

/// What the runs show of a function's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Mostly because its objects took less time.
    Faster,
    /// Mostly because its work took less time, which is no gain of Nigh's: the machine did.
    WorkVaried,
    /// The interval of the ratio holds 1.
    NotShown,
    Slower,
}

impl Comparison<'_> {
    /// None if there is nothing to compare with.
    pub(super) fn change(&self) -> Option<Change> {
        let (direct, low, high) = (self.direct?, self.nigh.ratio_low?, self.nigh.ratio_high?);
        let saved = direct.time_ms - self.nigh.time_ms;
        let of_objects = direct.objects_ms() - self.nigh.objects_ms();
        Some(match (low > 1.0, high < 1.0) {
            (true, _) => Change::Slower,
            (_, true) if of_objects * 2.0 >= saved => Change::Faster,
            (_, true) => Change::WorkVaried,
            _ => Change::NotShown,
        })
    }
}

/// The functions of `summaries`, in their order.
pub(super) fn comparisons(summaries: &[Summary]) -> Vec<Comparison<'_>> {
    let direct = |function: &str| summaries.iter().find(|one| one.function == function && one.side == Side::Direct);
    let of_nigh = summaries.iter().filter(|summary| summary.side == Side::Nigh);
    of_nigh.map(|nigh| Comparison { direct: direct(&nigh.function), nigh }).collect()
}

/// Of each input the medians of the phases, as means over the inputs.
fn typical(inputs: &[Vec<PhasesMs>]) -> PhasesMs {
    let mean = |phase: fn(&PhasesMs) -> f64| {
        inputs.iter().map(|runs| Sample::of(runs, phase).median()).sum::<f64>() / inputs.len() as f64
    };
    PhasesMs { extract: mean(|one| one.extract), transform: mean(|one| one.transform), load: mean(|one| one.load) }
}

/// A function's lines, from its runs and Nigh's own records of them; none for a side on which every run failed.
pub(super) fn summarize(function: &str, all: &[Run], records: &[Value]) -> Vec<Summary> {
    let of_function: Vec<&Run> = all.iter().filter(|run| run.function == function).collect();
    let mut runs: Vec<&Run> = of_function.iter().copied().filter(|run| run.round > 0).collect();
    if runs.is_empty() {
        runs = of_function;
    }
    let summary = |side: Side| {
        let own: Vec<&Run> = runs.iter().copied().filter(|run| run.side == side).collect();
        if own.is_empty() {
            return None;
        }
        let phases = |runs: Vec<&Run>| runs.into_iter().map(|run| run.phases_ms).collect();
        let inputs: Vec<Vec<PhasesMs>> = by_input(&own).into_values().map(phases).collect();
        let phases_ms = typical(&inputs);
        let time_ms = phases_ms.total();
        let times = Sample::of(&own, |run| run.took_ms);
        let ratio = (side == Side::Nigh).then(|| ratio(&pairs(&runs))).flatten();
        Some(Summary {
            function: function.to_owned(),
            side,
            runs: own.len(),
            p50_ms: times.median(),
            p95_ms: times.percentile(0.95),
            phases_ms,
            time_ms,
            extract: phases_ms.extract / time_ms,
            transform: phases_ms.transform / time_ms,
            load: phases_ms.load / time_ms,
            hit_ratio: (side == Side::Nigh).then(|| hit_ratio(function, records)).flatten(),
            ratio_to_direct: ratio.map(|ratio| ratio.value),
            ratio_low: ratio.map(|ratio| ratio.low),
            ratio_high: ratio.map(|ratio| ratio.high),
            processor_ratio_to_direct: (side == Side::Nigh).then(|| processor_ratio(&runs)).flatten(),
        })
    };
    [Side::Direct, Side::Nigh].into_iter().filter_map(summary).collect()
}

fn by_input<'a>(runs: &[&'a Run]) -> BTreeMap<&'a str, Vec<&'a Run>> {
    let mut inputs: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for &run in runs {
        inputs.entry(&run.input).or_default().push(run);
    }
    inputs
}

/// One run directly and one through Nigh, of one input in one round.
#[derive(Clone, Copy, Debug)]
struct Pair {
    direct: PhasesMs,
    nigh: PhasesMs,
}

/// The pairs of each input.
fn pairs(runs: &[&Run]) -> Vec<Vec<Pair>> {
    let of_input = |runs: &Vec<&Run>| {
        let of = |side, round| runs.iter().find(|run| run.side == side && run.round == round).map(|run| run.phases_ms);
        let nigh = runs.iter().filter(|run| run.side == Side::Nigh);
        nigh.filter_map(|run| Some(Pair { direct: of(Side::Direct, run.round)?, nigh: run.phases_ms })).collect()
    };
    by_input(runs).values().map(of_input).filter(|pairs: &Vec<Pair>| !pairs.is_empty()).collect()
}

/// The ratio of the times that `typical` gives; none without a pair.
fn ratio(inputs: &[Vec<Pair>]) -> Option<Estimate> {
    let time = |inputs: &[Vec<Pair>], side: fn(&Pair) -> PhasesMs| {
        let phases: Vec<Vec<PhasesMs>> = inputs.iter().map(|pairs| pairs.iter().map(side).collect()).collect();
        typical(&phases).total()
    };
    let figure = |inputs: &[Vec<Pair>]| time(inputs, |pair| pair.nigh) / time(inputs, |pair| pair.direct);
    (!inputs.is_empty()).then(|| grouped_estimate(inputs, BOOTSTRAP_SEED, figure))
}

/// The median over the inputs; none if no input has both sides.
fn processor_ratio(runs: &[&Run]) -> Option<f64> {
    let ratios = by_input(runs).into_values().map(|runs| {
        let median = |side| {
            let times = runs.iter().filter(|run| run.side == side).filter_map(|run| run.processor_ms);
            Sample::new(times.collect()).median()
        };
        median(Side::Nigh) / median(Side::Direct)
    });
    let ratios = Sample::new(ratios.collect());
    (!ratios.is_empty()).then(|| ratios.median())
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
pub(super) mod tests;
