//! A part of the run: a cluster of its own, clients, and nodes that fail one after another.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::Method;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::node_log::{NodeLogs, SETTINGS};
use super::probes::{BUCKET, NOBODY, Probe, SHARDS, probes};
use super::{Load, Way, bound_ms};
use crate::LabError;
use crate::experiment::client_calls::Caller;
use crate::experiment::cluster_faults::world::{Doors, World};
use crate::instrument::http_load::Connection;
use crate::instrument::parallel::joined;
use crate::instrument::report::name_of;

/// How long a cluster without faults may take until it is whole.
const WHOLE_WITHIN: Duration = Duration::from_secs(120);
/// The shards that each node has in a cluster that is whole, at least.
const SHARE: usize = 2;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A whole cluster is left alone for so long and up to a renewal of the leases more, so that nodes fail at any moment between
/// two renewals.
const QUIET: Duration = Duration::from_secs(2);
const RENEWAL_MS: u64 = 1000;
/// How long a failure is watched at most, and how long after every client was served.
const WATCHED_AT_MOST: Duration = Duration::from_secs(30);
const WATCHED_AFTER: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

/// One node that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Failover {
    pub(super) way: Way,
    /// It was the dispatch owner of the clients' namespace.
    pub(super) owner: bool,
    /// The longest time without an acknowledged write of a client of its shards,
    pub(super) failed_ms: f64,
    /// and of a client of other shards.
    pub(super) others_ms: f64,
    /// When the client that waited longest for a shard of its own had its answer.
    pub(super) answered_ms: f64,
    /// When each step of that shard's takeover was done.
    pub(super) steps: BTreeMap<String, f64>,
    /// When each step of the namespace's takeover was done.
    pub(super) owner_steps: BTreeMap<String, f64>,
    /// Takeovers of shards that failed and were tried again.
    pub(super) retries: usize,
    /// Of the client that waited longest beyond the bound: its shard and door, and what it was told last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trouble: Option<String>,
    /// Nodes that lost the NATS servers, so that they let all leases begin anew.
    pub(super) servers_away: usize,
}

