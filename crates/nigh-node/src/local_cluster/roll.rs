//! The processes of a local cluster in a file, `processes.json` in its folder. `nigh cluster status`, which is another
//! process than `nigh cluster up`, reads from it what has ended and restarted.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::state_folder::write_private;

/// The file, in the cluster's folder.
const FILE: &str = "processes.json";

/// One process of a local cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// The process's name.
    pub name: String,
    /// The process id. None while the process does not run.
    pub pid: Option<u32>,
    /// Number of restarts.
    pub restarts: u64,
    /// How the process last ended by itself. None if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_end: Option<String>,
    /// Seconds from its last end to its next start; none while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_after_s: Option<f64>,
}

fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// Writes the processes of the cluster in `folder`.
pub(super) fn write(folder: &Path, processes: &[ProcessStatus]) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(processes).map_err(io::Error::other)?;
    write_private(&file(folder), &text).map_err(io::Error::other)
}

/// The processes of the cluster in `folder`; none if no local cluster was started there.
pub fn local_processes(folder: &Path) -> io::Result<Option<Vec<ProcessStatus>>> {
    match std::fs::read(file(folder)) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
