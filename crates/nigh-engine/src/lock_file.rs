//! A lock file: only the process that has locked it uses the files beside it. The kernel releases the lock when the
//! process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A lock file that this process has locked, until it is dropped.
#[derive(Debug)]
pub struct LockFile(File);

impl LockFile {
    /// Locks the file at `path`, and creates it if `make`. None if another process has locked it.
    ///
    /// # Errors
    /// If the file cannot be opened, or its file system has no locks (flock(2)).
    pub fn take(path: &Path, make: bool) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().write(true).create(make).truncate(false).mode(0o600).open(path)?;
        locked(file.try_lock(), file)
    }

    /// True if a process has locked the file at `path`.
    ///
    /// # Errors
    /// The same as for `take`.
    pub fn is_taken(path: &Path) -> io::Result<bool> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        // The lock is shared and released at once, so that two concurrent checks do not see each other as holders.
        Ok(locked(file.try_lock_shared(), file)?.is_none())
    }
}

fn locked(tried: Result<(), TryLockError>, file: File) -> io::Result<Option<LockFile>> {
    match tried {
        Ok(()) => Ok(Some(LockFile(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl Drop for LockFile {
    /// Closing is not enough: a child that another thread forks meanwhile has the file open until it runs its program.
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "a lock file could not be unlocked; closing it unlocks it");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn one_has_it_at_a_time_and_those_who_ask_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert!(LockFile::take(&path, false).is_err() && !LockFile::is_taken(&path).unwrap());
        let held = LockFile::take(&path, true).unwrap().unwrap();
        assert!(LockFile::take(&path, true).unwrap().is_none() && LockFile::is_taken(&path).unwrap());
        drop(held);
        assert!(!LockFile::is_taken(&path).unwrap());
        LockFile::take(&path, false).unwrap().unwrap();
    }

    #[test]
    fn what_was_let_go_is_free_whatever_is_started_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert!(Command::new("true").status().unwrap().success());
                    }
                });
            }
            let begun = std::time::Instant::now();
            let refused = (0..20_000)
                .take_while(|_| begun.elapsed() < std::time::Duration::from_secs(1))
                .filter(|_| LockFile::take(&path, true).unwrap().is_none())
                .count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(refused, 0);
        });
    }
}
