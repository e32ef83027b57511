//! Which functions are deployed: their documents in the registry, their code on disk, and both in step.
//!
//! A change is acknowledged when its code is unpacked and synced and then the registry has its document; a crash at
//! any point leaves the old function or the new one. One change of a function at a time: a second gets `Busy`, as
//! Lambda's `ResourceConflictException`. Code that was replaced stays until no invocation can run it any more.
//! Reads come from memory. What a document means to clients is the door's.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_engine::{Registry, RegistryError, Revision};
use nigh_terms::{ByteSize, Clock, FunctionName, Monotonic, Namespace};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::code_archive::ArchiveLimits;
use crate::code_store::{CodeStore, CodeStoreError, CodeVersion};
use crate::function::{Function, FunctionSource, Runtime};

const TABLE: &str = "functions";
/// The document's form that this build writes.
const FORMAT: u32 = 1;
/// Code outlives its replacement by this: the longest time-out (900 s) and some to start and to end.
const RETIRED_CODE_KEPT: Duration = Duration::from_secs(20 * 60);
/// Functions of one namespace.
pub const FUNCTIONS_MAX: usize = 10_000;

/// The limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionLimits {
    /// Of each archive.
    pub archive: ArchiveLimits,
    /// Of all code of a namespace, zipped and unpacked, replaced versions included until they are removed.
    pub code: ByteSize,
}

impl Default for FunctionLimits {
    /// Lambda's: 75 GB of code an account.
    fn default() -> Self {
        Self { archive: ArchiveLimits::LAMBDA, code: ByteSize::gib(75) }
    }
}

/// Why a change is refused.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum FunctionStoreError {
    #[error("function not found: {0}")]
    NotFound(FunctionName),
    #[error("function already exists: {0}")]
    Exists(FunctionName),
    #[error("an update of the function {0} is in progress; try again when it has ended")]
    Busy(FunctionName),
    #[error("the revision is {found} and not {asked}; read the function again and repeat the change")]
    OtherRevision { asked: String, found: String },
    #[error("the namespace has {0} functions, which is the limit; delete some")]
    TooMany(usize),
    #[error("the code of the namespace takes more than {limit}; delete functions, or wait until replaced code is removed")]
    CodeStorage { limit: ByteSize },
    #[error(transparent)]
    Code(#[from] CodeStoreError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("the document of function {0} cannot be read: {1}; it was written by another version of nigh, or damaged")]
    Document(String, String),
    #[error("the change was cut short: {0}")]
    Aborted(String),
}

/// A function that is to be.
#[derive(Clone, Debug)]
pub struct NewFunction {
    /// Its name.
    pub name: FunctionName,
    /// How its process is made.
    pub runtime: (Runtime, String),
    /// What the runtime shall call.
    pub handler: String,
    /// All else, where it differs from the defaults.
    pub settings: FunctionSettings,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// What may be set of a function; `None` leaves it as it is, or as Lambda defaults it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSettings {
    /// How its process is made, and that runtime's name.
    pub runtime: Option<(Runtime, String)>,
    /// What the runtime shall call.
    pub handler: Option<String>,
    /// In its owner's words.
    pub description: Option<String>,
    /// The memory booked.
    pub memory: Option<ByteSize>,
    /// How long an invocation may run.
    pub timeout: Option<Duration>,
    /// The size of its /tmp.
    pub ephemeral_storage: Option<ByteSize>,
    /// Its own environment, all of it.
    pub environment: Option<BTreeMap<String, String>>,
    /// Kept and given back.
    pub role: Option<String>,
}

impl FunctionSettings {
    fn apply(self, function: &mut Function) {
        fn set<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        if let Some((runtime, name)) = self.runtime {
            (function.runtime, function.runtime_name) = (runtime, name);
        }
        set(&mut function.handler, self.handler);
        set(&mut function.description, self.description);
        set(&mut function.memory, self.memory);
        set(&mut function.timeout, self.timeout);
        set(&mut function.ephemeral_storage, self.ephemeral_storage);
        set(&mut function.environment, self.environment);
        set(&mut function.role, self.role);
    }
}

/// A deployed function and what only its management needs.
#[derive(Clone, Debug)]
pub struct Deployed {
    /// The function.
    pub function: Arc<Function>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    unpacked: ByteSize,
    revision: Revision,
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    function: Function,
    tags: BTreeMap<String, String>,
    unpacked: ByteSize,
}

