//! A node without doors: the real engine, invoker and logs; functions in a table; a data door of one line a call.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use nigh_data::{
    Attributes, DataCall, DataOperation, GetReply, GetRequest, ObjectObserver, PutRequest, ServeOutcome, Tags,
    WriteConditions,
};
use nigh_engine::{AccessKeys, RecordLog, Retention, StateFile};
use nigh_functions::function::{Function, FunctionSource, Runtime};
use nigh_invoke::activation_log::ActivationLog;
use nigh_invoke::hooks::InvocationHook;
use nigh_invoke::invocation::phase_accountant::PhaseAccountant;
use nigh_invoke::invocation::{InvocationResult, Invoke, InvokeError, InvokeRequest};
use nigh_invoke::invoker::{Invoker, InvokerParts, InvokerSettings};
use nigh_invoke::node_memory::{NodeMemory, NodeMemorySettings};
use nigh_objects::{MemoryLimits, ObjectMemory, Writes};
use nigh_sandbox::data_door::{DataDoor, DataListeners, HeldMemory};
use nigh_sandbox::runtime_command::RuntimeSettings;
use nigh_sandbox::sandbox::SandboxError;
use nigh_sandbox::sandbox::local::{EngineChoice, EngineSettings, LocalEngine};
use nigh_schedule::activation::Activation;
use nigh_stores::directory::DirectoryStore;
use nigh_terms::{
    AccessKeyId, BucketName, ByteSize, Clock, Epoch, FunctionName, Incarnation, InvocationId, Namespace, NodeId,
    ObjectKey, Principal, SystemClock, Timestamp, Token,
};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// How long a test waits for what must come, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where what a function puts goes.
const BUCKET: &str = "bucket";

static NODES: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
struct Functions {
    table: Mutex<HashMap<(Namespace, FunctionName), Arc<Function>>>,
    folder: PathBuf,
}

#[async_trait]
impl FunctionSource for Functions {
    async fn find(&self, namespace: &Namespace, name: &FunctionName) -> Option<Arc<Function>> {
        self.table.lock().get(&(namespace.clone(), name.clone())).cloned()
    }

    async fn layers_folder(&self, _: &Function) -> Result<Option<PathBuf>, String> {
        Ok(None)
    }

    async fn code_folder(&self, function: &Function) -> PathBuf {
        self.folder.join(&function.code_sha256)
    }

    fn runtimes(&self) -> BTreeSet<Runtime> {
        self.table.lock().values().map(|function| function.runtime.clone()).collect()
    }
}

/// Answers each line with what the key may do now, as a real door would before anything else.
struct LineDoor {
    keys: AccessKeys,
    objects: ObjectMemory,
    observers: Arc<[Arc<dyn ObjectObserver>]>,
    clock: Arc<dyn Clock>,
    /// The calls that have come.
    calls: Arc<AtomicU64>,
}

impl LineDoor {
    async fn serve_one(&self, stream: TcpStream, key: &AccessKeyId) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut word = String::new();
        stream.read_line(&mut word).await?;
        self.calls.fetch_add(1, Ordering::SeqCst);
        let said = match self.keys.enter(key) {
            Err(_) => "refused\n".to_owned(),
            Ok((principal, _under_way)) => {
                let invocation = principal.invocation.unwrap();
                if word.trim() == "put" {
                    put(&self.objects, &principal).await;
                }
                let (bucket, key) = (BucketName::new("bucket").unwrap(), ObjectKey::new(word.trim()).unwrap());
                let (observers, clock) = (Arc::clone(&self.observers), Arc::clone(&self.clock));
                let writes = word.trim().ends_with("write");
                let operation = if writes { DataOperation::Write } else { DataOperation::Read };
                let mut call = DataCall::begin(observers, clock, principal, operation, bucket, Some(key));
                let takes = match word.trim() {
                    "slow write" => 500,
                    "stuck read" => 1500,
                    _ => 5,
                };
                tokio::time::sleep(Duration::from_millis(takes)).await;
                let served = if writes { ServeOutcome::Write } else { ServeOutcome::Hit };
                call.succeeded(served, None, Token::empty());
                call.served(3);
                format!("{invocation}\n")
            }
        };
        stream.write_all(said.as_bytes()).await
    }
}

