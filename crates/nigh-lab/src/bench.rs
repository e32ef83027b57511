//! `nigh bench`: figures of one machine, each beside its peer in the same run.

mod coherence;
mod coldstart;
mod commits;
mod contention;
mod functions;
mod grant;
mod invoke;
mod journal;
mod ledger;
mod llc;
mod llc_binding;
mod load;
mod members;
mod memory;
mod objects;
mod predict;
mod reelect;
mod rpc;
mod s3;
mod shrink;
mod workflow;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::platform::Deployment;
use crate::instrument::report_text::tell;
use crate::instrument::stats::Sample;

/// Options of `nigh bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: BenchCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum BenchCommand {
    /// The S3 door against a bare s3s server and a canned C server
    S3(Length),
    /// Warm and cold invocations against the vendor's runtime client on a bare server
    Invoke(Length),
    /// Latency at fixed rates, from 10 to 90 % of what the node sustains: S3, the fast path and invocations against peers
    #[command(after_help = load::HELP)]
    Load(load::OpenLoadArgs),
    /// State machines against the invocations that they make: a sequence of five, a map of a hundred
    Workflow(Length),
    /// Cold starts, with pre-warmed sandboxes and without, of handlers that import nothing, import boto3, make a client
    Coldstart(coldstart::ColdLength),
    /// Callers of several functions that share the memory of a node's sandboxes: throughput, latency, starts
    #[command(after_help = contention::HELP)]
    Contention(contention::ContentionArgs),
    /// Many functions on one node: creating, listing, a restart, memory, invoking the last one
    Functions(functions::FunctionsArgs),
    /// The journal's commits against bare writes and syncs of the same disk
    Journal(journal::JournalLength),
    /// A cluster's commits against bare publishes to the same three NATS servers
    Ledger(ledger::LedgerLength),
    /// Calls between processes, and hits in another node's memory, against bare TCP and bare rustls
    Rpc(rpc::RpcLength),
    /// Objects by boto3 and by clients of the fast path, against boto3 + MinIO and redis-py + hiredis
    Objects(objects::ObjectsLength),
    /// A shrink of the cache: the time to choose copies; the whole time against closing memory files of the same sizes
    Shrink(shrink::ShrinkLength),
    /// The hand-over of the copies that a shrink drops, to a node that has them already, beside OFC's times
    Reelect(reelect::ReelectLength),
    /// A sandbox's memory limit: the time to write it, to set it before a run; the wait of a sandbox that reaches it
    Grant(grant::GrantLength),
    /// The memory that the cache needs for an object beside the object's bytes, with a million objects
    Memory(memory::MemoryLength),
    /// The time of a prediction: by the model alone, with features from the input; the time to fit 500 training rows
    Predict(predict::PredictLength),
    /// The protocol's state machines alone: a home's steps and directory, a hit; a placement over a thousand nodes
    Coherence(coherence::CoherenceLength),
    /// The last-level cache: speed of the simulator, error of its sampled curves, time to place and to change layout
    Llc(llc::LlcLength),
}

#[derive(Clone, Copy, Debug, Args)]
struct Length {
    /// How many rounds each measurement has; the compared servers take turns within a round
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// How long each measurement lasts, in seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

impl Length {
    fn of_round(self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.05, 600.0))
    }
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    what: String,
    server: String,
    /// Of each object or input.
    bytes: u64,
    clients: usize,
    p50_us: f64,
    p99_us: f64,
    /// Processor time of the server for each operation; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us: Option<f64>,
    per_second: f64,
    peer: Option<String>,
    /// What the ratio compares, and its target.
    compares: Option<&'static str>,
    /// This server's figure over the peer's: the median of the rounds' ratios.
    ratio: Option<f64>,
}

