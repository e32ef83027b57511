//! The tables of the report.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Way;
use super::blows::Failover;
use super::node_log::{OWNER_STEPS, SHARD_STEPS};
use crate::instrument::stats::Sample;

/// The last step of a shard's takeover: the client has its answer.
const ANSWERED: &str = "answered";

/// How long writes waited.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct UnavailableRow {
    way: Way,
    /// The failed node was the dispatch owner.
    owner: bool,
    /// `failed`: of the failed node; `others`: of nodes that lived.
    shards: &'static str,
    failures: usize,
    p50_ms: f64,
    p95_ms: f64,
    max_ms: f64,
    /// The share that took longer than the lease and a second.
    over_bound: f64,
}

/// How long a step took, from the end of the step before.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct StepRow {
    way: Way,
    owner: bool,
    step: String,
    failures: usize,
    mean_ms: f64,
    p50_ms: f64,
    max_ms: f64,
}

fn groups(failures: &[Failover]) -> BTreeMap<(Way, bool), Vec<&Failover>> {
    let mut groups: BTreeMap<(Way, bool), Vec<&Failover>> = BTreeMap::new();
    for failure in failures {
        groups.entry((failure.way, failure.owner)).or_default().push(failure);
    }
    groups
}

pub(super) fn unavailable_rows(failures: &[Failover], bound_ms: f64) -> Vec<UnavailableRow> {
    let row = |((way, owner), shards, ms): ((Way, bool), &'static str, Vec<f64>)| {
        let over = ms.iter().filter(|ms| **ms > bound_ms).count();
        let sample = Sample::new(ms);
        UnavailableRow {
            way,
            owner,
            shards,
            failures: sample.len(),
            p50_ms: sample.median(),
            p95_ms: sample.percentile(0.95),
            max_ms: sample.percentile(1.0),
            over_bound: over as f64 / sample.len() as f64,
        }
    };
    let both = groups(failures).into_iter().flat_map(|(group, all)| {
        let ms = |of: fn(&Failover) -> f64| all.iter().map(|failure| of(failure)).collect::<Vec<f64>>();
        [(group, "failed", ms(|failure| failure.failed_ms)), (group, "others", ms(|failure| failure.others_ms))]
    });
    both.map(row).collect()
}

pub(super) fn step_rows(failures: &[Failover]) -> Vec<StepRow> {
    let mut rows = Vec::new();
    for ((way, owner), all) in groups(failures) {
        let mut steps: Vec<(String, Vec<f64>)> = Vec::new();
        let mut add = |step: &str, took: f64| match steps.iter_mut().find(|(known, _)| known == step) {
            Some((_, all)) => all.push(took),
            None => steps.push((step.to_owned(), vec![took])),
        };
        for failure in all {
            let answered = [(ANSWERED, failure.answered_ms)];
            let chain = SHARD_STEPS.iter().filter_map(|step| Some((*step, *failure.steps.get(*step)?)));
            lasted(chain.chain(answered)).into_iter().for_each(|(step, took)| add(step, took));
            let begun = failure.owner_steps.get("expired").copied();
            let chain = OWNER_STEPS.iter().filter_map(|step| Some((*step, *failure.owner_steps.get(*step)?)));
            let chain = begun.map(|at| ("expired", at)).into_iter().chain(chain);
            lasted(chain).into_iter().filter(|(step, _)| *step != "expired").for_each(|(step, took)| add(step, took));
        }
        rows.extend(steps.into_iter().map(|(step, ms)| {
            let sample = Sample::new(ms);
            StepRow {
                way,
                owner,
                step,
                failures: sample.len(),
                mean_ms: sample.mean(),
                p50_ms: sample.median(),
                max_ms: sample.percentile(1.0),
            }
        }));
    }
    rows
}

/// How long each step took, of moments in their order.
fn lasted<'s>(moments: impl Iterator<Item = (&'s str, f64)>) -> Vec<(&'s str, f64)> {
    let mut before = 0.0;
    let step = |(step, at)| {
        let took = at - before;
        before = at;
        (step, took)
    };
    moments.map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(owner: bool, failed_ms: f64, steps: &[(&str, f64)]) -> Failover {
        let steps = steps.iter().map(|(step, at)| ((*step).to_owned(), *at)).collect();
        Failover {
            way: Way::Kill,
            owner,
            failed_ms,
            others_ms: 60.0,
            answered_ms: failed_ms,
            steps,
            ..Failover::none()
        }
    }

    #[test]
    fn a_step_lasts_from_the_end_of_the_one_before_it() {
        let failures = [
            failure(true, 3300.0, &[("expired", 3000.0), ("claimed", 3100.0), ("served", 3250.0)]),
            failure(true, 4100.0, &[("expired", 3200.0), ("claimed", 3400.0), ("served", 4000.0)]),
            failure(false, 2500.0, &[]),
        ];
        let rows = step_rows(&failures);
        let mean = |step: &str| rows.iter().find(|row| row.owner && row.step == step).map(|row| row.mean_ms);
        assert_eq!(mean("expired"), Some(3100.0));
        assert_eq!((mean("claimed"), mean("served"), mean(ANSWERED)), (Some(150.0), Some(375.0), Some(75.0)));
        let rows = unavailable_rows(&failures, 4000.0);
        let over: Vec<(bool, &str, usize, f64)> =
            rows.iter().map(|row| (row.owner, row.shards, row.failures, row.over_bound)).collect();
        assert_eq!(
            over,
            [(false, "failed", 1, 0.0), (false, "others", 1, 0.0), (true, "failed", 2, 0.5), (true, "others", 2, 0.0)]
        );
    }
}
