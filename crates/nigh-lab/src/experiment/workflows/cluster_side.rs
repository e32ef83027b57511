//! A cluster of three nodes on this machine, under one coherence protocol. Requests go to the doors of its first node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use nigh_data::ObjectId;
use nigh_node::client::AdminClient;
use nigh_node::local_cluster::{LocalCluster, LocalClusterSettings};
use nigh_node::state_folder::StatePaths;
use nigh_node::status::{CoherenceProtocol, Status};
use nigh_objects::{BucketPolicy, ModeRule, Shards, WriteMode};
use nigh_terms::{BucketName, Namespace, ObjectKey, ShardId};

use super::pipeline::IN_MEMORY;
use super::sides::at_once;
use super::{BUCKET, StageInvocation};
use crate::LabError;
use crate::instrument::node_under_test::{signer_of, socket_address};
use crate::instrument::platform::LambdaClient;
use crate::instrument::programs;
use crate::instrument::s3_door::S3Door;
use crate::instrument::settled_cluster::settled;
use crate::instrument::sign::Signer;

pub(super) const NODES: u8 = 3;
/// How long a node may take to be ready, and to drain.
const PATIENCE: Duration = Duration::from_secs(90);
const DRAIN: Duration = Duration::from_secs(15);
/// How long the other nodes may take to know of a policy.
const SEEN_WITHIN: Duration = Duration::from_secs(2);

/// One node as the experiment knows it.
pub(super) struct NodePlace {
    pub(super) state: PathBuf,
    lambda: SocketAddr,
    s3: SocketAddr,
    /// The shards whose home is this node.
    homes: Vec<ShardId>,
}

pub(super) struct ClusterSide {
    cluster: LocalCluster,
    pub(super) nodes: Vec<NodePlace>,
    namespace: Namespace,
    shards: Shards,
    signers: [Signer; 2],
}

impl ClusterSide {
    /// Starts it with its files in `folder`; `set` is given to every node.
    pub(super) async fn start(
        protocol: CoherenceProtocol,
        nats_server: &Path,
        folder: PathBuf,
        set: Vec<String>,
    ) -> Result<Self, LabError> {
        let failed = |error: &dyn std::fmt::Display| LabError::Node(format!("the cluster {protocol}: {error}"));
        let program = programs::nigh()?;
        let set = set.into_iter().chain([format!("cluster.coherence={protocol}")]).collect();
        let nats_server = nats_server.to_owned();
        let relays = Vec::new();
        let settings =
            LocalClusterSettings { folder, nodes: NODES, program, nats_server, networks: false, relays, set };
        let mut cluster = LocalCluster::start(&settings, PATIENCE).await.map_err(|error| failed(&error))?;
        let statuses = settled(&mut cluster, usize::from(NODES)).await?;
        let [first, ..] = statuses.as_slice() else { return Err(failed(&"it has no node")) };
        let namespace = first.1.endpoints.namespace.clone();
        let signer = |service| signer_of(&first.0, &first.1.endpoints, namespace.as_str(), service);
        let signers = [signer("lambda")?, signer("s3")?];
        let shards = first.1.cluster.as_ref().and_then(|own| own.homes.as_ref()).map_or(1, |homes| homes.shards);
        let mut nodes = Vec::new();
        for (state, Status { endpoints, cluster, .. }) in statuses {
            let homes = cluster.and_then(|own| own.homes).map(|homes| homes.own).unwrap_or_default();
            let (lambda, s3) = (socket_address(&endpoints.lambda)?, socket_address(&endpoints.s3)?);
            nodes.push(NodePlace { state, lambda, s3, homes });
        }
        let shards = Shards::new(NonZeroU16::new(shards).unwrap_or(NonZeroU16::MIN));
        let side = Self { cluster, nodes, namespace, shards, signers };
        side.door(0).send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
        side.keep_in_memory(IN_MEMORY).await?;
        Ok(side)
    }

    /// Objects whose keys begin with `prefix` are ephemeral.
    async fn keep_in_memory(&self, prefix: &str) -> Result<(), LabError> {
        let rule = ModeRule { prefix: prefix.to_owned(), tag: None, mode: WriteMode::Ephemeral };
        let policy = BucketPolicy { rules: vec![rule], ..BucketPolicy::default() };
        let path = format!("/buckets/{}/{BUCKET}/policy", self.namespace);
        let admin = AdminClient::new(&StatePaths::new(&self.nodes[0].state).admin_socket());
        let set = admin.give(&path, &policy).await;
        set.map_err(|error| LabError::Node(format!("the bucket's policy: {error}")))?;
        // The other nodes read the registry each second.
        tokio::time::sleep(SEEN_WITHIN).await;
        Ok(())
    }

    fn door(&self, node: usize) -> S3Door {
        S3Door { signer: self.signers[1].clone(), address: self.nodes[node].s3 }
    }

    pub(super) fn lambda(&self) -> Result<LambdaClient, LabError> {
        LambdaClient::to(self.nodes[0].lambda, self.signers[0].clone())
    }

    pub(super) fn home_of(&self, key: &str) -> Result<usize, LabError> {
        let name = |error: &dyn std::fmt::Display| LabError::Node(format!("{key}: {error}"));
        let object = ObjectId {
            namespace: self.namespace.clone(),
            bucket: BucketName::new(BUCKET).map_err(|error| name(&error))?,
            key: ObjectKey::new(key).map_err(|error| name(&error))?,
        };
        let shard = self.shards.of(&object);
        let home = self.nodes.iter().position(|node| node.homes.contains(&shard));
        home.ok_or_else(|| name(&"its shard has no home"))
    }

    /// Puts an object by the door of its home, which alone caches it then.
    pub(super) async fn put(&self, key: &str, body: &[u8]) -> Result<(), LabError> {
        let home = self.home_of(key)?;
        self.door(home).send(Method::PUT, &format!("/{BUCKET}/{key}"), body).await
    }

    /// Invokes functions at the same time, each by a connection of its own.
    pub(super) async fn invoke(&self, calls: &[(String, Vec<u8>)]) -> Result<Vec<StageInvocation>, LabError> {
        let mut ready = Vec::new();
        for (function, event) in calls {
            let client = self.lambda()?;
            let request = client.invocation(function, event).await?;
            ready.push((function, client, request));
        }
        at_once(ready, |(function, mut client, request): (&String, LambdaClient, Vec<u8>)| {
            let (answer, took) = client.invoke(function, &request)?;
            Ok(StageInvocation { payload: answer.payload, took })
        })
    }

    /// Ends its processes in order.
    pub(super) fn end(self) {
        self.cluster.end(DRAIN);
    }
}

/// The environment of all functions: they declare that caching pays, so that no side learns otherwise.
pub(super) fn environment() -> BTreeMap<String, String> {
    BTreeMap::from([("NIGH_CACHE".to_owned(), "benefit".to_owned())])
}

/// Settings of a cluster's nodes, as a command line has them.
pub(super) fn settings(python: &Path) -> Vec<String> {
    let python = format!("functions.python={}", python.display());
    let others = [
        // Stages of a workflow do not all fit onto one node.
        "functions.memory=800 MiB",
        "functions.prewarm=off",
        "cache.bytes=768 MiB",
        "cache.object_max=32 MiB",
        "cluster.journal_max=128 MiB",
    ];
    others.map(str::to_owned).into_iter().chain([python]).collect()
}
