//! The folder for everything that Nigh stores on a machine: only its user can read it, and one process at a time holds
//! it.
//!
//! ```text
//! lock            held (flock) by the running node; the kernel releases it when the node dies
//! instance        the number by which this node finds its own sandboxes after a crash
//! state.redb      registry and activation records
//! objects/        the directory store, if no other store is set
//! journal/        acknowledged writes that the store does not hold yet
//! spool/          uploads that are not complete
//! functions/      code of the deployed functions
//! credentials     keys of the namespaces' clients, as AWS profiles
//! endpoints.json  where the running node listens; absent when none runs
//! admin.sock      the admin API; s3.sock: the S3 door
//! tls/            the authority and the certificate of `nigh up --tls`
//! nigh.toml       settings, if the user wrote any
//! dev.log         the log of a node that `nigh dev` started
//! restore.*       an unfinished restore (`placing`); before-restore-*: the state that a restore replaced
//! ```

pub mod instance;
pub(crate) mod placing;

use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nigh_engine::LockFile;
use thiserror::Error;

/// A Unix socket's path must fit the kernel's `sun_path`, its final NUL included (unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// Why the folder cannot be used.
#[derive(Debug, Error)]
pub enum StateFolderError {
    /// Another node holds the folder.
    #[error("another Nigh is running at {0}; stop it first, or choose another folder with --state")]
    Held(PathBuf),
    /// The folder belongs to another user.
    #[error("{path} belongs to user {owner}, this is user {user}; choose another folder with --state")]
    Foreign {
        /// The path of the folder.
        path: PathBuf,
        /// Its owner's uid.
        owner: u32,
        /// This process's uid.
        user: u32,
    },
    /// The path of a socket in it is too long.
    #[error("{path} is too long for a Unix socket ({SOCKET_PATH_MAX} bytes); choose a shorter --state or s3.socket")]
    SocketPath {
        /// The path of the socket.
        path: PathBuf,
    },
    /// The file with the node's number has another content.
    #[error(
        "{path} does not hold the number that a node wrote there; put the number back, or remove the file: the node then \
         takes a new number, and does not end sandboxes that it left in a crash"
    )]
    Instance {
        /// The path of the file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> StateFolderError {
    move |source| StateFolderError::Io { path: path.to_owned(), source }
}

/// The paths in the folder. This does not hold the folder's lock.
#[derive(Clone, Debug)]
pub struct StatePaths(PathBuf);

impl StatePaths {
    /// The paths below `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self(root.to_owned())
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// The lock file, held by the running node.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// The file of registry and records.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.0.join("state.redb")
    }

    /// The folder of acknowledged writes that the store does not have yet.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// The folder of unfinished uploads.
    #[must_use]
    pub fn spool(&self) -> PathBuf {
        self.0.join("spool")
    }

    /// The folder of unfinished profiles.
    #[must_use]
    pub fn profiles(&self) -> PathBuf {
        self.0.join("profiles")
    }

    /// The folder of the deployed functions' code.
    #[must_use]
    pub fn functions(&self) -> PathBuf {
        self.0.join("functions")
    }

    /// The file of the clients' keys.
    #[must_use]
    pub fn credentials(&self) -> PathBuf {
        self.0.join("credentials")
    }

    /// The file with the addresses of the running node.
    #[must_use]
    pub fn endpoints(&self) -> PathBuf {
        self.0.join("endpoints.json")
    }

    /// The admin API's socket.
    #[must_use]
    pub fn admin_socket(&self) -> PathBuf {
        self.0.join("admin.sock")
    }

    /// The fast path's socket.
    #[must_use]
    pub fn fast_socket(&self) -> PathBuf {
        self.0.join("fast.sock")
    }

    /// The folder of the authority and the certificate that `nigh up --tls` makes.
    #[must_use]
    pub fn tls(&self) -> PathBuf {
        self.0.join("tls")
    }

    /// The file with the number that distinguishes this node from others on the machine.
    #[must_use]
    pub fn instance(&self) -> PathBuf {
        self.0.join("instance")
    }
}

/// The folder, held by this process. Dropping this releases it.
#[derive(Debug)]
pub struct StateFolder {
    paths: StatePaths,
    instance: String,
    _lock: LockFile,
}

