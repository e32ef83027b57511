//! A real OpenStack Keystone on this machine, on SQLite, for one Swift. Its tokens live forty seconds, so that a test sees
//! one end. `peers/keystone_peer.py` runs it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nigh_terms::SecretKey;
use serde::Deserialize;

use super::servers::{PeerFolder, file_error};
use super::{PeerError, PeerProcess};

const PEER: &str = "Keystone";
const SCRIPT: &str = include_str!("../../../peers/keystone_peer.py");
/// The one user and project, in the domain `Default`.
pub const ADMIN: &str = "admin";
/// The region of the catalog in which the Swift is.
pub const REGION: &str = "here";
/// How long its tokens live.
pub const TOKEN_LIFE: Duration = Duration::from_secs(40);

/// A running Keystone; ended when dropped.
#[derive(Debug)]
pub struct Keystone {
    process: PeerProcess,
    python: PathBuf,
    script: PathBuf,
    password: SecretKey,
}

/// What logs in instead of a user's password.
#[derive(Debug, Deserialize)]
pub struct ApplicationCredential {
    /// Its id.
    pub id: String,
    /// Its secret.
    pub secret: SecretKey,
}

impl Keystone {
    /// Starts a Keystone whose files go into `folder`. Returns when it answers; blocks for half a minute.
    ///
    /// # Errors
    /// `NotInstalled` if it is not there; else what went wrong.
    pub fn start(folder: &Path) -> Result<Self, PeerError> {
        let python = python();
        if !python.with_file_name("keystone-manage").is_file() {
            return Err(PeerError::not_installed(PEER, python.display(), "run scripts/install-keystone.sh"));
        }
        let place = PeerFolder { peer: PEER, folder };
        place.folder("")?;
        let script = place.file("keystone_peer.py", SCRIPT)?;
        let log = folder.join("keystone.log");
        let errors = File::create(&log).map_err(file_error(PEER, "write", &log))?;
        let password = SecretKey::random();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&python).arg(&script).arg("serve").arg(folder);
        let process = PeerProcess::start(PEER, command.arg(password.reveal()).stderr(errors))?;
        Ok(Self { process, python, script, password })
    }

    /// Its v3 API: `http://127.0.0.1:<port>/v3`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v3", self.process.address())
    }

    /// The password of its one user.
    #[must_use]
    pub const fn password(&self) -> &SecretKey {
        &self.password
    }

    /// Enters the Swift at `endpoint` into the catalog, and makes an application credential for it.
    ///
    /// # Errors
    /// If it refuses.
    pub fn register(&self, endpoint: &str) -> Result<ApplicationCredential, PeerError> {
        let mut command = Command::new(&self.python);
        command.arg(&self.script).arg("register").args([&self.url(), self.password.reveal(), endpoint]);
        let output = command.output().map_err(|error| PeerError::failed(PEER, error))?;
        if !output.status.success() {
            return Err(PeerError::failed(PEER, String::from_utf8_lossy(&output.stderr)));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| PeerError::failed(PEER, error))
    }
}

/// The interpreter of `scripts/install-keystone.sh`, or the one that `NIGH_TEST_KEYSTONE_PYTHON` names.
fn python() -> PathBuf {
    let installed = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.deps/keystone/bin/python3");
    std::env::var_os("NIGH_TEST_KEYSTONE_PYTHON").map_or_else(installed, PathBuf::from)
}
