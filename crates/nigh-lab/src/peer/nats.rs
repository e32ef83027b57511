//! A real NATS server on this machine, with JetStream in a folder, each write synced before it is acknowledged.

use std::path::Path;

use nigh_terms::SecretKey;

use super::installed::built;
use super::servers::{Program, Servers, file_error, free_ports, http_health, private_file, private_folder};
use super::{Peer, PeerError};

const PEER: &str = "NATS";
const PROGRAM: &str = "nats-server";

/// A running NATS server.
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
        let configuration = folder.join("nats.conf");
        private_file(&configuration, &configured(folder, port, monitor, &token)).map_err(file_error(
            PEER,
            "write",
            &configuration,
        ))?;
        let server = Program {
            name: PROGRAM,
            path: installed.program,
            arguments: vec!["--config".to_owned(), configuration.display().to_string()],
            environment: Vec::new(),
            health: Some(http_health(monitor, "/healthz")),
        };
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

impl Peer for Nats {
    fn name(&self) -> &'static str {
        PEER
    }

    fn version(&self) -> String {
        self.version.to_owned()
    }

    fn processes(&self) -> Vec<u32> {
        self.servers.processes()
    }
}

fn configured(folder: &Path, port: u16, monitor: u16, token: &SecretKey) -> String {
    format!(
        "listen: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitor}\"\nauthorization {{ token: \"{}\" }}\n\
         jetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
        token.reveal(),
        folder.join("jetstream").display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_on_loopback_asks_for_a_token_and_syncs_each_write() {
        let text = configured(Path::new("/d"), 7, 8, &SecretKey::new("hush"));
        for part in ["\"127.0.0.1:7\"", "\"127.0.0.1:8\"", "token: \"hush\"", "sync_interval: always", "/d/jetstream"] {
            assert!(text.contains(part), "{part}");
        }
    }
}
