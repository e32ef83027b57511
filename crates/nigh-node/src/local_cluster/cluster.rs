//! The servers and nodes of a cluster on this machine.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nigh_rpc::certificates::{Authority, CertificateError};
use nigh_rpc::{Identity, NameError, Role};
use thiserror::Error;
use tokio::time::sleep;

use super::nats_servers::{NatsServers, Place};
use super::network::Network;
use super::process::Process;
use crate::client::AdminClient;
use crate::state_folder::StatePaths;
use crate::status::Status;

/// Servers, as a cluster of NATS needs them.
const SERVERS: usize = 3;
/// The name of the cluster.
const NAME: &str = "local";
/// Certificates last as long as a trial may.
const CERTIFICATE_DAYS: u32 = 365;
/// The ports of nodes that have an address of their own.
const PORTS: [u16; 3] = [9400, 9401, 9410];
/// How often a node is asked whether it is well.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// Why there is no cluster.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum LocalClusterError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("{name} has ended ({status}); it said: {said}")]
    Ended { name: String, status: String, said: String },
    #[error("{name} is not well after {seconds} s; {} has what it said", .log.display())]
    NotWell { name: String, seconds: u64, log: PathBuf },
}

impl LocalClusterError {
    fn io(what: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what: what.to_owned(), source }
    }
}

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct LocalClusterSettings {
    /// The folder for all files, made if absent.
    pub folder: PathBuf,
    /// How many nodes.
    pub nodes: u8,
    /// The program `nigh`.
    pub program: PathBuf,
    /// The program `nats-server`.
    pub nats_server: PathBuf,
    /// Whether each process is in a network namespace of its own; needs root.
    pub networks: bool,
    /// Further settings of each node, as `--set` takes them.
    pub set: Vec<String>,
}

/// A node of the cluster.
#[derive(Debug)]
pub struct LocalNode {
    process: Process,
    state: PathBuf,
    machine: usize,
}

impl LocalNode {
    /// Its process, to be hurt.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.process.name()
    }

    /// Its state folder.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Its number in the network, for `cut_off` and the like.
    #[must_use]
    pub const fn machine(&self) -> usize {
        self.machine
    }

    /// What it says of itself; nothing if it does not answer.
    pub async fn status(&self) -> Option<Status> {
        AdminClient::new(&StatePaths::new(&self.state).admin_socket()).get("/status").await.ok()
    }
}

/// A running cluster. Its processes are killed when it is dropped; `end` ends them in order.
#[derive(Debug)]
pub struct LocalCluster {
    nodes: Vec<LocalNode>,
    servers: NatsServers,
    /// After the processes, which are within it.
    network: Option<Network>,
}

