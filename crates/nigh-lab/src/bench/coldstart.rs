//! Cold starts: an invocation that meets no sandbox of its function, as a client sees it, against a whole node.
//!
//! Each round asks every node, prewarmed and not, for every handler once, in turn; the vendor's runtime client against a
//! bare server, without any sandbox, stands beside them. Where the time goes is told by the invocations' own records.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use nigh_node::{Activation, SandboxStart};
use serde::Serialize;

use super::{ECHO, code_folder, deployment};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, python, set, settings};
use crate::instrument::peer::bare_runtime::BareRuntime;
use crate::instrument::platform::{LambdaClient, activations, status};
use crate::instrument::stats::Sample;

const ENGINES: [&str; 2] = ["process", "runc"];
const PAYLOAD: &[u8] = b"{\"ping\":1}";
/// What is called, and what its module does when it is loaded.
const HANDLERS: [(&str, &str); 3] = [
    ("empty", ""),
    ("imports boto3", "import boto3\n"),
    ("imports boto3, makes an S3 client", "import boto3\nclient = boto3.client('s3')\n"),
];
/// How long a node may take to have a stem ready.
const STEM_PATIENCE: Duration = Duration::from_secs(30);
/// Between two starts: what the last one left to be done is done.
const REST: Duration = Duration::from_millis(150);
/// A peer is told where S3 would be, as a sandbox is.
const PEER_ENVIRONMENT: [(&str, &str); 4] = [
    ("AWS_REGION", "us-east-1"),
    ("AWS_DEFAULT_REGION", "us-east-1"),
    ("AWS_ACCESS_KEY_ID", "key"),
    ("AWS_SECRET_ACCESS_KEY", "secret"),
];

#[derive(Clone, Debug, Args)]
pub(super) struct ColdLength {
    /// How many starts each row of the report has
    #[arg(long, default_value_t = 40)]
    rounds: usize,
}

/// Where the time of the median start went: medians of each part, so that they add up only nearly.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Parts {
    /// Until a sandbox was begun.
    wait_ms: f64,
    /// Its walls, where none stood ready.
    walls_ms: f64,
    /// The code, where it was brought in from outside.
    mount_ms: f64,
    /// Until its process ran.
    launch_ms: f64,
    /// Until it asked for its input: the interpreter, its client, the handler's module.
    load_ms: f64,
    /// From the input to the answer.
    run_ms: f64,
    /// The rest of what the client waited: the door, the record.
    rest_ms: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct ColdRow {
    /// What makes the sandboxes; `none` for the peer without any.
    engine: &'static str,
    /// `plain` or `prewarmed`.
    start: &'static str,
    handler: &'static str,
    starts: usize,
    p50_ms: f64,
    p99_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<Parts>,
    /// The median peak of memory, MiB, imports included.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_mib: Option<f64>,
}

