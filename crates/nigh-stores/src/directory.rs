//! The embedded store: a directory with one file for each object.
//!
//! ```text
//! <root>/format                      the layout's version
//! <root>/lock                        locked by the one process that uses the store
//! <root>/staging/                    files being written; emptied when the store is opened
//! <root>/spool/                      for payloads; the store only takes files out of it
//! <root>/namespaces/<ns>/<bucket>/   a folder for each bucket (`bucket`)
//! ```
//!
//! A write is durable when it returns, and a crash at any point leaves the old object or the new one (`commit`).
//! Damaged files are reported and never served (`object_file`). The store's user decides who may reach which namespace.
//! docs/design/directory-store.md draws the formats.

mod bucket;
mod commit;
pub mod copy;
mod key_index;
pub mod key_path;
mod landing;
pub mod object_file;
mod reader;

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use nigh_data::{BucketInfo, ByteStream, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta, Tags};
use nigh_engine::LockFile;
use nigh_terms::{BucketName, Clock, Namespace};
use parking_lot::Mutex;
use thiserror::Error;

use self::bucket::Bucket;
use self::commit::{StagingFolder, StepHook};
use self::reader::Want;
use super::{ListQuery, Payload, Store};
use crate::StoreAbilities;

const FORMAT_FILE: &str = "format";
const LOCK_FILE: &str = "lock";
const STAGING: &str = "staging";
const SPOOL: &str = "spool";
const NAMESPACES: &str = "namespaces";
const FORMAT_NAME: &str = "nigh directory store";
const FORMAT: u32 = 1;
/// The longest path of a root: a path has at most 4096 bytes, of which an object takes up to 3200 below its bucket.
const ROOT_MAX: usize = 700;

/// Why a directory cannot be used as a store.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum DirectoryError {
    #[error("directory store {root}: {operation}: {source}; check that the folder can be written")]
    Io { root: PathBuf, operation: &'static str, source: io::Error },
    #[error("directory store {root}: another process uses the store; stop that process or choose another folder")]
    Locked { root: PathBuf },
    #[error(
        "directory store {root}: has format {found}, this build reads {FORMAT}; start the newer nigh that wrote it"
    )]
    Newer { root: PathBuf, found: u32 },
    #[error("directory store {root}: the folder holds something else; choose an empty folder")]
    Foreign { root: PathBuf },
    #[error("directory store {root}: the path is longer than {ROOT_MAX} bytes; choose a shorter one")]
    LongPath { root: PathBuf },
}

/// A store in a directory.
pub struct DirectoryStore {
    inner: Arc<DirectoryState>,
}

struct DirectoryState {
    namespaces: PathBuf,
    spool: PathBuf,
    staging: StagingFolder,
    clock: Arc<dyn Clock>,
    /// The buckets in use. Locked while one is opened or created, so that each has one index; never locked while this
    /// process waits for a bucket's writers.
    buckets: Mutex<HashMap<(Namespace, BucketName), Arc<Bucket>>>,
    /// The lock on the store's folder, held until the store is dropped.
    _lock: LockFile,
}

/// The store's error for a failure at `path`.
fn store_error(operation: &'static str, path: &Path, reason: &dyn Display) -> ObjectError {
    ObjectError::Store { store: "directory", operation, reason: format!("{}: {reason}", path.display()) }
}

/// The store's error for a system error at `path`, with a hint.
fn io_error(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> ObjectError {
    move |error| {
        let hint = match error.kind() {
            io::ErrorKind::StorageFull => "; free space on this file system",
            io::ErrorKind::PermissionDenied => "; the folder must belong to the user nigh runs as",
            io::ErrorKind::ReadOnlyFilesystem => "; mount the file system for writing",
            _ => "",
        };
        store_error(operation, path, &format_args!("{error}{hint}"))
    }
}

/// The store's error for a change at `path` that the system refused and that left everything as it was. Where whoever
/// runs the node can mend it, clients are told why and to try again; the log has the path.
fn refused(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> ObjectError {
    move |error| {
        let reason = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "the store cannot be written: its file system is full; free space on it"
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                "the store cannot be written: its file system is read-only; mount it for writing"
            }
            io::ErrorKind::PermissionDenied => {
                "the store cannot be written: its folder must belong to the user nigh runs as"
            }
            _ => return io_error(operation, path)(error),
        };
        tracing::warn!(operation, path = %path.display(), %error, "the directory store cannot be written");
        ObjectError::SlowDown(reason)
    }
}

impl DirectoryStore {
    /// Opens the store in `root`, and creates one if the folder is empty or absent. Blocks.
    ///
    /// # Errors
    /// If the folder cannot be used, is in use, holds other files, or has a newer format.
    pub fn open(root: &Path, clock: Arc<dyn Clock>) -> Result<Self, DirectoryError> {
        Self::open_hooked(root, clock, None)
    }