impl LocalCluster {
    /// Starts servers and nodes, and returns when every node knows all others; fails after `patience` for one of them. To
    /// be called from a thread that lives as long as they are to run.
    ///
    /// # Errors
    /// What could not be made or started, or is not well.
    pub async fn start(settings: &LocalClusterSettings, patience: Duration) -> Result<Self, LocalClusterError> {
        let LocalClusterSettings { folder, nodes, nats_server, networks, .. } = settings;
        let io = LocalClusterError::io;
        std::fs::create_dir_all(folder).map_err(io("the cluster's folder"))?;
        // A relative one would be another for a process elsewhere.
        let folder = &folder.canonicalize().map_err(io("the cluster's folder"))?;
        let machines = nodes.saturating_add(SERVERS as u8);
        let network = networks.then(|| Network::make(machines)).transpose().map_err(io("the network"))?;
        let place = |machine: usize| match network.as_ref().and_then(|network| network.place(machine)) {
            Some((address, network)) => Place { address, network: Some(network) },
            None => Place::loopback(),
        };
        let places: Vec<Place> = (0..SERVERS).map(place).collect();
        let servers = NatsServers::start(nats_server, &folder.join("nats"), &places).map_err(io("the NATS servers"))?;
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
            let arguments = arguments(settings, &name, &state, &certificates, &at, &servers.urls());
            let token = ("NIGH_CLUSTER__TOKEN".to_owned(), servers.token().reveal().to_owned());
            let process = Process::new(&name, &settings.program, arguments, &folder.join(format!("{name}.log")))
                .with_environment(vec![token])
                .within(at.network);
            made.push(LocalNode { process, state, machine });
        }
        let mut cluster = Self { nodes: made, servers, network };
        // The first makes the keys, which the others then find.
        let (first, others) = cluster.nodes.split_at_mut(1.min(usize::from(*nodes)));
        for part in [first, others] {
            for node in part.iter_mut() {
                node.process.run().map_err(io("starting a node"))?;
            }
            for node in part.iter_mut() {
                well(node, 1, patience).await?;
            }
        }
        for node in &mut cluster.nodes {
            well(node, usize::from(*nodes), patience).await?;
        }
        Ok(cluster)
    }

    /// Its nodes.
    pub fn nodes(&mut self) -> &mut [LocalNode] {
        &mut self.nodes
    }

    /// Its NATS servers, which are the first machines of the network.
    pub const fn servers(&mut self) -> &mut NatsServers {
        &mut self.servers
    }

    /// The network, where each process has a machine of its own.
    #[must_use]
    pub const fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// The first process that has ended by itself, if one has: its name and how.
    ///
    /// # Errors
    /// The system's.
    pub fn ended(&mut self) -> io::Result<Option<(String, String)>> {
        let nodes = self.nodes.iter_mut().map(|node| &mut node.process);
        for process in nodes.chain(self.servers.servers()) {
            if let Some(status) = process.ended()? {
                return Ok(Some((process.name().to_owned(), status.to_string())));
            }
        }
        Ok(None)
    }

    /// Ends all nodes, then the servers. What is not over after `patience` is killed.
    pub fn end(mut self, patience: Duration) {
        for node in &self.nodes {
            // One that was killed before does not run.
            let _ = node.process.ask_to_end();
        }
        let begun = Instant::now();
        for node in &mut self.nodes {
            node.process.wait(patience.saturating_sub(begun.elapsed()));
        }
        self.servers.end();
    }
}

/// The command line of a node.
fn arguments(
    settings: &LocalClusterSettings,
    name: &str,
    state: &Path,
    certificates: &Path,
    at: &Place,
    servers: &[String],
) -> Vec<String> {
    let [s3, lambda, calls] = match at.network {
        Some(_) => PORTS,
        None => [0; 3],
    };
    let door = |address: IpAddr, port: u16| std::net::SocketAddr::new(address, port).to_string();
    let mut set = vec![
        format!("node={name}"),
        format!("s3.listen={}", door(at.address, s3)),
        format!("lambda.listen={}", door(at.address, lambda)),
        format!("cluster.name={NAME}"),
        format!("cluster.servers={}", servers.join(",")),
        format!("cluster.listen={}", door(at.address, calls)),
        format!("cluster.certificates={}", certificates.display()),
    ];
    if at.network.is_some() {
        set.push("allow_remote=true".to_owned());
    }
    set.extend(settings.set.iter().cloned());
    let state = ["node".to_owned(), "--state".to_owned(), state.display().to_string()];
    state.into_iter().chain(set.into_iter().flat_map(|one| ["--set".to_owned(), one])).collect()
}

/// Waits until a node answers and knows so many members.
async fn well(node: &mut LocalNode, members: usize, patience: Duration) -> Result<(), LocalClusterError> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        if node.status().await.and_then(|status| status.cluster).is_some_and(|known| known.members.len() >= members) {
            return Ok(());
        }
        if let Some(status) = node.process.ended().map_err(LocalClusterError::io("looking after a node"))? {
            let said = std::fs::read_to_string(node.process.log()).unwrap_or_default();
            let said = said.trim().lines().next_back().unwrap_or("nothing").to_owned();
            return Err(LocalClusterError::Ended { name: node.name().to_owned(), status: status.to_string(), said });
        }
        sleep(ASKED_EVERY).await;
    }
    let log = node.process.log().to_owned();
    Err(LocalClusterError::NotWell { name: node.name().to_owned(), seconds: patience.as_secs(), log })
}