struct Retired {
    version: CodeVersion,
    size: ByteSize,
    since: Monotonic,
}

type Index = BTreeMap<Namespace, BTreeMap<FunctionName, Arc<Deployed>>>;

/// The functions of a node.
#[derive(Clone)]
pub struct FunctionStore(Arc<Inner>);

struct Inner {
    registry: Arc<dyn Registry>,
    code: CodeStore,
    clock: Arc<dyn Clock>,
    limits: FunctionLimits,
    index: RwLock<Index>,
    changing: Mutex<HashSet<(Namespace, FunctionName)>>,
    retired: Mutex<Vec<Retired>>,
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
        let mut index = Index::new();
        for (key, stored) in registry.list(TABLE, "").await? {
            let deployed = decode(&key, &stored.value, stored.revision)?;
            let function = &deployed.function;
            let (namespace, name) = (function.namespace.clone(), function.name.clone());
            index.entry(namespace).or_default().insert(name, Arc::new(deployed));
        }
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
        let inner = Inner {
            registry,
            code,
            clock,
            limits,
            index: RwLock::new(index),
            changing: Mutex::default(),
            retired: Mutex::default(),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// The function as it is now.
    #[must_use]
    pub fn get(&self, namespace: &Namespace, name: &FunctionName) -> Option<Arc<Deployed>> {
        self.0.index.read().get(namespace)?.get(name).cloned()
    }

    /// At most `limit` functions behind `after`, by name; and whether there are more.
    #[must_use]
    pub fn list(
        &self,
        namespace: &Namespace,
        after: Option<&FunctionName>,
        limit: usize,
    ) -> (Vec<Arc<Deployed>>, bool) {
        let index = self.0.index.read();
        let Some(functions) = index.get(namespace) else { return (Vec::new(), false) };
        let mut behind =
            functions.range::<FunctionName, _>((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)).map(|(_, f)| f);
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

    /// The limits it keeps.
    #[must_use]
    pub fn limits(&self) -> FunctionLimits {
        self.0.limits
    }

    /// The archive of `function`, as it was uploaded.
    #[must_use]
    pub fn archive(&self, function: &Function) -> PathBuf {
        self.0.code.archive(&CodeVersion::of_function(function))
    }

    /// Deploys a function of `archive`.
    ///
    /// # Errors
    /// If it exists, or the archive, a limit, the disk or the registry refuses.
    pub async fn create(
        &self,
        namespace: &Namespace,
        new: NewFunction,
        archive: Bytes,
    ) -> Result<Arc<Deployed>, FunctionStoreError> {
        let (store, namespace) = (Arc::clone(&self.0), namespace.clone());
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
        archive: Bytes,
        revision: Option<String>,
    ) -> Result<Arc<Deployed>, FunctionStoreError> {
        let (store, namespace, name) = (Arc::clone(&self.0), namespace.clone(), name.clone());
        to_the_end(async move { store.update_code(&namespace, &name, archive, revision).await }).await
    }

    /// Checks what `update_code` would, and changes nothing.
    ///
    /// # Errors
    /// As `update_code`.
    pub async fn check_code(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        archive: Bytes,
        revision: Option<&str>,
    ) -> Result<Arc<Deployed>, FunctionStoreError> {
        let current = self.0.current(namespace, name, revision)?;
        let code = self.0.code.clone();
        blocking(move || code.check(&archive)).await?;
        Ok(current)
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
    ) -> Result<Arc<Deployed>, FunctionStoreError> {
        let (store, namespace, name) = (Arc::clone(&self.0), namespace.clone(), name.clone());
        to_the_end(async move { store.update_settings(&namespace, &name, settings, revision).await }).await
    }

    /// Removes a function. Invocations that run go on to their end.
    ///
    /// # Errors
    /// If it is not there, or the registry refuses.
    pub async fn delete(&self, namespace: &Namespace, name: &FunctionName) -> Result<(), FunctionStoreError> {
        let (store, namespace, name) = (Arc::clone(&self.0), namespace.clone(), name.clone());
        to_the_end(async move { store.delete(&namespace, &name).await }).await
    }
}

#[async_trait]
impl FunctionSource for FunctionStore {
    async fn find(&self, namespace: &Namespace, name: &FunctionName) -> Option<Arc<Function>> {
        self.0.index.read().get(namespace)?.get(name).map(|deployed| Arc::clone(&deployed.function))
    }

    async fn code_folder(&self, function: &Function) -> PathBuf {
        self.0.code.task_folder(&CodeVersion::of_function(function))
    }
}

/// While it lives, no other change of the function begins.
struct Changing<'a> {
    store: &'a Inner,
    which: (Namespace, FunctionName),
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.store.changing.lock().remove(&self.which);
    }
}

