//! The folders on disk that hold functions' code: one a version, whole or absent.
//!
//! ```text
//! ROOT/incoming/RANDOM/                      being written; removed at open
//! ROOT/code/NAMESPACE/FUNCTION/SHA256/       one version, made by one rename, never changed
//!                              task/         its files, as they appear at /var/task
//!                              archive.zip   what was uploaded
//! ROOT/outgoing/RANDOM/                      being removed; removed at open
//! ```
//!
//! Which versions are in use, `function_store` decides. All calls block on the disk.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nigh_terms::{ByteSize, FunctionName, Namespace};
use thiserror::Error;
use uuid::Uuid;

use crate::code_archive::{self, Archive, ArchiveError, ArchiveLimits};
use crate::function::Function;

const INCOMING: &str = "incoming";
const CODE: &str = "code";
const OUTGOING: &str = "outgoing";
const TASK: &str = "task";
const ARCHIVE: &str = "archive.zip";
/// Sandboxes may enter by name; only Nigh may list the folder.
const PASSAGE_MODE: u32 = 0o711;
const ARCHIVE_MODE: u32 = 0o600;

/// Why code cannot be stored.
#[derive(Debug, Error)]
pub enum CodeStoreError {
    /// The archive is refused.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The disk's own reason.
    #[error("{step} {path}: {source}; check the space and the permissions of the state folder")]
    Io {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CodeStoreError {
    move |source| CodeStoreError::Io { step, path: path.to_owned(), source }
}

/// Names one version of one function's code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeVersion {
    /// The tenant.
    pub namespace: Namespace,
    /// The function.
    pub function: FunctionName,
    /// The archive's SHA-256, base64.
    pub sha256: String,
}

impl CodeVersion {
    /// The version of `archive`.
    ///
    /// # Errors
    /// If the archive cannot be read.
    pub fn of_archive(
        namespace: &Namespace,
        function: &FunctionName,
        archive: &Archive,
    ) -> Result<Self, CodeStoreError> {
        let sha256 = STANDARD.encode(archive.sha256().map_err(failed("reading", Path::new("the archive")))?);
        Ok(Self { namespace: namespace.clone(), function: function.clone(), sha256 })
    }

    /// The version that `function` runs.
    #[must_use]
    pub fn of_function(function: &Function) -> Self {
        Self {
            namespace: function.namespace.clone(),
            function: function.name.clone(),
            sha256: function.code_sha256.clone(),
        }
    }

    /// The name of its folder: the SHA-256 in letters, digits, `-` and `_`.
    #[must_use]
    pub fn folder_name(&self) -> String {
        self.sha256.trim_end_matches('=').replace('+', "-").replace('/', "_")
    }
}

/// The archive of one version, as it lies in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredArchive {
    /// The tenant.
    pub namespace: Namespace,
    /// The function.
    pub function: FunctionName,
    /// `CodeVersion::folder_name`.
    pub version: String,
    /// What was uploaded.
    pub path: PathBuf,
}

/// The code of all functions of a node.
#[derive(Clone, Debug)]
pub struct CodeStore {
    root: PathBuf,
    limits: ArchiveLimits,
}

