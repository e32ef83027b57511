//! The S3 door: what a hit costs, beside a bare s3s server (the same framework, nothing behind it) and a canned
//! C server (no S3 at all: the physical limit of HTTP on this machine).
//!
//! Requests are presigned, so both sides of the s3s comparison check a signature each time.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use http::Method;

use super::{BenchReport, Figures, Length, RatioTarget, Row};
use crate::LabError;
use crate::instrument::cpu_time;
use crate::instrument::error::Tried;
use crate::instrument::http_load::{Connection, closed_loop};
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::NodeUnderTest;
use crate::instrument::peer::{PeerProcess, bare_s3s, canned};
use crate::instrument::programs;
use crate::instrument::sign::Signer;
use crate::instrument::stats::Sample;

const BUCKET: &str = "bench-bucket";

struct Server {
    name: &'static str,
    address: SocketAddr,
    pid: u32,
    /// Absent for the canned server, which takes no notice of signatures.
    signer: Option<Signer>,
}

#[derive(Default)]
struct ServerMeasurements {
    latencies: Vec<f64>,
    cpu_us: Vec<f64>,
    per_second: Vec<f64>,
}

struct Case {
    what: &'static str,
    method: Method,
    bytes: u64,
    clients: usize,
    /// The first is told with the row.
    compared: &'static [S3Comparison],
}

struct S3Comparison {
    peer: &'static str,
    says: &'static str,
    figure: Figure,
    /// Its name in the summary, and what is asked.
    summary: Summary,
}

#[derive(Clone, Copy)]
enum Figure {
    Cpu,
    Throughput,
}

const NIGH: &str = "nigh";
const BARE: &str = "bare s3s";
const CANNED: &str = "canned C";

