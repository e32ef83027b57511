//! Objects by each way there is: boto3 by the hook beside boto3 and MinIO, the clients of the fast path beside redis-py
//! with hiredis over a Unix socket. The stores are real ones in processes of their own, on one disk.
//!
//! All that are compared take turns in every round, so that they meet the same weather; a ratio is the median of the
//! rounds' ratios of medians. What a get over HTTP costs the server is `nigh bench s3`'s to say.

mod contestant;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use nigh_client::Address;
use serde::Serialize;

use self::contestant::{Client, Contestant, PROGRAM, PythonClient, native_module};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, python, set};
use crate::instrument::peer::installed::{client_version, python_clients};
use crate::instrument::peer::redis::Redis;
use crate::instrument::peer::s3_server::S3Server;
use crate::instrument::peer::{self, Peer, PeerError};
use crate::instrument::platform::runtime_name;
use crate::instrument::stats::Sample;

const HOOK: &str = "boto3 by the hook";
const MINIO: &str = "boto3 + MinIO";
const PYTHON: &str = "nigh.Client";
const REDIS: &str = "redis-py + hiredis";
const RUST: &str = "nigh-client (Rust)";

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Of Nigh's cache: every object, and the bodies on their way in.
const CACHE: &str = "1 GiB";
/// A quick run has so many times fewer calls a round, and at least `CALLS_MIN`.
const QUICK: usize = 4;
const CALLS_MIN: usize = 2;
const QUICK_ROUNDS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Op {
    /// A get of the bytes: a copy that is the caller's.
    Read,
    /// A get of a view of the bytes where they lie; the first is looked at.
    View,
    /// A put, acknowledged as the store acknowledges: Nigh's when it is durable in the journal.
    Put,
}

