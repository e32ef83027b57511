//! A tenant's function lies about its needs; what an honest tenant beside it notices.
//!
//! The liar takes memory at random, leaks, bursts, forks, fills /tmp, floods the cache; the honest function reads, computes and
//! writes meanwhile. Harm is an honest invocation that fails, answers wrongly, or takes far longer than beside an honest
//! neighbour with as much work; and a node that grants more memory than it has. The liar's own end does not count.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{self, NodeUnderTest, python};
use crate::instrument::parallel::joined;
use crate::instrument::platform::{Deployment, LambdaClient, admin_api};
use crate::instrument::progress;
use crate::instrument::report::print_report;
use crate::instrument::s3_door::S3Door;
use crate::instrument::stats::Sample;
use crate::instrument::template::{Columns, fill};

/// The lies, each a function; see the head of the file.
const LIES: &str = include_str!("liar.py");
const LIAR: &str = "liar";
const HONEST: &str = "honest";
const BUCKET: &str = "lies";
const INPUT: &str = "input";
const INPUT_BYTES: usize = 256 << 10;
/// The honest function hashes its input so often: some milliseconds of work.
const TURNS: u32 = 10;
/// What each function books.
const BOOKED_MB: u64 = 256;
/// The node's memory for sandboxes: two liars, two honest ones, and one more.
const FUNCTIONS_MB: u64 = 5 * BOOKED_MB;
const CACHE_MB: u64 = 64;
const LIAR_CLIENTS: usize = 2;
const TIMEOUT_S: u64 = 20;
/// An honest invocation is late if it takes longer than the greater of these: an amount, and a multiple of the median beside an
/// honest neighbour.
const LATE: Duration = Duration::from_secs(1);
const LATE_TIMES: f64 = 10.0;
/// How often the node's status is read.
const LOOK: Duration = Duration::from_millis(50);

const COLUMNS: Columns = Columns(
    "lie | told = {liar.invocations} | answered = {liar.answered} | honest = {honest.invocations} | failed = {honest.failed} | \
     wrong = {honest.wrong} | late = {honest.late} | p50 ms = {honest.p50_ms:.1} | p99 ms = {honest.p99_ms:.1} | \
     slower = {slower:.2} | over budget = {over_budget}",
);

#[derive(Clone, Debug, Args)]
pub(super) struct LiesArgs {
    /// How long the lying function misbehaves in each way, in seconds
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    seconds: f64,
}

#[derive(Clone, Debug, Deserialize)]
struct ListedLie {
    lie: String,
    what: String,
}

/// How the liar's invocations ended.
#[derive(Clone, Debug, Default, Serialize)]
struct LiarsFate {
    invocations: usize,
    answered: usize,
    /// Ends without an answer, by kind.
    ended: BTreeMap<String, usize>,
}

/// What the honest tenant saw.
#[derive(Clone, Debug, Default, Serialize)]
struct HonestOutcome {
    invocations: usize,
    failed: usize,
    wrong: usize,
    late: usize,
    p50_ms: f64,
    p99_ms: f64,
    /// The first harm.
    first: Option<String>,
}

#[derive(Debug, Serialize)]
struct LiesReport {
    machine: Machine,
    seconds: f64,
    /// The honest function alone.
    alone: HonestOutcome,
    /// Beside two more of its kind, of the other tenant.
    beside_honest: HonestOutcome,
    /// An invocation that takes longer is late.
    late_ms: f64,
    /// A row for each lie.
    rows: Vec<Value>,
    harm_to_others: u64,
}

