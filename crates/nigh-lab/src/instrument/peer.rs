//! Other people's servers, run here to be measured or stood upon: real ones, each from its own folder and ports.
//!
//! `make peers` installs them (`installed`); `servers` starts, watches and ends them; `started` keeps the record by which
//! the next run ends what a crashed one has left.

/// A `Peer` with a field `servers`, a field `version` and its file's name `PEER`.
macro_rules! served {
    ($peer:ty) => {
        impl Peer for $peer {
            fn name(&self) -> &'static str {
                PEER
            }

            fn version(&self) -> String {
                self.version.to_string()
            }

            fn processes(&self) -> Vec<u32> {
                self.servers.processes()
            }
        }
    };
}

pub(crate) mod bare_runtime;
pub mod bare_s3s;
pub(crate) mod canned;
pub(crate) mod installed;
pub mod keystone;
pub mod nats;
#[cfg(feature = "all")]
pub(crate) mod porcupine;
pub mod redis;
pub mod s3_server;
mod servers;
pub(crate) mod started;
pub mod swift;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nigh_terms::SecretKey;
use thiserror::Error;

pub(crate) use self::servers::private_file;
use crate::instrument::sign::Signer;

/// A server of others that runs on this machine; ended when dropped.
pub trait Peer {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Its version, as its makers write it; empty if it does not tell.
    fn version(&self) -> String;

    /// All its processes now, workers included: their processor time is what its work costs.
    fn processes(&self) -> Vec<u32>;
}

/// Where an S3 API is and the key it takes.
#[derive(Clone, Debug)]
pub struct S3Access {
    /// `http://127.0.0.1:<port>`.
    pub endpoint: String,
    /// The account's access key.
    pub access_key: String,
    /// Its secret.
    pub secret_key: SecretKey,
    /// The region it signs for.
    pub region: String,
}

impl S3Access {
    fn on_loopback(port: u16, access_key: &str, secret_key: SecretKey) -> Self {
        let (endpoint, region) = (format!("http://127.0.0.1:{port}"), "us-east-1".to_owned());
        Self { endpoint, access_key: access_key.to_owned(), secret_key, region }
    }

    /// The environment in which an SDK finds it.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let variables = [
            ("AWS_ENDPOINT_URL_S3", self.endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", &self.access_key),
            ("AWS_SECRET_ACCESS_KEY", self.secret_key.reveal()),
            ("AWS_REGION", &self.region),
            ("AWS_DEFAULT_REGION", &self.region),
        ];
        variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Signs for it.
    #[must_use]
    pub fn signer(&self) -> Signer {
        Signer::new("s3", &self.region, &self.access_key, self.secret_key.reveal())
    }
}

/// Why a peer cannot run.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum PeerError {
    #[error("{peer} is not installed: {missing} is missing. Hint: {hint}")]
    NotInstalled { peer: &'static str, missing: String, hint: String },
    #[error("{peer}: {operation} {path}: {source}")]
    File { peer: &'static str, operation: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{peer}: {program} cannot be started: {source}")]
    Start { peer: &'static str, program: String, source: std::io::Error },
    #[error("{peer}: {program} ended at once ({status}): {output}")]
    Ended { peer: &'static str, program: String, status: String, output: String },
    #[error("{peer}: not healthy after {seconds} s: {reason}; its output is in {logs}")]
    NotHealthy { peer: &'static str, seconds: u64, reason: String, logs: PathBuf },
    #[error("{peer} did not start: {reason}")]
    Failed { peer: &'static str, reason: String },
}

impl PeerError {
    fn not_installed(peer: &'static str, missing: impl Display, hint: &str) -> Self {
        Self::NotInstalled { peer, missing: missing.to_string(), hint: hint.to_owned() }
    }

    fn failed(peer: &'static str, reason: impl Display) -> Self {
        Self::Failed { peer, reason: reason.to_string() }
    }
}

/// What was started; none if it is not installed, and `say` is told why.
pub(crate) fn if_installed<T>(started: Result<T, PeerError>, say: impl FnOnce(String)) -> Result<Option<T>, PeerError> {
    match started {
        Err(missing @ PeerError::NotInstalled { .. }) => {
            say(missing.to_string());
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct KilledOnDrop(pub(crate) Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Both fail only if the process is gone, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A peer's process that prints its port first.
#[derive(Debug)]
pub(crate) struct PeerProcess {
    child: KilledOnDrop,
    address: SocketAddr,
}

impl PeerProcess {
    /// Runs `command` and reads its port.
    pub(crate) fn start(peer: &'static str, command: &mut Command) -> Result<Self, PeerError> {
        let failed = |error| PeerError::failed(peer, error);
        let mut child = KilledOnDrop(command.stdout(Stdio::piped()).spawn().map_err(failed)?);
        let mut line = String::new();
        if let Some(output) = child.0.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(failed)?;
        }
        let no_port = |_| PeerError::failed(peer, format!("it printed {line:?} where its port was expected"));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, line.trim().parse::<u16>().map_err(no_port)?));
        Ok(Self { child, address })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }
}
