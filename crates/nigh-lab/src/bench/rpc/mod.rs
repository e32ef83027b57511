//! Calls between processes beside what they stand on: a remote read by nigh-rpc, a hit in another node's memory, and the
//! same bytes over bare TCP and over bare rustls, turn about.
//!
//! A hit is an object that its home has in memory and the reader's node has not: from the read until the node has it in a
//! segment of its own, to be mapped by functions, and covers it. Before each round the node gives all copies up. Hits are
//! eight objects at once, beside one copy of as many bytes.
//!
//! The same again where the other process is at another machine of a zone, which is emulated (`instrument/zone`).
//!
//! Every side asks with a few bytes and receives as many as it asked for into memory that it keeps; what sends them has
//! them in memory. The bare sides are a thread each, with blocking reads and writes and rustls' own buffers; ours has the
//! command's runtime, both ends of it. The processor time is the whole process': both ends again.

mod bare;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use clap::Args;
use nigh_rpc::certificates::{Authority, CertificateError};
use nigh_rpc::{
    Call, CertificateFiles, ClientSettings, Credentials, Handler, Hello, Identity, Method, PeerAddress, Peers, Refusal,
    Reply, Role, Security, ServerSettings, serve,
};
use nigh_terms::ByteSize;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use self::bare::BareReader;
use super::members::{MemberTransport, Members};
use super::{RatioTarget, median, process_time, us};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::made_up::failed;
use crate::instrument::stats::Sample;
use crate::instrument::zone::{Link, Zone};

const CLUSTER: &str = "bench";
const DAYS: u32 = 2;
const LOCALHOST: &str = "127.0.0.1";
/// Sizes of what is read, and reads of each in a round.
const SIZES: [(&str, usize, usize); 4] =
    [("1kib", 1 << 10, 200), ("64kib", 64 << 10, 100), ("1mib", 1 << 20, 30), ("16mib", 16 << 20, 4)];
const LARGEST: usize = 16 << 20;
/// Objects that are read at once, of up to a mebibyte.
const AT_ONCE: usize = 8;
const AT_ONCE_BYTES_MAX: usize = 1 << 20;
/// A read by nigh-rpc, and a hit, over the same by its bare peer.
const ASKED: [(&str, RatioTarget); 14] = [
    ("tcp_hit_ratio_1mib", RatioTarget::AtMost(1.1)),
    ("tcp_hit_ratio_16mib", RatioTarget::AtMost(1.1)),
    ("tcp_hits_ratio_1mib", RatioTarget::AtMost(1.1)),
    ("tls_hit_ratio_1mib", RatioTarget::AtMost(1.1)),
    ("tls_hit_ratio_16mib", RatioTarget::AtMost(1.1)),
    ("tls_hits_ratio_1mib", RatioTarget::AtMost(1.1)),
    ("zone_tcp_hit_ratio_1mib", RatioTarget::AtMost(1.1)),
    ("zone_tcp_hit_ratio_16mib", RatioTarget::AtMost(1.1)),
    ("zone_tls_hit_ratio_1mib", RatioTarget::AtMost(1.1)),
    ("zone_tls_hit_ratio_16mib", RatioTarget::AtMost(1.1)),
    ("tcp_ratio_1mib", RatioTarget::AtMost(1.3)),
    ("tcp_ratio_16mib", RatioTarget::AtMost(1.3)),
    ("tls_ratio_1mib", RatioTarget::AtMost(1.3)),
    ("tls_ratio_16mib", RatioTarget::AtMost(1.3)),
];

static READ: Method = Method { number: 1, name: "read", head_max: 8, body_max: 0 };

#[derive(Clone, Debug, Args)]
pub(super) struct RpcLength {
    /// How many rounds each measurement has; nigh-rpc and its bare peer take turns
    #[arg(long, default_value_t = 25)]
    rounds: usize,
}

