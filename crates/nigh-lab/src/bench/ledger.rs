//! A cluster's commits beside bare publishes to the same servers: three of them on this machine, each write on the disk of a
//! majority before it is acknowledged, turn about.
//!
//! A bare publish has the body and nothing else: no head, no checksum, no condition. A body of up to 64 KiB goes in one
//! message on both sides, a larger one in messages of 512 KiB, all on their way together, and on our side one more that
//! commits them. All servers and the client share this machine's processors and its disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream;
use bytes::Bytes;
use clap::Args;
use futures::future::try_join_all;
use nigh_engine::nats::{Claim, Cluster, LedgerSettings, NatsLedger};
use nigh_engine::{Body, Change, INLINE_MAX_BYTES, Ledger as _, LedgerError, PIECE_MAX_BYTES, Record, RequestId};
use nigh_terms::{BucketName, Incarnation, Namespace, NodeId, ObjectKey, ShardId};
use serde::Serialize;

use super::RatioTarget;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::peer::Peer as _;
use crate::instrument::peer::nats::NatsCluster;
use crate::instrument::stats::Sample;
use crate::instrument::table::table_of;

const SHARD: ShardId = ShardId(0);
/// What a writer says of an object, bytes: about what its metadata takes.
const ABOUT_BYTES: usize = 200;
const BARE: &str = "bare";
/// The bare stream drops what is older.
const BARE_MAX_BYTES: i64 = 256 << 20;
const BARE_CHUNK_BYTES: usize = 512 << 10;
/// How long the bare stream may take to be made.
const MADE_WITHIN: Duration = Duration::from_secs(45);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Sizes of bodies with one writer, and commits of each in a round.
const ALONE: [(&str, usize, usize); 3] = [("1kib", 1 << 10, 60), ("64kib", 64 << 10, 20), ("1mib", 1 << 20, 6)];
/// Many writers, and the bytes of each body.
const WRITERS: usize = 64;
const TOGETHER_BYTES: usize = 1 << 10;
/// A commit of 1 KiB over a bare publish of as much.
const ASKED: (&str, RatioTarget) = ("ratio_1kib", RatioTarget::AtMost(1.2));

