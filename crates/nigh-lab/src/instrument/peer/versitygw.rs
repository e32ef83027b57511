//! A real versitygw on this machine: S3 onto a folder, metadata in extended attributes.

use std::path::Path;

use nigh_terms::SecretKey;

use super::installed::built;
use super::servers::{Program, Servers, file_error, free_ports, http_health, private_folder};
use super::{Peer, PeerError, S3Access};

const PEER: &str = "versitygw";
const PROGRAM: &str = "versitygw";
const ACCESS_KEY: &str = "nigh-lab";
const HEALTH: &str = "/nigh-lab-health";

/// A running versitygw.
#[derive(Debug)]
pub struct VersityGw {
    servers: Servers,
    s3: S3Access,
    version: &'static str,
}

impl VersityGw {
    /// Starts a versitygw whose files go into `folder`, made if absent. Returns when it answers.
    ///
    /// # Errors
    /// `NotInstalled` if it is not there; else what could not be written, started or reached.
    pub fn start(folder: &Path) -> Result<Self, PeerError> {
        let installed = built(PEER, PROGRAM)?;
        let objects = folder.join("objects");
        private_folder(&objects).map_err(file_error(PEER, "make", &objects))?;
        let [port] = free_ports().map_err(file_error(PEER, "find a free port for", folder))?;
        let secret_key = SecretKey::random();
        let server = Program {
            name: PROGRAM,
            path: installed.program,
            arguments: [
                "--quiet",
                "--health",
                HEALTH,
                "--port",
                &format!("127.0.0.1:{port}"),
                "posix",
                &objects.display().to_string(),
            ]
            .map(str::to_owned)
            .into(),
            environment: vec![
                ("ROOT_ACCESS_KEY", ACCESS_KEY.to_owned()),
                ("ROOT_SECRET_KEY", secret_key.reveal().to_owned()),
            ],
            health: Some(http_health(port, HEALTH)),
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

served!(VersityGw);
