//! Which functions are deployed: their documents in the registry, their code on disk, and both in step.
//!
//! A change is acknowledged when its code is unpacked and synced and the registry has its document; a crash at any point leaves
//! the old function or the new one. Only one change of a function runs at a time: a second gets `Busy` (Lambda's
//! `ResourceConflictException`). Replaced code stays until no invocation can run it any more. Reads come from memory.

mod attached;
mod changes;
mod checks;
mod document;
mod following;
mod limits;
mod orphans;
mod retired;
mod settings;
mod shared_code;
mod source;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nigh_engine::{Registry, Revision};
use nigh_terms::{ByteSize, Clock, FunctionName, Namespace, Timestamp};
use parking_lot::{Mutex, RwLock};

pub use self::attached::{FunctionAttachments, FunctionUrl, UrlAuth};
use self::document::decode;
pub use self::limits::{FunctionLimits, FunctionStoreError};
use self::retired::RetiredCode;
pub use self::settings::{FunctionSettings, NewFunction};
use crate::code_archive::Archive;
use crate::code_store::{CodeStore, CodeStoreError, CodeVersion};
use crate::function::Function;
use crate::layer_store::LayerStore;
use crate::schedule_store::ScheduleStore;

const TABLE: &str = "functions";
/// The folder of layers, below that of functions.
const LAYERS: &str = "layers";
/// Functions of one namespace.
pub const FUNCTIONS_MAX: usize = 10_000;

/// A deployed function, with what only the store needs.
#[derive(Clone, Debug)]
pub struct DeployedFunction {
    /// The function.
    pub function: Arc<Function>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// What is attached to it.
    pub attached: FunctionAttachments,
    unpacked: ByteSize,
    revision: Revision,
}

type Index = BTreeMap<Namespace, BTreeMap<FunctionName, Arc<DeployedFunction>>>;

/// The functions of a node.
#[derive(Clone)]
pub struct FunctionStore(Arc<FunctionStoreState>);

struct FunctionStoreState {
    registry: Arc<dyn Registry>,
    code: CodeStore,
    clock: Arc<dyn Clock>,
    limits: FunctionLimits,
    index: RwLock<Index>,
    /// The function of a URL's id.
    urls: RwLock<HashMap<String, (Namespace, FunctionName)>>,
    layers: LayerStore,
    schedules: ScheduleStore,
    changing: Mutex<HashSet<(Namespace, FunctionName)>>,
    /// Locked while a reserve is compared with the others'.
    reserving: tokio::sync::Mutex<()>,
    retired: Mutex<Vec<RetiredCode>>,
    /// How many `CodeHold`s there are.
    holds: AtomicUsize,
    /// Other nodes deploy and run functions too.
    shares_code: AtomicBool,
}

/// While this lives, replaced and deleted code stays on disk.
pub struct CodeHold(Arc<FunctionStoreState>);

impl Drop for CodeHold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::SeqCst);
    }
}