#[derive(Debug, Serialize)]
struct RpcRow {
    what: &'static str,
    over: &'static str,
    /// Whether the other process is at another machine, which is emulated.
    zone: bool,
    bytes: usize,
    p50_us: f64,
    p99_us: f64,
    /// Of both ends, for each read; in a zone, of what emulates it too.
    cpu_us: f64,
    bare_p50_us: f64,
    bare_p99_us: f64,
    bare_cpu_us: f64,
    /// Medians of the rounds' ratios, ours over the bare one: of medians, and of processor time.
    ratio: f64,
    cpu_ratio: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct RpcReport {
    machine: Machine,
    rows: Vec<RpcRow>,
    summary: BTreeMap<String, f64>,
    asked: BTreeMap<&'static str, RatioTarget>,
    /// Why there are no rows of a zone; none if there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_zone: Option<String>,
}

/// Answers with as many bytes as the head says.
struct BytesHandler {
    bytes: Bytes,
}

#[async_trait]
impl Handler for BytesHandler {
    fn method(&self, number: u16) -> Option<&'static Method> {
        (number == READ.number).then_some(&READ)
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Refusal> {
        let length = call.head[..].try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
        let length = usize::try_from(length).ok().filter(|length| *length <= self.bytes.len());
        let length = length.ok_or_else(|| Refusal::failed("more than there is"))?;
        Ok(Reply { head: Bytes::new(), body: self.bytes.slice(..length).into() })
    }
}

#[async_trait]
trait Reader: Send + Sync {
    /// Nothing is read yet.
    async fn begins(&self) {}

    /// Reads the next `into.len()` bytes, there or into memory of its own: how long that takes.
    async fn read(&self, number: usize, into: &mut [u8]) -> Result<Duration, LabError>;

    /// True if what was read first, or into `into`, is what there is.
    fn is_right(&self, into: &[u8]) -> Result<bool, LabError>;
}

/// Members of which the home, the first, has the objects in memory.
async fn home_with(over: (MemberTransport, Option<&Zone>), bytes: usize, objects: usize) -> Result<Members, LabError> {
    let room = ByteSize((2 * bytes * objects) as u64) + ByteSize::mib(64);
    let members = Members::start(over, bytes as u64, room).await?;
    members.bring(0, objects as u64, 0).await?;
    Ok(members)
}

/// The second, which is no home, reads.
#[async_trait]
impl Reader for Members {
    async fn begins(&self) {
        self.forget(1).await;
    }

    async fn read(&self, number: usize, _into: &mut [u8]) -> Result<Duration, LabError> {
        self.fetch(1, number as u64..number as u64 + 1).await
    }

    fn is_right(&self, into: &[u8]) -> Result<bool, LabError> {
        let (here, there) = (self.bytes(1, 0)?, self.bytes(0, 0)?);
        Ok(here.as_ref().is_some_and(|bytes| bytes.len() == into.len()) && here == there)
    }
}

/// Several of its objects at once.
struct AtOnce<'a>(&'a Members);

#[async_trait]
impl Reader for AtOnce<'_> {
    async fn begins(&self) {
        self.0.begins().await;
    }

    async fn read(&self, number: usize, _into: &mut [u8]) -> Result<Duration, LabError> {
        self.0.fetch(1, (number * AT_ONCE) as u64..((number + 1) * AT_ONCE) as u64).await
    }

    fn is_right(&self, into: &[u8]) -> Result<bool, LabError> {
        self.0.is_right(&into[..into.len() / AT_ONCE])
    }
}

/// A caller, and its server in this process.
struct NighRpc {
    bytes: Bytes,
    peers: Peers,
    peer: PeerAddress,
    _ending: tokio_util::sync::DropGuard,
}

impl NighRpc {
    async fn start(zone: Option<&Zone>, bytes: &Bytes, securities: [Security; 2]) -> Result<Self, LabError> {
        let [server, caller] = securities;
        let listener = Zone::tokio_listener(zone).map_err(|error| failed("listen", &error))?;
        let address = listener.local_addr().map_err(|error| failed("listen", &error))?;
        let handler = Arc::new(BytesHandler { bytes: bytes.clone() });
        let (ending, settings) = (CancellationToken::new(), ServerSettings::default());
        tokio::spawn(serve(listener, hello("server")?, server, settings, handler, ending.clone()));
        let peers = Peers::new(hello("caller")?, caller, ClientSettings::default());
        let peer = PeerAddress { name: "server".into(), address: address.to_string().into(), incarnation: None };
        Ok(Self { bytes: bytes.clone(), peers, peer, _ending: ending.drop_guard() })
    }
}

