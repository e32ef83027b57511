//! Real NATS servers on this machine, one alone or three in a cluster, with JetStream in a folder, each write synced
//! before it is acknowledged.

use std::path::Path;
use std::time::Duration;

use nigh_engine::nats::{ClusterSettings, ServerSettings, server_configuration};
use nigh_terms::SecretKey;

use super::installed::{InstalledProgram, built};
use super::servers::{Program, Servers, file_error, free_ports, http_health, private_file, private_folder};
use super::{Peer, PeerError};

const PEER: &str = "NATS";
const PROGRAM: &str = "nats-server";

/// A running NATS server, alone.
#[derive(Debug)]
pub struct Nats {
    servers: Servers,
    port: u16,
    token: SecretKey,
    version: &'static str,
}

impl Nats {
    /// Starts a server whose files go into `folder`, made if absent. Returns when it answers.
    ///
    /// # Errors
    /// `NotInstalled` if it is not there; else what could not be written, started or reached.
    pub fn start(folder: &Path) -> Result<Self, PeerError> {
        let installed = built(PEER, PROGRAM)?;
        private_folder(folder).map_err(file_error(PEER, "make", folder))?;
        let [port, monitor] = free_ports().map_err(file_error(PEER, "find free ports for", folder))?;
        let token = SecretKey::random();
        let server = program(&installed, folder, PROGRAM, [port, monitor], None, &token)?;
        let servers = Servers::start(PEER, folder, vec![server])?;
        Ok(Self { servers, port, token, version: installed.version })
    }

    /// Its clients' port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What a client has to show.
    #[must_use]
    pub const fn token(&self) -> &SecretKey {
        &self.token
    }
}

served!(Nats);

/// What the servers of a cluster are called.
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
    /// As of one alone.
    pub fn start(folder: &Path) -> Result<Self, PeerError> {
        let installed = built(PEER, PROGRAM)?;
        private_folder(folder).map_err(file_error(PEER, "make", folder))?;
        let ports: [u16; 9] = free_ports().map_err(file_error(PEER, "find free ports for", folder))?;
        let routes: Vec<String> = ports[6..].iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let token = SecretKey::random();
        let mut programs = Vec::new();
        for (at, name) in NAMES.into_iter().enumerate() {
            let own = folder.join(name);
            private_folder(&own).map_err(file_error(PEER, "make", &own))?;
            let place = Some((&*routes[at], &*routes));
            programs.push(program(&installed, &own, name, [ports[at], ports[3 + at]], place, &token)?);
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

/// A server with clients' and monitor's port, its files in `folder`; in a cluster with where it listens for the others,
/// and all of them.
fn program(
    installed: &InstalledProgram,
    folder: &Path,
    name: &'static str,
    [port, monitor]: [u16; 2],
    cluster: Option<(&str, &[String])>,
    token: &SecretKey,
) -> Result<Program, PeerError> {
    let configuration = folder.join("nats.conf");
    let text = server_configuration(&ServerSettings {
        name,
        listen: &format!("127.0.0.1:{port}"),
        monitor: Some(&format!("127.0.0.1:{monitor}")),
        cluster: cluster.map(|(listen, _)| ("lab", listen)),
        routes: cluster.map_or(&[], |(_, routes)| routes),
        folder: &folder.join("jetstream"),
        token: Some(token),
    });
    private_file(&configuration, &text).map_err(file_error(PEER, "write", &configuration))?;
    Ok(Program {
        name,
        path: installed.program.clone(),
        arguments: vec!["--config".to_owned(), configuration.display().to_string()],
        environment: Vec::new(),
        health: Some(http_health(monitor, "/healthz")),
    })
}
