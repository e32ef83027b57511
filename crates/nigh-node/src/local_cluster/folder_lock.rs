//! The lock of a local cluster's folder: one process at a time runs a cluster there. The kernel releases the lock when that
//! process ends, in whatever way.

use std::io;
use std::path::{Path, PathBuf};

use nigh_engine::LockFile;

use super::cluster::LocalClusterError;
use crate::state_folder::write_private;

/// The lock file, in the cluster's folder.
const LOCK: &str = "lock";
/// The file with the id of the process that has the lock, for messages.
const PID: &str = "pid";

/// The lock of a folder, until it is dropped.
#[derive(Debug)]
pub(super) struct FolderLock {
    _lock: LockFile,
    pid: PathBuf,
}

impl FolderLock {
    /// Takes the lock of `folder`.
    ///
    /// # Errors
    /// `Held` if another process has it.
    pub(super) fn take(folder: &Path) -> Result<Self, LocalClusterError> {
        let failed = |source| LocalClusterError::Io { what: "the lock of the cluster's folder".to_owned(), source };
        let pid = folder.join(PID);
        let Some(lock) = LockFile::take(&folder.join(LOCK), true).map_err(failed)? else {
            // The holder may not have written it yet.
            let pid = std::fs::read_to_string(pid).ok().and_then(|text| text.trim().parse().ok());
            return Err(LocalClusterError::Held { folder: folder.to_owned(), pid });
        };
        let written = write_private(&pid, std::process::id().to_string().as_bytes());
        written.map_err(|error| failed(io::Error::other(error)))?;
        Ok(Self { _lock: lock, pid })
    }
}

impl Drop for FolderLock {
    /// Removes the process's id before the lock is released, so that the next holder's id stays.
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.pid) {
            tracing::debug!(%error, file = %self.pid.display(), "a file with a process's id is left behind");
        }
    }
}