impl CodeStore {
    /// Opens `root`, or makes it, and removes what a crash left half-written or half-removed.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn open(root: &Path, limits: ArchiveLimits) -> Result<Self, CodeStoreError> {
        let store = Self { root: root.to_owned(), limits };
        make_passage(root)?;
        for transient in [INCOMING, OUTGOING] {
            let folder = root.join(transient);
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("clearing", &folder)(error));
                }
                _ => make_passage(&folder)?,
            }
        }
        make_passage(&root.join(CODE))?;
        sync_folder(root)?;
        Ok(store)
    }

    /// Unpacks `archive` as `version`, unless it is there already; durable when this returns. Returns the unpacked bytes.
    ///
    /// # Errors
    /// If the archive or the disk refuses; then nothing of it remains.
    pub fn publish(&self, version: &CodeVersion, archive: &Archive) -> Result<ByteSize, CodeStoreError> {
        let target = self.folder(version);
        let incoming = self.root.join(INCOMING).join(Uuid::new_v4().to_string());
        let unpacked = self.write(&incoming, archive).inspect_err(|_| drop(fs::remove_dir_all(&incoming)))?;
        let function = target.parent().unwrap_or(&self.root);
        let namespace = function.parent().unwrap_or(&self.root);
        make_passage(namespace)?;
        make_passage(function)?;
        if target.exists() {
            fs::remove_dir_all(&incoming).map_err(failed("removing", &incoming))?;
        } else {
            fs::rename(&incoming, &target).map_err(failed("renaming to", &target))?;
        }
        for folder in [function, namespace, &self.root.join(CODE)] {
            sync_folder(folder)?;
        }
        Ok(unpacked)
    }

    fn write(&self, incoming: &Path, archive: &Archive) -> Result<ByteSize, CodeStoreError> {
        make_passage(incoming)?;
        let unpacked = code_archive::unpack(archive, &incoming.join(TASK), self.limits)?;
        let path = incoming.join(ARCHIVE);
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(ARCHIVE_MODE)
            .open(&path)
            .map_err(failed("creating", &path))?;
        io::copy(&mut archive.reader(), &mut file).and_then(|_| file.sync_all()).map_err(failed("writing", &path))?;
        sync_folder(incoming)?;
        Ok(unpacked.size)
    }

    /// A new file without a name, for an archive that comes piece by piece.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn scratch(&self) -> Result<File, CodeStoreError> {
        let path = self.root.join(INCOMING).join(Uuid::new_v4().to_string());
        let made = File::options().read(true).write(true).create_new(true).mode(ARCHIVE_MODE).open(&path);
        let file = made.map_err(failed("creating", &path))?;
        fs::remove_file(&path).map_err(failed("removing", &path))?;
        Ok(file)
    }

    /// Checks whether `archive` can be unpacked.
    ///
    /// # Errors
    /// As `publish`.
    pub fn check(&self, archive: &Archive) -> Result<(), CodeStoreError> {
        let incoming = self.root.join(INCOMING).join(Uuid::new_v4().to_string());
        let checked = code_archive::unpack(archive, &incoming, self.limits);
        let removed = fs::remove_dir_all(&incoming);
        checked?;
        removed.map_err(failed("removing", &incoming))
    }

    /// Removes `version`, if it is there. A crash leaves it whole or not at all.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn remove(&self, version: &CodeVersion) -> Result<(), CodeStoreError> {
        self.remove_folder(&self.folder(version))?;
        // It succeeds only after the last version.
        let _ = fs::remove_dir(self.root.join(CODE).join(version.namespace.as_str()).join(version.function.as_str()));
        Ok(())
    }

    /// Removes every version that is not `live`. Returns how many.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn sweep(&self, live: impl Fn(&Path) -> bool) -> Result<usize, CodeStoreError> {
        let mut removed = 0;
        for namespace in folders(&self.root.join(CODE))? {
            for function in folders(&namespace)? {
                for version in folders(&function)?.into_iter().filter(|version| !live(version)) {
                    self.remove_folder(&version)?;
                    removed += 1;
                }
                let _ = fs::remove_dir(&function);
            }
        }
        Ok(removed)
    }

    /// The archives of all versions, by namespace, function and version's folder, for a copy of the store; those
    /// removed meanwhile are not among them.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn archives(root: &Path) -> Result<Vec<StoredArchive>, CodeStoreError> {
        let mut found = Vec::new();
        for namespace in folders_if_there(&root.join(CODE))? {
            for function in folders_if_there(&namespace)? {
                for version in folders_if_there(&function)? {
                    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
                    let names = name(&namespace).zip(name(&function)).zip(name(&version));
                    let Some(((namespace, function), version_name)) = names else { continue };
                    let (Ok(namespace), Ok(function)) = (Namespace::new(&namespace), FunctionName::new(&function))
                    else {
                        continue;
                    };
                    let path = version.join(ARCHIVE);
                    found.push(StoredArchive { namespace, function, version: version_name, path });
                }
            }
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// The folder that holds all of `version`.
    #[must_use]
    pub fn folder(&self, version: &CodeVersion) -> PathBuf {
        let names = [version.namespace.as_str(), version.function.as_str(), &version.folder_name()];
        self.root.join(CODE).join(PathBuf::from_iter(names))
    }

    /// The folder of its files.
    #[must_use]
    pub fn task_folder(&self, version: &CodeVersion) -> PathBuf {
        self.folder(version).join(TASK)
    }

    /// Its archive.
    #[must_use]
    pub fn archive(&self, version: &CodeVersion) -> PathBuf {
        self.folder(version).join(ARCHIVE)
    }

    fn remove_folder(&self, folder: &Path) -> Result<(), CodeStoreError> {
        let outgoing = self.root.join(OUTGOING).join(Uuid::new_v4().to_string());
        match fs::rename(folder, &outgoing) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed("removing", folder)(error)),
            Ok(()) => fs::remove_dir_all(&outgoing).map_err(failed("removing", &outgoing)),
        }
    }
}

