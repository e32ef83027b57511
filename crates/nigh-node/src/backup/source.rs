//! Which parts of a node go into a backup, and in which order; the node may run meanwhile.
//!
//! The registry, the events and the executions are of one moment. Code that is replaced after that moment stays on disk
//! until the backup ends, so the backup has all code of the moment. Each object is complete, as of some moment during
//! the backup; an object that was acknowledged before and has not changed is included.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nigh_engine::journal::inspect;
use nigh_engine::{ACCESS_KEYS_TABLE, JournalError, LocalRegistry, RegistryError};
use nigh_functions::code_store::{CodeStore, CodeStoreError};
use nigh_functions::function_store::FunctionStore;
use nigh_stores::directory::copy::{CopyError, CopyTo, copy_out};
use nigh_terms::{BucketName, Namespace, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::archive::{ArchiveError, CodeTree, EntryName, FORMAT, Header, StateFile};
use super::writer::ArchiveWriter;
use crate::cluster::FORMER_INCARNATIONS_TABLE;
use crate::config::{Settings, StoreKind};
use crate::state_folder::StatePaths;

/// The folder of layers, below the folder of functions.
pub(super) const LAYERS: &str = "layers";

/// The optional parts of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupScope {
    /// Include the clients' keys, and the settings, which may have a store's keys.
    pub keys: bool,
    /// Include the directory store's objects.
    pub objects: bool,
}

