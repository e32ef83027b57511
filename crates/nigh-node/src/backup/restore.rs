//! Makes a state folder from a backup: first beside the old state, verified to its end, then moved in place by renames
//! (`placing`).
//!
//! Until the last checksum has matched, the old state is untouched, even after a crash. Settings and objects stay if
//! the archive has none; the number in `instance` always stays.

use std::io::Read;
use std::path::{Path, PathBuf};

use nigh_engine::{
    LocalHistories, LocalRegistry, Outbox, RegistryError, StateError, StateFile as RegistryFile, StoredDocument,
    StoredHistory, StoredPromise,
};
use nigh_functions::code_archive::Archive;
use nigh_functions::code_store::{CodeStore, CodeStoreError, CodeVersion};
use nigh_functions::function_store::FunctionLimits;
use nigh_stores::directory::copy::{CopyError, StoreCopy};
use nigh_terms::{BucketName, FunctionName, Namespace, Timestamp};
use serde::Serialize;
use thiserror::Error;

use super::archive::{ArchiveError, CodeTree, End, Header, StateFile};
use super::reader::{Sink, read};
use super::source::LAYERS;
use crate::state_folder::placing::{self, Plan};
use crate::state_folder::{self, StateFolderError, StatePaths};

/// The folder of the directory store, unless the settings name another.
const OBJECTS: &str = "objects";

/// Why a restore fails.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum RestoreError {
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    StateFolder(#[from] StateFolderError),
    #[error(
        "{root} is not empty ({found}); choose another folder with --state, or move its content aside with --force"
    )]
    NotEmpty { root: PathBuf, found: String },
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Code(#[from] CodeStoreError),
    #[error("the code of {namespace}/{name} in the backup does not match its name; take another copy of the backup")]
    OtherCode { namespace: Namespace, name: FunctionName },
    #[error(transparent)]
    Objects(#[from] CopyError),
}

/// The result of a restore.
#[derive(Clone, Debug, Serialize)]
pub struct RestoreResult {
    /// The state folder.
    pub state: PathBuf,
    /// The backup's header.
    pub backup: Header,
    /// The counts of its content.
    pub restored: End,
    /// Where the old state is now; none if there was none.
    pub moved_away: Option<PathBuf>,
}

/// Makes the state folder `root` from the backup `input`; reports read bytes to `progress`. Blocks.
///
/// # Errors
/// If the folder is held or not empty (unless `force`), the backup is damaged, or the system refuses. Then the old state
/// stays.
pub fn restore(
    input: impl Read,
    root: &Path,
    force: bool,
    now: Timestamp,
    progress: &mut dyn FnMut(u64),
) -> Result<RestoreResult, RestoreError> {
    let _lock = state_folder::hold(root)?;
    placing::complete(root)?;
    // The new state file is closed at the end of this statement.
    let outcome = RestoreTarget::begin(root, force, progress).and_then(|mut making| read(input, &mut making));
    let (backup, restored) = match outcome {
        Ok(both) => both,
        Err(error) => {
            placing::discard(root)?;
            return Err(error);
        }
    };
    let keep = kept(&backup);
    let plan = Plan::new(&now.rfc3339(), &keep);
    let moved_away = (!placing::in_the_way(root, &keep)?.is_empty()).then(|| plan.aside(root));
    placing::commit(root, &plan)?;
    Ok(RestoreResult { state: root.to_owned(), backup, restored, moved_away })
}

/// The names in the state folder that the backup does not replace.
fn kept(backup: &Header) -> Vec<&'static str> {
    let settings = (!backup.keys).then_some(StateFile::Settings.name());
    let objects = (!backup.objects).then_some(OBJECTS);
    settings.into_iter().chain(objects).collect()
}

/// The new state while it is made.
struct RestoreTarget<'a> {
    root: &'a Path,
    paths: StatePaths,
    force: bool,
    state: RegistryFile,
    registry: LocalRegistry,
    functions: CodeStore,
    layers: Option<CodeStore>,
    objects: Option<StoreCopy>,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> RestoreTarget<'a> {
    fn begin(root: &'a Path, force: bool, progress: &'a mut dyn FnMut(u64)) -> Result<Self, RestoreError> {
        let paths = StatePaths::new(&placing::begin(root)?);
        let state = RegistryFile::open(&paths.database())?;
        let registry = LocalRegistry::new(state.clone());
        let functions = CodeStore::open(&paths.functions(), FunctionLimits::default().archive)?;
        Ok(Self { root, paths, force, state, registry, functions, layers: None, objects: None, progress })
    }
}

impl Sink<RestoreError> for RestoreTarget<'_> {
    fn header(&mut self, header: &Header) -> Result<(), RestoreError> {
        let found = placing::in_the_way(self.root, &kept(header))?;
        if !self.force && !found.is_empty() {
            let found = found.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(RestoreError::NotEmpty { root: self.root.to_owned(), found });
        }
        if header.objects {
            self.objects = Some(StoreCopy::begin(&self.paths.root().join(OBJECTS))?);
        }
        Ok(())
    }

    fn documents(&mut self, documents: Vec<StoredDocument>) -> Result<(), RestoreError> {
        Ok(self.registry.take_in(&documents)?)
    }

    fn events(&mut self, events: Vec<StoredPromise>) -> Result<(), RestoreError> {
        Ok(Outbox::take_in(&self.state, events)?)
    }

    fn executions(&mut self, rows: Vec<StoredHistory>) -> Result<(), RestoreError> {
        Ok(LocalHistories::take_in(&self.state, rows)?)
    }

    fn file(&mut self, file: StateFile, bytes: &[u8]) -> Result<(), RestoreError> {
        Ok(state_folder::write_private(&self.paths.root().join(file.name()), bytes)?)
    }

    fn code(
        &mut self,
        tree: CodeTree,
        namespace: &Namespace,
        name: &FunctionName,
        version: &str,
        archive: &[u8],
    ) -> Result<(), RestoreError> {
        let archive = Archive::from(archive.to_vec());
        let known = CodeVersion::of_archive(namespace, name, &archive)?;
        if known.folder_name() != version {
            return Err(RestoreError::OtherCode { namespace: namespace.clone(), name: name.clone() });
        }
        let store = match tree {
            CodeTree::Functions => &self.functions,
            CodeTree::Layers => match &mut self.layers {
                Some(layers) => layers,
                none => {
                    let root = self.paths.functions().join(LAYERS);
                    none.insert(CodeStore::open(&root, FunctionLimits::default().archive)?)
                }
            },
        };
        store.publish(&known, &archive)?;
        Ok(())
    }

    fn bucket(&mut self, namespace: &Namespace, bucket: &BucketName, description: &[u8]) -> Result<(), RestoreError> {
        match &mut self.objects {
            Some(objects) => Ok(objects.add_bucket(namespace, bucket, description)?),
            None => Ok(()),
        }
    }

    fn object(&mut self, namespace: &Namespace, bucket: &BucketName, body: &mut dyn Read) -> Result<(), RestoreError> {
        match &mut self.objects {
            Some(objects) => Ok(objects.add_object(namespace, bucket, body)?),
            None => Ok(()),
        }
    }

    fn progress(&mut self, bytes: u64) {
        (self.progress)(bytes);
    }
}
