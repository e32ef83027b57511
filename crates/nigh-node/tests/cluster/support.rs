//! Servers, and nodes that are members of one cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_node::cluster::ClusterEngine;
use nigh_node::config::{Layers, Settings};
use nigh_node::local_cluster::{NatsServers, Place, find_nats_server};
use nigh_node::machine::Machine;
use nigh_terms::{ByteSize, Clock, Incarnation, SystemClock};
use tempfile::TempDir;

use crate::skipped::skip;

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// NATS servers, and the settings of nodes that use them.
pub(crate) struct Trial {
    pub(crate) servers: NatsServers,
    folder: TempDir,
    variables: Vec<(String, String)>,
}

impl Trial {
    /// So many servers; none, and a line that says so, where they are not installed.
    pub(crate) fn start(test: &str, servers: usize, shards: u16) -> Option<Self> {
        let Some(program) = find_nats_server() else {
            skip(test, "nats-server is not installed; run `make peers`");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let places = vec![Place::loopback(); servers];
        let servers = NatsServers::start(&program, &folder.path().join("nats"), &places).unwrap();
        let variables = [
            ("NIGH_CLUSTER__NAME", "trial".to_owned()),
            ("NIGH_CLUSTER__SERVERS", servers.urls().join(",")),
            ("NIGH_CLUSTER__TOKEN", servers.token().reveal().to_owned()),
            ("NIGH_CLUSTER__REPLICAS", places.len().to_string()),
            ("NIGH_CLUSTER__SHARDS", shards.to_string()),
            ("NIGH_CLUSTER__LISTEN", "127.0.0.1:0".to_owned()),
            ("NIGH_CLUSTER__PLAIN", "true".to_owned()),
        ];
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Some(Self { servers, folder, variables })
    }

    /// The settings of a node.
    pub(crate) fn settings(&self, node: &str) -> Settings {
        self.settings_with(node, &[])
    }

    /// The settings of a node with these beside or instead.
    pub(crate) fn settings_with(&self, node: &str, more: &[(&str, String)]) -> Settings {
        let state = self.folder.path().join(node).display().to_string();
        let own = [("NIGH_STATE".to_owned(), state), ("NIGH_NODE".to_owned(), node.to_owned())];
        let more = more.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let environment = self.variables.iter().cloned().chain(own).chain(more).collect();
        let layers = Layers { file: None, environment, flags: Vec::new() };
        let machine = Machine { hostname: node.to_owned(), memory: ByteSize::gib(1), cpus: 2 };
        layers.resolve(&machine).unwrap().settings
    }

    /// A node that has joined. Waits until the servers answer.
    pub(crate) async fn join(&self, node: &str) -> ClusterEngine {
        self.join_by(&self.settings(node), Arc::new(SystemClock::new())).await
    }

    /// A node of these settings and this clock that has joined.
    pub(crate) async fn join_by(&self, settings: &Settings, clock: Arc<dyn Clock>) -> ClusterEngine {
        self.join_after(settings, None, clock).await
    }

    /// The same; it takes `former` for ended.
    pub(crate) async fn join_after(
        &self,
        settings: &Settings,
        former: Option<Incarnation>,
        clock: Arc<dyn Clock>,
    ) -> ClusterEngine {
        let begun = Instant::now();
        loop {
            match ClusterEngine::join(settings, settings.cluster.as_ref().unwrap(), former, clock.clone()).await {
                Ok(engine) => return engine,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Waits until `done`.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}
