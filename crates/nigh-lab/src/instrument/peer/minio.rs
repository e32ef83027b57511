//! A real MinIO on this machine, one drive: a folder.

use std::path::{Path, PathBuf};

use nigh_terms::SecretKey;

use super::installed::built;
use super::servers::{Program, Servers, file_error, free_ports, http_health, private_folder};
use super::{Peer, PeerError, S3Access};

const PEER: &str = "MinIO";
const PROGRAM: &str = "minio";
const ACCESS_KEY: &str = "nigh-lab";
/// The webhook's name among what a bucket can tell of its changes.
pub const WEBHOOK: &str = "arn:minio:sqs::NIGH:webhook";

/// A running MinIO.
#[derive(Debug)]
pub struct Minio {
    /// Absent after a kill.
    servers: Option<Servers>,
    folder: PathBuf,
    ports: [u16; 2],
    s3: S3Access,
    version: &'static str,
    /// Environment beyond its own.
    more: Vec<(&'static str, String)>,
}

impl Minio {
    /// Starts a MinIO whose files go into `folder`, made if absent. Returns when it answers.
    ///
    /// # Errors
    /// `NotInstalled` if it is not there; else what could not be written, started or reached.
    pub fn start(folder: &Path) -> Result<Self, PeerError> {
        Self::start_with(folder, Vec::new())
    }

    /// The same, and its buckets can tell `endpoint` of changes, with `token`, before it answers who changes them. Which
    /// do is theirs to say (`WEBHOOK`).
    ///
    /// # Errors
    /// As of `start`.
    pub fn start_with_webhook(folder: &Path, endpoint: &str, token: &SecretKey) -> Result<Self, PeerError> {
        let environment = vec![
            ("MINIO_NOTIFY_WEBHOOK_ENABLE_NIGH", "on".to_owned()),
            ("MINIO_NOTIFY_WEBHOOK_ENDPOINT_NIGH", endpoint.to_owned()),
            ("MINIO_NOTIFY_WEBHOOK_AUTH_TOKEN_NIGH", token.reveal().to_owned()),
            ("MINIO_API_SYNC_EVENTS", "on".to_owned()),
        ];
        Self::start_with(folder, environment)
    }

    fn start_with(folder: &Path, more: Vec<(&'static str, String)>) -> Result<Self, PeerError> {
        let installed = built(PEER, PROGRAM)?;
        let drive = folder.join("drive");
        private_folder(&drive).map_err(file_error(PEER, "make", &drive))?;
        let ports: [u16; 2] = free_ports().map_err(file_error(PEER, "find free ports for", folder))?;
        let s3 = S3Access::on_loopback(ports[0], ACCESS_KEY, SecretKey::random());
        let mut stopped =
            Self { servers: None, folder: folder.to_owned(), ports, s3, version: installed.version, more };
        stopped.start_again()?;
        Ok(stopped)
    }

    /// Ends it at once, as a crash does.
    pub fn kill(&mut self) {
        if let Some(servers) = self.servers.take() {
            servers.kill();
        }
    }

    /// Starts it again after a kill, with its files, on its ports. Returns when it answers.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_again(&mut self) -> Result<(), PeerError> {
        let [port, console] = self.ports;
        let server = Program {
            name: PROGRAM,
            path: built(PEER, PROGRAM)?.program,
            arguments: [
                "server",
                "--quiet",
                "--address",
                &format!("127.0.0.1:{port}"),
                "--console-address",
                &format!("127.0.0.1:{console}"),
                &self.folder.join("drive").display().to_string(),
            ]
            .map(str::to_owned)
            .into(),
            environment: [
                ("MINIO_ROOT_USER", ACCESS_KEY.to_owned()),
                ("MINIO_ROOT_PASSWORD", self.s3.secret_key.reveal().to_owned()),
                // It would look for a newer version of itself.
                ("MINIO_UPDATE", "off".to_owned()),
            ]
            .into_iter()
            .chain(self.more.clone())
            .collect(),
            // `ready` says so before objects can be written.
            health: Some(http_health(port, "/minio/health/cluster")),
        };
        self.servers = Some(Servers::start(PEER, &self.folder, vec![server])?);
        Ok(())
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
        self.servers.as_ref().map(Servers::processes).unwrap_or_default()
    }
}
