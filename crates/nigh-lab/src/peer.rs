//! The servers that experiments compare with: real ones, started on free ports, ended with us.

pub mod bare_runtime;
pub mod bare_s3s;
pub mod canned;

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use thiserror::Error;

/// Why a peer cannot be had.
#[derive(Debug, Error)]
pub enum PeerError {
    /// It is not on this machine.
    #[error("{peer} is not installed; {hint}")]
    NotInstalled {
        /// The peer.
        peer: &'static str,
        /// How to install it.
        hint: String,
    },
    /// It did not start.
    #[error("{peer} did not start: {reason}")]
    Start {
        /// The peer.
        peer: &'static str,
        /// Its own reason.
        reason: String,
    },
}

/// A peer's process that prints its port first; killed when dropped.
#[derive(Debug)]
pub struct PeerProcess {
    child: Child,
    address: SocketAddr,
}

impl PeerProcess {
    /// Runs `command` and reads its port.
    ///
    /// # Errors
    /// If it cannot be run or prints no port.
    pub fn start(peer: &'static str, command: &mut Command) -> Result<Self, PeerError> {
        let failed = |reason: String| PeerError::Start { peer, reason };
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| failed(error.to_string()))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(|error| failed(error.to_string()))?;
        }
        match line.trim().parse() {
            Ok(port) => Ok(Self { child, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) }),
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(failed(format!("it printed {line:?} where its port was expected")))
            }
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // Both fail only if the process is gone, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