/// Why no backup can be made.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum BackupError {
    #[error("the objects are in the store {store}, which has its own backup; leave --objects out")]
    NotOurs { store: String },
    #[error(
        "{writes} acknowledged writes are in the journal {path} and not in the store yet; start the node, end it by \
         `nigh down`, and take the backup then"
    )]
    Waiting { writes: usize, path: PathBuf },
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Code(#[from] CodeStoreError),
    #[error(transparent)]
    Store(#[from] CopyError),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// The state of a node, for a backup.
#[derive(Clone)]
pub struct BackupSource {
    registry: LocalRegistry,
    paths: StatePaths,
    /// The folder of the directory store; the error is the kind of another store.
    objects: Result<PathBuf, String>,
    journal: PathBuf,
    functions: Option<FunctionStore>,
}

impl BackupSource {
    /// The state of the node with these settings. `functions` is given if the node runs.
    #[must_use]
    pub fn new(
        registry: LocalRegistry,
        paths: StatePaths,
        settings: &Settings,
        functions: Option<FunctionStore>,
    ) -> Self {
        let objects = match settings.store.kind {
            StoreKind::Directory => Ok(settings.store.path.clone()),
            other => Err(format!("{other:?}").to_lowercase()),
        };
        Self { registry, paths, objects, journal: settings.writes.journal.clone(), functions }
    }

    /// Checks that this node can back up `scope`, before anything is written.
    ///
    /// # Errors
    /// `NotOurs`.
    pub fn check(&self, scope: BackupScope) -> Result<(), BackupError> {
        match &self.objects {
            Err(store) if scope.objects => Err(BackupError::NotOurs { store: store.clone() }),
            _ => Ok(()),
        }
    }

    /// Writes the backup to `to`. Blocks.
    ///
    /// # Errors
    /// If something cannot be read or written; then the archive has no last entry, and readers reject it.
    pub fn write<W: Write>(&self, scope: BackupScope, created: Timestamp, to: W) -> Result<W, BackupError> {
        self.check(scope)?;
        if scope.objects && self.functions.is_none() {
            self.check_journal()?;
        }
        let header = Header {
            format: FORMAT,
            nigh: env!("CARGO_PKG_VERSION").to_owned(),
            created: created.rfc3339(),
            keys: scope.keys,
            objects: scope.objects,
        };
        let mut writer = ArchiveWriter::begin(to, &header, created)?;
        if scope.keys {
            self.add_file(&mut writer, StateFile::Credentials)?;
            self.add_file(&mut writer, StateFile::Settings)?;
        }
        // Taken before the registry is read, so that the code that the registry names stays on disk.
        let _hold = self.functions.as_ref().map(FunctionStore::hold_code);
        self.add_registry(&mut writer, scope)?;
        let functions = self.paths.functions();
        self.add_code(&mut writer, CodeTree::Functions, &functions)?;
        self.add_code(&mut writer, CodeTree::Layers, &functions.join(LAYERS))?;
        if let (true, Ok(root)) = (scope.objects, &self.objects) {
            copy_out(root, &mut Objects { writer: &mut writer, number: 0 })?;
        }
        Ok(writer.finish()?)
    }

    /// Checks that the journal of a stopped node has no unpushed writes. A running node has pushed them before.
    fn check_journal(&self) -> Result<(), BackupError> {
        let writes = inspect(&self.journal)?.records.iter().filter(|found| !found.stored).count();
        if writes == 0 { Ok(()) } else { Err(BackupError::Waiting { writes, path: self.journal.clone() }) }
    }

    fn add_file<W: Write>(&self, writer: &mut ArchiveWriter<W>, file: StateFile) -> Result<(), BackupError> {
        let path = self.paths.root().join(file.name());
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(BackupError::Io { path, source }),
        };
        Ok(writer.add(&EntryName::File(file), bytes.len() as u64, bytes.as_slice())?)
    }

    fn add_registry<W: Write>(&self, writer: &mut ArchiveWriter<W>, scope: BackupScope) -> Result<(), BackupError> {
        let snapshot = self.registry.snapshot()?;
        for document in snapshot.documents()? {
            let document = document?;
            // Who restores the backup is not the process that may still run under this name.
            let is_left_out = document.table == FORMER_INCARNATIONS_TABLE;
            if !is_left_out && (scope.keys || document.table != ACCESS_KEYS_TABLE) {
                writer.add_document(&document)?;
            }
        }
        for event in snapshot.promises()? {
            writer.add_event(&event?)?;
        }
        for row in snapshot.histories()? {
            writer.add_execution(&row?)?;
        }
        Ok(writer.end_pieces()?)
    }

    fn add_code<W: Write>(
        &self,
        writer: &mut ArchiveWriter<W>,
        tree: CodeTree,
        root: &Path,
    ) -> Result<(), BackupError> {
        for stored in CodeStore::archives(root)? {
            let failed = |source| BackupError::Io { path: stored.path.clone(), source };
            let file = match File::open(&stored.path) {
                Ok(file) => file,
                // A failed deployment has removed its code.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            };
            let length = file.metadata().map_err(failed)?.len();
            let name =
                EntryName::Code { tree, namespace: stored.namespace, name: stored.function, version: stored.version };
            writer.add(&name, length, file)?;
        }
        Ok(())
    }
}

struct Objects<'a, W: Write> {
    writer: &'a mut ArchiveWriter<W>,
    number: u64,
}

impl<W: Write> CopyTo for Objects<'_, W> {
    type Error = BackupError;

    fn bucket(&mut self, namespace: &Namespace, bucket: &BucketName, description: &[u8]) -> Result<(), BackupError> {
        let name = EntryName::Bucket { namespace: namespace.clone(), bucket: bucket.clone() };
        Ok(self.writer.add(&name, description.len() as u64, description)?)
    }

    fn object(
        &mut self,
        namespace: &Namespace,
        bucket: &BucketName,
        file: &File,
        length: u64,
    ) -> Result<(), BackupError> {
        self.number += 1;
        let name = EntryName::Object { namespace: namespace.clone(), bucket: bucket.clone(), number: self.number };
        Ok(self.writer.add(&name, length, file)?)
    }

    fn damaged(&mut self, path: &Path, reason: String) {
        tracing::warn!(file = %path.display(), reason, "left out of the backup");
        self.writer.damaged(path.display().to_string(), reason);
    }
}