    fn open_hooked(root: &Path, clock: Arc<dyn Clock>, hook: Option<Box<StepHook>>) -> Result<Self, DirectoryError> {
        let failed = |operation| {
            let root = root.to_owned();
            move |source| DirectoryError::Io { root, operation, source }
        };
        fs::create_dir_all(root).map_err(failed("make"))?;
        let root = root.canonicalize().map_err(failed("find"))?;
        if root.as_os_str().len() > ROOT_MAX {
            return Err(DirectoryError::LongPath { root });
        }
        check_format(&root)?;
        let lock = lock(&root)?;
        for folder in [SPOOL, NAMESPACES] {
            fs::create_dir_all(root.join(folder)).map_err(failed("make"))?;
        }
        let staging = StagingFolder::open(root.join(STAGING), hook).map_err(failed("empty the staging folder"))?;
        write_format(&root, &staging).map_err(failed("write the format"))?;
        let inner = DirectoryState {
            namespaces: root.join(NAMESPACES),
            spool: root.join(SPOOL),
            staging,
            clock,
            buckets: Mutex::default(),
            _lock: lock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Runs `work` on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&DirectoryState) -> Result<T, ObjectError> + Send + 'static,
    ) -> Result<T, ObjectError> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || work(&inner)).await.map_err(|join| ObjectError::Store {
            store: "directory",
            operation: "run",
            reason: join.to_string(),
        })?
    }
}

