//! The cluster under test, and the hands that hurt and heal it.

use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nigh_node::local_cluster::{LocalCluster, LocalClusterSettings, Network, Process, ProcessEvent, find_nats_server};
use nigh_node::status::Status;
use nigh_terms::{Namespace, ShardId};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::NODES;
use super::plan::{Kind, SERVERS, Strike, Wiring};
use crate::LabError;
use crate::experiment::client_calls::{Caller, Door};
use crate::instrument::error::Tried;
use crate::instrument::node_under_test::{python, signer_of, socket_address};
use crate::instrument::programs;
use crate::instrument::report::name_of;
use crate::instrument::sign::Signer;
use crate::instrument::tcp_relay::{TcpRelay, Weather};

const PATIENCE: Duration = Duration::from_secs(120);
const DRAIN: Duration = Duration::from_secs(20);
/// A node that says nothing of itself for so long says nothing.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
const TENDED_EVERY: Duration = Duration::from_millis(100);
/// During a takeover the second node dies so long, and half of the fault's length, after the first.
const TAKEOVER: Duration = Duration::from_millis(500);
/// Of the file system that a node's state has for itself.
const DISK: &str = "256m";
/// What a node of a small cluster on one machine may take.
const SETTINGS: [&str; 9] = [
    "cache.bytes=48 MiB",
    "functions.memory=768 MiB",
    "functions.sandboxes_max=6",
    "functions.prewarm=off",
    "functions.network=permitted",
    "memory.grants=off",
    "llc.policy=off",
    "writes.delay=300 ms",
    "drain=5 s",
];

/// The file system of one node's state, unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: PathBuf) -> Result<Self, LabError> {
        fs::create_dir_all(&path).at(&path)?;
        run("mount", &["-t", "tmpfs", "-o", &format!("size={DISK},mode=700"), "nigh-faults", &path.to_string_lossy()])?;
        Ok(Self(path))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Leaves not a byte.
    fn fill(&self) -> io::Result<()> {
        let mut file = fs::File::create(self.filler())?;
        let piece = vec![0_u8; 1 << 20];
        loop {
            match file.write_all(&piece) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a process that was killed just now may still have a file open.
        let _ = run("umount", &["-l", &self.0.to_string_lossy()]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), LabError> {
    let failed = |reason: String| LabError::Node(format!("{program} {}: {reason}", arguments.join(" ")));
    let done = Command::new(program).args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if done.status.success() { Ok(()) } else { Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_owned())) }
}

/// Whether the kernel of this machine can spoil packets.
pub(super) fn has_netem() -> bool {
    let name = format!("nighprobe{}", std::process::id());
    let in_namespace = || -> Result<(), LabError> {
        run("tc", &["-n", &name, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])
    };
    let made = run("ip", &["netns", "add", &name]).is_ok();
    let has = made && in_namespace().is_ok();
    if made {
        // The probe is nobody else's.
        let _ = run("ip", &["netns", "del", &name]);
    }
    has
}

/// All nodes' doors, the same in all their lives, and who asks there.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Doors {
    pub(in crate::experiment) s3: Vec<Door>,
    pub(in crate::experiment) lambda: Vec<SocketAddr>,
    pub(in crate::experiment) lambda_signer: Signer,
    pub(in crate::experiment) namespace: Namespace,
    pub(in crate::experiment) handle: Handle,
}

impl Doors {
    /// A client of each S3 door.
    pub(super) fn callers(&self, patience: Duration) -> Vec<Caller<'_>> {
        self.s3.iter().map(|door| Caller::within(door, patience)).collect()
    }
}

/// What begins a fault, or what ends it.
struct Hands {
    end: fn(&mut Process) -> io::Result<()>,
    halt: fn(&mut Process) -> io::Result<()>,
    cut: fn(&Network, usize) -> io::Result<()>,
    part: fn(&Network, usize, usize) -> io::Result<()>,
}