impl StateFolder {
    /// Makes the folder if it is missing, closes it to other users, and takes its lock.
    ///
    /// # Errors
    /// If it belongs to another user, is held by another node, or the system refuses.
    pub fn take(root: &Path) -> Result<Self, StateFolderError> {
        let lock = hold(root)?;
        if placing::complete(root)? {
            tracing::info!("finished a restore that a crash interrupted");
        }
        placing::discard(root)?;
        let paths = StatePaths::new(root);
        for folder in [paths.spool(), paths.functions()] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed(&folder))?;
        }
        let instance = instance::name_of(&paths.instance())?;
        Ok(Self { paths, instance, _lock: lock })
    }

    /// The folder's paths.
    #[must_use]
    pub const fn paths(&self) -> &StatePaths {
        &self.paths
    }

    /// The name of this node among all nodes of the machine, the same at every start: letters and digits only.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }
}

/// Makes the folder if it is missing, closes it to other users, and takes its lock.
pub(crate) fn hold(root: &Path) -> Result<LockFile, StateFolderError> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(failed(root))?;
    let metadata = root.metadata().map_err(failed(root))?;
    let (owner, user) = (std::os::unix::fs::MetadataExt::uid(&metadata), rustix::process::geteuid().as_raw());
    if owner != user {
        return Err(StateFolderError::Foreign { path: root.to_owned(), owner, user });
    }
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o700)).map_err(failed(root))?;
    let lock_path = StatePaths::new(root).lock();
    let lock = LockFile::take(&lock_path, true).map_err(failed(&lock_path))?;
    lock.ok_or_else(|| StateFolderError::Held(root.to_owned()))
}

/// True while a node holds the state folder of `paths`, even if its doors and sockets are closed.
pub fn is_held(paths: &StatePaths) -> Result<bool, StateFolderError> {
    let path = paths.lock();
    LockFile::is_taken(&path).map_err(failed(&path))
}

/// Listens on a Unix socket that only this user can reach. A socket that is at `path` is replaced: the caller holds the
/// state folder's lock, so no process listens there.
///
/// # Errors
/// If the path is too long, another kind of file is there, or the system refuses.
pub fn bind_socket(path: &Path) -> Result<tokio::net::UnixListener, StateFolderError> {
    bind_socket_by(path, |path| tokio::net::UnixListener::bind(path))
}

/// Listens on a Unix socket as `bind_socket` does, for another kind of socket, which `bind` opens.
pub fn bind_socket_by<L>(path: &Path, bind: impl FnOnce(&Path) -> std::io::Result<L>) -> Result<L, StateFolderError> {
    use std::os::unix::fs::FileTypeExt;

    if path.as_os_str().len() > SOCKET_PATH_MAX {
        return Err(StateFolderError::SocketPath { path: path.to_owned() });
    }
    if path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket()) {
        std::fs::remove_file(path).map_err(failed(path))?;
    }
    let listener = bind(path).map_err(failed(path))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed(path))?;
    Ok(listener)
}

/// Writes a file that only this user can read, completely or not at all. The file is durable when this returns.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), StateFolderError> {
    use std::io::Write;

    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let fresh = PathBuf::from(name);
    let written = (|| {
        let mut file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::File::open(folder)?.sync_all()
    })();
    written.map_err(failed(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_and_held_by_one_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("a/state");
        assert!(!is_held(&StatePaths::new(&root)).unwrap());
        let held = StateFolder::take(&root).unwrap();
        assert!(is_held(held.paths()).unwrap());
        assert_eq!(root.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(matches!(StateFolder::take(&root), Err(StateFolderError::Held(path)) if path == root));
        let instance = held.instance().to_owned();
        drop(held);
        assert!(!is_held(&StatePaths::new(&root)).unwrap());
        let again = StateFolder::take(&root).unwrap();
        assert_eq!(again.instance(), instance, "what a crash left is found again");
    }

    #[test]
    fn a_private_file_is_replaced_whole_and_read_by_its_user_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        write_private(&path, b"first, and longer").unwrap();
        write_private(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_socket_left_behind_is_replaced_and_a_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        drop(bind_socket(&path).unwrap());
        assert!(path.exists());
        let listener = bind_socket(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        drop(listener);
        let file = folder.path().join("precious");
        std::fs::write(&file, "x").unwrap();
        assert!(bind_socket(&file).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"x");
        assert!(matches!(bind_socket(&folder.path().join("x".repeat(120))), Err(StateFolderError::SocketPath { .. })));
    }
}