impl Inner {
    async fn create(
        &self,
        namespace: Namespace,
        new: NewFunction,
        archive: Bytes,
    ) -> Result<Arc<Deployed>, FunctionStoreError> {
        let _changing = self.begin(&namespace, &new.name)?;
        {
            let index = self.index.read();
            let functions = index.get(&namespace);
            if functions.is_some_and(|functions| functions.contains_key(&new.name)) {
                return Err(FunctionStoreError::Exists(new.name));
            }
            if functions.is_some_and(|functions| functions.len() >= FUNCTIONS_MAX) {
                return Err(FunctionStoreError::TooMany(FUNCTIONS_MAX));
            }
        }
        let (version, code_size, unpacked) = self.publish(&namespace, &new.name, archive).await?;
        let mut function = Function {
            namespace,
            name: new.name,
            runtime: new.runtime.0,
            runtime_name: new.runtime.1,
            handler: new.handler,
            description: String::new(),
            memory: ByteSize::mib(128),
            timeout: Duration::from_secs(3),
            ephemeral_storage: ByteSize::mib(512),
            environment: BTreeMap::new(),
            role: String::new(),
            code_sha256: version.sha256,
            code_size,
            modified: self.clock.wall(),
            revision_id: Uuid::new_v4().to_string(),
        };
        new.settings.apply(&mut function);
        self.commit(Document { format: FORMAT, function, tags: new.tags, unpacked }, None).await
    }

    async fn update_code(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        archive: Bytes,
        revision: Option<String>,
    ) -> Result<Arc<Deployed>, FunctionStoreError> {
        let _changing = self.begin(namespace, name)?;
        let current = self.current(namespace, name, revision.as_deref())?;
        let (version, code_size, unpacked) = self.publish(namespace, name, archive).await?;
        let function = Function { code_sha256: version.sha256, code_size, ..(*current.function).clone() };
        self.replace(current, function, unpacked).await
    }

    async fn update_settings(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        settings: FunctionSettings,
        revision: Option<String>,
    ) -> Result<Arc<Deployed>, FunctionStoreError> {
        let _changing = self.begin(namespace, name)?;
        let current = self.current(namespace, name, revision.as_deref())?;
        let mut function = (*current.function).clone();
        settings.apply(&mut function);
        let unpacked = current.unpacked;
        self.replace(current, function, unpacked).await
    }

    async fn delete(&self, namespace: &Namespace, name: &FunctionName) -> Result<(), FunctionStoreError> {
        let _changing = self.begin(namespace, name)?;
        let current = self.current(namespace, name, None)?;
        let deleted = self.registry.delete(TABLE, &key(namespace, name), current.revision).await;
        self.resolved(namespace, name, deleted).await?;
        if let Some(functions) = self.index.write().get_mut(namespace) {
            functions.remove(name);
        }
        self.retire_code_of(&current);
        self.remove_due_code().await;
        Ok(())
    }