type Way = (&'static str, Op);

/// Ways that take turns, and what is compared.
struct Group {
    bytes: u64,
    calls: usize,
    ways: &'static [Way],
    compared: &'static [ObjectsComparison],
}

struct ObjectsComparison {
    name: &'static str,
    own: Way,
    peer: Way,
    asked: f64,
}

const fn compared(name: &'static str, own: Way, peer: Way, asked: f64) -> ObjectsComparison {
    ObjectsComparison { name, own, peer, asked }
}

/// The ways of the clients' groups.
const CLIENTS: &[Way] =
    &[(PYTHON, Op::View), (PYTHON, Op::Read), (RUST, Op::View), (RUST, Op::Read), (REDIS, Op::Read)];

macro_rules! clients {
    ($bytes:expr, $calls:expr, $mapped:literal, $copied:literal, $rust:literal, $asked:expr) => {
        Group {
            bytes: $bytes,
            calls: $calls,
            ways: CLIENTS,
            compared: &[
                compared($mapped, (PYTHON, Op::View), (REDIS, Op::Read), $asked),
                compared($copied, (PYTHON, Op::Read), (REDIS, Op::Read), 1.0),
                compared($rust, (RUST, Op::View), (REDIS, Op::Read), 1.0),
            ],
        }
    };
}

/// Puts last: what they leave to be written behind is done beside nothing else that is measured.
const GROUPS: [Group; 8] = [
    Group {
        bytes: KIB,
        calls: 60,
        ways: &[(HOOK, Op::Read), (MINIO, Op::Read)],
        compared: &[compared("boto3_get_1kib", (HOOK, Op::Read), (MINIO, Op::Read), 8.0)],
    },
    Group {
        bytes: 10 * MIB,
        calls: 8,
        ways: &[(HOOK, Op::Read), (HOOK, Op::View), (MINIO, Op::Read)],
        compared: &[
            compared("boto3_get_10mib_read", (HOOK, Op::Read), (MINIO, Op::Read), 10.0),
            compared("boto3_get_10mib_view", (HOOK, Op::View), (MINIO, Op::Read), 80.0),
        ],
    },
    clients!(KIB, 200, "client_1kib_mapped", "client_1kib_copied", "rust_1kib_mapped", 1.0),
    clients!(16 * KIB, 200, "client_16kib_mapped", "client_16kib_copied", "rust_16kib_mapped", 1.0),
    clients!(128 * KIB, 200, "client_128kib_mapped", "client_128kib_copied", "rust_128kib_mapped", 1.0),
    clients!(MIB, 60, "client_1mib_mapped", "client_1mib_copied", "rust_1mib_mapped", 10.0),
    clients!(10 * MIB, 10, "client_10mib_mapped", "client_10mib_copied", "rust_10mib_mapped", 10.0),
    Group {
        bytes: 10 * MIB,
        calls: 4,
        ways: &[(HOOK, Op::Put), (MINIO, Op::Put)],
        compared: &[compared("boto3_put_10mib", (HOOK, Op::Put), (MINIO, Op::Put), 4.0)],
    },
];

#[derive(Clone, Debug, Args)]
pub(super) struct ObjectsLength {
    /// How many rounds each measurement has; the compared systems take turns within a round
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Run only two rounds of few calls, to test that the benchmark works
    #[arg(long)]
    quick: bool,
    /// A folder on the disk that the stores should use [default: the folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct ObjectsRow {
    path: &'static str,
    op: Op,
    bytes: u64,
    p50_us: f64,
    p99_us: f64,
    /// Processor time of client and server for each call: the median of the rounds.
    cpu_us: f64,
    /// Beside whom; none for a peer.
    peer: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct SkippedPath {
    path: &'static str,
    reason: String,
}

#[derive(Debug, Serialize)]
pub(super) struct ObjectsReport {
    machine: Machine,
    /// Figures of a build that checks itself are not those of a release.
    debug_assertions: bool,
    rows: Vec<ObjectsRow>,
    /// How many times faster than the peer, by name; null without the peer.
    summary: BTreeMap<&'static str, Option<f64>>,
    asked: BTreeMap<&'static str, f64>,
    skipped: Vec<SkippedPath>,
}

/// One way's measurements; a value a round, but for the latencies.
#[derive(Default)]
struct WayMeasurements {
    latencies_us: Vec<f64>,
    medians_us: Vec<f64>,
    cpu_us: Vec<f64>,
}

/// The servers and clients of one run. Clients end before their servers.
struct Stage {
    contestants: Vec<Contestant>,
    skipped: Vec<SkippedPath>,
    _servers: (NodeUnderTest, Option<S3Server>, Option<Redis>),
}

pub(super) fn run(length: &ObjectsLength, mut machine: Machine) -> Result<ObjectsReport, LabError> {
    let parent = length.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::tempdir_in(&parent).at(&parent)?;
    let mut stage = Stage::set(folder.path(), &mut machine)?;
    let (mut rows, mut summary, mut asked) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let rounds = if length.quick { QUICK_ROUNDS } else { length.rounds.max(1) };
    for group in &GROUPS {
        let calls = if length.quick { (group.calls / QUICK).max(CALLS_MIN) } else { group.calls };
        let measured = stage.measure(group, rounds, calls)?;
        for compared in group.compared {
            asked.insert(compared.name, compared.asked);
            summary.insert(compared.name, faster(&measured, compared));
        }
        rows.extend(measured.iter().map(|(way, measured)| row(group, *way, measured)));
    }
    stage.check_ways()?;
    let debug_assertions = cfg!(debug_assertions);
    Ok(ObjectsReport { machine, debug_assertions, rows, summary, asked, skipped: stage.skipped })
}

/// The median of the rounds' ratios; none if one of the two was not measured.
fn faster(measured: &[(Way, WayMeasurements)], compared: &ObjectsComparison) -> Option<f64> {
    let of = |way: Way| measured.iter().find(|(found, _)| *found == way).map(|(_, measured)| &measured.medians_us);
    let ratios = of(compared.peer)?.iter().zip(of(compared.own)?).map(|(peer, own)| peer / own);
    Some(Sample::new(ratios.collect()).median())
}

fn row(group: &Group, (path, op): Way, measured: &WayMeasurements) -> ObjectsRow {
    let latencies = Sample::new(measured.latencies_us.clone());
    let compared = group.compared.iter().find(|compared| compared.own == (path, op));
    ObjectsRow {
        path,
        op,
        bytes: group.bytes,
        p50_us: latencies.median(),
        p99_us: latencies.percentile(0.99),
        cpu_us: Sample::new(measured.cpu_us.clone()).median(),
        // Rust's copy is compared with nothing, and is no peer.
        peer: compared.map(|compared| compared.peer.0).or((path == RUST).then_some(REDIS)),
    }
}

/// What was started, or that it is not installed.
fn if_installed<T>(
    path: &'static str,
    started: Result<T, PeerError>,
    skipped: &mut Vec<SkippedPath>,
) -> Result<Option<T>, LabError> {
    Ok(peer::if_installed(started, |reason| skipped.push(SkippedPath { path, reason }))?)
}

fn package() -> Result<PathBuf, LabError> {
    let path = std::env::current_dir().unwrap_or_default().join("runtimes/python");
    if path.join("nigh/hook.py").exists() {
        Ok(path)
    } else {
        let hint = "run the bench in the project's folder";
        Err(LabError::Missing { missing: path.display().to_string(), hint })
    }
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl Stage {
    fn set(folder: &Path, machine: &mut Machine) -> Result<Self, LabError> {
        let (python, package) = (python()?, package()?);
        let program = folder.join("objects_client.py");
        std::fs::write(&program, PROGRAM).at(&program)?;
        let mut skipped = Vec::new();

        // It acknowledges writes from its journal, and keeps all objects of a run in memory.
        let mut settings = toml::Table::new();
        set(&mut settings, &[("cache.bytes", CACHE), ("writes.mode", "lazy")]);
        let node = NodeUnderTest::start(folder, &settings)?;
        let fast = node.endpoints.fast_socket.clone();
        let fast = fast.ok_or_else(|| LabError::Node("it has no fast path".to_owned()))?;
        let s3 = node.s3_access();
        let own = |python_path: PathBuf| {
            let more = [
                ("NIGH_FAST_PATH", text_of(&fast)),
                ("NIGH_NATIVE", native_module()),
                ("PYTHONPATH", text_of(&python_path)),
            ];
            s3.environment().into_iter().chain(more.map(|(name, value)| (name.to_owned(), value)))
        };
        let client = |path, store: &str, environment: &mut dyn Iterator<Item = (String, String)>| {
            PythonClient::start(path, &python, &program, store, environment)
        };
        let by_hook = client(HOOK, "boto3", &mut own(package.join("site")))?;
        let mut hook = Contestant { path: HOOK, client: Client::Python(by_hook), servers: vec![node.pid()] };
        // It makes the bucket, which the others find.
        hook.prepare(KIB)?;
        let mut by_python = client(PYTHON, "nigh", &mut own(package))?;
        machine.peers.insert("Nigh's Python client".to_owned(), by_python.kind()?);
        let by_rust =
            nigh_client::Client::connect(&Address::File(fast.clone()), &s3.access_key, s3.secret_key.reveal())
                .of_node()?;
        let mut contestants = vec![
            hook,
            Contestant { path: PYTHON, client: Client::Python(by_python), servers: vec![node.pid()] },
            Contestant { path: RUST, client: Client::Rust(by_rust), servers: vec![node.pid()] },
        ];

        let minio = if_installed(MINIO, S3Server::minio(&folder.join("minio")), &mut skipped)?;
        if let Some(minio) = &minio {
            machine.add_peer(minio);
            let by_boto3 = client(MINIO, "boto3", &mut minio.s3().environment().into_iter())?;
            let client = Client::Python(by_boto3);
            contestants.push(Contestant { path: MINIO, client, servers: minio.processes() });
        }
        let redis = if_installed(REDIS, Redis::start(&folder.join("redis")), &mut skipped)?;
        let clients = match &redis {
            Some(_) => if_installed(REDIS, python_clients(&runtime_name()?), &mut skipped)?,
            None => None,
        };
        if let (Some(redis), Some(clients)) = (&redis, clients) {
            machine.add_peer(redis);
            for package in ["redis", "hiredis"] {
                machine.peers.insert(format!("Python's {package}"), client_version(package).to_owned());
            }
            let environment = [
                ("NIGH_LAB_REDIS_SOCKET", text_of(redis.socket())),
                ("NIGH_LAB_REDIS_PASSWORD", redis.password().reveal().to_owned()),
                ("PYTHONPATH", text_of(&clients)),
            ];
            let mut environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value));
            let client = Client::Python(client(REDIS, "redis", &mut environment)?);
            contestants.push(Contestant { path: REDIS, client, servers: redis.processes() });
        }
        Ok(Self { contestants, skipped, _servers: (node, minio, redis) })
    }

    fn contestant(&mut self, path: &str) -> Option<&mut Contestant> {
        self.contestants.iter_mut().find(|contestant| contestant.path == path)
    }

    fn measure(&mut self, group: &Group, rounds: usize, calls: usize) -> Result<Vec<(Way, WayMeasurements)>, LabError> {
        let mut measured: Vec<(Way, WayMeasurements)> = Vec::new();
        for &way in group.ways {
            if let Some(contestant) = self.contestant(way.0) {
                contestant.prepare(group.bytes)?;
                measured.push((way, WayMeasurements::default()));
            }
        }
        for _ in 0..rounds {
            for ((path, op), measured) in &mut measured {
                let Some(contestant) = self.contestant(path) else { continue };
                let done = contestant.call(*op, group.bytes, calls)?;
                measured.medians_us.push(Sample::new(done.latencies_us.clone()).median());
                measured.cpu_us.push(done.cpu_us);
                measured.latencies_us.extend(done.latencies_us);
            }
        }
        Ok(measured)
    }

    /// That every call of boto3's by the hook went the fast way: else something else was measured.
    fn check_ways(&mut self) -> Result<(), LabError> {
        let Some(hook) = self.contestant(HOOK) else { return Ok(()) };
        let ways = hook.ways()?;
        let is_filled = |name: &str| ways[name].as_object().is_some_and(|counts| !counts.is_empty());
        if is_filled("fast") && !is_filled("http") {
            return Ok(());
        }
        Err(LabError::Request { what: HOOK.to_owned(), reason: format!("calls went over HTTP: {ways}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(medians_us: &[f64]) -> WayMeasurements {
        WayMeasurements { medians_us: medians_us.to_vec(), ..WayMeasurements::default() }
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_and_absent_without_the_peer() {
        let compared = &GROUPS[0].compared[0];
        let mut measured =
            vec![(compared.own, rounds(&[1.0, 2.0, 100.0])), (compared.peer, rounds(&[9.0, 20.0, 300.0]))];
        assert_eq!(faster(&measured, compared), Some(9.0));
        measured.pop();
        assert_eq!(faster(&measured, compared), None);
    }

    #[test]
    fn every_comparison_has_a_name_of_its_own_and_is_of_ways_that_are_measured() {
        let mut names = Vec::new();
        for group in &GROUPS {
            for compared in group.compared {
                assert!(group.ways.contains(&compared.own) && group.ways.contains(&compared.peer), "{}", compared.name);
                names.push(compared.name);
            }
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), count), (19, 19));
    }
}