impl LiesArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        let stage = Stage::set().await?;
        let handle = Handle::current();
        let report = tokio::task::spawn_blocking(move || self.tell_all(&stage, machine, &handle)).await;
        let report = report.of_node()??;
        print_report(&report, || report.text(), json)?;
        match report.harm_to_others {
            0 => Ok(()),
            harm => Err(LabError::Found(format!(
                "{harm} times an honest tenant, or the node, was harmed by another's lies"
            ))),
        }
    }

    fn tell_all(self, stage: &Stage, machine: Machine, handle: &Handle) -> Result<LiesReport, LabError> {
        let listed = stage.list()?;
        let length = Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::from_secs(1));
        // Cold starts are no harm.
        stage.honest_for(length / 2, handle)?;
        let alone = stage.beside(None, length, f64::INFINITY, handle)?.honest;
        let honest_work = |round: usize| stage.honest_event(&format!("other-{round}"));
        let beside_honest = stage.beside(Some((HONEST, &honest_work)), length, f64::INFINITY, handle)?.honest;
        let late_ms = (LATE_TIMES * beside_honest.p50_ms).max(LATE.as_secs_f64() * 1e3);
        let progress = progress::bar(listed.len() as u64);
        let mut rows = Vec::new();
        for ListedLie { lie, what } in listed {
            progress.set_message(lie.clone());
            let event = |round: usize| lying_event(&lie, round);
            let LieOutcome { liar, honest, over_budget } =
                stage.beside(Some((LIAR, &event)), length, late_ms, handle)?;
            rows.push(json!({
                "lie": lie,
                "what": what,
                "liar": liar,
                "honest": honest,
                // The honest median over that beside an honest neighbour.
                "slower": honest.p50_ms / beside_honest.p50_ms,
                // How often the node's status showed more memory given than it has.
                "over_budget": over_budget,
                "harm_to_others": honest.failed + honest.wrong + honest.late + over_budget,
            }));
            progress.inc(1);
        }
        progress.finish_and_clear();
        let harm = rows.iter().filter_map(|row| row["harm_to_others"].as_u64()).sum();
        Ok(LiesReport { machine, seconds: self.seconds, alone, beside_honest, late_ms, rows, harm_to_others: harm })
    }
}

fn lying_event(lie: &str, round: usize) -> Value {
    let mut event = json!({"lie": lie, "round": round, "bucket": BUCKET, "size": round % 7});
    if lie == "strange_arguments" {
        arguments(&mut event, round);
    }
    event
}

/// Arguments that no model was made for.
fn arguments(event: &mut Value, round: usize) {
    match round % 6 {
        0 => event["text"] = "x".repeat(1 << 20).into(),
        1 => event["number"] = json!(1e308),
        2 => event["NaN"] = "NaN".into(),
        3 => (0..5000).for_each(|at| event[format!("argument {at}")] = json!(at)),
        4 => event["deep"] = (0..100).fold(json!(1), |inner, _| json!([inner])),
        _ => event["every time another"] = format!("{:x}", rand::random::<u128>()).into(),
    }
}

/// A node with two tenants.
struct Stage {
    node: Arc<NodeUnderTest>,
    work: tempfile::TempDir,
    digest: String,
}

struct LieOutcome {
    liar: LiarsFate,
    honest: HonestOutcome,
    over_budget: usize,
}

