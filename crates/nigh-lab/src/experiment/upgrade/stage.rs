//! One plan: a cluster of its own, clients that never stop, and nodes that are replaced one after another.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nigh_node::credentials;
use nigh_node::local_cluster::{LocalCluster, LocalClusterSettings, Process, find_nats_server};
use nigh_node::state_folder::StatePaths;
use nigh_node::status::Status;
use serde_json::json;
use tokio::runtime::Handle;

use super::older::Releases;
use super::plan::{Release, Step, plan};
use super::readiness::{Front, WatchedNode, follow, says_its_health};
use super::tally::{Outcome, Verification, read};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::node_under_test::{python, socket_address};
use crate::instrument::tcp_relay::TcpRelay;

pub(super) const NODES: usize = 3;
/// Addresses of the clients with boto3's defaults.
const FRONTS: usize = 2;
/// The clients, by the names of their files.
const CLIENTS: [&str; 2] = ["retrying", "ready"];
const LOAD: &str = include_str!("load.py");
const SETTINGS: [&str; 9] = [
    "cache.bytes=48 MiB",
    "functions.memory=768 MiB",
    "functions.sandboxes_max=6",
    "functions.prewarm=off",
    "functions.network=permitted",
    "memory.grants=off",
    "llc.policy=off",
    "writes.delay=300 ms",
    "drain=20 s",
];

/// How long a node may take to start, to end, and the cluster to be whole.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long an older program may take to refuse.
const REFUSES_WITHIN: Duration = Duration::from_secs(60);
/// How long clients may take to end when they send nothing new.
const CLIENTS_END_WITHIN: Duration = Duration::from_secs(180);
/// An older program does not say that it ends: it gets no new requests for this long before.
const OUT_FOR: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What decides a plan's outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanParameters {
    pub(super) seed: u64,
    /// Requests in a second of each kind of client.
    pub(super) rate: f64,
    /// How long the load goes on between two steps.
    pub(super) hold: Duration,
}

/// A client program, killed when dropped.
struct Client(Child);