/// The cluster. To be made, hurt and dropped by one thread that lives as long as it does.
pub(in crate::experiment) struct World {
    pub(in crate::experiment) cluster: LocalCluster,
    relays: Vec<TcpRelay>,
    pub(in crate::experiment) doors: Doors,
    /// Lives that ended by themselves: of nodes whose life as a member was over.
    pub(super) ended_by_itself: u64,
    /// After the processes.
    disks: Vec<Disk>,
}

impl World {
    /// Starts servers, a store and nodes below `folder`. Blocks for many seconds.
    pub(super) fn start(folder: &Path, wiring: Wiring, handle: &Handle) -> Result<Self, LabError> {
        Self::start_with(folder, wiring, handle, &[])
    }

    /// The same without relays, and with `more` settings of each node.
    pub(in crate::experiment) fn start_direct(folder: &Path, handle: &Handle, more: &[&str]) -> Result<Self, LabError> {
        Self::start_with(folder, Wiring::Direct, handle, more)
    }

    fn start_with(folder: &Path, wiring: Wiring, handle: &Handle, more: &[&str]) -> Result<Self, LabError> {
        let missing = "nats-server".to_owned();
        let nats_server = find_nats_server().ok_or(LabError::Missing { missing, hint: "run `make peers` first" })?;
        let program = programs::nigh()?;
        let disks: Result<Vec<Disk>, LabError> =
            (1..=NODES).map(|number| Disk::mount(folder.join(format!("node-{number}")))).collect();
        let disks = disks?;
        let relays = match wiring {
            Wiring::Direct => Vec::new(),
            Wiring::Relayed => {
                let relay = |_| handle.block_on(TcpRelay::start()).of_node();
                (0..NODES).map(relay).collect::<Result<Vec<_>, _>>()?
            }
        };
        let mut set: Vec<String> = SETTINGS.iter().chain(more).map(|one| (*one).to_owned()).collect();
        set.push(format!("functions.python={}", python()?.display()));
        let ports = relays.iter().map(TcpRelay::port).collect();
        let settings = LocalClusterSettings {
            folder: folder.to_owned(),
            nodes: NODES,
            program,
            nats_server,
            networks: true,
            set,
            relays: ports,
        };
        let started = handle.block_on(LocalCluster::start(&settings, PATIENCE));
        let mut cluster = started.of_node()?;
        for (relay, node) in relays.iter().zip(cluster.nodes()) {
            node.calls().into_iter().for_each(|calls| relay.point_at(calls));
        }
        let (mut s3, mut lambda, mut access) = (Vec::new(), Vec::new(), None);
        for node in cluster.nodes() {
            let said = || LabError::Node(format!("{} does not say where it listens", node.name()));
            let endpoints = handle.block_on(node.status()).ok_or_else(said)?.endpoints;
            s3.push(socket_address(&endpoints.s3)?);
            lambda.push(socket_address(&endpoints.lambda)?);
            let signer = |service| signer_of(node.state(), &endpoints, endpoints.namespace.as_str(), service);
            if let (None, Ok(s3), Ok(lambda)) = (&access, signer("s3"), signer("lambda")) {
                access = Some((s3, lambda, endpoints.namespace.clone()));
            }
        }
        let no_key = || LabError::Node("no node has the first key".to_owned());
        let (signer, lambda_signer, namespace) = access.ok_or_else(no_key)?;
        let door = |server| Door { server, signer: signer.clone(), handle: handle.clone() };
        let s3 = s3.into_iter().map(door).collect();
        let doors = Doors { s3, lambda, lambda_signer, namespace, handle: handle.clone() };
        Ok(Self { cluster, relays, doors, ended_by_itself: 0, disks })
    }

