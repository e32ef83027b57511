//! The addresses of a running node, for the command and scripts: `endpoints.json` in the state folder.

use std::path::{Path, PathBuf};

use nigh_terms::Namespace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::state_folder::{StateFolderError, StatePaths, write_private};

/// The addresses of a running node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Endpoints {
    /// The id of the node's process.
    pub pid: u32,
    /// The S3 door: `http://127.0.0.1:9400`, or `https://` with TLS.
    pub s3: String,
    /// The S3 door's Unix socket.
    pub s3_socket: PathBuf,
    /// The Lambda door.
    pub lambda: String,
    /// The admin API and the page over TCP; none in the file of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
    /// The admin API's Unix socket.
    pub admin_socket: PathBuf,
    /// The fast path's Unix socket; none if it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_socket: Option<PathBuf>,
    /// The listener for health and metrics; none of a node of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    /// The door for stores' reports of outside writes; none if it is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<String>,
    /// The file of the authority of the doors' certificate; none without TLS, and if clients' systems trust it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<PathBuf>,
    /// The AWS region for signatures.
    pub region: String,
    /// The namespace that the first start created.
    pub namespace: Namespace,
}

/// Why a node's addresses are unknown.
#[derive(Debug, Error)]
pub enum EndpointsError {
    /// No node runs.
    #[error("no Nigh is running at {0}; start one with `nigh up`")]
    NotRunning(PathBuf),
    /// The node drains: its doors are closed, its admin API still answers.
    #[error("Nigh at {0} is draining and rejects new requests; `nigh status` says what it waits for")]
    Draining(PathBuf),
    /// The file cannot be read.
    #[error("{path}: {reason}")]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// Why it cannot be read.
        reason: String,
    },
}

impl Endpoints {
    /// Writes the addresses.
    pub fn write(&self, paths: &StatePaths) -> Result<(), StateFolderError> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| StateFolderError::Io { path: paths.endpoints(), source: error.into() })?;
        write_private(&paths.endpoints(), &text)
    }

    /// The addresses of the node at `paths`, if its process lives.
    ///
    /// # Errors
    /// If no node runs there, or the node is draining.
    pub fn read(paths: &StatePaths) -> Result<Self, EndpointsError> {
        let path = paths.endpoints();
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let root = paths.root().to_owned();
                let answers = answers(&paths.admin_socket());
                return Err(if answers { EndpointsError::Draining(root) } else { EndpointsError::NotRunning(root) });
            }
            Err(error) => return Err(EndpointsError::Unreadable { path, reason: error.to_string() }),
        };
        let endpoints: Self = serde_json::from_slice(&text)
            .map_err(|error| EndpointsError::Unreadable { path, reason: error.to_string() })?;
        // A killed node leaves its file behind, but not a listener on its admin socket.
        if answers(&endpoints.admin_socket) {
            Ok(endpoints)
        } else {
            Err(EndpointsError::NotRunning(paths.root().to_owned()))
        }
    }
}

/// True if a node listens on `admin_socket`, which it opens first and closes last.
fn answers(admin_socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(admin_socket).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_died_is_not_taken_for_a_running_one() {
        let folder = tempfile::tempdir().unwrap();
        let paths = StatePaths::new(folder.path());
        assert!(matches!(Endpoints::read(&paths), Err(EndpointsError::NotRunning(_))));
        let listener = std::os::unix::net::UnixListener::bind(paths.admin_socket()).unwrap();
        let endpoints = Endpoints {
            pid: 1,
            s3: "http://127.0.0.1:1".to_owned(),
            s3_socket: folder.path().join("s3.sock"),
            lambda: "http://127.0.0.1:2".to_owned(),
            admin: Some("http://127.0.0.1:4".to_owned()),
            admin_socket: paths.admin_socket(),
            fast_socket: Some(folder.path().join("fast.sock")),
            health: Some("http://127.0.0.1:4".to_owned()),
            outside: Some("http://127.0.0.1:3".to_owned()),
            ca_bundle: Some(folder.path().join("tls/authority.crt")),
            region: "us-east-1".to_owned(),
            namespace: Namespace::new("default").unwrap(),
        };
        endpoints.write(&paths).unwrap();
        assert_eq!(Endpoints::read(&paths).unwrap(), endpoints);
        // A node removes its file when it begins to end.
        std::fs::remove_file(paths.endpoints()).unwrap();
        assert!(matches!(Endpoints::read(&paths), Err(EndpointsError::Draining(_))));
        endpoints.write(&paths).unwrap();
        drop(listener);
        // Removed, as after a restart of the machine. (That the socket file alone is not enough cannot be shown here: a
        // process that another test starts just now may have a copy of the listener until it runs its program.)
        std::fs::remove_file(paths.admin_socket()).unwrap();
        let message = Endpoints::read(&paths).unwrap_err().to_string();
        assert!(message.contains("nigh up"), "{message}");
    }
}
