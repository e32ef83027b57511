//! Invocations: a handler that returns at once, through the Lambda door and its sandbox, beside the same runtime
//! client against a bare server; and cold starts of the same handler.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{BenchReport, ECHO, Figures, Length, Row, code_folder, deployment, median, us};
use crate::LabError;
use crate::instrument::cpu_time;
use crate::instrument::error::Tried;
use crate::instrument::http_load::Connection;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, python, set, settings};
use crate::instrument::peer::bare_runtime::BareRuntime;
use crate::instrument::platform::LambdaClient;

const PAYLOAD: &[u8] = b"{\"ping\":1}";
/// The door and the record may take this long; the target leaves it out of the ratio.
const ALLOWANCE_US: f64 = 150.0;

const BARE: &str = "awslambdaric, bare server";

pub(super) async fn run(length: Length, machine: Machine) -> Result<BenchReport, LabError> {
    let folder = tempfile::tempdir().at(std::env::temp_dir())?;
    let python = python()?;
    let code = code_folder(folder.path(), "code", ECHO)?;
    let mut settings = settings(None, &python);
    // A whole start is measured; `coldstart` measures the others.
    set(&mut settings, &[("functions.prewarm", "off")]);
    let node = NodeUnderTest::start(folder.path(), &settings)?;
    let mut lambda = LambdaClient::connect(&node)?;
    let mut rows = warm(&node, &mut lambda, &python, &code, length).await?;
    rows.extend(cold(&mut lambda, &python, &code, length).await?);
    Ok(BenchReport { machine, rows, figures: Figures::default() })
}

async fn warm(
    node: &NodeUnderTest,
    lambda: &mut LambdaClient,
    python: &Path,
    code: &Path,
    length: Length,
) -> Result<Vec<Row>, LabError> {
    let failed = |error: std::io::Error| LabError::Request { what: "noop".to_owned(), reason: error.to_string() };
    lambda.deploy(&deployment("noop", code, 256)).await?;
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
            own_round.push(us(sent.elapsed()));
        }
        spent += begin.elapsed().as_secs_f64();
        let used = cpu_time::of_process(node.pid()).map_err(failed)?.saturating_sub(before);
        cpu.push(us(used) / own_round.len() as f64);
        let begin = Instant::now();
        while begin.elapsed() < length.of_round() {
            peer_round.push(us(bare.invoke(PAYLOAD).map_err(failed)?.took));
        }
        ratios.push((median(own_round.clone()) - ALLOWANCE_US) / median(peer_round.clone()));
        own.extend(own_round);
        peer.extend(peer_round);
    }
    let per_second = own.len() as f64 / spent;
    let row = |server, latencies| Row::of("warm invocation", server, PAYLOAD.len(), latencies);
    let own = Row { cpu_us: Some(median(cpu)), per_second, ..row("nigh", own) };
    Ok(vec![own.beside(BARE, "p50 less 150 us, at most 1.5", median(ratios)), row(BARE, peer)])
}

async fn cold(lambda: &mut LambdaClient, python: &Path, code: &Path, length: Length) -> Result<Vec<Row>, LabError> {
    let failed = |error: std::io::Error| LabError::Request { what: "cold".to_owned(), reason: error.to_string() };
    let (mut own, mut peer) = (Vec::new(), Vec::new());
    for round in 0..length.rounds.max(1) * 3 {
        // A function never invoked has no sandbox.
        let name = format!("cold-{round}");
        lambda.deploy(&deployment(&name, code, 256)).await?;
        let request = lambda.invocation(&name, PAYLOAD).await?;
        std::thread::sleep(Duration::from_millis(100));
        let sent = Instant::now();
        lambda.send(&name, &request)?;
        own.push(us(sent.elapsed()));
        let begin = Instant::now();
        let mut bare = BareRuntime::start(python, code, "app.handler", &BTreeMap::new())?;
        bare.invoke(PAYLOAD).map_err(failed)?;
        peer.push(us(begin.elapsed()));
    }
    let ratio = median(own.clone()) / median(peer.clone());
    let row = |server, latencies| Row::of("cold start", server, PAYLOAD.len(), latencies);
    Ok(vec![row("nigh", own).beside(BARE, "p50; asked is p50 of at most 60 ms", ratio), row(BARE, peer)])
}