impl ColdRow {
    fn of(engine: &'static str, start: &'static str, handler: &'static str, starts: Vec<f64>) -> Self {
        let starts = Sample::new(starts);
        let (p50_ms, p99_ms) = (starts.median(), starts.percentile(0.99));
        Self { engine, start, handler, starts: starts.len(), p50_ms, p99_ms, parts: None, peak_mib: None }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ColdReport {
    machine: Machine,
    rows: Vec<ColdRow>,
}

struct Candidate {
    engine: &'static str,
    start: &'static str,
    node: NodeUnderTest,
    lambda: LambdaClient,
    starts: Vec<Vec<Start>>,
}

struct Start {
    total: f64,
    parts: Parts,
    peak_mib: Option<f64>,
}

pub(super) async fn run(length: &ColdLength, machine: Machine) -> Result<ColdReport, LabError> {
    let folder = tempfile::tempdir().at(std::env::temp_dir())?;
    let python = python()?;
    let codes = HANDLERS
        .iter()
        .enumerate()
        .map(|(index, (_, loads))| code_folder(folder.path(), &format!("code-{index}"), &format!("{loads}{ECHO}")));
    let codes = codes.collect::<Result<Vec<PathBuf>, LabError>>()?;
    let mut candidates = Vec::new();
    for engine in ENGINES {
        for (start, prewarm) in [("plain", "off"), ("prewarmed", "on")] {
            let folder = folder.path().join(format!("{engine}-{start}"));
            candidates.push(candidate(&folder, &python, engine, start, prewarm)?);
        }
    }
    let mut peer: Vec<Vec<f64>> = vec![Vec::new(); HANDLERS.len()];
    for round in 0..length.rounds.max(1) {
        for (handler, code) in codes.iter().enumerate() {
            for candidate in &mut candidates {
                let start = candidate.cold(round, handler, code).await?;
                candidate.starts[handler].push(start);
            }
            peer[handler].push(bare(&python, code)?);
        }
    }
    let own = candidates.iter().flat_map(Candidate::rows);
    let bare =
        peer.into_iter().zip(HANDLERS).map(|(starts, (handler, _))| ColdRow::of("none", "plain", handler, starts));
    Ok(ColdReport { machine, rows: own.chain(bare).collect() })
}

fn candidate(
    folder: &Path,
    python: &Path,
    engine: &'static str,
    start: &'static str,
    prewarm: &str,
) -> Result<Candidate, LabError> {
    std::fs::create_dir(folder).at(folder)?;
    let mut settings = settings(None, python);
    // No sandbox has to end for another.
    let own = [("functions.engine", engine), ("functions.prewarm", prewarm), ("functions.keep_alive", "5 s")];
    set(&mut settings, &own);
    let node = NodeUnderTest::start(folder, &settings)?;
    let lambda = LambdaClient::connect(&node)?;
    Ok(Candidate { engine, start, node, lambda, starts: HANDLERS.iter().map(|_| Vec::new()).collect() })
}

impl Candidate {
    async fn cold(&mut self, round: usize, handler: usize, code: &Path) -> Result<Start, LabError> {
        let name = format!("cold-{handler}-{round}");
        self.lambda.deploy(&deployment(&name, code, 256)).await?;
        let request = self.lambda.invocation(&name, PAYLOAD).await?;
        let wanted = if self.start == "prewarmed" { SandboxStart::Prewarmed } else { SandboxStart::Cold };
        if wanted == SandboxStart::Prewarmed {
            self.await_stem().await?;
        }
        std::thread::sleep(REST);
        let sent = Instant::now();
        let answer = self.lambda.send(&name, &request)?;
        let total = sent.elapsed().as_secs_f64() * 1e3;
        let failed = |reason: String| LabError::Request { what: name.clone(), reason };
        if let Some(error) = answer.function_error {
            return Err(failed(format!("{error}: {}", String::from_utf8_lossy(&answer.payload))));
        }
        let records = activations(&self.node, 1).await?;
        let record = records.into_iter().find(|record| record["id"] == answer.id.as_str());
        let record = record.ok_or_else(|| failed("its record is not the last".to_owned()))?;
        let record: Activation = serde_json::from_value(record).map_err(|error| failed(error.to_string()))?;
        if record.sandbox_start != Some(wanted) {
            return Err(failed(format!("the start was {:?} and not {wanted:?}", record.sandbox_start)));
        }
        let ms = |us: u64| us as f64 / 1e3;
        let making = record.making;
        let made = making.walls_us + making.mount_us + making.launch_us;
        let parts = Parts {
            wait_ms: ms(record.wait_us),
            walls_ms: ms(making.walls_us),
            mount_ms: ms(making.mount_us),
            launch_ms: ms(making.launch_us),
            load_ms: ms(record.init_us.saturating_sub(made)),
            run_ms: ms(record.duration_us),
            rest_ms: total - ms(record.wait_us + record.init_us + record.duration_us),
        };
        let peak_mib = record.peak_memory.map(|peak| peak.bytes() as f64 / f64::from(1 << 20));
        Ok(Start { total, parts, peak_mib })
    }

    /// Returns when a stem is ready and none is being made.
    async fn await_stem(&self) -> Result<(), LabError> {
        let begin = Instant::now();
        loop {
            let status = status(&self.node).await?;
            let ready: usize = status.stems.iter().map(|stems| stems.ready).sum();
            let coming: usize = status.stems.iter().map(|stems| stems.coming).sum();
            if ready > 0 && coming == 0 {
                return Ok(());
            }
            if begin.elapsed() > STEM_PATIENCE {
                let level = status.levels.iter().find(|level| level.name == "prewarming");
                let why = level.map_or_else(String::new, |level| level.detail.clone());
                return Err(LabError::Node(format!("no sandbox is prewarmed after {STEM_PATIENCE:?}: {why}")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn rows(&self) -> impl Iterator<Item = ColdRow> {
        self.starts.iter().zip(HANDLERS).map(|(starts, (handler, _))| {
            let median = |of: fn(&Parts) -> f64| Sample::of(starts, |start| of(&start.parts)).median();
            let totals = starts.iter().map(|start| start.total).collect();
            let peaks = Sample::new(starts.iter().filter_map(|start| start.peak_mib).collect());
            ColdRow {
                parts: Some(Parts {
                    wait_ms: median(|parts| parts.wait_ms),
                    walls_ms: median(|parts| parts.walls_ms),
                    mount_ms: median(|parts| parts.mount_ms),
                    launch_ms: median(|parts| parts.launch_ms),
                    load_ms: median(|parts| parts.load_ms),
                    run_ms: median(|parts| parts.run_ms),
                    rest_ms: median(|parts| parts.rest_ms),
                }),
                peak_mib: peaks.known_percentile(0.5),
                ..ColdRow::of(self.engine, self.start, handler, totals)
            }
        })
    }
}

/// The same handler without a platform, in milliseconds.
fn bare(python: &Path, code: &Path) -> Result<f64, LabError> {
    let environment = PEER_ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let begin = Instant::now();
    let mut bare = BareRuntime::start(python, code, "app.handler", &environment.into_iter().collect())?;
    bare.invoke(PAYLOAD)
        .map_err(|error| LabError::Request { what: "a bare cold start".to_owned(), reason: error.to_string() })?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}