type Summary = Option<(&'static str, RatioTarget)>;

const fn cpu(peer: &'static str, says: &'static str, summary: Summary) -> S3Comparison {
    S3Comparison { peer, says, figure: Figure::Cpu, summary }
}

const fn throughput(peer: &'static str, says: &'static str, summary: Summary) -> S3Comparison {
    S3Comparison { peer, says, figure: Figure::Throughput, summary }
}

const fn hit(bytes: u64, clients: usize, compared: &'static [S3Comparison]) -> Case {
    Case { what: "get hit", method: Method::GET, bytes, clients, compared }
}

const fn put(bytes: u64) -> Case {
    const BESIDE_BARE: &[S3Comparison] = &[throughput(BARE, "throughput (bare keeps in memory only)", None)];
    Case { what: "put durable", method: Method::PUT, bytes, clients: 1, compared: BESIDE_BARE }
}

const CASES: [Case; 7] = [
    hit(1 << 10, 1, &[cpu(BARE, "cpu, at most 1.15", Some(("http_get_1kib_1_client_cpu", RatioTarget::AtMost(1.15))))]),
    hit(
        1 << 10,
        8,
        &[cpu(BARE, "cpu, at most 1.15", Some(("http_get_1kib_8_clients_cpu", RatioTarget::AtMost(1.15))))],
    ),
    hit(128 << 10, 8, &[throughput(CANNED, "throughput", None)]),
    hit(
        1 << 20,
        8,
        &[
            throughput(
                CANNED,
                "throughput, at least 0.8",
                Some(("http_get_1mib_8_clients_throughput", RatioTarget::AtLeast(0.8))),
            ),
            cpu(CANNED, "cpu, at most 1.2", Some(("http_get_1mib_8_clients_cpu_per_mib", RatioTarget::AtMost(1.2)))),
        ],
    ),
    hit(10 << 20, 1, &[throughput(CANNED, "throughput", None)]),
    put(1 << 10),
    put(1 << 20),
];

pub(super) async fn run(length: Length, machine: Machine) -> Result<BenchReport, LabError> {
    let folder = tempfile::tempdir().at(std::env::temp_dir())?;
    let node = NodeUnderTest::start(folder.path(), &toml::Table::new())?;
    let peer_program = programs::nigh_peer()?;
    let bare = PeerProcess::start(BARE, Command::new(peer_program).arg("bare-s3s"))?;
    let canned = canned::start(folder.path())?;
    let bare_signer = Signer::new("s3", "us-east-1", bare_s3s::ACCESS_KEY, bare_s3s::SECRET_KEY);
    let servers = [
        Server { name: NIGH, address: node.s3()?, pid: node.pid(), signer: Some(node.signer("s3")) },
        Server { name: BARE, address: bare.address(), pid: bare.pid(), signer: Some(bare_signer) },
        Server { name: CANNED, address: canned.address(), pid: canned.pid(), signer: None },
    ];
    let bucket = node.signer("s3").signed(Method::PUT, node.s3()?, &format!("/{BUCKET}"), &[], b"").await?;
    exchange(node.s3()?, &bucket)?;

    let mut outcome = BenchReport { machine, rows: Vec::new(), figures: Figures::default() };
    for case in &CASES {
        measure(case, &servers, length, &mut outcome).await?;
    }
    Ok(outcome)
}

fn exchange(server: SocketAddr, request: &[u8]) -> Result<(), LabError> {
    let sent = Connection::open(server).and_then(|mut connection| connection.exchange(request));
    sent.map(drop).map_err(|error| LabError::Request { what: server.to_string(), reason: error.to_string() })
}

/// The request of `case` to `server`, with the object in place; none if the server cannot take part.
async fn prepare(case: &Case, server: &Server) -> Result<Option<Vec<u8>>, LabError> {
    let path = format!("/{BUCKET}/object-{}", case.bytes);
    let Some(signer) = &server.signer else {
        let get = case.method == Method::GET;
        return Ok(
            get.then(|| format!("GET /{} HTTP/1.1\r\nhost: {}\r\n\r\n", case.bytes, server.address).into_bytes())
        );
    };
    let put = signer.signed(Method::PUT, server.address, &path, &[], &vec![b'x'; case.bytes as usize]).await?;
    exchange(server.address, &put)?;
    if case.method == Method::PUT {
        return Ok(Some(put));
    }
    signer.presigned(Method::GET, server.address, &path).await.map(Some)
}

async fn measure(case: &Case, servers: &[Server], length: Length, outcome: &mut BenchReport) -> Result<(), LabError> {
    let takes_part =
        |server: &&Server| server.name == NIGH || case.compared.iter().any(|compared| compared.peer == server.name);
    let mut contestants = Vec::new();
    for server in servers.iter().filter(takes_part) {
        if let Some(request) = prepare(case, server).await? {
            contestants.push((server, request, ServerMeasurements::default()));
        }
    }
    for _ in 0..length.rounds.max(1) {
        for (server, request, measured) in &mut contestants {
            round(server, request, case.clients, length.of_round(), measured)?;
        }
    }
    let figures = |name: &str, figure: Figure| {
        let found = contestants.iter().find(|(server, ..)| server.name == name);
        found.map(|(_, _, measured)| match figure {
            Figure::Cpu => measured.cpu_us.as_slice(),
            Figure::Throughput => measured.per_second.as_slice(),
        })
    };
    let ratio_of = |compared: &S3Comparison| {
        let (own, other) = (figures(NIGH, compared.figure)?, figures(compared.peer, compared.figure)?);
        Some(Sample::new(own.iter().zip(other).map(|(own, other)| own / other).collect()).median())
    };
    for compared in case.compared {
        if let (Some((name, asked)), Some(ratio)) = (compared.summary, ratio_of(compared)) {
            outcome.figures.add(name, ratio, asked);
        }
    }
    let rows = contestants.iter().map(|(server, _, measured)| {
        let compared = case.compared.first().filter(|_| server.name == NIGH);
        let compared = compared.and_then(|compared| Some((compared, ratio_of(compared)?)));
        let row = Row {
            clients: case.clients,
            cpu_us: Some(Sample::new(measured.cpu_us.clone()).median()),
            per_second: Sample::new(measured.per_second.clone()).median(),
            ..Row::of(case.what, server.name, case.bytes as usize, measured.latencies.clone())
        };
        match compared {
            Some((compared, ratio)) => row.beside(compared.peer, compared.says, ratio),
            None => row,
        }
    });
    outcome.rows.extend(rows);
    Ok(())
}

impl Server {
    fn cpu_time(&self) -> std::io::Result<Duration> {
        match self.signer {
            Some(_) => cpu_time::of_process(self.pid),
            // The canned server has a thread a connection: its time is gone with it.
            None => cpu_time::of_process_and_ended_threads(self.pid),
        }
    }
}

fn round(
    server: &Server,
    request: &[u8],
    clients: usize,
    length: Duration,
    measured: &mut ServerMeasurements,
) -> Result<(), LabError> {
    let failed = |error: std::io::Error| LabError::Request { what: server.name.to_owned(), reason: error.to_string() };
    let before = server.cpu_time().map_err(failed)?;
    let round = closed_loop(server.address, request, clients, length).map_err(failed)?;
    let cpu = server.cpu_time().map_err(failed)?.saturating_sub(before);
    // Each client sends one request before it begins to count.
    let requests = (round.latencies_us.len() + clients) as f64;
    measured.cpu_us.push(cpu.as_secs_f64() * 1e6 / requests);
    measured.per_second.push(requests / round.took.as_secs_f64());
    measured.latencies.extend(round.latencies_us);
    Ok(())
}