/// Writes an object.
async fn put(objects: &ObjectMemory, who: &Principal) {
    put_bytes(objects, who, "key", Bytes::from_static(b"x")).await;
}

/// Writes these bytes.
async fn put_bytes(objects: &ObjectMemory, who: &Principal, key: &str, bytes: Bytes) {
    let length = bytes.len() as u64;
    let request = PutRequest {
        attributes: Attributes::default(),
        tags: Tags::new(),
        conditions: WriteConditions::default(),
        body: futures::stream::iter([Ok(bytes)]).boxed(),
        length: Some(length),
        md5: None,
        checksum: None,
        request: None,
    };
    let (bucket, key) = (BucketName::new(BUCKET).unwrap(), ObjectKey::new(key).unwrap());
    objects.put(who, &bucket, &key, request).await.unwrap();
}

struct SharedDoor(Arc<LineDoor>);

impl DataDoor for SharedDoor {
    fn serve(&self, listeners: DataListeners, key: AccessKeyId, _: Arc<dyn HeldMemory>, until: CancellationToken) {
        let listener = listeners.http;
        let door = Arc::clone(&self.0);
        tokio::spawn(async move {
            let accept = async {
                while let Ok((stream, _)) = listener.accept().await {
                    let (door, key) = (Arc::clone(&door), key.clone());
                    tokio::spawn(async move { drop(door.serve_one(stream, &key).await) });
                }
            };
            tokio::select! {
                () = accept => {}
                () = until.cancelled() => {}
            }
        });
    }
}

/// A node of one tenant.
pub(crate) struct Node {
    pub(crate) invoker: Arc<Invoker>,
    pub(crate) activations: ActivationLog,
    pub(crate) tenant: Namespace,
    pub(crate) objects: ObjectMemory,
    pub(crate) memory: NodeMemory,
    data_calls: Arc<AtomicU64>,
    functions: Arc<Functions>,
    _folder: tempfile::TempDir,
}

/// What a caller got, as text.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) id: InvocationId,
    pub(crate) payload: serde_json::Value,
    pub(crate) is_error: bool,
    pub(crate) tail: String,
}

impl Outcome {
    pub(crate) fn error_type(&self) -> &str {
        assert!(self.is_error, "{self:?}");
        self.payload["errorType"].as_str().unwrap()
    }
}

/// Four sandboxes of 128 MiB, frozen soon.
pub(crate) fn settings() -> InvokerSettings {
    let runtime = RuntimeSettings {
        region: "us-east-1".to_owned(),
        pythons: Vec::new(),
        http_adapter: None,
        python_library: None,
        nodes: Vec::new(),
        launchers: None,
    };
    let mut settings = InvokerSettings::new(runtime, ByteSize::mib(512));
    settings.limits.wait_max = PATIENCE;
    settings.freeze_grace = Duration::from_millis(10);
    settings
}

impl Node {
    pub(crate) async fn start(settings: InvokerSettings) -> Self {
        Self::with_hooks(settings, Vec::new()).await
    }

    pub(crate) async fn with_hooks(settings: InvokerSettings, hooks: Vec<Arc<dyn InvocationHook>>) -> Self {
        // What is mostly tested here is the same for all engines; this one starts soonest.
        Self::with_engine(EngineChoice::Process, settings, hooks).await.unwrap()
    }

    /// A node whose sandboxes `choice` makes.
    pub(crate) async fn with_engine(
        choice: EngineChoice,
        settings: InvokerSettings,
        hooks: Vec<Arc<dyn InvocationHook>>,
    ) -> Result<Self, SandboxError> {
        Self::with_clock(choice, settings, hooks, Arc::new(SystemClock::new())).await
    }

    /// A node that shares out its memory.
    pub(crate) async fn with_memory(
        memory: NodeMemorySettings,
        settings: InvokerSettings,
        hooks: Vec<Arc<dyn InvocationHook>>,
    ) -> Self {
        Self::make(EngineChoice::Process, settings, hooks, Arc::new(SystemClock::new()), Some(memory)).await.unwrap()
    }

