//! A real MinIO on this machine, one drive: a folder.

use std::path::Path;

use nigh_terms::SecretKey;

use super::installed::built;
use super::servers::{Program, Servers, file_error, free_ports, http_health, private_folder};
use super::{Peer, PeerError, S3Access};

const PEER: &str = "MinIO";
const PROGRAM: &str = "minio";
const ACCESS_KEY: &str = "nigh-lab";

/// A running MinIO.
#[derive(Debug)]
pub struct Minio {
    servers: Servers,
    s3: S3Access,
    version: &'static str,
}

impl Minio {
    /// Starts a MinIO whose files go into `folder`, made if absent. Returns when it answers.
    ///
    /// # Errors
    /// `NotInstalled` if it is not there; else what could not be written, started or reached.
    pub fn start(folder: &Path) -> Result<Self, PeerError> {
        let installed = built(PEER, PROGRAM)?;
        let drive = folder.join("drive");
        private_folder(&drive).map_err(file_error(PEER, "make", &drive))?;
        let [port, console] = free_ports().map_err(file_error(PEER, "find free ports for", folder))?;
        let secret_key = SecretKey::random();
        let server = Program {
            name: PROGRAM,
            path: installed.program,
            arguments: [
                "server",
                "--quiet",
                "--address",
                &format!("127.0.0.1:{port}"),
                "--console-address",
                &format!("127.0.0.1:{console}"),
                &drive.display().to_string(),
            ]
            .map(str::to_owned)
            .into(),
            environment: vec![
                ("MINIO_ROOT_USER", ACCESS_KEY.to_owned()),
                ("MINIO_ROOT_PASSWORD", secret_key.reveal().to_owned()),
                // It would look for a newer version of itself.
                ("MINIO_UPDATE", "off".to_owned()),
            ],
            // `ready` says so before objects can be written.
            health: Some(http_health(port, "/minio/health/cluster")),
        };
        let servers = Servers::start(PEER, folder, vec![server])?;
        Ok(Self { servers, s3: S3Access::on_loopback(port, ACCESS_KEY, secret_key), version: installed.version })
    }

    /// Where its S3 API is.
    #[must_use]
    pub const fn s3(&self) -> &S3Access {
        &self.s3
    }
}

impl Peer for Minio {
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
