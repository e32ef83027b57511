//! Three real NATS servers on this machine, a cluster with JetStream in a folder. Each write is synced before it is
//! acknowledged.

use std::path::Path;
use std::time::Duration;

use nigh_engine::nats::{ClusterSettings, ServerSettings, server_configuration};
use nigh_terms::SecretKey;

use super::installed::built;
use super::servers::{PeerFolder, Program, Servers, http_health};
use super::{Peer, PeerError};

const PEER: &str = "NATS";
const PROGRAM: &str = "nats-server";

const NAMES: [&str; 3] = ["nats-1", "nats-2", "nats-3"];

/// Three running NATS servers, which are a cluster.
#[derive(Debug)]
pub struct NatsCluster {
    servers: Servers,
    ports: [u16; 3],
    token: SecretKey,
    version: &'static str,
}

impl NatsCluster {
    /// Starts servers whose files go into `folder`, made if absent. Returns when they answer.
    ///
    /// # Errors
    /// `NotInstalled` if NATS is not there; else what could not be written, started or reached.
    pub fn start(folder: &Path) -> Result<Self, PeerError> {
        let installed = built(PEER, PROGRAM)?;
        let place = PeerFolder { peer: PEER, folder };
        let ports: [u16; 9] = place.free_ports()?;
        let routes: Vec<String> = ports[6..].iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let token = SecretKey::random();
        let mut programs = Vec::new();
        for (at, name) in NAMES.into_iter().enumerate() {
            let own = place.folder(name)?;
            let monitor = ports[3 + at];
            let text = server_configuration(&ServerSettings {
                name,
                listen: &format!("127.0.0.1:{}", ports[at]),
                monitor: Some(&format!("127.0.0.1:{monitor}")),
                cluster: Some(("lab", &routes[at])),
                routes: &routes,
                folder: &own.join("jetstream"),
                token: Some(&token),
            });
            let configuration = PeerFolder { peer: PEER, folder: &own }.file("nats.conf", &text)?;
            programs.push(Program {
                name,
                path: installed.program.clone(),
                arguments: vec!["--config".to_owned(), configuration.display().to_string()],
                environment: Vec::new(),
                health: Some(http_health(monitor, "/healthz")),
            });
        }
        let servers = Servers::start(PEER, folder, programs)?;
        Ok(Self { servers, ports: [ports[0], ports[1], ports[2]], token, version: installed.version })
    }

    /// How it is reached.
    #[must_use]
    pub fn settings(&self) -> ClusterSettings {
        ClusterSettings {
            servers: self.ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect(),
            token: Some(self.token.clone()),
            root_certificates: None,
            client_certificate: None,
            name: "nigh".to_owned(),
            replicas: NAMES.len(),
            answer_within: Duration::from_secs(30),
        }
    }

    /// What a client has to show.
    #[must_use]
    pub const fn token(&self) -> &SecretKey {
        &self.token
    }
}

served!(NatsCluster);