#[async_trait]
impl Reader for NighRpc {
    async fn read(&self, _number: usize, into: &mut [u8]) -> Result<Duration, LabError> {
        let begun = Instant::now();
        let length = (into.len() as u64).to_le_bytes();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        let answer = self.peers.call(&self.peer, &READ, &length, Bytes::new(), deadline).await;
        let mut answer = answer.map_err(|error| failed("a call", &error))?;
        answer.body.read_exact(into).await.map_err(|error| failed("an answer", &error))?;
        Ok(begun.elapsed())
    }

    fn is_right(&self, into: &[u8]) -> Result<bool, LabError> {
        Ok(into == &self.bytes[..into.len()])
    }
}

fn identity(name: &str) -> Result<Identity, LabError> {
    Identity::new(CLUSTER, Role::Node, name).map_err(|error| failed("a name", &error))
}

fn hello(name: &str) -> Result<Hello, LabError> {
    Ok(Hello { identity: identity(name)?, incarnation: 1 })
}

#[derive(Default)]
struct Side {
    latencies_us: Vec<f64>,
    cpu_us: Vec<f64>,
}

impl Side {
    /// Adds a round that began at this processor time: its median, and processor time for each read.
    fn add(&mut self, begun: Duration, latencies_us: Vec<f64>) -> (f64, f64) {
        let cpu = us(process_time() - begun) / latencies_us.len() as f64;
        let median = median(latencies_us.clone());
        self.latencies_us.extend(latencies_us);
        self.cpu_us.push(cpu);
        (median, cpu)
    }
}

/// What calls between the machines are secured by, if they are.
struct Certificates {
    files: [CertificateFiles; 2],
    _folder: tempfile::TempDir,
}

impl Certificates {
    fn issue() -> Result<Self, LabError> {
        let folder = tempfile::tempdir().at(std::env::temp_dir())?;
        let authority = Authority::create(folder.path(), CLUSTER, DAYS).map_err(refused)?;
        let issue =
            |name: &str| authority.issue(&identity(name)?, &[LOCALHOST.to_owned()], DAYS, false).map_err(refused);
        Ok(Self { files: [issue("server")?, issue("caller")?], _folder: folder })
    }

    fn securities(&self) -> Result<[Security; 2], LabError> {
        let secured = |files: &CertificateFiles| Credentials::open(files.clone()).map(Arc::new).map(Security::Tls);
        let [server, caller] = &self.files;
        Ok([secured(server).map_err(refused)?, secured(caller).map_err(refused)?])
    }
}

fn refused(error: CertificateError) -> LabError {
    failed("certificates", &error)
}

pub(super) async fn run(length: &RpcLength, machine: Machine) -> Result<RpcReport, LabError> {
    let bytes = Bytes::from((0..LARGEST).map(|at| (at % 251) as u8).collect::<Vec<_>>());
    let certificates = Certificates::issue()?;
    let rounds = length.rounds.max(1);
    let zone = Zone::make(Link::IN_A_ZONE);
    let no_zone = zone.as_ref().err().map(ToString::to_string);
    // On a thread of the runtime, as a node's calls are.
    let rows = tokio::spawn(async move {
        let mut rows = rows(None, &bytes, &certificates, rounds).await?;
        if let Ok(zone) = &zone {
            rows.extend(self::rows(Some(zone), &bytes, &certificates, rounds).await?);
        }
        Ok::<_, LabError>(rows)
    });
    let rows = rows.await.map_err(|error| failed("the bench", &error))??;
    let named = |row: &RpcRow| SIZES.iter().find(|(_, bytes, _)| *bytes == row.bytes).map_or("", |(name, ..)| *name);
    let summary = rows.iter().flat_map(|row| {
        let place = if row.zone { "zone_" } else { "" };
        let of = match row.what {
            "call" => String::new(),
            what => format!("{what}_"),
        };
        let name = |what| format!("{place}{}_{of}{what}_{}", row.over, named(row));
        [(name("ratio"), row.ratio), (name("cpu_ratio"), row.cpu_ratio)]
    });
    Ok(RpcReport { machine, summary: summary.collect(), rows, asked: ASKED.into(), no_zone })
}

