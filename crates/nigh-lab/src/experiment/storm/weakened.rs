//! Each rule, and each duty of those who drive the machines, left out: how many storms it takes until that is missed.

use std::time::Instant;

use nigh_check::storm::{Duty, LeftOut, storm};
use nigh_check::weakenings;
use serde::Serialize;

use super::breach_name;
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::parallel::in_parallel;
use crate::instrument::progress;
use crate::instrument::report_text::tell;

#[derive(Debug, Serialize)]
struct StormMutation {
    rule: String,
    /// The storms played until one was broken; absent if none was.
    seeds: Option<u64>,
    breaks: String,
    what: String,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct StormMutationsReport {
    machine: Machine,
    /// Storms played for each at most.
    seeds_max: u64,
    weakened: Vec<StormMutation>,
}

fn all() -> Vec<(String, LeftOut)> {
    let rules = weakenings().into_iter().map(|one| (format!("{:?}", one.rule), LeftOut::Rule(one.rule)));
    let duties = Duty::ALL.into_iter().map(|duty| (format!("{duty:?}"), LeftOut::Duty(duty)));
    rules.chain(duties).collect()
}

/// What is left out by its name.
pub(super) fn left_out_by_name(name: &str) -> Result<LeftOut, LabError> {
    let found = all().into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, left_out)| left_out).ok_or_else(|| LabError::Missing {
        missing: format!("a rule or duty {name}"),
        hint: "nigh experiment storm --weakened lists them",
    })
}

/// Leaves each out, and prints how many of `seeds` storms it takes.
pub(super) fn run(machine: Machine, seeds: u64, json: bool) -> Result<(), LabError> {
    let all = all();
    let bar = progress::bar(all.len() as u64).with_message("left out");
    let weakened = in_parallel(&all, |(rule, left_out)| {
        let began = Instant::now();
        let found = (0..seeds).find_map(|seed| storm(seed, *left_out).violation.map(|violation| (seed, violation)));
        bar.inc(1);
        let (seed, violation) = found.unzip();
        Ok(StormMutation {
            rule: rule.clone(),
            seeds: seed.map(|seed| seed + 1),
            breaks: violation.as_ref().map_or_else(|| "nothing".to_owned(), |one| breach_name(one.breach)),
            what: violation.map(|one| one.what).unwrap_or_default(),
            seconds: began.elapsed().as_secs_f64(),
        })
    })?;
    bar.finish_and_clear();
    let report = StormMutationsReport { machine, seeds_max: seeds, weakened };
    tell(&report, json)
}
