//! The servers and nodes of a cluster on this machine.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use async_recursion::async_recursion as boxed;
use nigh_rpc::certificates::{Authority, CertificateError};
use nigh_rpc::{Identity, NameError, Role};
use thiserror::Error;
use tokio::time::sleep;

use super::arguments::{arguments, doors, settings_of};
use super::folder_lock::FolderLock;
use super::loopback_ports::LoopbackPorts;
use super::nats_servers::{NatsServers, Place};
use super::network::Network;
use super::process::{Process, ProcessEvent};
use super::roll::{self, ProcessStatus};
use crate::client::AdminClient;
use crate::credentials;
use crate::state_folder::StatePaths;
use crate::status::Status;

/// The process that serves the store if the settings name none: a node with a directory store.
const STORE: &str = "store";
/// The number of NATS servers.
const SERVERS: usize = 3;
/// The name of the cluster.
pub(super) const NAME: &str = "local";
/// The lifetime of certificates in days: as long as a trial may last.
const CERTIFICATE_DAYS: u32 = 365;
/// How often a starting node is asked for its status.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// Why the cluster cannot be started.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum LocalClusterError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(
        "a cluster runs in {} already{}; end it, or choose another folder with --folder",
        .folder.display(), .pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
    )]
    Held { folder: PathBuf, pid: Option<u32> },
    #[error("{name} has ended ({status}); its last line was: {said}")]
    Ended { name: String, status: String, said: String },
    #[error("{name} does not answer as expected after {seconds} s; its output is in {}", .log.display())]
    NotWell { name: String, seconds: u64, log: PathBuf },
}

impl LocalClusterError {
    fn io(what: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what: what.to_owned(), source }
    }
}

/// The settings of a local cluster.
#[derive(Clone, Debug)]
pub struct LocalClusterSettings {
    /// The folder for all files, created if absent.
    pub folder: PathBuf,
    /// The number of nodes.
    pub nodes: u8,
    /// The program `nigh`.
    pub program: PathBuf,
    /// The program `nats-server`.
    pub nats_server: PathBuf,
    /// True if each process gets a network namespace of its own; needs root.
    pub networks: bool,
    /// Further settings of each node, as `--set` takes them.
    pub set: Vec<String>,
    /// Ports of this process, one for each node, at which the other nodes call it. Whoever listens there forwards to
    /// the node's own address (`LocalNode::calls`). If empty, or with `networks`, nodes call each other directly.
    pub relays: Vec<u16>,
}

/// A node of the cluster.
#[derive(Debug)]
pub struct LocalNode {
    process: Process,
    state: PathBuf,
    machine: usize,
    calls: Option<SocketAddr>,
}

impl LocalNode {
    /// The node's process.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.process.name()
    }

    /// The node's state folder.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The node's machine number, for `Network::cut_off`.
    #[must_use]
    pub const fn machine(&self) -> usize {
        self.machine
    }

    /// The address at which other nodes call it; none for the store.
    #[must_use]
    pub const fn calls(&self) -> Option<SocketAddr> {
        self.calls
    }

    /// The node's status. None if it does not answer, or if another process than this node's answers in its state folder.
    #[boxed]
    pub async fn status(&self) -> Option<Status> {
        let status = AdminClient::new(&StatePaths::new(&self.state).admin_socket()).get("/status").await.ok();
        status.filter(|status: &Status| Some(status.pid) == self.process.id())
    }
}

/// A running cluster. Its processes are killed when it is dropped; `end` ends them in order.
#[derive(Debug)]
pub struct LocalCluster {
    nodes: Vec<LocalNode>,
    /// The store; none if the settings name one.
    store: Option<LocalNode>,
    servers: NatsServers,
    folder: PathBuf,
    begun: Instant,
    /// The network; none if the processes share this one's. Dropped after the processes in it.
    network: Option<Network>,
    /// Dropped last: nobody else uses the folder while a process of this cluster may run.
    _lock: FolderLock,
    _ports: LoopbackPorts,
}