    /// Sleeps, and starts again meanwhile what has ended by itself.
    pub(in crate::experiment) fn wait(&mut self, span: Duration) {
        let begun = Instant::now();
        loop {
            // What cannot be started now is tried again.
            for (_, event) in self.cluster.tend().unwrap_or_default() {
                self.ended_by_itself += u64::from(matches!(event, ProcessEvent::Ended { .. }));
            }
            let left = span.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(TENDED_EVERY));
        }
    }

    fn status(&mut self, node: usize) -> Option<Status> {
        let node = &self.cluster.nodes()[node];
        self.doors.handle.block_on(async { timeout(ANSWERED_WITHIN, node.status()).await.ok().flatten() })
    }

    /// The shards that a node serves, as it says.
    pub(in crate::experiment) fn shards_of(&mut self, node: usize) -> Vec<ShardId> {
        let status = self.status(node);
        status.and_then(|status| status.cluster?.homes).map(|homes| homes.own).unwrap_or_default()
    }

    /// Whether every node knows all others, and so many shards are served.
    pub(in crate::experiment) fn recovered(&mut self, shards: usize) -> bool {
        let count = self.cluster.nodes().len();
        let known: Vec<(usize, usize)> = (0..count)
            .filter_map(|node| self.status(node)?.cluster)
            .map(|cluster| (cluster.members.len(), cluster.homes.map_or(0, |homes| homes.own.len())))
            .collect();
        known.len() == count
            && known.iter().all(|(members, _)| *members == count)
            && known.iter().map(|(_, own)| own).sum::<usize>() == shards
    }

    fn network(&self) -> Result<&Network, LabError> {
        self.cluster.network().ok_or_else(|| LabError::Node("the cluster has no networks".to_owned()))
    }

    fn machine(&mut self, node: usize) -> usize {
        self.cluster.nodes()[node].machine()
    }

    /// Begins a fault. What cannot be hurt because it does not run at the moment is hurt enough.
    pub(super) fn strike(&mut self, strike: &Strike) -> Result<(), LabError> {
        let hands = Hands {
            end: Process::kill,
            halt: |process| process.stop(),
            cut: Network::cut_off,
            part: Network::separate,
        };
        self.turn(strike, &hands, true)
    }

    pub(super) fn heal(&mut self, strike: &Strike) -> Result<(), LabError> {
        let hands = Hands {
            end: Process::run,
            halt: |process| process.go_on(),
            cut: Network::reconnect,
            part: Network::rejoin,
        };
        self.turn(strike, &hands, false)
    }

    fn turn(&mut self, strike: &Strike, hands: &Hands, begins: bool) -> Result<(), LabError> {
        let Strike { kind, node, other, server, lasts, .. } = *strike;
        let (this, that, next) = (self.machine(node), self.machine(other), (server + 1) % SERVERS);
        let failed = |error: io::Error| LabError::Node(format!("{}: {error}", name_of(&kind)));
        let Hands { end, halt, cut, part } = *hands;
        let network = self.network()?;
        match kind {
            Kind::CutNode => cut(network, this).map_err(failed)?,
            Kind::CutServer => cut(network, server).map_err(failed)?,
            Kind::CutTwoServers => [server, next].into_iter().try_for_each(|one| cut(network, one)).map_err(failed)?,
            Kind::SeparateNodes => part(network, this, that).map_err(failed)?,
            Kind::SeparateFromServers => (0..SERVERS).try_for_each(|one| part(network, this, one)).map_err(failed)?,
            Kind::MuteNode if begins => network.mute(this, that).map_err(failed)?,
            Kind::MuteNode => network.unmute(this, that).map_err(failed)?,
            Kind::BadPackets => self.netem(this, if begins { "add" } else { "del" })?,
            Kind::PauseNode | Kind::StopNode => drop(halt(self.cluster.nodes()[node].process())),
            Kind::StopTwoNodes => {
                [node, other].into_iter().for_each(|one| drop(halt(self.cluster.nodes()[one].process())))
            }
            Kind::KillServer => self.servers(&[server], end),
            Kind::StopServer | Kind::PauseServer => self.servers(&[server], halt),
            Kind::KillTwoServers => self.servers(&[server, next], end),
            Kind::StopTwoServers => self.servers(&[server, next], halt),
            Kind::KillAllServers => self.servers(&(0..SERVERS).collect::<Vec<_>>(), end),
            Kind::KillTwoNodes => self.end_nodes(&[node, other], end, begins).map_err(failed)?,
            Kind::KillAllNodes => {
                self.end_nodes(&(0..usize::from(NODES)).collect::<Vec<_>>(), end, begins).map_err(failed)?
            }
            Kind::KillAtTakeover if begins => {
                self.end_nodes(&[node], end, begins).map_err(failed)?;
                // Its lease ends 2 to 3.25 s after its death, and then others begin to take its shards.
                self.wait(TAKEOVER + lasts / 2);
                self.end_nodes(&[other], end, begins).map_err(failed)?;
            }
            Kind::KillAtTakeover => self.end_nodes(&[node, other], end, begins).map_err(failed)?,
            Kind::KillStore => self.store(end),
            Kind::StopStore => self.store(halt),
            Kind::KillNode | Kind::LateStore => {
                if kind == Kind::LateStore {
                    self.store(halt);
                }
                if kind == Kind::LateStore && begins {
                    self.wait(Duration::from_millis(200));
                }
                self.end_nodes(&[node], end, begins).map_err(failed)?;
            }
            Kind::FullDisk if begins => self.disks[node].fill().at(&self.disks[node].0)?,
            Kind::FullDisk => {
                let filler = self.disks[node].filler();
                fs::remove_file(&filler).at(filler)?;
            }
            Kind::SlowCalls => self.relays[node].change(|weather| {
                let slow = if begins { (30, 150) } else { (0, 0) };
                (weather.delay, weather.jitter) = (Duration::from_millis(slow.0), Duration::from_millis(slow.1));
            }),
            Kind::HoldCalls => self.relays[node].change(|weather| weather.holds_calls = begins),
            Kind::HoldAnswers => self.relays[node].change(|weather| weather.holds_answers = begins),
            Kind::ForgetCalls if begins => self.relays[node].change(|weather| weather.forgotten += 1),
            // Once more at the end: those that were made meanwhile.
            Kind::ResetCalls | Kind::ForgetCalls => self.relays[node].change(|weather| weather.reset += 1),
        }
        Ok(())
    }

    /// Kills nodes, or starts them again. Only then is an error one: what does not run cannot be killed, but must come back.
    fn end_nodes(&mut self, which: &[usize], act: fn(&mut Process) -> io::Result<()>, begins: bool) -> io::Result<()> {
        let acted: Vec<io::Result<()>> = which.iter().map(|node| act(self.cluster.nodes()[*node].process())).collect();
        if begins { Ok(()) } else { acted.into_iter().collect() }
    }

    // Who does not run is hurt enough, and is started again by who tends the cluster.
    fn store(&mut self, act: fn(&mut Process) -> io::Result<()>) {
        if let Some(store) = self.cluster.store() {
            let _ = act(store.process());
        }
    }

    fn servers(&mut self, which: &[usize], act: fn(&mut Process) -> io::Result<()>) {
        for at in which {
            let _ = act(&mut self.cluster.servers().servers()[*at]);
        }
    }

    fn netem(&self, machine: usize, what: &str) -> Result<(), LabError> {
        let place = self.network()?.place(machine);
        let (_, namespace) = place.ok_or_else(|| LabError::Node(format!("there is no machine {machine}")))?;
        let spoiled = ["delay", "20ms", "15ms", "loss", "3%", "duplicate", "1%", "reorder", "10%"];
        let options: &[&str] = if what == "add" { &spoiled } else { &[] };
        run("tc", &[&["-n", &namespace, "qdisc", what, "dev", "eth0", "root", "netem"], options].concat())
    }

    pub(in crate::experiment) fn end(self) {
        let Self { cluster, relays, disks, .. } = self;
        relays.iter().for_each(|relay| relay.change(|weather| *weather = Weather::default()));
        cluster.end(DRAIN);
        drop(disks);
    }
}