/// The bytes of an archive in a store.
///
/// # Errors
/// If the disk refuses.
pub(crate) fn read_archive(path: &Path) -> Result<Vec<u8>, CodeStoreError> {
    fs::read(path).map_err(failed("reading", path))
}

fn make_passage(path: &Path) -> Result<(), CodeStoreError> {
    fs::create_dir_all(path).map_err(failed("creating", path))?;
    fs::set_permissions(path, Permissions::from_mode(PASSAGE_MODE)).map_err(failed("setting the mode of", path))
}

fn sync_folder(path: &Path) -> Result<(), CodeStoreError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(failed("syncing", path))
}

fn folders(path: &Path) -> Result<Vec<PathBuf>, CodeStoreError> {
    let entries = fs::read_dir(path).map_err(failed("reading", path))?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed("reading", path))).collect()
}

fn folders_if_there(path: &Path) -> Result<Vec<PathBuf>, CodeStoreError> {
    match folders(path) {
        Err(CodeStoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::io::{Cursor, Write as _};
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    fn archive(content: &[u8]) -> Archive {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        zip.start_file("handler.py", SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
        Bytes::from(zip.finish().unwrap().into_inner()).into()
    }

    fn version(archive: &Archive) -> CodeVersion {
        CodeVersion::of_archive(&Namespace::new("tenant").unwrap(), &FunctionName::new("f").unwrap(), archive).unwrap()
    }

    #[test]
    fn a_version_is_whole_once_published_and_publishing_again_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = CodeStore::open(folder.path(), ArchiveLimits::LAMBDA).unwrap();
        let (zip, version) = (archive(b"one"), version(&archive(b"one")));
        for _ in 0..2 {
            assert_eq!(store.publish(&version, &zip).unwrap(), ByteSize(3));
            assert_eq!(fs::read(store.task_folder(&version).join("handler.py")).unwrap(), b"one");
            let stored = Archive::in_file(File::open(store.archive(&version)).unwrap()).unwrap();
            assert_eq!(stored.sha256().unwrap(), zip.sha256().unwrap());
        }
        assert!(folders(&folder.path().join(INCOMING)).unwrap().is_empty());
        let no_zip = Bytes::from_static(b"no zip").into();
        assert!(matches!(store.publish(&version, &no_zip), Err(CodeStoreError::Archive(_))));
        assert!(matches!(store.check(&no_zip), Err(CodeStoreError::Archive(_))));
        store.check(&zip).unwrap();
        let [stored] = &CodeStore::archives(folder.path()).unwrap()[..] else { panic!("one version") };
        assert_eq!((&stored.version, &stored.path), (&version.folder_name(), &store.archive(&version)));
        assert_eq!(CodeStore::archives(&folder.path().join("absent")).unwrap(), []);
        assert!(folders(&folder.path().join(INCOMING)).unwrap().is_empty());
        store.remove(&version).unwrap();
        store.remove(&version).unwrap();
        assert!(!store.folder(&version).exists());
    }

    #[test]
    fn what_a_crash_left_is_gone_after_the_next_open_and_sweep() {
        let folder = tempfile::tempdir().unwrap();
        let store = CodeStore::open(folder.path(), ArchiveLimits::LAMBDA).unwrap();
        let (kept, orphan) = (archive(b"kept"), archive(b"orphan"));
        store.publish(&version(&kept), &kept).unwrap();
        store.publish(&version(&orphan), &orphan).unwrap();
        for transient in [INCOMING, OUTGOING] {
            fs::create_dir_all(folder.path().join(transient).join("half/task")).unwrap();
        }

        let store = CodeStore::open(folder.path(), ArchiveLimits::LAMBDA).unwrap();
        let live = store.folder(&version(&kept));
        assert_eq!(store.sweep(|path| path == live).unwrap(), 1);
        assert!(store.task_folder(&version(&kept)).join("handler.py").exists());
        assert!(!store.folder(&version(&orphan)).exists());
        for transient in [INCOMING, OUTGOING] {
            assert!(folders(&folder.path().join(transient)).unwrap().is_empty());
        }
    }
}
