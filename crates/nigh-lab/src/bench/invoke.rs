//! Invocations: a handler that returns at once, through the Lambda door and its sandbox, beside the same runtime
//! client against a bare server; and cold starts of the same handler.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Length, Row};
use crate::LabError;
use crate::instrument::cpu_time;
use crate::instrument::error::Tried;
use crate::instrument::http_load::Connection;
use crate::instrument::node_under_test::{NodeUnderTest, python};
use crate::instrument::peer::bare_runtime::BareRuntime;
use crate::instrument::platform::{Deployment, LambdaClient};
use crate::instrument::stats::Sample;

const HANDLER: &str = "def handler(event, context):\n    return event\n";
const PAYLOAD: &[u8] = b"{\"ping\":1}";
/// What the goal adds to the ratio: milliseconds that the door and the record may take.
const ALLOWANCE_US: f64 = 150.0;

pub(super) async fn run(length: Length) -> Result<Vec<Row>, LabError> {
    let folder = tempfile::tempdir().at(std::env::temp_dir())?;
    let python = python()?;
    let code = folder.path().join("code");
    std::fs::create_dir(&code).and_then(|()| std::fs::write(code.join("app.py"), HANDLER)).at(&code)?;
    let settings: toml::Table = [(
        "functions".to_owned(),
        toml::Value::from(toml::Table::from_iter([
            ("python".to_owned(), python.to_string_lossy().into_owned().into()),
            // What a whole start takes; `coldstart` has the others.
            ("prewarm".to_owned(), "off".into()),
        ])),
    )]
    .into_iter()
    .collect();
    let node = NodeUnderTest::start(folder.path(), &settings)?;
    let mut lambda = LambdaClient::connect(&node)?;
    let mut rows = warm(&node, &mut lambda, &python, &code, length).await?;
    rows.extend(cold(&mut lambda, &python, &code, length).await?);
    Ok(rows)
}

fn deployment<'a>(name: &'a str, code: &'a Path) -> Deployment<'a> {
    Deployment { name, code, handler: "app.handler", memory_mb: 256, timeout_s: 30, environment: BTreeMap::new() }
}

async fn warm(
    node: &NodeUnderTest,
    lambda: &mut LambdaClient,
    python: &Path,
    code: &Path,
    length: Length,
) -> Result<Vec<Row>, LabError> {
    let failed = |error: std::io::Error| LabError::Request { what: "noop".to_owned(), reason: error.to_string() };
    lambda.deploy(&deployment("noop", code)).await?;
    let request = lambda.invocation("noop", PAYLOAD).await?;
    let mut connection = Connection::open(node.lambda()?).map_err(failed)?;
    connection.exchange(&request).map_err(failed)?;
    let mut bare = BareRuntime::start(python, code, "app.handler", &BTreeMap::new())?;
    bare.invoke(PAYLOAD).map_err(failed)?;

    let (mut own, mut peer, mut ratios, mut cpu, mut spent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), 0.0);
    for _ in 0..length.rounds.max(1) {
        let (mut own_round, mut peer_round) = (Vec::new(), Vec::new());
        let before = cpu_time::of_process(node.pid()).map_err(failed)?;
        let begin = Instant::now();
        while begin.elapsed() < length.of_round() {
            let sent = Instant::now();
            connection.exchange(&request).map_err(failed)?;
            own_round.push(sent.elapsed().as_secs_f64() * 1e6);
        }
        spent += begin.elapsed().as_secs_f64();
        let used = cpu_time::of_process(node.pid()).map_err(failed)?.saturating_sub(before);
        cpu.push(used.as_secs_f64() * 1e6 / own_round.len() as f64);
        let begin = Instant::now();
        while begin.elapsed() < length.of_round() {
            peer_round.push(bare.invoke(PAYLOAD).map_err(failed)?.took.as_secs_f64() * 1e6);
        }
        let medians = (Sample::new(own_round.clone()).median(), Sample::new(peer_round.clone()).median());
        ratios.push((medians.0 - ALLOWANCE_US) / medians.1);
        own.extend(own_round);
        peer.extend(peer_round);
    }
    let rate = own.len() as f64 / spent;
    let mut rows = vec![
        row("warm invocation", "nigh", own, rate),
        row("warm invocation", "awslambdaric, bare server", peer, f64::NAN),
    ];
    rows[0].cpu_us = Some(Sample::new(cpu).median());
    rows[0].peer = Some(rows[1].server.clone());
    rows[0].compares = Some("p50 less 150 us, at most 1.5");
    rows[0].ratio = Some(Sample::new(ratios).median());
    rows[1].per_second = 1e6 / rows[1].p50_us;
    Ok(rows)
}

async fn cold(lambda: &mut LambdaClient, python: &Path, code: &Path, length: Length) -> Result<Vec<Row>, LabError> {
    let failed = |error: std::io::Error| LabError::Request { what: "cold".to_owned(), reason: error.to_string() };
    let (mut own, mut peer) = (Vec::new(), Vec::new());
    for round in 0..length.rounds.max(1) * 3 {
        // A function never invoked has no sandbox.
        let name = format!("cold-{round}");
        lambda.deploy(&deployment(&name, code)).await?;
        let request = lambda.invocation(&name, PAYLOAD).await?;
        std::thread::sleep(Duration::from_millis(100));
        let sent = Instant::now();
        lambda.send(&name, &request)?;
        own.push(sent.elapsed().as_secs_f64() * 1e6);
        let begin = Instant::now();
        let mut bare = BareRuntime::start(python, code, "app.handler", &BTreeMap::new())?;
        bare.invoke(PAYLOAD).map_err(failed)?;
        peer.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    let ratio = Sample::new(own.clone()).median() / Sample::new(peer.clone()).median();
    let mut rows =
        vec![row("cold start", "nigh", own, f64::NAN), row("cold start", "awslambdaric, bare server", peer, f64::NAN)];
    for row in &mut rows {
        row.per_second = 1e6 / row.p50_us;
    }
    rows[0].peer = Some(rows[1].server.clone());
    rows[0].compares = Some("p50; asked is p50 of at most 60 ms");
    rows[0].ratio = Some(ratio);
    Ok(rows)
}

fn row(what: &str, server: &str, latencies: Vec<f64>, per_second: f64) -> Row {
    let latencies = Sample::new(latencies);
    Row {
        what: what.to_owned(),
        server: server.to_owned(),
        bytes: PAYLOAD.len() as u64,
        clients: 1,
        p50_us: latencies.median(),
        p99_us: latencies.percentile(0.99),
        cpu_us: None,
        per_second,
        peer: None,
        compares: None,
        ratio: None,
    }
}
