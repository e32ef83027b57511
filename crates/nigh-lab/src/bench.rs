//! `nigh bench`: figures of one machine, each beside its peer in the same run.

mod coherence;
mod coldstart;
mod contention;
mod functions;
mod grant;
mod invoke;
mod journal;
mod ledger;
mod llc;
mod llc_binding;
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
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::report::show;
use crate::instrument::table::table_of;

/// What `nigh bench` takes.
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
    /// State machines against the invocations that they make: a sequence of five, a map of a hundred
    Workflow(Length),
    /// Cold starts, prewarmed and not, of handlers that import nothing, boto3, and make a client
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
    /// Memory that the cache gives back: the decision, and the whole against closing files in memory
    Shrink(shrink::ShrinkLength),
    /// Objects that a shrinking node gives up, handed to a node that has them already, beside OFC's times
    Reelect(reelect::ReelectLength),
    /// A sandbox's memory: writing its limit, the step before a run, the wait of one that comes to its limit
    Grant(grant::GrantLength),
    /// What a cached object takes beside its bytes, among a million
    Memory(memory::MemoryLength),
    /// Foretelling an invocation: the model alone, with features from its payload, a fit of 500 rows
    Predict(predict::PredictLength),
    /// The coherence protocol's machines alone: a home's steps and directory, a hit, a placement over a thousand nodes
    Coherence(coherence::CoherenceLength),
    /// The cache simulator, its sampled curves, a placement and a change of layout
    Llc(llc::LlcLength),
}

#[derive(Clone, Copy, Debug, Args)]
struct Length {
    /// Rounds of each measurement; servers take turns within a round
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

impl Length {
    fn of_round(self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.05, 600.0))
    }
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// What was done.
    pub what: String,
    /// To whom.
    pub server: String,
    /// Bytes of each object or payload.
    pub bytes: u64,
    /// Clients at once.
    pub clients: usize,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// Processor time of the server for each operation, microseconds; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<f64>,
    /// Operations a second.
    pub per_second: f64,
    /// Beside whom.
    pub peer: Option<String>,
    /// What the ratio compares, and what is asked of it.
    pub compares: Option<&'static str>,
    /// This server's figure over the peer's: the median of the rounds' ratios.
    pub ratio: Option<f64>,
}

/// What is asked of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum RatioTarget {
    AtMost(f64),
    AtLeast(f64),
}

impl std::fmt::Display for RatioTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "<= {bound}"),
            Self::AtLeast(bound) => write!(f, ">= {bound}"),
        }
    }
}

#[derive(Serialize)]
struct BenchReport {
    machine: Machine,
    rows: Vec<Row>,
    /// Ratios by name; of some benches.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    summary: BTreeMap<&'static str, f64>,
    /// What is asked of each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    asked: BTreeMap<&'static str, RatioTarget>,
}

impl BenchArgs {
    /// Runs the bench and prints its report.
    ///
    /// # Errors
    /// If something it needs is missing or fails.
    pub async fn run(self, json: bool) -> Result<(), LabError> {
        let machine = Machine::of_this_command();
        let s3::Outcome { rows, summary, asked } = match self.what {
            BenchCommand::S3(length) => s3::run(length).await?,
            BenchCommand::Invoke(length) => s3::Outcome { rows: invoke::run(length).await?, ..s3::Outcome::default() },
            BenchCommand::Workflow(length) => workflow::run(length).await?,
            BenchCommand::Coldstart(length) => {
                return show(coldstart::run(&length, machine).await, coldstart::text, json);
            }
            BenchCommand::Contention(args) => {
                return show(contention::run(&args, machine).await, contention::text, json);
            }
            BenchCommand::Functions(many) => return show(functions::run(&many, machine).await, functions::text, json),
            BenchCommand::Journal(length) => return show(journal::run(&length, machine).await, journal::text, json),
            BenchCommand::Ledger(length) => return show(ledger::run(&length, machine).await, ledger::text, json),
            BenchCommand::Rpc(length) => return show(rpc::run(&length, machine).await, rpc::text, json),
            BenchCommand::Objects(length) => return show(objects::run(&length, machine), objects::text, json),
            BenchCommand::Shrink(length) => return show(shrink::run(&length, machine).await, shrink::text, json),
            BenchCommand::Reelect(length) => return show(reelect::run(&length, machine).await, reelect::text, json),
            BenchCommand::Grant(length) => return show(grant::run(&length, machine).await, grant::text, json),
            BenchCommand::Memory(length) => return show(memory::run(&length, machine).await, memory::text, json),
            BenchCommand::Predict(length) => return show(predict::run(&length, machine), predict::text, json),
            BenchCommand::Coherence(length) => return show(coherence::run(&length, machine), coherence::text, json),
            BenchCommand::Llc(length) => return show(llc::run(&length, machine), llc::text, json),
        };
        print(&BenchReport { machine, rows, summary, asked }, json)
    }
}

#[expect(clippy::print_stdout, reason = "the report is the command's output")]
fn print(report: &BenchReport, json: bool) -> Result<(), LabError> {
    if json {
        let text = serde_json::to_string_pretty(report).at("report")?;
        println!("{text}");
        return Ok(());
    }
    let mut table = table_of("what | server | bytes | clients | p50 us | p99 us | cpu us | 1/s | ratio | of");
    for row in &report.rows {
        let number =
            |value: Option<f64>, digits: usize| value.map_or_else(String::new, |value| format!("{value:.digits$}"));
        let of = match (&row.peer, row.compares) {
            (Some(peer), Some(compares)) => format!("{peer}: {compares}"),
            _ => String::new(),
        };
        table.add_row([
            row.what.clone(),
            row.server.clone(),
            row.bytes.to_string(),
            row.clients.to_string(),
            number(Some(row.p50_us), 0),
            number(Some(row.p99_us), 0),
            number(row.cpu_us, 1),
            number(Some(row.per_second), 0),
            number(row.ratio, 2),
            of,
        ]);
    }
    let machine = &report.machine;
    let ratios: String = report
        .summary
        .iter()
        .map(|(name, ratio)| {
            let asked = report.asked.get(name).map(RatioTarget::to_string).unwrap_or_default();
            format!("{name}: {ratio:.2} {asked}\n")
        })
        .collect();
    println!(
        "{table}\n{ratios}{} x {}, load {}, Linux {}, {}",
        machine.cores, machine.cpu, machine.load, machine.kernel, machine.date
    );
    Ok(())
}