/// How long, and where.
#[derive(Clone, Debug, Args)]
pub(super) struct LedgerLength {
    /// Rounds of each measurement; the ledger and the bare client take turns
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Seconds of each side in a round with many writers
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// A folder on the disk to measure [default: the folder of temporary files]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// One figure.
#[derive(Debug, Serialize)]
struct LedgerRow {
    bytes: usize,
    writers: usize,
    p50_us: f64,
    p99_us: f64,
    per_second: f64,
    bare_p50_us: f64,
    bare_p99_us: f64,
    bare_per_second: f64,
    /// Median of the rounds' ratios, ours over the bare one: of medians, or with many writers of operations a second.
    ratio: f64,
}

/// What the bench measures.
#[derive(Debug, Serialize)]
pub(super) struct LedgerReport {
    machine: Machine,
    servers: String,
    rows: Vec<LedgerRow>,
    summary: BTreeMap<String, f64>,
    asked: BTreeMap<&'static str, RatioTarget>,
}

/// Latencies of one side, in microseconds, and the seconds that all took.
#[derive(Default)]
struct Side {
    latencies_us: Vec<f64>,
    seconds: f64,
}

impl Side {
    fn figures(self) -> (f64, f64, f64) {
        let per_second = self.latencies_us.len() as f64 / self.seconds;
        let sample = Sample::new(self.latencies_us);
        (sample.median(), sample.percentile(0.99), per_second)
    }
}

fn failed(what: &str, reason: &dyn std::fmt::Display) -> LabError {
    LabError::Request { what: what.to_owned(), reason: reason.to_string() }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Both sides, each with a connection of its own.
struct Sides {
    ledger: NatsLedger,
    bare: jetstream::Context,
    requests: std::sync::atomic::AtomicU64,
}

impl Sides {
    async fn commit(&self, body: &Bytes) -> Result<Duration, LabError> {
        let refused = |error: LedgerError| failed("a commit", &error);
        let request = self.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = |error: nigh_terms::NameError| failed("a name", &error);
        let record = Record {
            request: RequestId(u128::from(request)),
            namespace: Namespace::new("bench").map_err(name)?,
            bucket: BucketName::new("bucket").map_err(name)?,
            key: ObjectKey::new(&format!("object-{request}")).map_err(name)?,
            change: Change::Put { about: Bytes::from(vec![b'a'; ABOUT_BYTES]) },
        };
        let begun = Instant::now();
        let body = if body.len() <= INLINE_MAX_BYTES {
            Body::Inline(body.clone())
        } else {
            let pieces = (0..body.len()).step_by(PIECE_MAX_BYTES).map(|from| {
                let piece = body.slice(from..body.len().min(from + PIECE_MAX_BYTES));
                self.ledger.stage(SHARD, piece)
            });
            Body::Staged(try_join_all(pieces).await.map_err(refused)?)
        };
        let appended = self.ledger.append(SHARD, record, body).await.map_err(refused)?;
        let took = begun.elapsed();
        self.ledger.stored(SHARD, appended.version).await.map_err(refused)?;
        Ok(took)
    }

    async fn publish(&self, body: &Bytes) -> Result<Duration, LabError> {
        let begun = Instant::now();
        let chunks = (0..body.len()).step_by(BARE_CHUNK_BYTES).map(|from| async move {
            let chunk = body.slice(from..body.len().min(from + BARE_CHUNK_BYTES));
            let sent = self.bare.publish(BARE, chunk).await.map_err(|error| failed("a bare publish", &error))?;
            sent.await.map_err(|error| failed("a bare publish", &error))
        });
        try_join_all(chunks).await?;
        Ok(begun.elapsed())
    }
}

pub(super) async fn run(length: &LedgerLength, machine: Machine) -> Result<LedgerReport, LabError> {
    let parent = length.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::tempdir_in(&parent).at(&parent)?;
    let servers = NatsCluster::start(folder.path())?;
    let sides = Arc::new(begin(&servers).await?);
    let (mut rows, mut summary) = (Vec::new(), BTreeMap::new());
    for (name, bytes, commits) in ALONE {
        let row = alone(&sides, bytes, commits, length.rounds.max(1)).await?;
        summary.insert(format!("ratio_{name}"), row.ratio);
        rows.push(row);
    }
    let row = together(&sides, length).await?;
    summary.insert("throughput_of_bare".to_owned(), row.ratio);
    rows.push(row);
    let servers = format!("{} x {} {}", servers.processes().len(), servers.name(), servers.version());
    Ok(LedgerReport { machine, servers, rows, summary, asked: BTreeMap::from([ASKED]) })
}

async fn begin(servers: &NatsCluster) -> Result<Sides, LabError> {
    let settings = servers.settings();
    let token = servers.token().reveal().to_owned();
    let cluster = Cluster::connect(settings.clone()).await.map_err(|error| failed("reach the servers", &error))?;
    let ledger = NatsLedger::new(cluster, LedgerSettings::default());
    let (node, incarnation) = (NodeId("bench".to_owned()), Incarnation(1));
    let claim = Claim { shard: SHARD, claim: 1, node, incarnation };
    ledger.take(&claim).await.map_err(|error| failed("take a shard", &error))?;
    let client = async_nats::ConnectOptions::with_token(token).connect(&settings.servers[..]).await;
    let bare = jetstream::new(client.map_err(|error| failed("reach the servers", &error))?);
    let stream = jetstream::stream::Config {
        name: BARE.to_owned(),
        subjects: vec![BARE.to_owned()],
        num_replicas: settings.replicas,
        max_bytes: BARE_MAX_BYTES,
        ..jetstream::stream::Config::default()
    };
    let begun = Instant::now();
    // Servers that have just begun do not all know each other.
    while let Err(error) = bare.create_stream(stream.clone()).await {
        if begun.elapsed() > MADE_WITHIN {
            return Err(failed("make the bare stream", &error));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(Sides { ledger, bare, requests: std::sync::atomic::AtomicU64::new(0) })
}

/// One writer: a commit and a bare publish in turn, so that both meet the same weather.
async fn alone(sides: &Sides, bytes: usize, commits: usize, rounds: usize) -> Result<LedgerRow, LabError> {
    let body = Bytes::from(vec![b'x'; bytes]);
    let (mut own, mut other, mut ratios) = (Side::default(), Side::default(), Vec::new());
    for _ in 0..rounds {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for _ in 0..commits {
            here.push(us(sides.commit(&body).await?));
            there.push(us(sides.publish(&body).await?));
        }
        ratios.push(Sample::new(here.clone()).median() / Sample::new(there.clone()).median());
        for (side, took) in [(&mut own, here), (&mut other, there)] {
            side.seconds += took.iter().sum::<f64>() / 1e6;
            side.latencies_us.extend(took);
        }
    }
    Ok(row(bytes, 1, own, other, ratios))
}

/// Many writers, each with one operation at a time; the sides take turns.
async fn together(sides: &Arc<Sides>, length: &LedgerLength) -> Result<LedgerRow, LabError> {
    let round = Duration::from_secs_f64(length.seconds.clamp(0.05, 60.0));
    let (mut own, mut other, mut ratios) = (Side::default(), Side::default(), Vec::new());
    for _ in 0..length.rounds.max(1) {
        let mut counts = [0.0; 2];
        for (bare, side) in [(false, &mut own), (true, &mut other)] {
            let begun = Instant::now();
            let mut writers = tokio::task::JoinSet::new();
            for _ in 0..WRITERS {
                let (sides, body) = (Arc::clone(sides), Bytes::from(vec![b'x'; TOGETHER_BYTES]));
                writers.spawn(async move {
                    let mut latencies = Vec::new();
                    while begun.elapsed() < round {
                        let took = if bare { sides.publish(&body).await? } else { sides.commit(&body).await? };
                        latencies.push(us(took));
                    }
                    Ok::<_, LabError>(latencies)
                });
            }
            let before = side.latencies_us.len();
            for latencies in writers.join_all().await {
                side.latencies_us.extend(latencies?);
            }
            let seconds = begun.elapsed().as_secs_f64();
            side.seconds += seconds;
            counts[usize::from(bare)] = (side.latencies_us.len() - before) as f64 / seconds;
        }
        ratios.push(counts[0] / counts[1]);
    }
    Ok(row(TOGETHER_BYTES, WRITERS, own, other, ratios))
}

fn row(bytes: usize, writers: usize, own: Side, other: Side, ratios: Vec<f64>) -> LedgerRow {
    let (p50_us, p99_us, per_second) = own.figures();
    let (bare_p50_us, bare_p99_us, bare_per_second) = other.figures();
    let ratio = Sample::new(ratios).median();
    LedgerRow { bytes, writers, p50_us, p99_us, per_second, bare_p50_us, bare_p99_us, bare_per_second, ratio }
}

pub(super) fn text(report: &LedgerReport) -> String {
    let mut table = table_of("bytes | writers | p50 us | p99 us | 1/s | bare p50 us | bare p99 us | bare 1/s | ratio");
    for row in &report.rows {
        let own = [row.p50_us, row.p99_us, row.per_second];
        let figures = own.into_iter().chain([row.bare_p50_us, row.bare_p99_us, row.bare_per_second]);
        let mut cells = vec![row.bytes.to_string(), row.writers.to_string()];
        cells.extend(figures.map(|value| format!("{value:.0}")));
        cells.push(format!("{:.2}", row.ratio));
        table.add_row(cells);
    }
    let machine = &report.machine;
    let told = |(name, value): (&String, &f64)| {
        let asked = report.asked.get(name.as_str()).map(|asked| format!(" ({asked} asked)")).unwrap_or_default();
        format!("{name} {value:.2}{asked}")
    };
    let summary: Vec<String> = report.summary.iter().map(told).collect();
    format!(
        "{table}\n{}\n{}\n{} x {}, load {}, Linux {}, {}",
        summary.join(", "),
        report.servers,
        machine.cores,
        machine.cpu,
        machine.load,
        machine.kernel,
        machine.date
    )
}