impl Stage {
    async fn set() -> Result<Self, LabError> {
        let work = tempfile::tempdir().at(std::env::temp_dir())?;
        let code = work.path().join("code");
        std::fs::create_dir(&code).at(&code)?;
        let file = code.join("liar.py");
        std::fs::write(&file, LIES).at(&file)?;
        let node = Arc::new(NodeUnderTest::start(work.path(), &settings(&python()?))?);
        let input: Vec<u8> = (0..INPUT_BYTES).map(|at| (at * at % 251) as u8).collect();
        for tenant in [HONEST, LIAR] {
            let door = S3Door { signer: node.signer_of(tenant, "s3")?, address: node.s3()? };
            door.send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
            door.send(Method::PUT, &format!("/{BUCKET}/{INPUT}"), &input).await?;
            let mut client = LambdaClient::connect_as(&node, tenant)?;
            for (name, handler) in [(HONEST, "liar.honest"), (LIAR, "liar.handler")] {
                let (memory_mb, timeout_s, environment) = (BOOKED_MB, TIMEOUT_S, BTreeMap::new());
                client.deploy(&Deployment { name, code: &code, handler, memory_mb, timeout_s, environment }).await?;
            }
        }
        let mut digest = Sha256::new();
        (0..=TURNS).for_each(|_| digest.update(&input));
        let digest = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { node, work, digest })
    }

    fn list(&self) -> Result<Vec<ListedLie>, LabError> {
        let file = self.work.path().join("code/liar.py");
        let python = python()?;
        let output = std::process::Command::new(&python).arg(&file).env("AWS_DEFAULT_REGION", "none").output();
        let output = output.at(&python)?;
        serde_json::from_slice(&output.stdout)
            .map_err(|error| LabError::file(&file, &format!("{error}: {}", String::from_utf8_lossy(&output.stderr))))
    }

    fn honest_event(&self, output: &str) -> Value {
        json!({"bucket": BUCKET, "input": INPUT, "output": output, "turns": TURNS, "digest": self.digest})
    }

    /// Invokes the honest function for `length`, while the other tenant's `function` is invoked with an event for each round.
    fn beside(
        &self,
        other: Option<(&str, &(dyn Fn(usize) -> Value + Sync))>,
        length: Duration,
        late_ms: f64,
        handle: &Handle,
    ) -> Result<LieOutcome, LabError> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let liars: Vec<_> = (0..LIAR_CLIENTS)
                .filter_map(|client| other.map(|other| (client, other)))
                .map(|(client, (function, event))| {
                    let over = &over;
                    scope.spawn(move || self.lie(function, &|round| event(round * LIAR_CLIENTS + client), over, handle))
                })
                .collect();
            let watch = scope.spawn(|| self.watch(&over));
            let calls = self.honest_for(length, handle);
            over.store(true, Ordering::Release);
            let mut liar = LiarsFate::default();
            joined(liars)?.into_iter().for_each(|fate| liar.add(fate));
            let over_budget = joined(vec![watch])?.into_iter().sum();
            Ok(LieOutcome { liar, honest: HonestOutcome::of(&calls?, late_ms), over_budget })
        })
    }

    /// Invokes the honest function in a loop. Returns the milliseconds and the harm of each invocation.
    fn honest_for(&self, length: Duration, handle: &Handle) -> Result<Vec<(f64, Harm)>, LabError> {
        let mut client = LambdaClient::connect_as(&self.node, HONEST)?;
        let event = self.honest_event("output").to_string();
        let request = handle.block_on(client.invocation(HONEST, event.as_bytes()))?;
        let (begin, mut calls) = (Instant::now(), Vec::new());
        while begin.elapsed() < length {
            let began = Instant::now();
            let answer = client.send(HONEST, &request);
            let took = began.elapsed().as_secs_f64() * 1e3;
            let harm = match answer {
                Err(error) => Harm::Failed(error.to_string()),
                Ok(answer) => match serde_json::from_slice::<Value>(&answer.payload) {
                    Ok(said) if said["digest"] == self.digest.as_str() && said["again"] == self.digest.as_str() => {
                        Harm::None
                    }
                    Ok(said) if answer.function_error.is_none() && said.get("digest").is_some() => {
                        Harm::Wrong(said.to_string())
                    }
                    _ => Harm::Failed(String::from_utf8_lossy(&answer.payload).into_owned()),
                },
            };
            if matches!(harm, Harm::Failed(_)) {
                // A broken connection is not used again.
                client = LambdaClient::connect_as(&self.node, HONEST)?;
            }
            calls.push((took, harm));
        }
        Ok(calls)
    }

    fn lie(
        &self,
        function: &str,
        event: &dyn Fn(usize) -> Value,
        over: &AtomicBool,
        handle: &Handle,
    ) -> Result<LiarsFate, LabError> {
        let mut client = LambdaClient::connect_as(&self.node, LIAR)?;
        let mut fate = LiarsFate::default();
        for round in (0..).take_while(|_| !over.load(Ordering::Acquire)) {
            let request = handle.block_on(client.invocation(function, event(round).to_string().as_bytes()))?;
            fate.invocations += 1;
            match client.send(function, &request) {
                Ok(answer) if answer.function_error.is_none() && !answer.id.is_empty() => fate.answered += 1,
                Ok(answer) => {
                    let said: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
                    let kind = said["errorType"].as_str().or(said["Type"].as_str()).unwrap_or("refused").to_owned();
                    *fate.ended.entry(kind).or_default() += 1;
                }
                Err(error) => {
                    *fate.ended.entry(error.to_string()).or_default() += 1;
                    client = LambdaClient::connect_as(&self.node, LIAR)?;
                }
            }
        }
        Ok(fate)
    }

    /// Reads the node's status until `over`. Returns how often the node had given more memory than it has.
    fn watch(&self, over: &AtomicBool) -> Result<usize, LabError> {
        let mut exceeded = 0;
        while !over.load(Ordering::Acquire) {
            let status = admin_api(&self.node.endpoints.admin_socket, "/status")?;
            exceeded += usize::from(gives_too_much(&status));
            std::thread::sleep(LOOK);
        }
        Ok(exceeded)
    }
}

