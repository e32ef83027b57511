//! A cluster's commits beside bare publishes to the same servers: three of them on this machine, each write on the disk of a
//! majority before it is acknowledged, turn about.
//!
//! A bare publish has the body and nothing else: no head, no checksum, no condition. A body of up to 64 KiB goes in one
//! message on both sides, a larger one in messages of 512 KiB, all on their way together, and on our side one more that
//! commits them. All servers and the client share this machine's processors and its disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream;
use bytes::Bytes;
use clap::Args;
use futures::future::try_join_all;
use nigh_engine::nats::{Claim, Cluster, LedgerSettings, NatsLedger};
use nigh_terms::{Incarnation, NodeId};
use serde::Serialize;

use super::commits::{SHARD, TOGETHER_BYTES, WRITERS, commit};
use super::{RatioTarget, median, us};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::made_up::failed;
use crate::instrument::peer::Peer as _;
use crate::instrument::peer::nats::NatsCluster;
use crate::instrument::stats::Sample;

const BARE: &str = "bare";
const BARE_MAX_BYTES: i64 = 256 << 20;
const BARE_CHUNK_BYTES: usize = 512 << 10;
const MADE_WITHIN: Duration = Duration::from_secs(45);
const LOOK_EVERY: Duration = Duration::from_millis(200);
const ALONE: [(&str, usize, usize); 3] = [("1kib", 1 << 10, 60), ("64kib", 64 << 10, 20), ("1mib", 1 << 20, 6)];
/// A commit of 1 KiB over a bare publish of as much.
const ASKED: (&str, RatioTarget) = ("ratio_1kib", RatioTarget::AtMost(1.2));

#[derive(Clone, Debug, Args)]
pub(super) struct LedgerLength {
    /// How many rounds each measurement has; the ledger and the bare client take turns
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// How long each contender is measured in a round with many writers, in seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

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

#[derive(Debug, Serialize)]
pub(super) struct LedgerReport {
    machine: Machine,
    servers: String,
    rows: Vec<LedgerRow>,
    summary: BTreeMap<String, f64>,
    asked: BTreeMap<&'static str, RatioTarget>,
}

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

struct Sides {
    ledger: NatsLedger,
    bare: jetstream::Context,
    requests: AtomicU64,
}

impl Sides {
    async fn commit(&self, body: &Bytes) -> Result<Duration, LabError> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        commit(&self.ledger, u128::from(request), body, usize::MAX).await
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
    let folder = tempfile::tempdir().at(std::env::temp_dir())?;
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
    Ok(Sides { ledger, bare, requests: AtomicU64::new(0) })
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
        ratios.push(median(here.clone()) / median(there.clone()));
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
    let ratio = median(ratios);
    LedgerRow { bytes, writers, p50_us, p99_us, per_second, bare_p50_us, bare_p99_us, bare_per_second, ratio }
}