impl LocalCluster {
    /// Starts servers and nodes, and returns when every node sees all others. Gives each of them `patience`. Call this from
    /// a thread that outlives the processes.
    ///
    /// # Errors
    /// `Held` if a cluster runs in the folder; then nothing is started or changed. Else what could not be made or started,
    /// or does not answer in time.
    #[boxed]
    pub async fn start(settings: &LocalClusterSettings, patience: Duration) -> Result<Self, LocalClusterError> {
        let LocalClusterSettings { folder, nodes, nats_server, networks, .. } = settings;
        let io = LocalClusterError::io;
        std::fs::create_dir_all(folder).map_err(io("the cluster's folder"))?;
        // Processes with another working folder need an absolute path.
        let folder = &folder.canonicalize().map_err(io("the cluster's folder"))?;
        let lock = FolderLock::take(folder)?;
        // One more machine for the store.
        let machines = nodes.saturating_add(SERVERS as u8 + 1);
        let network = networks.then(|| Network::make(machines)).transpose().map_err(io("the network"))?;
        let place = |machine: usize| match network.as_ref().and_then(|network| network.place(machine)) {
            Some((address, network)) => Place { address, network: Some(network) },
            None => Place::loopback(),
        };
        let places: Vec<Place> = (0..SERVERS).map(place).collect();
        let servers = NatsServers::start(nats_server, &folder.join("nats"), &places).map_err(io("the NATS servers"))?;
        let mut ports = LoopbackPorts::default();
        let is_given = settings.set.iter().any(|one| one.starts_with("store."));
        let (store, shared) = match is_given {
            true => (None, StoreAccess::default()),
            false => {
                let machine = SERVERS + usize::from(*nodes);
                let (store, access) =
                    start_store(settings, folder, machine, &place(machine), &mut ports, patience).await?;
                (Some(store), access)
            }
        };
        let certificates = folder.join("certificates");
        let authority = match Authority::open(&certificates) {
            Ok(authority) => authority,
            Err(CertificateError::NoAuthority(_)) => Authority::create(&certificates, NAME, CERTIFICATE_DAYS)?,
            Err(other) => return Err(other.into()),
        };
        let mut made = Vec::new();
        for number in 1..=usize::from(*nodes) {
            let (name, machine) = (format!("node-{number}"), SERVERS + number - 1);
            let identity = Identity::new(NAME, Role::Node, &name)?;
            authority.issue(&identity, &[], CERTIFICATE_DAYS, true)?;
            let state = folder.join(&name);
            let at = place(machine);
            let doors = doors(&at, &mut ports).map_err(io("ports of a node"))?;
            let mut arguments = arguments(settings, &name, &state, &certificates, doors, &servers.urls());
            if let (Some(port), Some(network)) = (settings.relays.get(number - 1), &network) {
                let relay = SocketAddr::new(network.gateway(), *port);
                arguments.extend(settings_of(vec![format!("cluster.advertise={relay}")]));
            }
            arguments.extend(shared.arguments.iter().cloned());
            let token = ("NIGH_CLUSTER__TOKEN".to_owned(), servers.token().reveal().to_owned());
            let environment = shared.environment.iter().cloned().chain([token]).collect();
            let process = Process::new(&name, &settings.program, arguments, &folder.join(format!("{name}.log")))
                .with_environment(environment)
                .within(at.network);
            made.push(LocalNode { process, state, machine, calls: Some(doors[2]) });
        }
        let (folder, begun) = (folder.clone(), Instant::now());
        let mut cluster = Self { nodes: made, store, servers, folder, begun, network, _lock: lock, _ports: ports };
        // The first node makes the keys; the others find them in the registry.
        let (first, others) = cluster.nodes.split_at_mut(1.min(usize::from(*nodes)));
        for part in [first, others] {
            for node in part.iter_mut() {
                node.process.run().map_err(io("starting a node"))?;
            }
            for node in part.iter_mut() {
                well(node, patience, |status| knows(status, 1)).await?;
            }
        }
        for node in &mut cluster.nodes {
            well(node, patience, |status| knows(status, usize::from(*nodes))).await?;
        }
        cluster.tell().map_err(io("the list of processes"))?;
        Ok(cluster)
    }

    /// The cluster's nodes.
    pub fn nodes(&mut self) -> &mut [LocalNode] {
        &mut self.nodes
    }

    /// The cluster's NATS servers, which are the first machines of the network.
    pub const fn servers(&mut self) -> &mut NatsServers {
        &mut self.servers
    }

    /// The network; none if the processes share this one's.
    #[must_use]
    pub const fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// The store; none if the settings name one.
    pub const fn store(&mut self) -> Option<&mut LocalNode> {
        self.store.as_mut()
    }

    fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        let nodes = self.nodes.iter_mut().chain(&mut self.store).map(|node| &mut node.process);
        nodes.chain(self.servers.servers())
    }

    /// Restarts processes that ended by themselves, after longer and longer waits. Returns the name of each with its
    /// event. Call this repeatedly, from a thread that outlives the processes.
    pub fn tend(&mut self) -> io::Result<Vec<(String, ProcessEvent)>> {
        let (now, mut happened) = (self.begun.elapsed(), Vec::new());
        for process in self.processes() {
            if let Some(event) = process.tend(now)? {
                happened.push((process.name().to_owned(), event));
            }
        }
        if !happened.is_empty() {
            self.tell()?;
        }
        Ok(happened)
    }

    /// The state of each process.
    pub fn status(&mut self) -> Vec<ProcessStatus> {
        let now = self.begun.elapsed();
        self.processes().map(|process| process.status(now)).collect()
    }

    /// Writes the state of all processes into the folder.
    fn tell(&mut self) -> io::Result<()> {
        let status = self.status();
        roll::write(&self.folder, &status)
    }

    /// Ends all nodes, then the store, then the servers. Nodes that still run after `patience` are killed.
    pub fn end(mut self, patience: Duration) {
        for node in &self.nodes {
            // An error means that the process does not run.
            let _ = node.process.ask_to_end();
        }
        let begun = Instant::now();
        for node in &mut self.nodes {
            node.process.wait(patience.saturating_sub(begun.elapsed()));
        }
        // The store ends after the last push of the nodes.
        if let Some(store) = &mut self.store {
            let _ = store.process.ask_to_end();
            store.process.wait(patience);
        }
        self.servers.end();
    }
}

/// The flags and variables by which nodes reach the store.
#[derive(Default)]
struct StoreAccess {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// Starts the store that all nodes share.
async fn start_store(
    settings: &LocalClusterSettings,
    folder: &Path,
    machine: usize,
    at: &Place,
    ports: &mut LoopbackPorts,
    patience: Duration,
) -> Result<(LocalNode, StoreAccess), LocalClusterError> {
    let io = LocalClusterError::io;
    let state = folder.join(STORE);
    let [s3, lambda, _, health, admin] = doors(at, ports).map_err(io("ports of the store"))?;
    let mut set = vec![
        format!("node={STORE}"),
        format!("s3.listen={s3}"),
        format!("lambda.listen={lambda}"),
        format!("health.listen={health}"),
        format!("admin.listen={admin}"),
        "writes.mode=through".to_owned(),
    ];
    if at.network.is_some() {
        set.push("allow_plain=true".to_owned());
    }
    let arguments = ["up".to_owned(), "--state".to_owned(), state.display().to_string()];
    let arguments = arguments.into_iter().chain(settings_of(set)).collect();
    let log = folder.join(format!("{STORE}.log"));
    let process = Process::new(STORE, &settings.program, arguments, &log).within(at.network.clone());
    let mut node = LocalNode { process, state, machine, calls: None };
    node.process.run().map_err(io("starting the store"))?;
    let status = well(&mut node, patience, |_| true).await?;
    let file = StatePaths::new(&node.state).credentials();
    let failed = |error| io("the store's key")(io::Error::other(error));
    let key = credentials::read(&file, status.endpoints.namespace.as_str()).map_err(failed)?;
    let arguments = settings_of(vec![
        "store.kind=s3".to_owned(),
        format!("store.endpoint={}", status.endpoints.s3),
        format!("store.access_key={}", key.access_key),
    ]);
    let environment = vec![("NIGH_STORE__SECRET_KEY".to_owned(), key.secret_key.reveal().to_owned())];
    Ok((node, StoreAccess { arguments: arguments.collect(), environment }))
}

/// True if a node sees at least `members` members.
fn knows(status: &Status, members: usize) -> bool {
    status.cluster.as_ref().is_some_and(|known| known.members.len() >= members)
}

/// Waits until a node's status satisfies `is_well`.
async fn well(
    node: &mut LocalNode,
    patience: Duration,
    is_well: impl Fn(&Status) -> bool,
) -> Result<Status, LocalClusterError> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        if let Some(status) = node.status().await.filter(&is_well) {
            return Ok(status);
        }
        if let Some(status) = node.process.ended().map_err(LocalClusterError::io("looking after a node"))? {
            let (name, said) = (node.name().to_owned(), node.process.last_line());
            return Err(LocalClusterError::Ended { name, status: status.to_string(), said });
        }
        sleep(ASKED_EVERY).await;
    }
    let log = node.process.log().to_owned();
    Err(LocalClusterError::NotWell { name: node.name().to_owned(), seconds: patience.as_secs(), log })
}

#[cfg(test)]
mod tests;