    fn begin(&self, namespace: &Namespace, name: &FunctionName) -> Result<Changing<'_>, FunctionStoreError> {
        let which = (namespace.clone(), name.clone());
        if !self.changing.lock().insert(which.clone()) {
            return Err(FunctionStoreError::Busy(name.clone()));
        }
        Ok(Changing { store: self, which })
    }

    fn current(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        revision: Option<&str>,
    ) -> Result<Arc<Deployed>, FunctionStoreError> {
        let index = self.index.read();
        let current = index.get(namespace).and_then(|functions| functions.get(name));
        let current = current.ok_or_else(|| FunctionStoreError::NotFound(name.clone()))?;
        let found = &current.function.revision_id;
        match revision {
            Some(asked) if asked != found => {
                Err(FunctionStoreError::OtherRevision { asked: asked.to_owned(), found: found.clone() })
            }
            _ => Ok(Arc::clone(current)),
        }
    }

    /// Puts the archive's code on disk: its version, its size and what it unpacks to.
    async fn publish(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        archive: Bytes,
    ) -> Result<(CodeVersion, ByteSize, ByteSize), FunctionStoreError> {
        self.remove_due_code().await;
        let size = ByteSize(archive.len() as u64);
        let (code, namespace, name) = (self.code.clone(), namespace.clone(), name.clone());
        let used = self.code_in_use(&namespace);
        let limit = self.limits.code;
        if used + size > limit {
            return Err(FunctionStoreError::CodeStorage { limit });
        }
        let (version, unpacked) = blocking(move || {
            let version = CodeVersion::of_archive(&namespace, &name, &archive);
            code.publish(&version, &archive).map(|unpacked| (version, unpacked))
        })
        .await?;
        let came_back = {
            let mut retired = self.retired.lock();
            let before = retired.len();
            retired.retain(|retired| retired.version != version);
            retired.len() < before
        };
        if !came_back && used + size + unpacked > limit {
            self.remove_unless_live(&version).await;
            return Err(FunctionStoreError::CodeStorage { limit });
        }
        Ok((version, size, unpacked))
    }

    async fn replace(
        &self,
        current: Arc<Deployed>,
        function: Function,
        unpacked: ByteSize,
    ) -> Result<Arc<Deployed>, FunctionStoreError> {
        let function = Function { modified: self.clock.wall(), revision_id: Uuid::new_v4().to_string(), ..function };
        let changed = function.code_sha256 != current.function.code_sha256;
        let document = Document { format: FORMAT, function, tags: current.tags.clone(), unpacked };
        let deployed = self.commit(document, Some(current.revision)).await?;
        if changed {
            self.retire_code_of(&current);
        }
        Ok(deployed)
    }

    /// Makes the document the truth, then shows it.
    async fn commit(
        &self,
        document: Document,
        expected: Option<Revision>,
    ) -> Result<Arc<Deployed>, FunctionStoreError> {
        let (namespace, name) = (document.function.namespace.clone(), document.function.name.clone());
        let version = CodeVersion::of_function(&document.function);
        let place = key(&namespace, &name);
        let encoded = serde_json::to_vec(&document)
            .map_err(|error| FunctionStoreError::Document(place.clone(), error.to_string()))?;
        let put = self.registry.put(TABLE, &place, encoded, expected).await;
        if matches!(put, Err(RegistryError::Conflict { .. })) {
            let put = self.resolved(&namespace, &name, put).await;
            self.retire(version, document.function.code_size + document.unpacked);
            return Err(put.err().unwrap_or(FunctionStoreError::Busy(name)));
        }
        // Any other failure may have been written all the same: the next open decides, and sweeps.
        let Document { function, tags, unpacked, .. } = document;
        let deployed = Arc::new(Deployed { function: Arc::new(function), tags, unpacked, revision: put? });
        self.index.write().entry(namespace).or_default().insert(name, Arc::clone(&deployed));
        Ok(deployed)
    }

    /// A conflict means that another node changed the function: takes over what it wrote and says `Busy`.
    async fn resolved<T>(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        result: Result<T, RegistryError>,
    ) -> Result<T, FunctionStoreError> {
        let Err(RegistryError::Conflict { .. }) = &result else { return Ok(result?) };
        let place = key(namespace, name);
        let found = self.registry.get(TABLE, &place).await?;
        let found = found.map(|stored| decode(&place, &stored.value, stored.revision)).transpose()?;
        let mut index = self.index.write();
        let functions = index.entry(namespace.clone()).or_default();
        match found {
            Some(deployed) => functions.insert(name.clone(), Arc::new(deployed)),
            None => functions.remove(name),
        };
        Err(FunctionStoreError::Busy(name.clone()))
    }

    fn retire_code_of(&self, replaced: &Deployed) {
        let size = replaced.function.code_size + replaced.unpacked;
        self.retire(CodeVersion::of_function(&replaced.function), size);
    }

    fn retire(&self, version: CodeVersion, size: ByteSize) {
        self.retired.lock().push(Retired { version, size, since: self.clock.monotonic() });
    }

    fn code_in_use(&self, namespace: &Namespace) -> ByteSize {
        let retired: ByteSize =
            self.retired.lock().iter().filter(|r| &r.version.namespace == namespace).map(|r| r.size).sum();
        let index = self.index.read();
        let live = index.get(namespace).into_iter().flatten();
        retired + live.map(|(_, deployed)| deployed.function.code_size + deployed.unpacked).sum()
    }

    /// Removes code whose last invocation must have ended. A function that is being changed is left for later.
    async fn remove_due_code(&self) {
        let now = self.clock.monotonic();
        let is_due = |retired: &mut Retired| now.since(retired.since) > RETIRED_CODE_KEPT;
        let due: Vec<Retired> = self.retired.lock().extract_if(.., is_due).collect();
        for retired in due {
            match self.begin(&retired.version.namespace, &retired.version.function) {
                Ok(_changing) => self.remove_unless_live(&retired.version).await,
                Err(_) => self.retired.lock().push(retired),
            }
        }
    }

    async fn remove_unless_live(&self, version: &CodeVersion) {
        let is_live = {
            let index = self.index.read();
            let function = index.get(&version.namespace).and_then(|functions| functions.get(&version.function));
            function.is_some_and(|deployed| deployed.function.code_sha256 == version.sha256)
        };
        if !is_live {
            let (code, removed) = (self.code.clone(), version.clone());
            if let Err(error) = blocking(move || code.remove(&removed)).await {
                tracing::warn!(%error, "code that no function has could not be removed; the next start tries again");
            }
        }
    }
}

