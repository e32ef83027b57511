//! Workflows: what a state machine adds to the invocations that it makes. The same functions are invoked warm through the
//! Lambda door, one after the other on one connection, in the same rounds.
//!
//! A sequence of five no-ops is compared with five invocations; a map of a hundred, with as many warm sandboxes as there
//! are processors, with a hundred invocations by that number. An execution of an express machine is measured as its caller
//! sees it, to the answer; one of a standard machine, whose caller does not wait, by its own dates, in milliseconds.
//! OpenWhisk's sequence of five actions is compared with five calls of the action, blocking, on one connection.

mod actions;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use self::actions::Actions;
use super::{BenchReport, ECHO, Figures, Length, RatioTarget, Row, code_folder, deployment, median, us};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::http_load::Connection;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, python};
use crate::instrument::platform::{Deployment, LambdaClient};
use crate::instrument::states_door::{StatesDoor, failed};

const INPUT: &str = "{\"ping\":1}";
const SEQUENCE: usize = 5;
const ITEMS: usize = 100;
fn task(function: &str, next: Option<&str>) -> Value {
    let mut task = json!({ "Type": "Task", "Resource": function });
    match next {
        Some(next) => task["Next"] = next.into(),
        None => task["End"] = true.into(),
    }
    task
}

fn sequence(function: &str) -> Value {
    let name = |n: usize| format!("S{n}");
    let states = (0..SEQUENCE).map(|n| {
        let next = (n + 1 < SEQUENCE).then(|| name(n + 1));
        (name(n), task(function, next.as_deref()))
    });
    json!({ "StartAt": name(0), "States": states.collect::<serde_json::Map<_, _>>() })
}

fn map(function: &str, at_once: usize) -> Value {
    let processor = json!({ "StartAt": "Each", "States": { "Each": task(function, None) } });
    let map = json!({ "Type": "Map", "MaxConcurrency": at_once, "ItemProcessor": processor, "End": true });
    json!({ "StartAt": "Map", "States": { "Map": map } })
}

fn row(what: impl Into<String>, latencies: Vec<f64>) -> Row {
    Row::of(what, "nigh", INPUT.len(), latencies)
}

/// Latencies of one thing, and the ratios of rounds to those of its peer.
#[derive(Default)]
struct Side {
    latencies: Vec<f64>,
    ratios: Vec<f64>,
}

impl Side {
    /// A round's latencies, beside what the same work takes without a state machine.
    fn add(&mut self, round: Vec<f64>, beside: f64) {
        self.ratios.push(median(round.clone()) / beside);
        self.latencies.extend(round);
    }

    fn row(self, what: &str, peer: &str, compares: &'static str) -> Row {
        row(what, self.latencies).beside(peer, compares, median(self.ratios))
    }
}

