//! The nodes of one cell: one as `nigh up` starts it, or a cluster as `nigh cluster up` does; both with the settings that
//! users have but for the memory of their sandboxes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use nigh_node::credentials;
use nigh_node::endpoints::Endpoints;
use nigh_node::local_cluster::{LocalCluster, LocalClusterSettings, find_nats_server};
use nigh_node::state_folder::StatePaths;
use nigh_node::status::Status;

use super::cell::{BOOKED, Cell};
use super::handler;
use crate::LabError;
use crate::bench::{code_folder, deployment};
use crate::instrument::cpu_time;
use crate::instrument::node_under_test::{NodeUnderTest, python, set, settings, socket_address};
use crate::instrument::platform::{LambdaClient, counter, status, zip_folder};
use crate::instrument::programs;
use crate::instrument::settled_cluster::settled;
use crate::instrument::sign::Signer;

/// How long a node of a cluster may take to be well, and to drain.
const PATIENCE: Duration = Duration::from_secs(90);
const DRAIN: Duration = Duration::from_secs(15);
/// How long the other nodes may take to know of a function.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// Counts each start of a sandbox for an invocation, prewarmed or not.
const STARTS: &str = "nigh_cold_starts_total";

enum RunningNodes {
    One(Box<NodeUnderTest>),
    Cluster(Box<LocalCluster>),
}

pub(super) struct Nodes {
    running: RunningNodes,
    endpoints: Vec<Endpoints>,
    pub(super) doors: Vec<SocketAddr>,
    pub(super) signer: Signer,
    pub(super) engine: String,
}

impl Nodes {
    pub(super) async fn start(cell: &Cell, folder: &Path) -> Result<Self, LabError> {
        let nodes = if cell.nodes == 1 { Self::one(cell, folder).await? } else { Self::cluster(cell, folder).await? };
        nodes.deploy(cell, folder).await?;
        Ok(nodes)
    }

    async fn one(cell: &Cell, folder: &Path) -> Result<Self, LabError> {
        let mut settings = settings(None, &python()?);
        set(&mut settings, &[("functions.memory", &cell.memory.to_string())]);
        let node = NodeUnderTest::start(folder, &settings)?;
        let (signer, status) = (node.signer("lambda"), status(&node).await?);
        Self::of(RunningNodes::One(Box::new(node)), signer, vec![status])
    }

    async fn cluster(cell: &Cell, folder: &Path) -> Result<Self, LabError> {
        let failed = |error: &dyn std::fmt::Display| LabError::Node(format!("the cluster: {error}"));
        let settings = LocalClusterSettings {
            folder: folder.join("cluster"),
            nodes: cell.nodes,
            program: programs::nigh()?,
            nats_server: find_nats_server().ok_or_else(no_nats_server)?,
            networks: false,
            relays: Vec::new(),
            set: vec![format!("functions.python={}", python()?.display()), format!("functions.memory={}", cell.memory)],
        };
        let mut cluster = LocalCluster::start(&settings, PATIENCE).await.map_err(|error| failed(&error))?;
        let nodes = settled(&mut cluster, usize::from(cell.nodes)).await?;
        let Some((state, first)) = nodes.first() else { return Err(failed(&"it has no node")) };
        let (namespace, region) = (first.endpoints.namespace.as_str(), first.endpoints.region.as_str());
        let key =
            credentials::read(&StatePaths::new(state).credentials(), namespace).map_err(|error| failed(&error))?;
        let signer = Signer::new("lambda", region, key.access_key.as_str(), key.secret_key.reveal());
        Self::of(
            RunningNodes::Cluster(Box::new(cluster)),
            signer,
            nodes.into_iter().map(|(_, status)| status).collect(),
        )
    }

    fn of(running: RunningNodes, signer: Signer, statuses: Vec<Status>) -> Result<Self, LabError> {
        let isolation = statuses.first().and_then(|first| first.levels.iter().find(|level| level.name == "isolation"));
        // `runc: ` and what keeps sandboxes apart.
        let engine = isolation.and_then(|level| level.detail.split(':').next()).unwrap_or("unknown").to_owned();
        let endpoints: Vec<Endpoints> = statuses.into_iter().map(|status| status.endpoints).collect();
        let doors = endpoints.iter().map(|at| socket_address(&at.lambda)).collect::<Result<_, _>>()?;
        Ok(Self { running, endpoints, doors, signer, engine })
    }

    async fn deploy(&self, cell: &Cell, folder: &Path) -> Result<(), LabError> {
        let code = code_folder(folder, "code", &handler())?;
        let archive = zip_folder(&code)?;
        let Some(&door) = self.doors.first() else { return Err(LabError::Node("there is no node".to_owned())) };
        let mut lambda = LambdaClient::to(door, self.signer.clone())?;
        for function in 0..cell.functions {
            let name = function_name(function);
            let request = lambda.creation(&deployment(&name, &code, BOOKED.bytes() >> 20), &archive).await?;
            lambda.send(&name, &request)?;
        }
        if self.doors.len() > 1 {
            tokio::time::sleep(SEEN_WITHIN).await;
        }
        Ok(())
    }

    /// Sandboxes that all nodes have started for invocations.
    pub(super) fn starts(&self) -> Result<u64, LabError> {
        self.endpoints.iter().map(|at| counter(&at.admin_socket, STARTS)).sum()
    }

    /// The processor time that all nodes have used, without their sandboxes.
    pub(super) fn cpu(&self) -> Result<Duration, LabError> {
        let of = |at: &Endpoints| cpu_time::of_process_and_ended_threads(at.pid);
        let all: std::io::Result<Duration> = self.endpoints.iter().map(of).sum();
        all.map_err(|error| LabError::Node(format!("its processor time: {error}")))
    }

    pub(super) fn end(self) {
        match self.running {
            RunningNodes::One(node) => drop(node),
            RunningNodes::Cluster(cluster) => cluster.end(DRAIN),
        }
    }
}

pub(super) fn function_name(number: u32) -> String {
    format!("contender-{number}")
}

pub(super) fn no_nats_server() -> LabError {
    LabError::Missing { missing: "nats-server".to_owned(), hint: "run `make peers`, or leave out cells of three nodes" }
}