fn key(namespace: &Namespace, name: &FunctionName) -> String {
    format!("{namespace}/{name}")
}

fn functions(index: &Index) -> impl Iterator<Item = &Function> {
    index.values().flat_map(BTreeMap::values).map(|deployed| &*deployed.function)
}

fn decode(key: &str, document: &[u8], revision: Revision) -> Result<Deployed, FunctionStoreError> {
    let unreadable = |why: String| FunctionStoreError::Document(key.to_owned(), why);
    let Document { format, function, tags, unpacked } =
        serde_json::from_slice(document).map_err(|error| unreadable(error.to_string()))?;
    if format > FORMAT {
        return Err(unreadable(format!("its format is {format}, this build reads up to {FORMAT}")));
    }
    Ok(Deployed { function: Arc::new(function), tags, unpacked, revision })
}

/// Runs `change` to its end also when the caller goes away, so that none stops half-way.
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

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use nigh_engine::{LocalRegistry, Revised, StateFile};
    use nigh_terms::ManualClock;
    use tokio::sync::Semaphore;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    fn archive(content: &str) -> Bytes {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        zip.start_file("handler.py", SimpleFileOptions::default()).unwrap();
        zip.write_all(content.as_bytes()).unwrap();
        zip.finish().unwrap().into_inner().into()
    }

    fn new(name: &str) -> NewFunction {
        NewFunction {
            name: FunctionName::new(name).unwrap(),
            runtime: (Runtime::Provided, "provided".to_owned()),
            handler: "h".to_owned(),
            settings: FunctionSettings::default(),
            tags: BTreeMap::new(),
        }
    }

    struct Place {
        folder: tempfile::TempDir,
        registry: Arc<LocalRegistry>,
        clock: Arc<ManualClock>,
        tenant: Namespace,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
            let tenant = Namespace::new("tenant").unwrap();
            Self { folder, registry: Arc::new(LocalRegistry::new(state)), clock: Arc::default(), tenant }
        }

        async fn open(&self, limits: FunctionLimits) -> FunctionStore {
            let registry: Arc<dyn Registry> = Arc::clone(&self.registry) as _;
            self.open_on(registry, limits).await
        }

        async fn open_on(&self, registry: Arc<dyn Registry>, limits: FunctionLimits) -> FunctionStore {
            let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
            FunctionStore::open(registry, &self.folder.path().join("functions"), clock, limits).await.unwrap()
        }

        async fn code(&self, store: &FunctionStore, name: &str) -> String {
            let name = FunctionName::new(name).unwrap();
            let function = store.find(&self.tenant, &name).await.unwrap();
            std::fs::read_to_string(store.code_folder(&function).await.join("handler.py")).unwrap()
        }
    }

    #[tokio::test]
    async fn a_function_and_its_code_are_there_after_a_restart_as_they_were_acknowledged() {
        let place = Place::new();
        let store = place.open(FunctionLimits::default()).await;
        store.create(&place.tenant, new("f"), archive("one")).await.unwrap();
        store.create(&place.tenant, new("gone"), archive("one")).await.unwrap();
        let f = FunctionName::new("f").unwrap();
        let settings = FunctionSettings { memory: Some(ByteSize::mib(512)), ..FunctionSettings::default() };
        store.update_settings(&place.tenant, &f, settings, None).await.unwrap();
        let updated = store.update_code(&place.tenant, &f, archive("two"), None).await.unwrap();
        store.delete(&place.tenant, &FunctionName::new("gone").unwrap()).await.unwrap();

        let store = place.open(FunctionLimits::default()).await;
        assert_eq!(store.get(&place.tenant, &f).unwrap().function, updated.function);
        assert_eq!(updated.function.memory, ByteSize::mib(512));
        assert_eq!(place.code(&store, "f").await, "two");
        assert_eq!(store.list(&place.tenant, None, 10).0.len(), 1);
        let versions = place.folder.path().join("functions/code/tenant/f");
        assert_eq!(std::fs::read_dir(versions).unwrap().count(), 1, "replaced code is swept");
    }

    #[tokio::test]
    async fn a_change_for_another_revision_is_refused_and_changes_nothing() {
        let place = Place::new();
        let store = place.open(FunctionLimits::default()).await;
        let first = store.create(&place.tenant, new("f"), archive("one")).await.unwrap();
        let first = first.function.revision_id.clone();
        let f = FunctionName::new("f").unwrap();
        let updated = store.update_code(&place.tenant, &f, archive("two"), Some(first.clone())).await.unwrap();
        assert_ne!(updated.function.revision_id, first);
        let stale = store.update_code(&place.tenant, &f, archive("three"), Some(first)).await;
        assert!(matches!(stale, Err(FunctionStoreError::OtherRevision { .. })));
        assert_eq!(place.code(&store, "f").await, "two");
        let again = store.create(&place.tenant, new("f"), archive("four")).await;
        assert!(matches!(again, Err(FunctionStoreError::Exists(_))));
        let absent = store.delete(&place.tenant, &FunctionName::new("g").unwrap()).await;
        assert!(matches!(absent, Err(FunctionStoreError::NotFound(_))));
    }

    #[tokio::test]
    async fn replaced_code_stays_while_an_invocation_may_run_it_and_not_longer() {
        let place = Place::new();
        let store = place.open(FunctionLimits::default()).await;
        let first = store.create(&place.tenant, new("f"), archive("one")).await.unwrap();
        let old = store.code_folder(&first.function).await;
        let f = FunctionName::new("f").unwrap();
        store.update_code(&place.tenant, &f, archive("two"), None).await.unwrap();
        place.clock.advance(Duration::from_secs(901));
        store.create(&place.tenant, new("g"), archive("g")).await.unwrap();
        assert!(old.exists());
        // Back to the first code: what was to be removed is in use again.
        store.update_code(&place.tenant, &f, archive("one"), None).await.unwrap();
        place.clock.advance(RETIRED_CODE_KEPT * 2);
        store.create(&place.tenant, new("h"), archive("h")).await.unwrap();
        assert_eq!(place.code(&store, "f").await, "one");
        store.update_code(&place.tenant, &f, archive("three"), None).await.unwrap();
        place.clock.advance(RETIRED_CODE_KEPT * 2);
        store.delete(&place.tenant, &FunctionName::new("h").unwrap()).await.unwrap();
        assert!(!old.exists());
        assert_eq!(place.code(&store, "f").await, "three");
    }

    #[tokio::test]
    async fn code_beyond_the_namespace_limit_is_refused_and_leaves_nothing() {
        let place = Place::new();
        let zipped = ByteSize(archive(&"x".repeat(1000)).len() as u64);
        let limits = FunctionLimits { code: zipped + ByteSize(1200), ..FunctionLimits::default() };
        let store = place.open(limits).await;
        store.create(&place.tenant, new("f"), archive(&"x".repeat(1000))).await.unwrap();
        let refused = store.create(&place.tenant, new("g"), archive(&"y".repeat(1000))).await;
        assert!(matches!(refused, Err(FunctionStoreError::CodeStorage { .. })));
        assert!(store.get(&place.tenant, &FunctionName::new("g").unwrap()).is_none());
        assert!(!place.folder.path().join("functions/code/tenant/g").exists());
        let other = Namespace::new("other").unwrap();
        store.create(&other, new("g"), archive(&"y".repeat(1000))).await.unwrap();
    }

    #[tokio::test]
    async fn a_list_goes_on_behind_its_marker_and_shows_one_namespace() {
        let place = Place::new();
        let store = place.open(FunctionLimits::default()).await;
        for name in ["c", "a", "b"] {
            store.create(&place.tenant, new(name), archive("x")).await.unwrap();
        }
        let names = |page: &[Arc<Deployed>]| page.iter().map(|f| f.function.name.to_string()).collect::<Vec<_>>();
        let (page, more) = store.list(&place.tenant, None, 2);
        assert_eq!((names(&page), more), (vec!["a".to_owned(), "b".to_owned()], true));
        let (page, more) = store.list(&place.tenant, Some(&page[1].function.name), 2);
        assert_eq!((names(&page), more), (vec!["c".to_owned()], false));
        assert!(store.list(&Namespace::new("other").unwrap(), None, 2).0.is_empty());
        assert_eq!(store.totals(&place.tenant).0, 3);
    }

    /// The real registry, whose writes wait for a permit each.
    struct Gated(Arc<LocalRegistry>, Semaphore);

    #[async_trait]
    impl Registry for Gated {
        async fn get(&self, table: &str, key: &str) -> Result<Option<Revised>, RegistryError> {
            self.0.get(table, key).await
        }
        async fn list(&self, table: &str, prefix: &str) -> Result<Vec<(String, Revised)>, RegistryError> {
            self.0.list(table, prefix).await
        }
        async fn put(
            &self,
            table: &str,
            key: &str,
            value: Vec<u8>,
            expected: Option<Revision>,
        ) -> Result<Revision, RegistryError> {
            self.1.acquire().await.unwrap().forget();
            self.0.put(table, key, value, expected).await
        }
        async fn delete(&self, table: &str, key: &str, expected: Revision) -> Result<(), RegistryError> {
            self.0.delete(table, key, expected).await
        }
    }

    #[tokio::test]
    async fn of_two_changes_at_once_one_is_refused_and_a_caller_who_leaves_does_not_stop_the_other() {
        let place = Place::new();
        let gated = Arc::new(Gated(Arc::clone(&place.registry), Semaphore::new(1)));
        let store = place.open_on(Arc::clone(&gated) as _, FunctionLimits::default()).await;
        store.create(&place.tenant, new("f"), archive("one")).await.unwrap();
        let f = FunctionName::new("f").unwrap();

        let first = store.update_code(&place.tenant, &f, archive("two"), None);
        assert!(tokio::time::timeout(Duration::from_millis(20), first).await.is_err(), "it waits for the registry");
        let second = store.update_code(&place.tenant, &f, archive("three"), None).await;
        assert!(matches!(second, Err(FunctionStoreError::Busy(_))));
        assert!(matches!(store.delete(&place.tenant, &f).await, Err(FunctionStoreError::Busy(_))));
        gated.1.add_permits(1);
        while store.0.changing.lock().contains(&(place.tenant.clone(), f.clone())) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(place.code(&store, "f").await, "two");
    }

    #[tokio::test]
    async fn what_another_node_wrote_meanwhile_is_taken_over_and_the_change_refused() {
        let place = Place::new();
        let (here, there) = (place.open(FunctionLimits::default()).await, place.open(FunctionLimits::default()).await);
        here.create(&place.tenant, new("f"), archive("one")).await.unwrap();
        let theirs = there.create(&place.tenant, new("f"), archive("other")).await;
        assert!(matches!(theirs, Err(FunctionStoreError::Busy(_))));
        let f = FunctionName::new("f").unwrap();
        assert_eq!(there.get(&place.tenant, &f).unwrap().function, here.get(&place.tenant, &f).unwrap().function);
        assert!(there.update_code(&place.tenant, &f, archive("three"), None).await.is_ok());
    }

    #[tokio::test]
    async fn a_document_of_a_newer_format_stops_the_start() {
        let place = Place::new();
        let document = br#"{"format":2,"function":{},"tags":{},"unpacked":0}"#.to_vec();
        place.registry.put(TABLE, "tenant/f", document, None).await.unwrap();
        let registry: Arc<dyn Registry> = Arc::clone(&place.registry) as _;
        let clock: Arc<dyn Clock> = Arc::clone(&place.clock) as _;
        let opened = FunctionStore::open(registry, &place.folder.path().join("f"), clock, FunctionLimits::default());
        assert!(matches!(opened.await, Err(FunctionStoreError::Document(..))));
    }
}