    /// The same, with a clock of the test's own.
    pub(crate) async fn with_clock(
        choice: EngineChoice,
        settings: InvokerSettings,
        hooks: Vec<Arc<dyn InvocationHook>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SandboxError> {
        Self::make(choice, settings, hooks, clock, None).await
    }

    async fn make(
        choice: EngineChoice,
        settings: InvokerSettings,
        hooks: Vec<Arc<dyn InvocationHook>>,
        clock: Arc<dyn Clock>,
        memory: Option<NodeMemorySettings>,
    ) -> Result<Self, SandboxError> {
        let folder = tempfile::tempdir().unwrap();
        let instance = format!("test-invoker-{}-{}", std::process::id(), NODES.fetch_add(1, Ordering::Relaxed));
        let init = crate::programs::build_programs().join("nigh-sandbox");
        let engine = EngineSettings { choice, init: Some(init), ..EngineSettings::new(instance, folder.path()) };
        let engine = LocalEngine::open(engine).await?;
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let activations = ActivationLog::new(RecordLog::open(state, Retention::default()).unwrap());
        let functions = Arc::new(Functions { folder: folder.path().to_owned(), ..Functions::default() });
        let keys = AccessKeys::default();
        let accountant = Arc::new(PhaseAccountant::new(8));
        let observers: Arc<[Arc<dyn ObjectObserver>]> = Arc::new([Arc::clone(&accountant) as Arc<dyn ObjectObserver>]);
        let objects = DirectoryStore::open(&folder.path().join("objects"), Arc::clone(&clock)).unwrap();
        let cache = memory.map_or(ByteSize::ZERO, |memory| memory.limits.cache_own);
        let cached_object = cache.min(ByteSize::mib(4));
        let limits = MemoryLimits { cache, cached_object, object: ByteSize::mib(4) };
        let (writes, spool) = (Writes::through(Epoch(1)), folder.path().join("spool"));
        let objects =
            ObjectMemory::open(Arc::new(objects), writes, Arc::clone(&clock), Vec::new(), spool, limits).await;
        let (objects, tenant) = (objects.unwrap(), Namespace::new("tenant").unwrap());
        let bucket = BucketName::new(BUCKET).unwrap();
        objects.create_bucket(&Principal::outside(tenant.clone()), &bucket).await.unwrap();
        let data_calls = Arc::new(AtomicU64::new(0));
        let (objects_of_door, calls) = (objects.clone(), Arc::clone(&data_calls));
        let door =
            LineDoor { keys: keys.clone(), objects: objects_of_door, observers, clock: Arc::clone(&clock), calls };
        let memory = match memory {
            Some(memory) => NodeMemory::open(memory, Arc::new(objects.clone()), Arc::clone(&clock)).unwrap(),
            None => NodeMemory::off(),
        };
        let parts = InvokerParts {
            functions: Arc::clone(&functions) as Arc<dyn FunctionSource>,
            engine: Arc::new(engine),
            data_door: Arc::new(SharedDoor(Arc::new(door))),
            keys,
            gate: Arc::new(objects.clone()),
            accountant,
            activations: activations.clone(),
            hooks,
            clock,
            memory: memory.clone(),
            node: NodeId("node".to_owned()),
            incarnation: Incarnation(1),
        };
        let invoker = Arc::new(Invoker::new(parts, settings));
        Ok(Self { invoker, activations, tenant, objects, memory, data_calls, functions, _folder: folder })
    }

    /// How many data calls the sandboxes have made.
    pub(crate) fn data_calls(&self) -> u64 {
        self.data_calls.load(Ordering::SeqCst)
    }

    /// Deploys the bootstrap as `name`, of which `change` makes what the test needs.
    pub(crate) fn deploy(&self, name: &str, change: impl FnOnce(&mut Function)) {
        self.deploy_files(name, &[("bootstrap", include_str!("bootstrap.py"))], change);
    }

    /// Deploys `files` as `name`.
    pub(crate) fn deploy_files(&self, name: &str, files: &[(&str, &str)], change: impl FnOnce(&mut Function)) {
        let name = FunctionName::new(name).unwrap();
        let mut function = Function {
            namespace: self.tenant.clone(),
            name: name.clone(),
            runtime: Runtime::Provided,
            runtime_name: "provided".to_owned(),
            handler: "app.handler".to_owned(),
            description: String::new(),
            memory: ByteSize::mib(128),
            timeout: Duration::from_secs(60),
            ephemeral_storage: ByteSize::mib(64),
            environment: std::collections::BTreeMap::new(),
            layers: Vec::new(),
            role: String::new(),
            code_sha256: format!("{name}-1"),
            code_size: ByteSize(1),
            modified: Timestamp(1),
            revision_id: "1".to_owned(),
            action: None,
        };
        change(&mut function);
        let folder = self.functions.folder.join(&function.code_sha256);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        for (file, text) in files.iter().copied().chain([("version", function.code_sha256.as_str())]) {
            std::fs::write(folder.join(file), text).unwrap();
            std::fs::set_permissions(folder.join(file), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        self.functions.table.lock().insert((self.tenant.clone(), name), Arc::new(function));
    }

    /// Writes a file of a function's code anew, which its sandboxes see from now on.
    pub(crate) fn tell(&self, name: &str, file: &str, text: &str) {
        std::fs::write(self.functions.folder.join(&self.function(name).code_sha256).join(file), text).unwrap();
    }

    /// A function as it is deployed.
    pub(crate) fn function(&self, name: &str) -> Arc<Function> {
        let name = FunctionName::new(name).unwrap();
        Arc::clone(&self.functions.table.lock()[&(self.tenant.clone(), name)])
    }

    /// Has the disk take the code deployed under this hash.
    pub(crate) fn sync_code(&self, sha256: &str) {
        for file in std::fs::read_dir(self.functions.folder.join(sha256)).unwrap() {
            std::fs::File::open(file.unwrap().path()).unwrap().sync_all().unwrap();
        }
    }

    pub(crate) async fn try_invoke(
        &self,
        name: &str,
        payload: serde_json::Value,
    ) -> Result<InvocationResult, InvokeError> {
        let request = InvokeRequest {
            function: FunctionName::new(name).unwrap(),
            payload: Bytes::from(payload.to_string()),
            client_context: None,
            token: Token::empty(),
            event: None,
        };
        self.invoker.invoke(&Principal::outside(self.tenant.clone()), request).await
    }

    pub(crate) async fn invoke(&self, name: &str, payload: serde_json::Value) -> Outcome {
        let invoked = tokio::time::timeout(PATIENCE, self.try_invoke(name, payload)).await.unwrap().unwrap();
        Outcome {
            id: invoked.id,
            payload: serde_json::from_slice(&invoked.payload).unwrap(),
            is_error: invoked.function_error.is_some(),
            tail: String::from_utf8(invoked.log_tail().to_vec()).unwrap(),
        }
    }

    /// Writes an object for `who`.
    pub(crate) async fn put(&self, who: &Principal) {
        put(&self.objects, who).await;
    }

    /// Writes `count` objects of so many bytes, which the cache keeps as far as it may.
    pub(crate) async fn fill_cache(&self, count: usize, bytes: usize) {
        let who = Principal::outside(self.tenant.clone());
        for number in 0..count {
            put_bytes(&self.objects, &who, &format!("{number}"), Bytes::from(vec![number as u8; bytes])).await;
        }
    }

    /// Reads an object that `fill_cache` wrote; its memory is held by what is returned.
    pub(crate) async fn read(&self, number: usize) -> GetReply {
        let who = Principal::outside(self.tenant.clone());
        let (bucket, key) = (BucketName::new(BUCKET).unwrap(), ObjectKey::new(&number.to_string()).unwrap());
        self.objects.get(&who, &bucket, &key, GetRequest::default()).await.unwrap()
    }

    pub(crate) async fn record(&self, id: InvocationId) -> Activation {
        self.activations.get(id).await.unwrap().unwrap()
    }

    /// Returns when `holds`, which must come to hold.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !holds(self) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "it never came to hold: {what}");
    }

    /// Ends all; nothing may be left.
    pub(crate) async fn stop(self) {
        self.invoker.drain(PATIENCE).await;
        assert_eq!(self.invoker.in_use(), nigh_schedule::sandbox_pool::PoolUse::default());
    }
}
