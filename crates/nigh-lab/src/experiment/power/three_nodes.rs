//! A cluster of three nodes, three NATS servers and a store, each on a disk of its own, which all lose their power at once.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nigh_node::local_cluster::{LocalCluster, LocalClusterSettings, LocalNode, Process, find_nats_server};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::case::Life;
use super::disk::{Disk, Options};
use super::machines::Machines;
use super::one_node::{DISK_BYTES, kill};
use super::write_cache::Syncs;
use crate::LabError;
use crate::experiment::client_calls::Door;
use crate::experiment::judged_clients::fast_calls::FastDoor;
use crate::experiment::judged_clients::history::ReadFinding;
use crate::experiment::judged_clients::recorded_run::wait_until_held;
use crate::experiment::judged_clients::store_behind::BackingStore;
use crate::instrument::error::Tried;
use crate::instrument::node_under_test::{signer_of, socket_address};
use crate::instrument::programs;

const NODES: u8 = 3;
/// How long the cluster may take to be whole.
const PATIENCE: Duration = Duration::from_secs(120);
const DRAIN: Duration = Duration::from_secs(20);
/// A node that says nothing of itself for so long says nothing.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What a node of a small cluster on one machine may take.
const SETTINGS: [&str; 8] = [
    "cache.bytes=32 MiB",
    "functions.memory=256 MiB",
    "functions.sandboxes_max=2",
    "functions.prewarm=off",
    "memory.grants=off",
    "llc.policy=off",
    "writes.delay=300 ms",
    "drain=5 s",
];

pub(super) struct ThreeNodes {
    /// None once it has ended.
    cluster: Option<LocalCluster>,
    doors: Vec<Door>,
    handle: Handle,
    /// After the processes.
    disks: Vec<Disk>,
}

impl ThreeNodes {
    /// Starts the cluster below `folder`. To be called, and dropped, by a thread that lives as long as the processes.
    pub(super) fn start(folder: &Path, seed: u64, options: Options, handle: &Handle) -> Result<Self, LabError> {
        let missing = "nats-server".to_owned();
        let nats_server = find_nats_server().ok_or(LabError::Missing { missing, hint: "run `make peers` first" })?;
        let cluster = folder.join("cluster");
        let nodes = (1..=NODES).map(|number| format!("node-{number}"));
        let servers = (1..=NODES).map(|number| format!("nats/nats-{number}"));
        let mut disks = Vec::new();
        for (number, place) in nodes.chain(servers).chain(["store".to_owned()]).enumerate() {
            let seed = seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Three streams reserve 256 MiB each for every shard: NATS counts them against the disk.
            let bytes = if place.starts_with("nats") { 8 << 30 } else { DISK_BYTES };
            let mut disk = Disk::make(folder, &place.replace('/', "-"), &cluster.join(&place), bytes, seed, options)?;
            disk.power_on()?;
            disks.push(disk);
        }
        let settings = LocalClusterSettings {
            folder: cluster,
            nodes: NODES,
            program: programs::nigh()?,
            nats_server,
            networks: false,
            set: SETTINGS.iter().map(|one| (*one).to_owned()).collect(),
            relays: Vec::new(),
        };
        let mut cluster = handle.block_on(LocalCluster::start(&settings, PATIENCE)).of_node()?;
        let (mut listening, mut access) = (Vec::new(), None);
        for node in cluster.nodes() {
            let said = || LabError::Node(format!("{} does not say where it listens", node.name()));
            let endpoints = handle.block_on(node.status()).ok_or_else(said)?.endpoints;
            listening.push(socket_address(&endpoints.s3)?);
            if let (None, Ok(signer)) =
                (&access, signer_of(node.state(), &endpoints, endpoints.namespace.as_str(), "s3"))
            {
                access = Some(signer);
            }
        }
        let signer = access.ok_or_else(|| LabError::Node("no node has the first key".to_owned()))?;
        let door = |server| Door { server, signer: signer.clone(), handle: handle.clone() };
        let doors = listening.into_iter().map(door).collect();
        let mut started = Self { cluster: Some(cluster), doors, handle: handle.clone(), disks };
        started.wait_until_whole()?;
        Ok(started)
    }

    fn cluster(&mut self) -> Result<&mut LocalCluster, LabError> {
        self.cluster.as_mut().ok_or_else(|| LabError::Node("the cluster has ended".to_owned()))
    }