/// Rejects a folder that is no store of a format that this build knows.
fn check_format(root: &Path) -> Result<(), DirectoryError> {
    let failed = |source| DirectoryError::Io { root: root.to_owned(), operation: "read the format", source };
    let foreign = || DirectoryError::Foreign { root: root.to_owned() };
    match fs::read_to_string(root.join(FORMAT_FILE)) {
        Ok(text) => {
            let found = text.trim_end().strip_prefix(FORMAT_NAME).and_then(|rest| rest.trim().parse().ok());
            match found.ok_or_else(foreign)? {
                FORMAT => Ok(()),
                found => Err(DirectoryError::Newer { root: root.to_owned(), found }),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The format is written last. After a crash before that, the folder has entries of the store but no
            // objects.
            for entry in fs::read_dir(root).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                if ![LOCK_FILE, STAGING, SPOOL, NAMESPACES, "lost+found"].iter().any(|ours| name == *ours) {
                    return Err(foreign());
                }
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(foreign()),
        Err(error) => Err(failed(error)),
    }
}

fn lock(root: &Path) -> Result<LockFile, DirectoryError> {
    let failed = |source| DirectoryError::Io { root: root.to_owned(), operation: "lock", source };
    let lock = LockFile::take(&root.join(LOCK_FILE), true).map_err(failed)?;
    lock.ok_or_else(|| DirectoryError::Locked { root: root.to_owned() })
}

fn write_format(root: &Path, staging: &StagingFolder) -> io::Result<()> {
    let path = root.join(FORMAT_FILE);
    if path.exists() {
        return Ok(());
    }
    let fresh = staging.fresh();
    let mut file = File::create_new(&fresh)?;
    writeln!(file, "{FORMAT_NAME} {FORMAT}")?;
    file.sync_all()?;
    fs::rename(&fresh, &path)?;
    File::open(root)?.sync_all()
}

impl DirectoryState {
    fn folder(&self, namespace: &Namespace, bucket: &BucketName) -> PathBuf {
        self.namespaces.join(namespace.as_str()).join(bucket.as_str())
    }

    fn bucket(&self, namespace: &Namespace, name: &BucketName) -> Result<Arc<Bucket>, ObjectError> {
        let id = (namespace.clone(), name.clone());
        let mut buckets = self.buckets.lock();
        if let Some(bucket) = buckets.get(&id) {
            return Ok(Arc::clone(bucket));
        }
        let bucket =
            Bucket::open(self.folder(namespace, name), name)?.ok_or_else(|| ObjectError::NoSuchBucket(name.clone()))?;
        let bucket = Arc::new(bucket);
        buckets.insert(id, Arc::clone(&bucket));
        Ok(bucket)
    }

    fn of(&self, object: &ObjectId) -> Result<Arc<Bucket>, ObjectError> {
        self.bucket(&object.namespace, &object.bucket)
    }

    fn create_bucket(&self, namespace: &Namespace, name: &BucketName) -> Result<(), ObjectError> {
        let mut buckets = self.buckets.lock();
        let folder = self.folder(namespace, name);
        let failed = refused("create bucket", &folder);
        if folder.exists() {
            return Err(ObjectError::BucketAlreadyOwnedByYou(name.clone()));
        }
        let of_namespace = self.namespaces.join(namespace.as_str());
        match fs::create_dir(&of_namespace) {
            Ok(()) => sync_folder(&self.namespaces).map_err(&failed)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        let fresh = self.staging.fresh();
        Bucket::write_new(&fresh, self.clock.wall()).map_err(&failed)?;
        // The map may still have a bucket that is being deleted and has lost its folder.
        buckets.remove(&(namespace.clone(), name.clone()));
        fs::rename(&fresh, &folder).map_err(failed)?;
        // The bucket is there, if maybe not on the disk.
        sync_folder(&of_namespace).map_err(io_error("create bucket", &folder))
    }

    fn delete_bucket(&self, namespace: &Namespace, name: &BucketName) -> Result<(), ObjectError> {
        let bucket = self.bucket(namespace, name)?;
        let failed = io_error("delete bucket", &self.namespaces);
        let away = self.staging.fresh();
        // This waits for the bucket's writers. A lock of the map would block every namespace meanwhile.
        bucket.retire(&away)?;
        {
            let mut buckets = self.buckets.lock();
            let id = (namespace.clone(), name.clone());
            // A new bucket of this name may have been created since.
            if buckets.get(&id).is_some_and(|known| Arc::ptr_eq(known, &bucket)) {
                buckets.remove(&id);
            }
        }
        sync_folder(&self.namespaces.join(namespace.as_str())).map_err(&failed)?;
        fs::remove_dir_all(&away).map_err(failed)
    }

    fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        let folder = self.namespaces.join(namespace.as_str());
        let failed = io_error("list buckets", &folder);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(&failed)?.file_name();
            let Some(name) = name.to_str().and_then(|name| BucketName::new(name).ok()) else { continue };
            match self.bucket(namespace, &name) {
                Ok(bucket) => found.push(bucket.info().clone()),
                Err(ObjectError::NoSuchBucket(_)) => {}
                Err(other) => return Err(other),
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[async_trait]
impl Store for DirectoryStore {
    fn kind(&self) -> &'static str {
        "directory"
    }

    fn abilities(&self, _namespace: &Namespace) -> StoreAbilities {
        // This process does the writes: none can follow after it has ended.
        StoreAbilities { kind: self.kind(), conditions: false, shadows: false, lands_late: false, lists_tags: true }
    }

    fn spool(&self) -> Option<&Path> {
        Some(&self.inner.spool)
    }

    async fn create_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let (namespace, bucket) = (namespace.clone(), bucket.clone());
        self.blocking(move |inner| inner.create_bucket(&namespace, &bucket)).await
    }

    async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let (namespace, bucket) = (namespace.clone(), bucket.clone());
        self.blocking(move |inner| inner.delete_bucket(&namespace, &bucket)).await
    }

    async fn head_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        let (namespace, bucket) = (namespace.clone(), bucket.clone());
        self.blocking(move |inner| Ok(inner.bucket(&namespace, &bucket)?.info().clone())).await
    }

    async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        let namespace = namespace.clone();
        self.blocking(move |inner| inner.list_buckets(&namespace)).await
    }

    async fn put(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ObjectError> {
        let (object, payload, meta) = (object.clone(), payload.clone(), meta.clone());
        self.blocking(move |inner| inner.of(&object)?.put(&inner.staging, &object.key, &payload, &meta)).await
    }

    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        let object = object.clone();
        self.blocking(move |inner| Ok(inner.of(&object)?.open_object(&object.key, Want::Metadata)?.meta)).await
    }

    async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        let (object, pinned) = (object.clone(), pinned.cloned());
        self.blocking(move |inner| {
            let found = inner.of(&object)?.open_object(&object.key, Want::Payload)?;
            if pinned.is_some_and(|pinned| pinned != found.meta.etag) {
                return Err(ObjectError::PreconditionFailed("If-Match"));
            }
            found.into_stream(range)
        })
        .await
    }

    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let object = object.clone();
        self.blocking(move |inner| inner.of(&object)?.delete(&object.key)).await
    }

    async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        let (object, tags) = (object.clone(), tags.clone());
        self.blocking(move |inner| inner.of(&object)?.put_tags(&inner.staging, &object.key, &tags)).await
    }

    async fn list(&self, query: ListQuery<'_>) -> Result<Vec<ListedObject>, ObjectError> {
        let ListQuery { namespace, bucket, prefix, after, limit } = query;
        let (namespace, bucket) = (namespace.clone(), bucket.clone());
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.blocking(move |inner| inner.bucket(&namespace, &bucket)?.list(&prefix, after.as_deref(), limit)).await
    }
}

#[cfg(test)]
mod tests;