impl FunctionStore {
    /// Reads what is deployed, and removes code that no function has.
    ///
    /// # Errors
    /// If the registry or the disk cannot be read.
    pub async fn open(
        registry: Arc<dyn Registry>,
        root: &Path,
        clock: Arc<dyn Clock>,
        limits: FunctionLimits,
    ) -> Result<Self, FunctionStoreError> {
        let schedules = ScheduleStore::open(Arc::clone(&registry), Arc::clone(&clock)).await?;
        let mut index = Index::new();
        for (key, stored) in registry.list(TABLE, "").await? {
            let deployed = decode(&key, &stored.value, stored.revision)?;
            let function = &deployed.function;
            let (namespace, name) = (function.namespace.clone(), function.name.clone());
            index.entry(namespace).or_default().insert(name, Arc::new(deployed));
        }
        let deployed: Vec<Arc<Function>> =
            index.values().flat_map(BTreeMap::values).map(|deployed| Arc::clone(&deployed.function)).collect();
        let layers = LayerStore::open(Arc::clone(&registry), &root.join(LAYERS), Arc::clone(&clock), &deployed).await?;
        let root = root.to_owned();
        let versions: Vec<CodeVersion> = functions(&index).map(CodeVersion::of_function).collect();
        let code = blocking(move || {
            let code = CodeStore::open(&root, limits.archive)?;
            let live: HashSet<PathBuf> = versions.iter().map(|version| code.folder(version)).collect();
            let swept = code.sweep(|folder| live.contains(folder))?;
            if swept > 0 {
                tracing::info!(swept, "removed code that no function has");
            }
            Ok(code)
        })
        .await?;
        let inner = FunctionStoreState {
            registry,
            code,
            clock,
            limits,
            urls: RwLock::new(urls(&index)),
            layers,
            schedules,
            index: RwLock::new(index),
            changing: Mutex::default(),
            reserving: tokio::sync::Mutex::default(),
            retired: Mutex::default(),
            holds: AtomicUsize::new(0),
            shares_code: AtomicBool::new(false),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Follows what other nodes deploy and delete, and lets them run what is deployed here, until the registry closes or this
    /// store is dropped.
    ///
    /// # Errors
    /// If the watch cannot begin.
    pub async fn follow(&self) -> Result<(), FunctionStoreError> {
        self.0.shares_code.store(true, Ordering::Relaxed);
        self.0.schedules.follow().await?;
        let changes = self.0.registry.watch(TABLE).await?;
        tokio::spawn(following::follow(Arc::downgrade(&self.0), changes));
        Ok(())
    }

    /// The function as it is now.
    #[must_use]
    pub fn get(&self, namespace: &Namespace, name: &FunctionName) -> Option<Arc<DeployedFunction>> {
        self.0.index.read().get(namespace)?.get(name).cloned()
    }

    /// At most `limit` functions behind `after`, by name; and whether there are more.
    #[must_use]
    pub fn list(
        &self,
        namespace: &Namespace,
        after: Option<&FunctionName>,
        limit: usize,
    ) -> (Vec<Arc<DeployedFunction>>, bool) {
        let index = self.0.index.read();
        let Some(functions) = index.get(namespace) else { return (Vec::new(), false) };
        let mut behind = functions
            .range::<FunctionName, _>((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
            .map(|(_, f)| f);
        let page = behind.by_ref().take(limit).cloned().collect();
        (page, behind.next().is_some())
    }

    /// How many functions the namespace has, and what their archives take.
    #[must_use]
    pub fn totals(&self, namespace: &Namespace) -> (usize, ByteSize) {
        let index = self.0.index.read();
        index.get(namespace).map_or((0, ByteSize::ZERO), |functions| {
            (functions.len(), functions.values().map(|deployed| deployed.function.code_size).sum())
        })
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> FunctionLimits {
        self.0.limits
    }

    /// The layers that functions may have.
    #[must_use]
    pub fn layers(&self) -> &LayerStore {
        &self.0.layers
    }

    /// The schedules that run functions.
    #[must_use]
    pub fn schedules(&self) -> &ScheduleStore {
        &self.0.schedules
    }

    /// The archive of `function`, as it was uploaded.
    #[must_use]
    pub fn archive(&self, function: &Function) -> PathBuf {
        self.0.code.archive(&CodeVersion::of_function(function))
    }

    /// A new file without a name, for an archive that comes piece by piece.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn scratch(&self) -> Result<File, FunctionStoreError> {
        Ok(self.0.code.scratch()?)
    }

    /// Keeps all code on disk while the hold lives, for a backup.
    #[must_use]
    pub fn hold_code(&self) -> CodeHold {
        self.0.holds.fetch_add(1, Ordering::SeqCst);
        CodeHold(Arc::clone(&self.0))
    }

    /// Deploys a function of `archive`.
    ///
    /// # Errors
    /// If it exists, or the archive, a limit, the disk or the registry refuses.
    pub async fn create(
        &self,
        namespace: &Namespace,
        new: NewFunction,
        archive: impl Into<Archive> + Send,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        self.0.limits.check_memory(new.settings.memory)?;
        let (store, namespace, archive) = (Arc::clone(&self.0), namespace.clone(), archive.into());
        to_the_end(async move { store.create(namespace, new, archive).await }).await
    }

    /// Replaces a function's code.
    ///
    /// # Errors
    /// If it is not there, is at another revision, or the archive, a limit, the disk or the registry refuses.
    pub async fn update_code(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        archive: impl Into<Archive> + Send,
        revision: Option<String>,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        let (store, archive) = (Arc::clone(&self.0), archive.into());
        let (namespace, name) = (namespace.clone(), name.clone());
        to_the_end(async move { store.update_code(&namespace, &name, archive, revision).await }).await
    }

    /// Changes a function's settings.
    ///
    /// # Errors
    /// If it is not there, is at another revision, or the registry refuses.
    pub async fn update_settings(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        settings: FunctionSettings,
        revision: Option<String>,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        self.0.limits.check_memory(settings.memory)?;
        let (store, namespace, name) = (Arc::clone(&self.0), namespace.clone(), name.clone());
        to_the_end(async move { store.update_settings(&namespace, &name, settings, revision).await }).await
    }

    /// Replaces a function's settings and code together.
    ///
    /// # Errors
    /// As `update_code`.
    pub async fn replace(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        settings: FunctionSettings,
        archive: Option<Archive>,
        revision: Option<String>,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        self.0.limits.check_memory(settings.memory)?;
        let (store, namespace, name) = (Arc::clone(&self.0), namespace.clone(), name.clone());
        to_the_end(async move { store.update_all(&namespace, &name, settings, archive, revision).await }).await
    }

    /// Changes what is attached to a function by `change`, which gets the attachments and the date. Of two concurrent changes of a
    /// function one is refused.
    ///
    /// # Errors
    /// That of `change`; or if the function does not exist, or the registry refuses.
    pub async fn attach<E: From<FunctionStoreError> + Send + 'static>(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        change: impl FnOnce(&mut FunctionAttachments, Timestamp) -> Result<(), E> + Send + 'static,
    ) -> Result<Arc<DeployedFunction>, E> {
        let (store, namespace, name) = (Arc::clone(&self.0), namespace.clone(), name.clone());
        let changed = tokio::spawn(async move { store.attach(&namespace, &name, change).await });
        changed.await.unwrap_or_else(|join| Err(FunctionStoreError::Aborted(join.to_string()).into()))
    }

    /// Reserves concurrency for a function, of the node's `limit`; None gives it back.
    ///
    /// # Errors
    /// If less than `unreserved_min` would be left for functions without a reserve; or as `attach`.
    pub async fn reserve(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        reserved: Option<usize>,
        limit: usize,
        unreserved_min: usize,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        let _reserving = self.0.reserving.lock().await;
        let others = self.0.reserved_by_others(namespace, name);
        if reserved.is_some_and(|own| own > 0 && others + own + unreserved_min > limit) {
            return Err(FunctionStoreError::TooMuchReserved { unreserved_min });
        }
        self.attach(namespace, name, move |attached, _| {
            attached.reserved = reserved;
            Ok(())
        })
        .await
    }

    /// The function with the URL of this id, and who may call it.
    #[must_use]
    pub fn by_url(&self, id: &str) -> Option<(Namespace, FunctionName, UrlAuth)> {
        let (namespace, name) = self.0.urls.read().get(id).cloned()?;
        let url = self.get(&namespace, &name)?.attached.url.clone().filter(|url| url.id == id)?;
        Some((namespace, name, url.auth))
    }

    /// All reserved concurrency.
    #[must_use]
    pub fn reserves(&self) -> Vec<(Namespace, FunctionName, usize)> {
        let index = self.0.index.read();
        let all = index.values().flat_map(BTreeMap::values);
        let reserved = all.filter_map(|one| {
            Some((one.function.namespace.clone(), one.function.name.clone(), one.attached.reserved?))
        });
        reserved.collect()
    }

    /// Removes a function and its schedules. Invocations that run go on to their end.
    ///
    /// # Errors
    /// If it is not there, or the registry refuses.
    pub async fn delete(&self, namespace: &Namespace, name: &FunctionName) -> Result<(), FunctionStoreError> {
        let (store, namespace, name) = (Arc::clone(&self.0), namespace.clone(), name.clone());
        to_the_end(async move { store.delete(&namespace, &name).await }).await
    }
}

fn urls(index: &Index) -> HashMap<String, (Namespace, FunctionName)> {
    let all = index.values().flat_map(BTreeMap::values);
    let with_url = all.filter_map(|one| {
        let function = &one.function;
        Some((one.attached.url.as_ref()?.id.clone(), (function.namespace.clone(), function.name.clone())))
    });
    with_url.collect()
}

fn functions(index: &Index) -> impl Iterator<Item = &Function> {
    index.values().flat_map(BTreeMap::values).map(|deployed| &*deployed.function)
}

/// Runs `change` to its end even if the caller goes away, so that no change stops half-way.
async fn to_the_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, FunctionStoreError>> + Send + 'static,
) -> Result<T, FunctionStoreError> {
    tokio::spawn(change).await.unwrap_or_else(|join| Err(FunctionStoreError::Aborted(join.to_string())))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CodeStoreError> + Send + 'static,
) -> Result<T, FunctionStoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        Err(join) => Err(FunctionStoreError::Aborted(join.to_string())),
    }
}