    /// Does something to every process; the servers first, then the store, as they need each other.
    fn each(&mut self, mut act: impl FnMut(&mut Process) -> io::Result<()>) -> Result<(), LabError> {
        let cluster = self.cluster()?;
        cluster.servers().servers().iter_mut().try_for_each(&mut act).of_node()?;
        cluster.store().into_iter().try_for_each(|store| act(store.process())).of_node()?;
        cluster.nodes().iter_mut().try_for_each(|node| act(node.process())).of_node()
    }

    fn power_on(&mut self) -> Result<(), LabError> {
        self.disks.iter_mut().try_for_each(Disk::power_on)
    }

    /// Waits until every node knows all others and every shard is served; starts again meanwhile what has ended by itself,
    /// as a node does that finds no server.
    fn wait_until_whole(&mut self) -> Result<(), LabError> {
        let (handle, begun) = (self.handle.clone(), Instant::now());
        while begun.elapsed() < PATIENCE {
            let cluster = self.cluster()?;
            // What cannot be started now is tried again.
            let _ = cluster.tend();
            let known: Vec<(usize, usize)> =
                cluster.nodes().iter().filter_map(|node| members_and_shards(node, &handle)).collect();
            let all = usize::from(NODES);
            let shards: usize = known.iter().map(|(_, shards)| shards).sum();
            if known.len() == all && known.iter().all(|(members, _)| *members == all) && shards == SHARDS {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(LabError::Node(format!("the cluster is not whole {} s after the power came back", PATIENCE.as_secs())))
    }
}

/// Of a local cluster.
const SHARDS: usize = 8;

fn members_and_shards(node: &LocalNode, handle: &Handle) -> Option<(usize, usize)> {
    let status = handle.block_on(async { timeout(ANSWERED_WITHIN, node.status()).await.ok().flatten() });
    let cluster = status?.cluster?;
    Some((cluster.members.len(), cluster.homes.map_or(0, |homes| homes.own.len())))
}

impl Machines for ThreeNodes {
    fn doors(&self) -> Result<Vec<(Door, Option<FastDoor>)>, LabError> {
        Ok(self.doors.iter().map(|door| (door.clone(), None)).collect())
    }

    fn start(&mut self, _: &Life) -> Result<Duration, LabError> {
        self.power_on()?;
        let began = Instant::now();
        self.each(Process::run)?;
        self.wait_until_whole()?;
        Ok(began.elapsed())
    }

    fn start_and_cut(&mut self, _: &Life, after: Duration) -> Result<(), LabError> {
        self.power_on()?;
        self.each(Process::run)?;
        std::thread::sleep(after);
        self.cut()
    }

    fn cut(&mut self) -> Result<(), LabError> {
        self.each(|process| {
            process.id().into_iter().for_each(kill);
            Ok(())
        })?;
        self.disks.iter().for_each(Disk::power_off);
        self.each(|process| {
            // It fails only for one that does not run.
            let _ = process.kill();
            Ok(())
        })?;
        self.disks.iter_mut().try_for_each(Disk::forget)
    }

    fn set_syncs(&mut self, syncs: Syncs) -> Result<(), LabError> {
        self.disks.iter().try_for_each(|disk| disk.set_syncs(syncs))
    }

    fn write_back(&self) {
        self.disks.iter().for_each(Disk::write_back);
    }

    fn hold_next_sync(&self) {
        self.disks.iter().for_each(Disk::hold_next_sync);
    }

    fn holds_a_sync(&self) -> bool {
        self.disks.iter().any(Disk::holds_a_sync)
    }

    fn take_room(&mut self, _: &Life) -> Result<(), LabError> {
        Ok(())
    }

    fn state(&self) -> Option<&Path> {
        None
    }

    fn counts(&self) -> (u64, u64) {
        let counts = self.disks.iter().map(Disk::counts);
        counts.fold((0, 0), |(synced, forgotten), (more, of_them)| (synced + more, forgotten + of_them))
    }

    fn settle(&mut self, through_nigh: &[ReadFinding]) -> Result<BackingStore, LabError> {
        let handle = self.handle.clone();
        let gone = || LabError::Node("the store does not answer".to_owned());
        let store = self.cluster()?.store().ok_or_else(gone)?;
        let endpoints = handle.block_on(store.status()).ok_or_else(gone)?.endpoints;
        let signer = signer_of(store.state(), &endpoints, endpoints.namespace.as_str(), "s3")?;
        let server = socket_address(&endpoints.s3)?;
        let behind = BackingStore::Service(Box::new(Door { server, signer, handle }));
        wait_until_held(&behind, through_nigh)?;
        Ok(behind)
    }
}

impl Drop for ThreeNodes {
    fn drop(&mut self) {
        if let Some(cluster) = self.cluster.take() {
            cluster.end(DRAIN);
        }
    }
}