impl Failover {
    #[cfg(test)]
    pub(super) fn none() -> Self {
        let (steps, owner_steps) = (BTreeMap::new(), BTreeMap::new());
        let (failed_ms, others_ms, answered_ms, retries, servers_away) = (0.0, 0.0, 0.0, 0, 0);
        Self {
            way: Way::Kill,
            owner: false,
            failed_ms,
            others_ms,
            answered_ms,
            steps,
            owner_steps,
            retries,
            trouble: None,
            servers_away,
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PartOutcome {
    pub(super) seconds: f64,
    pub(super) failures: Vec<Failover>,
}

impl PartOutcome {
    pub(super) fn add(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.failures.extend(other.failures);
    }
}

/// Plays a part. `told` hears of each failure, and may end it all.
pub(super) fn play(
    folder: &Path,
    (way, count, load, every): (Way, u32, Load, u64),
    handle: &Handle,
    told: impl Fn() -> Result<(), LabError>,
) -> Result<PartOutcome, LabError> {
    let begun = Instant::now();
    let mut world = World::start_direct(folder, handle, &SETTINGS)?;
    await_whole(&mut world)?;
    let doors = world.doors.clone();
    let make = format!("/{BUCKET}");
    Caller::within(&doors.s3[0], PATIENCE).call(&Method::PUT, &make, &[], b"")?.expect_done("make the bucket")?;
    let logs = world.cluster.nodes().iter_mut().map(|node| node.process().log().to_owned()).collect();
    let mut logs = NodeLogs::new(logs);
    let probes = probes(&doors.namespace, doors.s3.len());
    let (failed, stop) = (AtomicUsize::new(NOBODY), AtomicBool::new(false));
    let mut outcome = PartOutcome::default();
    let mut struck = Ok(());
    let ended = std::thread::scope(|scope| {
        let (doors, failed, stop) = (&doors, &failed, &stop);
        let every = Duration::from_millis(every);
        let clients = probes.iter().map(|probe| scope.spawn(move || probe.live(&doors.s3, every, failed, stop)));
        let mut threads: Vec<_> = clients.collect();
        if load == Load::Busy {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            threads.extend((0..processors).map(|_| scope.spawn(move || compute(stop))));
        }
        for number in 0..count {
            let failure = fail(&mut world, doors, (way, number), &mut logs, &probes, failed);
            struck = failure.and_then(|failure| {
                outcome.failures.push(failure);
                told()
            });
            if struck.is_err() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        joined(threads)
    });
    struck?;
    ended?;
    world.end();
    outcome.seconds = begun.elapsed().as_secs_f64();
    Ok(outcome)
}

/// Keeps a processor busy.
fn compute(stop: &AtomicBool) -> Result<(), LabError> {
    let mut number = 1_u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..100_000 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
    Ok(())
}

/// Lets a node fail, the dispatch owner or another by turns, and watches until all clients at living doors are served; then
/// heals it, and waits until the cluster is whole.
fn fail(
    world: &mut World,
    doors: &Doors,
    (way, number): (Way, u32),
    logs: &mut NodeLogs,
    probes: &[Probe],
    failed: &AtomicUsize,
) -> Result<Failover, LabError> {
    let owner = owner_of(doors, logs)?;
    let is_owner = number.is_multiple_of(2);
    let nodes = doors.s3.len();
    let at = if is_owner { owner } else { (owner + 1 + number as usize / 2 % (nodes - 1)) % nodes };
    world.wait(QUIET + Duration::from_millis(rand::random_range(0..RENEWAL_MS)));
    let (name, shards) = (world.cluster.nodes()[at].name().to_owned(), world.shards_of(at));
    probes.iter().for_each(Probe::forget);
    await_served(probes)?;
    failed.store(at, Ordering::Relaxed);
    let blow = Instant::now();
    let date = milliseconds_now();
    strike(world, way, at)?;
    let living = || probes.iter().filter(move |probe| probe.door != at);
    while blow.elapsed() < WATCHED_AT_MOST && !living().all(|probe| probe.is_served_since(blow)) {
        std::thread::sleep(LOOK_EVERY);
    }
    std::thread::sleep(WATCHED_AFTER);
    let end = Instant::now();
    logs.read()?;
    let is_its = |probe: &Probe| shards.iter().any(|shard| shard.0 == probe.shard);
    let longest = |own: bool| {
        let gaps = living().filter(|probe| is_its(probe) == own).map(|probe| (probe, probe.longest_gap(blow, end)));
        gaps.max_by(|(_, (_, one)), (_, (_, other))| one.total_cmp(other))
    };
    let (own, others) = (longest(true), longest(false));
    let late = own.into_iter().chain(others).filter(|(_, (_, gap))| *gap > bound_ms());
    let trouble = late.max_by(|(_, (_, one)), (_, (_, other))| one.total_cmp(other)).map(|(probe, _)| probe.trouble());
    let steps = own.map(|(probe, _)| logs.shard_steps(probe.shard, (at, &name), date)).unwrap_or_default();
    let (answered_ms, failed_ms) = own.map(|(_, gap)| gap).unwrap_or_default();
    let failure = Failover {
        way,
        owner: is_owner,
        failed_ms,
        others_ms: others.map(|(_, (_, gap))| gap).unwrap_or_default(),
        answered_ms,
        steps,
        owner_steps: logs.owner_steps((at, &name), date),
        retries: logs.count("failed", at, date),
        trouble,
        servers_away: logs.count("servers_back", at, date),
    };
    heal(world, way, at)?;
    await_whole(world)?;
    failed.store(NOBODY, Ordering::Relaxed);
    Ok(failure)
}

/// Waits until every client is served: what it waits for later is this failure's doing.
fn await_served(probes: &[Probe]) -> Result<(), LabError> {
    let begun = Instant::now();
    while let Some(waiting) = probes.iter().find(|probe| !probe.is_served_since(begun)) {
        if begun.elapsed() > WHOLE_WITHIN {
            return Err(LabError::Node(format!(
                "no node has failed, and a client is not served: {}",
                waiting.trouble()
            )));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn milliseconds_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64() * 1000.0)
}

fn failure_of(way: Way) -> impl Fn(std::io::Error) -> LabError {
    move |error| LabError::Node(format!("{}: {error}", name_of(&way)))
}

fn strike(world: &mut World, way: Way, at: usize) -> Result<(), LabError> {
    let node = &mut world.cluster.nodes()[at];
    let machine = node.machine();
    let done = match way {
        Way::Kill => node.process().kill(),
        Way::Stop => node.process().stop(),
        Way::Cut => match world.cluster.network() {
            Some(network) => network.cut_off(machine),
            None => Err(std::io::Error::other("the cluster has no networks")),
        },
    };
    done.map_err(failure_of(way))
}

fn heal(world: &mut World, way: Way, at: usize) -> Result<(), LabError> {
    let node = &mut world.cluster.nodes()[at];
    let machine = node.machine();
    let done = match way {
        Way::Kill => node.process().run(),
        Way::Stop => node.process().go_on(),
        Way::Cut => match world.cluster.network() {
            Some(network) => network.reconnect(machine),
            None => Err(std::io::Error::other("the cluster has no networks")),
        },
    };
    done.map_err(failure_of(way))
}

/// The node that owns the dispatch of the clients' namespace. If nobody does, an invocation makes one of them the owner.
fn owner_of(doors: &Doors, logs: &mut NodeLogs) -> Result<usize, LabError> {
    let begun = Instant::now();
    loop {
        logs.read()?;
        if let Some(owner) = logs.owner() {
            return Ok(owner);
        }
        if begun.elapsed() > WHOLE_WITHIN {
            return Err(LabError::Node("no node becomes the dispatch owner of the clients' namespace".to_owned()));
        }
        // There is no such function, which its owner alone can tell.
        let (server, path) = (doors.lambda[0], "/2015-03-31/functions/nothing/invocations");
        let signed = doors.lambda_signer.signed(Method::POST, server, path, &[], b"{}");
        let request = doors.handle.block_on(signed)?;
        let _answered = Connection::open_within(server, PATIENCE).and_then(|mut connection| connection.fetch(&request));
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Waits until every node knows every other and has its share of the shards.
fn await_whole(world: &mut World) -> Result<(), LabError> {
    let begun = Instant::now();
    while begun.elapsed() < WHOLE_WITHIN {
        let nodes = world.cluster.nodes().len();
        if world.recovered(usize::from(SHARDS)) && (0..nodes).all(|node| world.shards_of(node).len() >= SHARE) {
            return Ok(());
        }
        world.wait(LOOK_EVERY);
    }
    Err(LabError::Node(format!("the cluster is not whole after {} s", WHOLE_WITHIN.as_secs())))
}