pub(super) async fn run(length: Length, machine: Machine) -> Result<BenchReport, LabError> {
    let folder = tempfile::tempdir().at(std::env::temp_dir())?;
    let (python, code) = (python()?, code_folder(folder.path(), "code", ECHO)?);
    let sandboxes = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let functions = toml::Table::from_iter([
        ("python".to_owned(), python.to_string_lossy().into_owned().into()),
        // Those of the map, and one of each other function.
        ("sandboxes_max".to_owned(), toml::Value::from(sandboxes as i64 + 3)),
    ]);
    let node =
        NodeUnderTest::start(folder.path(), &toml::Table::from_iter([("functions".to_owned(), functions.into())]))?;
    let mut lambda = LambdaClient::connect(&node)?;
    deploy(&mut lambda, &code, "noop", "false").await?;
    deploy(&mut lambda, &code, "noop-idempotent", "true").await?;
    let mut states = StatesDoor::connect(&node)?;
    let express = states.create("sequence", "EXPRESS", &sequence("noop").to_string(), None).await?;
    let kept = states.create("kept", "STANDARD", &sequence("noop").to_string(), None).await?;
    let kept_idempotent =
        states.create("kept-idempotent", "STANDARD", &sequence("noop-idempotent").to_string(), None).await?;
    let wide = states.create("map", "EXPRESS", &map("noop", sandboxes).to_string(), None).await?;
    let items = format!("[{}]", vec![INPUT; ITEMS].join(","));
    let sync = |machine: &str, input: &str| json!({ "stateMachineArn": machine, "input": input });
    let in_turn = states.request("StartSyncExecution", &sync(&express, INPUT)).await?;
    let mapped = states.request("StartSyncExecution", &sync(&wide, &items)).await?;

    let invocation = lambda.invocation("noop", INPUT.as_bytes()).await?;
    let mut connection = Connection::open(node.lambda()?).map_err(failed)?;
    let mut invoke = || {
        let sent = Instant::now();
        connection.exchange(&invocation).map(|_| us(sent.elapsed())).map_err(failed)
    };
    let mut actions = Actions::deploy(&node)?;
    // Sandboxes are warm from here on.
    invoke()?;
    actions.invoke()?;
    actions.run()?;
    states.run(&in_turn)?;
    states.run(&mapped)?;
    for machine in [&kept, &kept_idempotent] {
        states.run_kept(machine, INPUT).await?;
    }

    let (mut alone, mut action_alone) = (Vec::new(), Vec::new());
    let (mut five, mut standard, mut idempotent) = (Side::default(), Side::default(), Side::default());
    let (mut hundred, mut five_actions) = (Side::default(), Side::default());
    for _ in 0..length.rounds.max(1) {
        let (mut invocations, mut sequences, mut maps) = (Vec::new(), Vec::new(), Vec::new());
        let begin = Instant::now();
        while begin.elapsed() < length.of_round() {
            // In turn, so that what else the machine does falls on both.
            for _ in 0..SEQUENCE {
                invocations.push(invoke()?);
            }
            sequences.push(states.run(&in_turn)?.1);
        }
        let begin = Instant::now();
        while begin.elapsed() < length.of_round() {
            maps.push(states.run(&mapped)?.1);
        }
        let (mut calls, mut action_sequences) = (Vec::new(), Vec::new());
        let begin = Instant::now();
        while begin.elapsed() < length.of_round() {
            for _ in 0..SEQUENCE {
                calls.push(actions.invoke()?);
            }
            action_sequences.push(actions.run()?);
        }
        let (mut kept_round, mut idempotent_round) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            kept_round.push(states.run_kept(&kept, INPUT).await?);
            idempotent_round.push(states.run_kept(&kept_idempotent, INPUT).await?);
        }
        let one = median(invocations.clone());
        five.add(sequences, one * SEQUENCE as f64);
        standard.add(kept_round, one * SEQUENCE as f64);
        idempotent.add(idempotent_round, one * SEQUENCE as f64);
        hundred.add(maps, one * ITEMS as f64 / sandboxes as f64);
        let call = median(calls.clone());
        five_actions.add(action_sequences, call * SEQUENCE as f64);
        alone.extend(invocations);
        action_alone.extend(calls);
    }
    let (of_five, of_hundred) = ("5 warm invocations", "100 warm invocations by the sandboxes");
    let rows = vec![
        row("warm invocation", alone),
        five.row("sequence of 5, express", of_five, "p50, at most 1.3"),
        hundred.row(&format!("map of {ITEMS}, express, {sandboxes} sandboxes"), of_hundred, "p50, at most 1.3"),
        idempotent.row("sequence of 5, standard, idempotent", of_five, "p50, by its dates"),
        standard.row("sequence of 5, standard", of_five, "p50, by its dates: 5 syncs of the disk"),
        row("warm action, blocking", action_alone),
        five_actions.row("sequence of 5 actions, blocking", "5 warm actions, blocking", "p50, at most 1.3"),
    ];
    let mut figures = Figures::default();
    for (name, at) in [("sequence_ratio", 1), ("map_ratio", 2), ("action_sequence_ratio", 6)] {
        figures.add(name, rows[at].ratio.unwrap_or(f64::NAN), RatioTarget::AtMost(1.3));
    }
    Ok(BenchReport { machine, rows, figures })
}

async fn deploy(lambda: &mut LambdaClient, code: &Path, name: &str, idempotent: &str) -> Result<(), LabError> {
    let environment = BTreeMap::from([("NIGH_IDEMPOTENT".to_owned(), idempotent.to_owned())]);
    lambda.deploy(&Deployment { environment, ..deployment(name, code, 256) }).await
}