/// What was wrong with an honest invocation.
enum Harm {
    None,
    Failed(String),
    Wrong(String),
}

/// True if the status shows more memory given than there is: copies beyond the cache's budget; or, where the node lends unused
/// memory, grants and lent memory beyond the bookings and the cache's own memory.
fn gives_too_much(status: &Value) -> bool {
    let of = |section: &str, field: &str| status[section][field].as_u64();
    let cache = of("cache", "kept").zip(of("cache", "budget")).is_some_and(|(kept, budget)| kept > budget);
    let given = of("memory", "granted").zip(of("memory", "cache_takes"));
    let lent = given
        .zip(of("memory", "booked"))
        .is_some_and(|((granted, cache_takes), booked)| granted + cache_takes > booked + (CACHE_MB << 20));
    cache || lent
}

impl LiarsFate {
    fn add(&mut self, other: Self) {
        self.invocations += other.invocations;
        self.answered += other.answered;
        for (kind, count) in other.ended {
            *self.ended.entry(kind).or_default() += count;
        }
    }
}

impl HonestOutcome {
    fn of(calls: &[(f64, Harm)], late_ms: f64) -> Self {
        let times = Sample::new(calls.iter().map(|(took, _)| *took).collect());
        let late = |took: f64| took > late_ms;
        let count = |is: fn(&Harm) -> bool| calls.iter().filter(|(_, harm)| is(harm)).count();
        let first = calls.iter().find_map(|(took, harm)| match harm {
            Harm::None => late(*took).then(|| format!("took {took:.0} ms")),
            Harm::Failed(why) => Some(format!("failed: {why}")),
            Harm::Wrong(said) => Some(format!("answered {said}")),
        });
        Self {
            invocations: calls.len(),
            failed: count(|harm| matches!(harm, Harm::Failed(_))),
            wrong: count(|harm| matches!(harm, Harm::Wrong(_))),
            late: calls.iter().filter(|(took, harm)| matches!(harm, Harm::None) && late(*took)).count(),
            p50_ms: times.median(),
            p99_ms: times.percentile(0.99),
            first,
        }
    }
}

fn settings(python: &Path) -> toml::Table {
    let mut settings = node_under_test::settings(None, python);
    let (memory, cache) = (format!("{FUNCTIONS_MB} MiB"), format!("{CACHE_MB} MiB"));
    node_under_test::set(&mut settings, &[("functions.memory", &memory), ("cache.bytes", &cache)]);
    let tenants = [HONEST, LIAR].map(|tenant| (tenant.to_owned(), toml::Table::new().into()));
    settings.insert("namespaces".to_owned(), toml::Table::from_iter(tenants).into());
    settings
}

impl LiesReport {
    fn text(&self) -> String {
        let template = "the honest function alone {alone.p50_ms:.1} ms, beside two of its kind {beside_honest.p50_ms:.1} ms (slower = \
                        over that); late beyond {late_ms:.0} ms\nharm to others: {harm_to_others}";
        format!("{}\n{}", COLUMNS.text(&self.rows), fill(template, self))
    }
}

#[cfg(test)]
mod tests;