/// Each kind of read of each size, with the other process in `zone` if there is one.
async fn rows(
    zone: Option<&Zone>,
    bytes: &Bytes,
    certificates: &Certificates,
    rounds: usize,
) -> Result<Vec<RpcRow>, LabError> {
    let plain = NighRpc::start(zone, bytes, [Security::Plain, Security::Plain]).await?;
    let secured = NighRpc::start(zone, bytes, certificates.securities()?).await?;
    let mut tcp = BareReader::over_tcp(zone, bytes)?;
    let mut tls = BareReader::over_tls(zone, bytes, &certificates.files)?;
    let mut rows = Vec::new();
    for (_, size, reads) in SIZES {
        let what = (zone.is_some(), size, reads);
        rows.push(compare(("call", "tcp"), what, (&plain, &mut tcp), rounds).await?);
        rows.push(compare(("call", "tls"), what, (&secured, &mut tls), rounds).await?);
        let hit = home_with((MemberTransport::Tcp, zone), size, reads).await?;
        rows.push(compare(("hit", "tcp"), what, (&hit, &mut tcp), rounds).await?);
        let hit = home_with((MemberTransport::Tls, zone), size, reads).await?;
        rows.push(compare(("hit", "tls"), what, (&hit, &mut tls), rounds).await?);
        if size > AT_ONCE_BYTES_MAX {
            continue;
        }
        let reads = reads.div_ceil(AT_ONCE);
        let what = (zone.is_some(), size * AT_ONCE, reads);
        let hits = home_with((MemberTransport::Tcp, zone), size, reads * AT_ONCE).await?;
        let row = compare(("hits", "tcp"), what, (&AtOnce(&hits), &mut tcp), rounds).await?;
        rows.push(RpcRow { bytes: size, ..row });
        let hits = home_with((MemberTransport::Tls, zone), size, reads * AT_ONCE).await?;
        let row = compare(("hits", "tls"), what, (&AtOnce(&hits), &mut tls), rounds).await?;
        rows.push(RpcRow { bytes: size, ..row });
    }
    Ok(rows)
}

/// The two sides turn about: a few reads of one, as many of the other.
async fn compare(
    (what, over): (&'static str, &'static str),
    (zone, bytes, reads): (bool, usize, usize),
    (ours, bare): (&impl Reader, &mut BareReader<impl Read + Write>),
    rounds: usize,
) -> Result<RpcRow, LabError> {
    let mut buffers = [vec![0; bytes], vec![0; bytes]];
    let (mut own, mut other) = (Side::default(), Side::default());
    let (mut ratios, mut cpu_ratios) = (Vec::new(), Vec::new());
    // The first round warms up.
    for at in 0..=rounds {
        let [into, into_bare] = &mut buffers;
        ours.begins().await;
        let (begun, mut latencies_us) = (process_time(), Vec::new());
        for number in 0..reads {
            latencies_us.push(us(ours.read(number, into).await?));
        }
        let (here, cpu_here) = own.add(begun, latencies_us);
        let (begun, mut latencies_us) = (process_time(), Vec::new());
        tokio::task::block_in_place(|| {
            for _ in 0..reads {
                let begun = Instant::now();
                bare.read(into_bare)?;
                latencies_us.push(us(begun.elapsed()));
            }
            Ok::<_, std::io::Error>(())
        })
        .map_err(|error| failed("a bare read", &error))?;
        let (there, cpu_there) = other.add(begun, latencies_us);
        if at == 0 {
            (own, other) = (Side::default(), Side::default());
        } else {
            ratios.push(here / there);
            cpu_ratios.push(cpu_here / cpu_there);
        }
    }
    if !ours.is_right(&buffers[0])? {
        return Err(failed("a read", &"other bytes were read than there are"));
    }
    let figures = |side: Side| {
        let sample = Sample::new(side.latencies_us);
        (sample.median(), sample.percentile(0.99), median(side.cpu_us))
    };
    let (ratio, cpu_ratio) = (median(ratios), median(cpu_ratios));
    let (bare_p50_us, bare_p99_us, bare_cpu_us) = figures(other);
    let (p50_us, p99_us, cpu_us) = figures(own);
    Ok(RpcRow {
        what,
        over,
        zone,
        bytes,
        p50_us,
        p99_us,
        cpu_us,
        bare_p50_us,
        bare_p99_us,
        bare_cpu_us,
        ratio,
        cpu_ratio,
    })
}