impl Client {
    fn start(python: &Path, folder: &Path, kind: &str) -> Result<Self, LabError> {
        let log = folder.join(format!("{kind}.log"));
        let file = std::fs::File::create(&log).at(&log)?;
        let mut command = Command::new(python);
        command.arg(folder.join("load.py")).arg(kind).arg(folder).stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Self(command.stderr(file).spawn().at(python)?))
    }

    /// Ends it when its last request is answered. False if that takes too long.
    fn end(mut self) -> Result<bool, LabError> {
        drop(self.0.stdin.take());
        let begun = Instant::now();
        while begun.elapsed() < CLIENTS_END_WITHIN {
            if let Some(status) = self.0.try_wait().of_node()? {
                return Ok(status.success());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(false)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the load program to its end, with the words `what`. Its output.
fn run_load(python: &Path, folder: &Path, what: &str) -> Result<Vec<u8>, LabError> {
    let output = Command::new(python).arg(folder.join("load.py")).arg(what).arg(folder).output().at(python)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::Request { what: format!("load.py {what}"), reason })
}

/// The cluster, and what is done to it. To be used by one thread, which outlives its processes.
struct Stage<'a> {
    cluster: LocalCluster,
    releases: &'a Releases,
    handle: &'a Handle,
    hold: Duration,
}

impl Stage<'_> {
    fn statuses(&mut self) -> Vec<Option<Status>> {
        let handle = self.handle;
        self.cluster.nodes().iter().map(|node| handle.block_on(node.status())).collect()
    }

    /// Waits until every node sees all others, and every shard has a home.
    fn await_whole(&mut self) -> Result<(), LabError> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let statuses: Vec<Status> = self.statuses().into_iter().flatten().collect();
            let clusters: Vec<_> = statuses.iter().filter_map(|status| status.cluster.as_ref()).collect();
            let homes: Vec<_> = clusters.iter().filter_map(|cluster| cluster.homes.as_ref()).collect();
            let served: usize = homes.iter().map(|homes| homes.own.len()).sum();
            let is_whole = homes.len() == NODES
                && clusters.iter().all(|cluster| cluster.members.len() == NODES)
                && homes.iter().all(|homes| usize::from(homes.shards) == served);
            if is_whole {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(LabError::Node(format!("the cluster is not whole after {} s", PATIENCE.as_secs())))
    }

    fn process(&mut self, node: usize) -> &mut Process {
        self.cluster.nodes()[node].process()
    }

    /// Runs the newer command at a node.
    fn command(&mut self, node: usize, words: &[&str]) -> Result<(), LabError> {
        let state = self.cluster.nodes()[node].state().to_owned();
        let program = &self.releases.newer;
        let output = Command::new(program).args(words).arg("--state").arg(state).output().at(program)?;
        if output.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(LabError::Request { what: format!("nigh {}", words.join(" ")), reason })
    }

    /// Ends a node in order.
    fn end(&mut self, node: usize, watched: &[WatchedNode], outcome: &mut Outcome) -> Result<(), LabError> {
        if !says_its_health(&watched[node].state) {
            watched[node].is_out.store(true, Ordering::Relaxed);
            std::thread::sleep(OUT_FOR);
        }
        let process = self.process(node);
        process.ask_to_end().of_node()?;
        if !process.wait(PATIENCE) {
            outcome.violations.push(format!("node-{} did not end within {} s", node + 1, PATIENCE.as_secs()));
        }
        Ok(())
    }

    /// Starts a node with this program, and waits until the cluster is whole.
    fn start(&mut self, node: usize, with: Release, watched: &[WatchedNode]) -> Result<(), LabError> {
        let program = match with {
            Release::Older => self.releases.older.clone(),
            Release::Newer => self.releases.newer.clone(),
        };
        let process = self.process(node);
        process.set_program(&program, Vec::new());
        process.run().of_node()?;
        self.await_whole()?;
        watched[node].is_out.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn play(&mut self, step: Step, watched: &[WatchedNode], outcome: &mut Outcome) -> Result<(), LabError> {
        match step {
            Step::Replace { node, with, drains } => {
                let name = format!("node-{}", node + 1);
                if drains {
                    self.command(node, &["cluster", "drain", &name, "--deadline", "2 min"])?;
                }
                self.end(node, watched, outcome)?;
                self.start(node, with, watched)?;
                if drains {
                    self.command(node, &["cluster", "uncordon", &name])?;
                }
            }
            Step::Finalize => self.command(0, &["cluster", "finalize"])?,
            Step::TryOlder { node } => {
                self.end(node, watched, outcome)?;
                let older = self.releases.older.clone();
                let process = self.process(node);
                process.set_program(&older, Vec::new());
                process.run().of_node()?;
                if !process.wait(REFUSES_WITHIN) {
                    let why = format!("node-{}: an older program joined a cluster of a newer format", node + 1);
                    outcome.violations.push(why);
                }
                self.start(node, Release::Newer, watched)?;
            }
        }
        std::thread::sleep(self.hold);
        Ok(())
    }
}

/// What the clients must know, and the nodes as balancers see them.
fn doors(
    stage: &mut Stage<'_>,
    folder: &Path,
    fronts: &[Front],
    parameters: PlanParameters,
) -> Result<Vec<WatchedNode>, LabError> {
    let statuses: Vec<Status> = stage.statuses().into_iter().flatten().collect();
    let states: Vec<PathBuf> = stage.cluster.nodes().iter().map(|node| node.state().to_owned()).collect();
    let first = statuses.first().ok_or_else(|| LabError::Node("no node answers".to_owned()))?;
    let namespace = first.endpoints.namespace.as_str();
    let keys = states.iter().find_map(|state| credentials::read(&StatePaths::new(state).credentials(), namespace).ok());
    let keys = keys.ok_or_else(|| LabError::Node("no node has the first key".to_owned()))?;
    let python =
        first.levels.iter().find(|level| level.name == "python").and_then(|level| level.detail.split(' ').next());
    let of_front = |front: &Front| {
        let url = |relay: &TcpRelay| format!("http://127.0.0.1:{}", relay.port());
        json!({ "s3": url(&front.s3), "lambda": url(&front.lambda) })
    };
    let of_node = |status: &Status| json!({ "s3": status.endpoints.s3, "lambda": status.endpoints.lambda });
    let cluster = json!({
        "seed": parameters.seed,
        "rate": parameters.rate,
        "fronts": fronts.iter().map(of_front).collect::<Vec<_>>(),
        "nodes": statuses.iter().map(of_node).collect::<Vec<_>>(),
        "access_key": keys.access_key.as_str(),
        "secret_key": keys.secret_key.reveal(),
        "region": first.endpoints.region,
        "runtime": python.unwrap_or_default(),
    });
    let file = folder.join("cluster.json");
    std::fs::write(&file, cluster.to_string()).at(&file)?;
    let watched = states.into_iter().zip(&statuses).map(|(state, status)| {
        let (s3, lambda) = (socket_address(&status.endpoints.s3)?, socket_address(&status.endpoints.lambda)?);
        Ok(WatchedNode { state, s3, lambda, is_out: AtomicBool::new(false) })
    });
    watched.collect()
}

/// Plays a plan in `folder`. `told` hears of each step, and may end it all.
pub(super) fn play(
    folder: &Path,
    releases: &Releases,
    parameters: PlanParameters,
    handle: &Handle,
    told: impl Fn(Step) -> Result<(), LabError>,
) -> Result<Outcome, LabError> {
    let begun = Instant::now();
    let missing = "nats-server".to_owned();
    let nats_server = find_nats_server().ok_or(LabError::Missing { missing, hint: "run `make peers` first" })?;
    let python = python()?;
    let load = folder.join("load.py");
    std::fs::write(&load, LOAD).at(&load)?;
    let mut set: Vec<String> = SETTINGS.iter().map(|one| (*one).to_owned()).collect();
    set.push(format!("functions.python={}", python.display()));
    set.extend(releases.set.iter().cloned());
    let settings = LocalClusterSettings {
        folder: folder.join("cluster"),
        nodes: NODES as u8,
        program: releases.older.clone(),
        nats_server,
        networks: false,
        set,
        relays: Vec::new(),
    };
    let cluster = handle.block_on(LocalCluster::start(&settings, PATIENCE)).of_node()?;
    let mut stage = Stage { cluster, releases, handle, hold: parameters.hold };
    stage.await_whole()?;
    let relay = || handle.block_on(TcpRelay::start()).of_node();
    let front = |_| Ok(Front { s3: relay()?, lambda: relay()? });
    let fronts = (0..FRONTS).map(front).collect::<Result<Vec<Front>, LabError>>()?;
    let watched = doors(&mut stage, folder, &fronts, parameters)?;
    run_load(&python, folder, "setup")?;
    let mut outcome = Outcome::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| follow(folder, &watched, &fronts, &stop));
        let played = upgraded(&mut stage, folder, &python, parameters.seed, &watched, &mut outcome, &told);
        stop.store(true, Ordering::Relaxed);
        let followed = follower.join().unwrap_or_else(|_| Err(LabError::Node("the balancer panicked".to_owned())));
        played.and(followed)
    })?;
    for client in CLIENTS {
        let file = folder.join(format!("{client}.jsonl"));
        outcome.count(client, read(&std::fs::read_to_string(&file).at(&file)?)?);
    }
    let verification: Verification = serde_json::from_slice(&run_load(&python, folder, "verify")?).of_node()?;
    outcome.verified(verification);
    stage.cluster.end(PATIENCE);
    outcome.seconds = begun.elapsed().as_secs_f64();
    Ok(outcome)
}

/// Plays the steps while the clients send.
fn upgraded(
    stage: &mut Stage<'_>,
    folder: &Path,
    python: &Path,
    seed: u64,
    watched: &[WatchedNode],
    outcome: &mut Outcome,
    told: &impl Fn(Step) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let begun = Instant::now();
    while !folder.join("ready.json").is_file() {
        if begun.elapsed() > PATIENCE {
            return Err(LabError::Node("nobody says which nodes are ready".to_owned()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let clients: Result<Vec<Client>, LabError> =
        CLIENTS.iter().map(|kind| Client::start(python, folder, kind)).collect();
    let clients = clients?;
    std::thread::sleep(stage.hold);
    for step in plan(seed, NODES) {
        told(step)?;
        stage.play(step, watched, outcome)?;
        outcome.steps += 1;
    }
    for (client, kind) in clients.into_iter().zip(CLIENTS) {
        if !client.end()? {
            outcome.violations.push(format!("the {kind} clients did not end in order; see {kind}.log"));
        }
    }
    Ok(())
}