impl Row {
    /// Of one client, whose operations follow each other.
    fn of(what: impl Into<String>, server: &str, bytes: usize, latencies_us: Vec<f64>) -> Self {
        let latencies = Sample::new(latencies_us);
        Self {
            what: what.into(),
            server: server.to_owned(),
            bytes: bytes as u64,
            clients: 1,
            p50_us: latencies.median(),
            p99_us: latencies.percentile(0.99),
            cpu_us: None,
            per_second: 1e6 / latencies.median(),
            peer: None,
            compares: None,
            ratio: None,
        }
    }

    fn beside(self, peer: &str, compares: &'static str, ratio: f64) -> Self {
        Self { peer: Some(peer.to_owned()), compares: Some(compares), ratio: Some(ratio), ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum RatioTarget {
    AtMost(f64),
    AtLeast(f64),
}

/// Named figures and their targets.
#[derive(Debug, Default, Serialize)]
struct Figures {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    summary: BTreeMap<String, f64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    asked: BTreeMap<String, RatioTarget>,
}

impl Figures {
    fn add(&mut self, name: impl Into<String>, figure: f64, asked: RatioTarget) {
        let name = name.into();
        self.summary.insert(name.clone(), figure);
        self.asked.insert(name, asked);
    }
}

#[derive(Debug, Serialize)]
struct BenchReport {
    machine: Machine,
    rows: Vec<Row>,
    #[serde(flatten)]
    figures: Figures,
}

/// A handler that returns its event.
const ECHO: &str = "def handler(event, context):\n    return event\n";

/// A new folder below `folder` with `module` as its `app.py`.
fn code_folder(folder: &Path, name: &str, module: &str) -> Result<PathBuf, LabError> {
    let code = folder.join(name);
    std::fs::create_dir(&code).and_then(|()| std::fs::write(code.join("app.py"), module)).at(&code)?;
    Ok(code)
}

/// A function whose handler is `handler` in `app.py`.
const fn deployment<'a>(name: &'a str, code: &'a Path, memory_mb: u64) -> Deployment<'a> {
    Deployment { name, code, handler: "app.handler", memory_mb, timeout_s: 30, environment: BTreeMap::new() }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn median(values: Vec<f64>) -> f64 {
    Sample::new(values).median()
}

fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

impl BenchArgs {
    /// Runs the bench and prints its report.
    ///
    /// # Errors
    /// If something it needs is missing or fails.
    pub async fn run(self, json: bool) -> Result<(), LabError> {
        let machine = Machine::of_this_command();
        match self.what {
            BenchCommand::S3(length) => tell(&s3::run(length, machine).await?, json),
            BenchCommand::Invoke(length) => tell(&invoke::run(length, machine).await?, json),
            BenchCommand::Load(args) => Box::pin(load::run(&args, machine, json)).await,
            BenchCommand::Workflow(length) => tell(&workflow::run(length, machine).await?, json),
            BenchCommand::Coldstart(length) => tell(&coldstart::run(&length, machine).await?, json),
            BenchCommand::Contention(args) => tell(&contention::run(&args, machine).await?, json),
            BenchCommand::Functions(many) => tell(&functions::run(&many, machine).await?, json),
            BenchCommand::Journal(length) => tell(&journal::run(&length, machine).await?, json),
            BenchCommand::Ledger(length) => tell(&ledger::run(&length, machine).await?, json),
            BenchCommand::Rpc(length) => tell(&rpc::run(&length, machine).await?, json),
            BenchCommand::Objects(length) => tell(&objects::run(&length, machine)?, json),
            BenchCommand::Shrink(length) => tell(&shrink::run(&length, machine).await?, json),
            BenchCommand::Reelect(length) => tell(&reelect::run(&length, machine).await?, json),
            BenchCommand::Grant(length) => tell(&grant::run(&length, machine).await?, json),
            BenchCommand::Memory(length) => tell(&memory::run(&length, machine).await?, json),
            BenchCommand::Predict(length) => tell(&predict::run(&length, machine)?, json),
            BenchCommand::Coherence(length) => tell(&coherence::run(&length, machine)?, json),
            BenchCommand::Llc(length) => tell(&llc::run(&length, machine)?, json),
        }
    }
}
