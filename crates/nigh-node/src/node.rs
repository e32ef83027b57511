//! One node: everything wired together, started in order, ended in order.
//!
//! Start: state folder (locked), registry, a new incarnation, sandbox engine (what an earlier life left is swept away),
//! store, object memory, functions, doors; then the first namespace's key, which is shown once: not before all that may
//! fail. `endpoints.json` is written last: whoever reads it finds open doors.
//! End: the doors take nothing new, running invocations and requests get `drain` to finish, records are flushed. The
//! admin API answers until what ran has ended.
//! A kill at any point needs nothing but a restart: what was acknowledged is in the store and the registry.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nigh_engine::{
    AccessKeys, Journal, JournalError, LocalHistories, LocalMembership, LocalRegistry, Membership, Outbox, RecordLog,
    Registry, RegistryError, Retention, StateError, StateFile,
};
use nigh_faas::activation_log::ActivationLog;
use nigh_faas::applications::Applications;
use nigh_faas::cgroup::cpuset::Cpusets;
use nigh_faas::dispatch::{AnswerStates, DispatchSettings, Dispatcher};
use nigh_faas::event_invoker::{EventError, EventInvoker, EventParts};
use nigh_faas::event_queue::QueueLimits;
use nigh_faas::function_network::NetworkPermission;
use nigh_faas::function_store::{FunctionLimits, FunctionStore, FunctionStoreError};
use nigh_faas::hooks::InvocationHook;
use nigh_faas::invocation::Invoke;
use nigh_faas::invocation_meter::InvocationMeter;
use nigh_faas::invoker::{Invoker, InvokerParts, InvokerSettings};
use nigh_faas::keep_alive::KeepAlive;
use nigh_faas::lambda_door::{LambdaDoor, LambdaDoorParts, LambdaDoorSettings};
use nigh_faas::memory_budget::BudgetLimits;
use nigh_faas::memory_slack::SlackBounds;
use nigh_faas::node_memory::{CacheMemory, NodeMemory, NodeMemorySettings};
use nigh_faas::object_features::LookedAtOrSized;
use nigh_faas::object_features::recorder::FeatureRecorder;
use nigh_faas::object_features::trigger_features::TriggerFeatures;
use nigh_faas::object_sizes::ObjectSizes;
use nigh_faas::openwhisk::activation_store::ActivationStore;
use nigh_faas::openwhisk::entity_store::{EntityStore, EntityStoreError};
use nigh_faas::openwhisk::{NamespaceLimits, OpenWhiskDoor, OpenWhiskParts, OpenWhiskSettings};
use nigh_faas::phase_accountant::PhaseAccountant;
use nigh_faas::prefetch_station::PrefetchStation;
use nigh_faas::prewarm::PrewarmSettings;
use nigh_faas::runtime_catalog::RuntimeCatalog;
use nigh_faas::runtime_command::{PythonRuntime, RuntimeSettings};
use nigh_faas::sandbox::local::{EngineSettings, LocalEngine};
use nigh_faas::sandbox::{OutboundSettings, SandboxEngine, SandboxError};
use nigh_faas::sandbox_pool::PoolLimits;
use nigh_faas::workflow::executions::{ExecutionError, ExecutionLimits, ExecutionParts, Executions};
use nigh_faas::workflow::machine_store::{MachineError, MachineStore};
use nigh_faas::workflow::owned::{OwnedExecutions, OwnedParts};
use nigh_objects::{MemoryLimits, Notifications, ObjectError, ObjectMemory, ObjectObserver, large_folios_are_offered};
use nigh_s3::{DoorLimits, FastPath, FastPathLimits, FastPathUsage, S3Door};
use nigh_terms::{ByteSize, Clock, Epoch, Monotonic, NodeId, SystemClock, Timestamp};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::action_runtimes::{self, ActionRuntimes};
use crate::admin;
use crate::background;
use crate::backup::source::BackupSource;
use crate::cluster::memory::{MemberMemory, MemoryDoor, MemoryHost, MemoryParts};
use crate::cluster::{ClusterEngine, ClusterStartError};
use crate::config::{Configuration, LlcBind, Network, Prewarm, Settings, Shown, Switch};
use crate::credentials::{self, Credentials};
use crate::data_door::SandboxDataDoor;
use crate::endpoints::Endpoints;
use crate::features;
use crate::http_adapter;
use crate::learning::Learning;
use crate::llc::{Llc, LlcError, LlcStatus};
use crate::notifications::FunctionTargets;
use crate::outside_door::{OutsideDoor, OutsideSecrets, SecretFileError};
use crate::profiling::{ModelRows, ProfileReport, ProfileRequest, Profiling, ProfilingError, ProfilingParts};
use crate::python;
use crate::python_library;
use crate::state_folder::{StateFolder, StateFolderError, StatePaths, bind_socket, bind_socket_by};
use crate::status::{CacheStatus, Draining, FastPathStatus, Level, SandboxStatus, Status};
use crate::store::{self, StoreOpenError};
use crate::telemetry::{ProcessUse, Telemetry, TelemetryError};
use crate::writes;

/// Data calls listed in one activation record; further ones are counted only.
const DATA_CALLS_MAX: usize = 1000;
/// The table of OpenWhisk's activations in the state file.
const OPENWHISK_RECORDS: &str = "openwhisk-records";
/// The level that says how sandboxes are kept apart.
const ISOLATION: &str = "isolation";
/// And of the one about the way out to the network.
const NETWORK: &str = "network";
/// User ids set aside for sandboxes, from `functions.uid_base` on.
const UIDS: u32 = 32_768;

/// Why a node does not start.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each source says what happened")]
pub enum NodeError {
    #[error(transparent)]
    StateFolder(#[from] StateFolderError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    #[error(transparent)]
    Secret(#[from] SecretFileError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Objects(#[from] ObjectError),
    #[error(transparent)]
    Functions(#[from] FunctionStoreError),
    #[error(transparent)]
    OpenWhisk(#[from] EntityStoreError),
    #[error(transparent)]
    Events(#[from] EventError),
    #[error(transparent)]
    Machines(#[from] MachineError),
    #[error(transparent)]
    Executions(#[from] ExecutionError),
    #[error(transparent)]
    Llc(#[from] LlcError),
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    #[error(transparent)]
    Cluster(#[from] Box<ClusterStartError>),
    #[error("{setting} {address}: {source}; set another with --{flag}, port 0 takes a free one")]
    Bind { setting: &'static str, flag: &'static str, address: SocketAddr, source: std::io::Error },
    #[error("{what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
}

/// What a running node shows of itself.
struct Running {
    settings: Settings,
    shown: Vec<Shown>,
    membership: Arc<dyn Membership>,
    /// None where it is alone.
    cluster: Option<ClusterEngine>,
    started: Timestamp,
    clock: Arc<SystemClock>,
    endpoints: Endpoints,
    levels: Vec<Level>,
    telemetry: Telemetry,
    records: RecordLog,
    whisk_records: RecordLog,
    activations: ActivationLog,
    memory: ObjectMemory,
    journal: Arc<Journal>,
    /// None where it is off.
    fast_path: Option<FastPath>,
    /// None where headers of objects are not looked at.
    features: Option<FeatureRecorder>,
    functions: FunctionStore,
    backup: BackupSource,
    engine: Arc<LocalEngine>,
    invoker: Arc<Invoker>,
    /// In a cluster.
    dispatcher: Option<Dispatcher>,
    events: EventInvoker,
    executions: Executions,
    /// In a cluster.
    owned: Option<OwnedExecutions>,
    node_memory: NodeMemory,
    llc: Arc<Llc>,
    learning: Learning,
    profiling: Arc<Profiling>,
    /// Somebody asked for the end through the admin API.
    asked_to_stop: CancellationToken,
    /// When the end began.
    draining: OnceLock<Instant>,
    /// What ran has ended.
    stop: CancellationToken,
}

/// A running node. It ends by `stop`; if it is dropped instead, as by a kill, the next start tidies up.
pub struct Node {
    running: Arc<Running>,
    doors: CancellationToken,
    tasks: TaskTracker,
    first_key: Option<Credentials>,
    state: StateFolder,
}

/// The listeners of a node, bound before anything is told to anybody.
struct Listeners {
    s3: TcpListener,
    s3_unix: tokio::net::UnixListener,
    fast: Option<OwnedFd>,
    lambda: TcpListener,
    outside: Option<TcpListener>,
    admin: tokio::net::UnixListener,
}

impl Node {
    /// Starts a node. Needs a tokio runtime.
    ///
    /// # Errors
    /// The first thing that is missing, and what mends it.
    pub async fn start(configuration: Configuration) -> Result<Self, NodeError> {
        let Configuration { settings, shown, .. } = configuration;
        raise_file_limit();
        let state = StateFolder::take(&settings.state)?;
        let paths = state.paths().clone();
        // Nobody shall find the doors of an earlier life.
        remove_if_there(&paths.endpoints())?;
        let telemetry = Telemetry::install()?;
        let clock = Arc::new(SystemClock::new());
        let started = clock.wall();

        let database = StateFile::open(&paths.database())?;
        let local = LocalRegistry::new(database.clone());
        // What this node learns is its own, in a cluster too.
        let own_registry: Arc<dyn Registry> = Arc::new(local.clone());
        let alone = LocalMembership::join(NodeId(settings.node.clone()), &*own_registry).await?;
        // The incarnation grows at every start, as a new home's epoch must.
        let epoch = Epoch(alone.incarnation().0);
        let cluster = match &settings.cluster {
            Some(cluster) => {
                let joining = Box::pin(ClusterEngine::join(&settings, cluster, Arc::clone(&clock) as Arc<dyn Clock>));
                Some(joining.await.map_err(Box::new)?)
            }
            None => None,
        };
        let registry = cluster.as_ref().map_or_else(|| Arc::clone(&own_registry), ClusterEngine::registry);
        let membership: Arc<dyn Membership> = match &cluster {
            Some(cluster) => Arc::clone(cluster.membership()) as Arc<dyn Membership>,
            None => Arc::new(alone),
        };
        let keys = AccessKeys::load(&*registry).await?;
        if cluster.is_some() {
            keys.follow(&*registry).await?;
        }

        let engine = sandbox_engine(&settings, state.instance()).await?;
        let swept = engine.sweep().await?;
        if swept > 0 {
            tracing::info!(swept, "ended sandboxes that an earlier life of this node left");
        }
        let mut levels = vec![isolation_level(&*engine)];
        levels.extend(cluster.as_ref().map(ClusterEngine::level));
        let (python_level, pythons) = pythons(&settings).await;
        let no_python = (!python_level.on).then(|| python_level.detail.clone());
        levels.push(python_level);
        levels.push(prewarm_level(&settings, &*engine));
        levels.push(fast_path_level(&settings));
        levels.extend(network_level(&settings, &*engine));
        let network = network_permission(&settings, &*engine);

        let accountant = Arc::new(PhaseAccountant::new(DATA_CALLS_MAX));
        let (store, store_levels) = store::open(&settings, Arc::clone(&clock) as Arc<dyn Clock>).await?;
        levels.extend(store_levels);
        levels.push(Level {
            name: "cache".to_owned(),
            on: settings.cache.bytes > ByteSize::ZERO,
            detail: format!(
                "{} of memory for objects of up to {}{}",
                settings.cache.bytes,
                settings.cache.object_max,
                if large_folios_are_offered() { ", in large folios" } else { "" },
            ),
        });
        let sizes = Arc::new(ObjectSizes::default());
        let llc = Llc::open(
            &settings.llc,
            Arc::clone(&own_registry),
            Arc::clone(&sizes),
            Arc::clone(&clock) as Arc<dyn Clock>,
            engine.sandbox_cpus(),
        )
        .await?;
        levels.push(llc.level.clone());
        let parser_user = settings.functions.uid_base.saturating_add(UIDS);
        let (features, level) = features::open(&settings.memory, Arc::clone(&own_registry), parser_user).await?;
        levels.push(level);
        let (write_parts, journal, level) = writes::open(&settings, Arc::clone(&registry), epoch).await?;
        levels.push(level);
        let mut observers =
            vec![Arc::clone(&accountant) as Arc<dyn ObjectObserver>, Arc::clone(&sizes) as Arc<dyn ObjectObserver>];
        observers.extend(features.clone().map(|features| Arc::new(features) as Arc<dyn ObjectObserver>));
        let limits = MemoryLimits {
            cache: settings.cache.bytes,
            cached_object: settings.cache.object_max,
            object: settings.s3.object_max,
        };
        let at = Arc::clone(&clock) as Arc<dyn Clock>;
        let (memory, member) = match &cluster {
            None => {
                let opening = ObjectMemory::open(Arc::clone(&store), write_parts, at, observers, paths.spool(), limits);
                (opening.await?, None)
            }
            Some(cluster) => {
                let (store, writes, clock) = (Arc::clone(&store), write_parts, at);
                let parts = MemoryParts { store, writes, clock, observers, paths: &paths, limits };
                let member = MemberMemory::open(cluster, parts).await?;
                (member.memory.clone(), Some(member))
            }
        };
        let node_memory = node_memory(&settings, &memory, Arc::clone(&clock) as Arc<dyn Clock>)
            .map_err(|source| NodeError::Io { what: "starting the threads of the node's memory", source })?;
        levels.push(memory_level(&settings, &node_memory));
        let functions = FunctionStore::open(
            Arc::clone(&registry),
            &paths.functions(),
            Arc::clone(&clock) as Arc<dyn Clock>,
            FunctionLimits::default(),
        )
        .await?;
        let entities = EntityStore::open(Arc::clone(&registry)).await?;
        if cluster.is_some() {
            functions.follow().await?;
            entities.follow().await?;
        }
        let learning = Learning::open(
            &settings.memory,
            own_registry,
            functions.clone(),
            Arc::new(LookedAtOrSized { looked_at: features.clone(), sizes }),
            Arc::clone(&clock) as Arc<dyn Clock>,
        );
        levels.push(learning.level());

        let backup = BackupSource::new(local, paths.clone(), &settings, Some(functions.clone()));
        let retention = Retention { records_max: settings.activations.records_max };
        let outbox = Outbox::open(database.clone())
            .map_err(|source| NodeError::Io { what: "starting the writer of events", source })?;
        let whisk_records = RecordLog::open_named(database.clone(), OPENWHISK_RECORDS, retention)
            .map_err(|source| NodeError::Io { what: "starting the writer of OpenWhisk's records", source })?;
        let histories = LocalHistories::open(database.clone())
            .map_err(|source| NodeError::Io { what: "starting the writer of executions", source })?;
        let records = RecordLog::open(database, retention)
            .map_err(|source| NodeError::Io { what: "starting the writer of records", source })?;
        let activations = ActivationLog::new(records.clone());
        let door_limits = DoorLimits {
            connections: settings.s3.connections_max,
            drain: settings.drain.duration(),
            ..DoorLimits::default()
        };
        let s3 = S3Door::new(Arc::new(memory.clone()), keys.clone(), door_limits)
            .map_err(|source| NodeError::Io { what: "starting the threads of the S3 door", source })?;
        let fast_path = fast_path_limits(&settings).map(|limits| FastPath::new(&s3, limits));
        let catalog = RuntimeCatalog::new(pythons.iter().map(|python| python.minor));
        let catalog = match no_python {
            Some(why) => catalog.without_python_because(why),
            None => catalog,
        };
        let (http_level, http_adapter) = http_adapter::install(&paths.functions().join("runtime-http"));
        levels.push(http_level);
        let catalog = if http_adapter.is_some() { catalog.with_http_adapter().with_native() } else { catalog };
        let actions_folder = paths.functions().join("runtime-actions");
        let ActionRuntimes { level, launchers, nodes } =
            action_runtimes::open(&actions_folder, &settings.functions.node).await;
        levels.push(level);
        let catalog = catalog.with_nodes(nodes.iter().map(|node| node.major));
        let python_library = match pythons.first() {
            Some(python) if settings.s3.fast_path == Switch::On && settings.functions.fast_path == Switch::On => {
                let (level, library) = python_library::install(&paths.functions().join("runtime-python"), python).await;
                levels.push(level);
                library
            }
            _ => None,
        };
        let region = settings.region.clone();
        let runtime = RuntimeSettings { region, pythons, http_adapter, python_library, nodes, launchers };
        let invoker_settings = InvokerSettings { network: network.clone(), ..invoker_settings(&settings, runtime) };
        let profiling = Profiling(ProfilingParts {
            store,
            engine: Arc::clone(&engine) as Arc<dyn SandboxEngine>,
            keys: keys.clone(),
            functions: functions.clone(),
            invoker: InvokerSettings { prewarm: None, ..invoker_settings.clone() },
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            memory: node_memory.clone(),
            node: membership.node().clone(),
            incarnation: membership.incarnation(),
            object_max: settings.s3.object_max,
            fast_path: fast_path_limits(&settings),
            folder: paths.profiles(),
        });
        let applications = Applications::default();
        let prefetched = (settings.memory.prefetch == Switch::On).then(|| memory.clone());
        // In a cluster whoever dispatches does this.
        let station = cluster.is_none().then(|| {
            let clock = Arc::clone(&clock) as Arc<dyn Clock>;
            Arc::new(PrefetchStation::new(applications.clone(), prefetched.clone(), clock)) as Arc<dyn InvocationHook>
        });
        let invoker = Arc::new(Invoker::new(
            InvokerParts {
                functions: Arc::new(functions.clone()),
                engine: Arc::clone(&engine) as Arc<dyn SandboxEngine>,
                data_door: Arc::new(SandboxDataDoor { http: s3.clone(), fast: fast_path.clone() }),
                keys: keys.clone(),
                gate: Arc::new(memory.clone()),
                accountant,
                activations: activations.clone(),
                hooks: hooks(&learning, &llc, station),
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
                memory: node_memory.clone(),
                node: membership.node().clone(),
                incarnation: membership.incarnation(),
            },
            invoker_settings,
        ));
        for (namespace, function, reserved) in functions.reserves() {
            invoker.set_reserved(&namespace, &function, Some(reserved));
        }
        let dispatcher = cluster.as_ref().map(|cluster| {
            let functions = Arc::new(functions.clone());
            if cluster.runs() {
                cluster.start_running(Arc::clone(&invoker) as _, Arc::clone(&functions) as _, &memory);
            }
            let prefetching = (applications.clone(), prefetched.clone());
            cluster.start_dispatch(functions, &memory, prefetching, DispatchSettings::default())
        });
        // In a cluster it goes to whoever owns its namespace.
        let invoke = match &dispatcher {
            Some(dispatcher) => Arc::new(dispatcher.clone()) as Arc<dyn Invoke>,
            None => Arc::clone(&invoker) as Arc<dyn Invoke>,
        };
        let events = EventInvoker::open(
            EventParts {
                functions: functions.clone(),
                invoke: match &features {
                    Some(features) => {
                        Arc::new(TriggerFeatures::new(features.clone(), Arc::clone(&invoke))) as Arc<dyn Invoke>
                    }
                    None => Arc::clone(&invoke),
                },
                outbox,
                records: Arc::new(memory.clone()),
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
                region: settings.region.clone(),
            },
            queue_limits(&settings),
        )
        .await?;
        let machines = MachineStore::open(Arc::clone(&registry), Arc::clone(&clock) as Arc<dyn Clock>).await?;
        if cluster.is_some() {
            machines.follow().await?;
        }
        let execution_parts = ExecutionParts {
            functions: functions.clone(),
            invoke: Arc::clone(&invoke),
            events: events.clone(),
            histories: Arc::new(histories),
            scratch: Arc::new(memory.clone()),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            region: settings.region.clone(),
            turns: Arc::new(Semaphore::new(tasks_max(&settings))),
            over: CancellationToken::new(),
        };
        let limits = execution_limits(&settings);
        let executions = Executions::open(execution_parts.clone(), limits).await?;
        let owned = cluster.as_ref().zip(dispatcher.clone()).map(|(cluster, dispatcher)| {
            OwnedExecutions::new(OwnedParts {
                dispatcher,
                histories: Arc::new(cluster.histories().clone()),
                registry: Arc::clone(&registry),
                present: cluster.present(),
                like: execution_parts,
                limits,
            })
        });
        let targets = FunctionTargets { functions: functions.clone(), events: events.clone() };
        let notifications =
            Notifications::open(Arc::clone(&registry), Arc::new(targets), settings.region.clone()).await?;
        if cluster.is_some() {
            notifications.follow().await?;
        }
        memory.notify_by(notifications);
        let openwhisk = OpenWhiskDoor::new(
            OpenWhiskParts {
                functions: functions.clone(),
                entities,
                activations: ActivationStore::new(whisk_records.clone(), activations.clone(), functions.clone()),
                invoke: Arc::clone(&invoke),
                scratch: Arc::new(memory.clone()),
                keys: keys.clone(),
                catalog: catalog.clone(),
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
            },
            OpenWhiskSettings {
                concurrency: settings.functions.sandboxes_max,
                limits: NamespaceLimits {
                    invocations_per_minute: settings.openwhisk.invocations_per_minute,
                    fires_per_minute: settings.openwhisk.fires_per_minute,
                    concurrent_invocations: settings.openwhisk.concurrent_invocations,
                },
                network: network.clone(),
            },
        );
        let lambda = Arc::new(LambdaDoor::new(
            LambdaDoorParts {
                functions: functions.clone(),
                invoke,
                events: events.clone(),
                machines,
                executions: executions.clone(),
                owned: owned.clone(),
                keys: keys.clone(),
                objects: Arc::new(memory.clone()),
                catalog,
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
                openwhisk: Some(openwhisk),
            },
            LambdaDoorSettings {
                region: settings.region.clone(),
                concurrency: settings.functions.sandboxes_max,
                network,
            },
        ));

        let secrets = OutsideSecrets::read(&settings)?;
        let skew = settings.outside.clock_skew.duration();
        levels.extend(outside_level(&settings, &secrets));
        let outside = OutsideDoor::new(memory.clone(), secrets, skew, Arc::clone(&clock) as Arc<dyn Clock>);
        let listeners = Listeners::bind(&settings, &paths).await?;
        let endpoints = listeners.endpoints(&settings, &paths)?;
        let first_key = keep_credentials(&keys, &*registry, &settings, &paths.credentials()).await?;
        let (stop, doors, tasks) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
        let running = Arc::new(Running {
            settings,
            shown,
            membership,
            cluster,
            started,
            clock,
            endpoints,
            levels,
            telemetry,
            records,
            whisk_records,
            activations,
            memory,
            journal,
            fast_path: fast_path.clone(),
            features: features.clone(),
            functions,
            backup,
            engine,
            invoker,
            dispatcher,
            events,
            executions,
            owned,
            node_memory,
            llc: Arc::new(llc),
            learning,
            profiling: Arc::new(profiling),
            asked_to_stop: CancellationToken::new(),
            draining: OnceLock::new(),
            stop,
        });
        tasks.spawn(s3.clone().serve_tcp(listeners.s3, doors.clone()));
        tasks.spawn(s3.serve_unix(listeners.s3_unix, doors.clone()));
        if let (Some(fast_path), Some(listener)) = (fast_path, listeners.fast) {
            let until = doors.clone();
            tasks.spawn(async move {
                if let Err(error) = fast_path.serve(listener, None, until).await {
                    tracing::warn!(%error, "the fast path is not served; clients use HTTP");
                }
            });
        }
        // Readers of the store wait for what is pushed last, too.
        if let Some(listener) = listeners.outside {
            tasks.spawn(Arc::new(outside).serve(listener, running.stop.clone()));
        }
        if let Some(features) = features {
            tasks.spawn(features.run(running.memory.clone(), running.stop.clone()));
        }
        // It pushes on while what ran finishes.
        tasks.spawn(running.memory.clone().persist(running.stop.clone()));
        tasks.spawn(applications.keep(Arc::clone(&registry), running.stop.clone()));
        tasks.spawn(background::upkeep(running.telemetry.clone(), doors.clone()));
        tasks.spawn(background::follow_load(Arc::clone(&running.llc), Arc::clone(&running.profiling), doors.clone()));
        tasks.spawn(background::fit_classes(Arc::clone(&running.llc), doors.clone()));
        tasks.spawn(background::sample_cache_use(Arc::clone(&running.llc), Arc::clone(&running.clock), doors.clone()));
        if let Some((cluster, member)) = running.cluster.as_ref().zip(member) {
            let (present, over, until) = (cluster.present(), running.asked_to_stop.clone(), running.stop.clone());
            tasks.spawn(member.follow(present, over, until));
            let door = Arc::new(MemoryDoor(running.memory.clone()));
            cluster.serve(Arc::new(MemoryHost(running.memory.clone())), Some(door)).await?;
            tasks.spawn(end_with_life(Arc::clone(&running)));
        }
        if let (Some(dispatcher), Some(owned)) = (&running.dispatcher, &running.owned) {
            dispatcher.answer_states_by(&(Arc::clone(&lambda) as Arc<dyn AnswerStates>));
            tasks.spawn(lead_executions(owned.clone()));
        }
        tasks.spawn(lambda.serve(listeners.lambda, doors.clone()));
        running.endpoints.write(&paths)?;
        tasks.spawn(admin::serve(Arc::clone(&running), listeners.admin));
        tasks.close();
        Ok(Self { running, doors, tasks, first_key, state })
    }

    /// Where it listens.
    #[must_use]
    pub fn endpoints(&self) -> &Endpoints {
        &self.running.endpoints
    }

    /// What works here, and what does not.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.running.levels
    }

    /// The key that this start made, if it was the first: to be shown once.
    #[must_use]
    pub const fn first_key(&self) -> Option<&Credentials> {
        self.first_key.as_ref()
    }

    /// Cancelled when the node was asked to end through its admin API.
    #[must_use]
    pub fn stop_requested(&self) -> &CancellationToken {
        &self.running.asked_to_stop
    }

    /// Takes nothing new, lets what runs finish for the time set, ends what then still runs, and writes what waits.
    pub async fn stop(self) {
        let drain = self.running.settings.drain.duration();
        self.running.draining.get_or_init(Instant::now);
        tracing::info!("draining: nothing new is taken; {}", self.running.awaits());
        if let Err(error) = remove_if_there(&self.state.paths().endpoints()) {
            tracing::warn!(%error, "the doors are closing and their file still stands");
        }
        self.doors.cancel();
        let executions_written = self.running.executions.close();
        let events_written = self.running.events.close();
        if let Some(owned) = &self.running.owned {
            owned.close();
        }
        if let Some(dispatcher) = &self.running.dispatcher {
            dispatcher.leave().await;
        }
        // Before the doors have closed: their last requests wait for invocations.
        self.running.invoker.drain(drain).await;
        self.running.engine.close().await;
        executions_written.await;
        events_written.await;
        if self.running.memory.flush_all(drain).await.is_err() {
            let waiting = self.running.memory.dirty().objects;
            tracing::warn!(waiting, "the store has not taken all writes; they are in the journal, for the next start");
        } else {
            self.running.memory.let_go_of_store().await;
        }
        if let Some(cluster) = &self.running.cluster {
            cluster.leave(drain).await;
        }
        self.running.stop.cancel();
        if tokio::time::timeout(drain, self.tasks.wait()).await.is_err() {
            tracing::warn!("requests still ran after the time to drain; their connections are cut");
        }
        self.running.llc.close();
        self.running.learning.close(drain).await;
        self.running.records.flush().await;
        self.running.whisk_records.flush().await;
        let endpoints = &self.running.endpoints;
        for socket in [&endpoints.admin_socket, &endpoints.s3_socket].into_iter().chain(&endpoints.fast_socket) {
            if let Err(error) = remove_if_there(socket) {
                tracing::warn!(%error, "a socket is left behind; the next start replaces it");
            }
        }
        tracing::info!("drained");
    }
}

impl Running {
    /// What it awaits before it ends, if it ends now or has begun to.
    fn awaits(&self) -> Draining {
        let pool = self.invoker.in_use();
        let since = self.draining.get().map_or(Duration::ZERO, Instant::elapsed);
        Draining {
            invocations: pool.running + pool.waiting,
            left_s: self.settings.drain.duration().saturating_sub(since).as_secs_f64().ceil() as u64,
        }
    }
}

impl Listeners {
    async fn bind(settings: &Settings, paths: &StatePaths) -> Result<Self, NodeError> {
        let tcp = async |setting, flag, address| {
            TcpListener::bind(address).await.map_err(|source| NodeError::Bind { setting, flag, address, source })
        };
        Ok(Self {
            s3: tcp("s3.listen", "s3-listen", settings.s3.listen).await?,
            s3_unix: bind_socket(&settings.s3.socket)?,
            lambda: tcp("lambda.listen", "lambda-listen", settings.lambda.listen).await?,
            outside: match settings.outside.listen {
                Some(address) => Some(tcp("outside.listen", "set outside.listen=ADDRESS", address).await?),
                None => None,
            },
            admin: bind_socket(&paths.admin_socket())?,
            fast: match settings.s3.fast_path {
                Switch::On => Some(bind_socket_by(&paths.fast_socket(), nigh_s3::bind_fast_path)?),
                Switch::Off => None,
            },
        })
    }

    fn endpoints(&self, settings: &Settings, paths: &StatePaths) -> Result<Endpoints, NodeError> {
        let url = |listener: &TcpListener| {
            let bound = listener.local_addr().map_err(|source| NodeError::Io { what: "asking for a port", source })?;
            // Who listens everywhere is reached at loopback.
            let reachable = match bound {
                SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from(([127, 0, 0, 1], v4.port())),
                SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
                    SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, v6.port()))
                }
                other => other,
            };
            Ok::<_, NodeError>(format!("http://{reachable}"))
        };
        Ok(Endpoints {
            pid: std::process::id(),
            s3: url(&self.s3)?,
            s3_socket: settings.s3.socket.clone(),
            lambda: url(&self.lambda)?,
            admin_socket: paths.admin_socket(),
            outside: self.outside.as_ref().map(url).transpose()?,
            fast_socket: self.fast.is_some().then(|| paths.fast_socket()),
            region: settings.region.clone(),
            namespace: settings.namespace.clone(),
        })
    }
}

impl Running {
    /// What works, as it is now: whether sandboxes can be made may change while the node runs.
    fn levels_now(&self) -> Vec<Level> {
        let mut levels = self.levels.clone();
        if let Some(isolation) = levels.iter_mut().find(|level| level.name == ISOLATION) {
            *isolation = isolation_level(&*self.engine);
        }
        if let Some(network) = levels.iter_mut().find(|level| level.name == NETWORK)
            && let Some(now) = network_level(&self.settings, &*self.engine)
        {
            *network = now;
        }
        levels
    }
}

impl admin::Shows for Running {
    fn llc(&self) -> LlcStatus {
        self.llc.status()
    }

    async fn profile(
        &self,
        request: ProfileRequest,
        tell: mpsc::UnboundedSender<ProfileReport>,
    ) -> Result<ProfileReport, ProfilingError> {
        let tell = |report: &ProfileReport| {
            let _nobody_listens_any_more = tell.send(report.clone());
        };
        self.llc.profile(&self.profiling, &request, tell).await
    }

    fn learning(&self) -> &Learning {
        &self.learning
    }

    async fn learn(&self, rows: ModelRows) -> Result<(), ProfilingError> {
        self.llc.learn(&self.profiling, rows).await
    }

    fn status(&self) -> Status {
        let usage = self.memory.usage();
        let pool = self.invoker.in_use();
        Status {
            node: self.settings.node.clone(),
            incarnation: self.membership.incarnation().0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: self.started.rfc3339(),
            // The clock was made at the start, and does not jump with the date.
            uptime_s: self.clock.monotonic().since(Monotonic::default()).as_secs(),
            endpoints: self.endpoints.clone(),
            draining: self.draining.get().map(|_| self.awaits()),
            levels: self.levels_now(),
            cluster: self.cluster.as_ref().map(ClusterEngine::status),
            functions: self.functions.totals(&self.settings.namespace).0,
            cache: CacheStatus {
                budget: usage.budget,
                kept: usage.kept,
                objects: usage.objects,
                hits: usage.hits,
                misses: usage.misses,
                past: usage.past,
                writes: usage.writes,
                evictions: usage.evictions,
            },
            writes: writes::status(self.memory.dirty(), self.journal.usage()),
            fast_path: self.fast_path.as_ref().map(|fast_path| fast_path_status(fast_path.usage())),
            features: self.features.as_ref().map(FeatureRecorder::status),
            sandboxes: SandboxStatus {
                alive: pool.sandboxes,
                idle: pool.idle,
                max: self.settings.functions.sandboxes_max,
                booked: pool.booked,
                idle_booked: pool.idle_booked,
                prewarmed: pool.stems,
                prewarmed_booked: pool.prewarmed,
                memory: self.settings.functions.memory,
                running: pool.running,
                waiting: pool.waiting,
            },
            memory: self.node_memory.status(),
            stems: self.invoker.stems(),
            resident: ByteSize(ProcessUse::now().resident_bytes),
            records_dropped: self.records.dropped() + self.whisk_records.dropped(),
        }
    }

    fn metrics(&self) -> String {
        let pool = self.invoker.in_use();
        let own = [
            ("nigh_sandboxes_booked_bytes", pool.booked.bytes() as f64),
            ("nigh_invocations_running", pool.running as f64),
            ("nigh_invocations_waiting", pool.waiting as f64),
            ("nigh_activation_records_dropped_total", self.records.dropped() as f64),
        ];
        self.telemetry.render(&[&own[..], &writes::meters(self.journal.usage())].concat())
    }

    fn config(&self) -> &[Shown] {
        &self.shown
    }

    fn activations(&self) -> &ActivationLog {
        &self.activations
    }

    fn events(&self) -> &EventInvoker {
        &self.events
    }

    fn backup(&self) -> (&BackupSource, Timestamp) {
        (&self.backup, self.clock.wall())
    }

    fn memory(&self) -> &ObjectMemory {
        &self.memory
    }

    fn features(&self) -> Option<&FeatureRecorder> {
        self.features.as_ref()
    }

    fn shut_down(&self) -> Draining {
        self.asked_to_stop.cancel();
        self.awaits()
    }

    fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

/// Has a node end whose life as a member is over: homes may refuse it for ever. Who started it starts it again, in a new
/// life.
async fn end_with_life(running: Arc<Running>) {
    let mut members = running.membership.watch();
    let own = (running.membership.node().clone(), running.membership.incarnation());
    let over = members.wait_for(|members| !members.contains(&own));
    if running.stop.run_until_cancelled(over).await.is_some() && running.draining.get().is_none() {
        tracing::error!("this node's life as a member of its cluster is over: it drains and ends; start it again");
        running.asked_to_stop.cancel();
    }
}

/// Connections, segments and cgroup files take a descriptor each; the soft limit of 1024 is for `select`.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(errno) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(%errno, current = ?limit.current, "the limit of open files cannot be raised");
    }
}

fn remove_if_there(path: &Path) -> Result<(), StateFolderError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(StateFolderError::Io { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// The keys of the first namespace and of those in the settings, made where there is none; the file always holds
/// them, whatever a crash left undone. Gives that of the first namespace, if it was made now.
async fn keep_credentials(
    keys: &AccessKeys,
    registry: &dyn Registry,
    settings: &Settings,
    file: &Path,
) -> Result<Option<Credentials>, NodeError> {
    let first = &settings.namespace;
    let (mut all, mut made) = (Vec::new(), None);
    for namespace in std::iter::once(first).chain(settings.namespaces.keys().filter(|name| *name != first)) {
        let of =
            |access_key, secret_key| Credentials { profile: namespace.as_str().to_owned(), access_key, secret_key };
        let known = keys.of_namespace(namespace).into_iter().next();
        if let Some(known) = known.and_then(|id| Some(of(id.clone(), keys.secret(&id)?))) {
            all.push(known);
            continue;
        }
        let (access_key, secret_key) = keys.issue(registry, namespace).await?;
        all.push(of(access_key, secret_key));
        if namespace == first {
            made = all.last().cloned();
        }
    }
    if all.iter().any(|known| credentials::read(file, &known.profile).ok().as_ref() != Some(known)) {
        credentials::write(file, &all)?;
    }
    Ok(made)
}

async fn sandbox_engine(settings: &Settings, instance: &str) -> Result<Arc<LocalEngine>, SandboxError> {
    let first = settings.functions.uid_base;
    let engine = EngineSettings {
        choice: settings.functions.engine,
        runc: settings.functions.runc.clone(),
        init: settings.functions.sandbox_program.clone(),
        uids: first..first.saturating_add(UIDS),
        trust_functions: settings.functions.trust_functions,
        fast_path: settings.s3.fast_path == Switch::On,
        cpusets: match settings.llc.bind {
            LlcBind::Cpus => Cpusets::OneEach,
            LlcBind::Tasks => Cpusets::Unused,
        },
        outbound: (settings.functions.network == Network::Permitted).then(|| OutboundSettings {
            tool: settings.functions.network_tool.clone(),
            resolvers: settings.functions.network_resolvers.0.clone(),
        }),
        ..EngineSettings::new(instance, &settings.state)
    };
    Ok(Arc::new(LocalEngine::open(engine).await?))
}

/// What the fast path allows; none if it is off.
fn fast_path_limits(settings: &Settings) -> Option<FastPathLimits> {
    (settings.s3.fast_path == Switch::On).then(|| FastPathLimits {
        connections: settings.s3.connections_max,
        drain: settings.drain.duration(),
        ..FastPathLimits::new(settings.cache.held_max)
    })
}

/// Whether objects come without HTTP, and what may be held by that.
fn fast_path_level(settings: &Settings) -> Level {
    let (on, detail) = match settings.s3.fast_path {
        Switch::Off => (false, "s3.fast_path is off".to_owned()),
        Switch::On => {
            let held = settings.cache.held_max;
            (true, format!("{held} may be held by a key, or by a sandbox within what it booked; further bytes by copy"))
        }
    };
    Level { name: "fast path".to_owned(), on, detail }
}

fn fast_path_status(usage: FastPathUsage) -> FastPathStatus {
    FastPathStatus {
        connections: usage.connections,
        holders: usage.holders,
        held: ByteSize(usage.held_bytes),
        held_segments: usage.held_segments,
        over: usage.over,
        segments: usage.segments,
        inline: usage.inline,
        copies: usage.copies,
        for_http: usage.for_http,
    }
}

/// Who can tell this node of others; nothing, where no door is open for that.
fn outside_level(settings: &Settings, secrets: &OutsideSecrets) -> Option<Level> {
    let address = settings.outside.listen?;
    let detail = format!("at {address}, for {}", secrets.words());
    Some(Level { name: "outside".to_owned(), on: true, detail })
}

/// How sandboxes are kept apart, and whether more can be made now.
fn isolation_level(engine: &dyn SandboxEngine) -> Level {
    let (kind, isolation) = (engine.kind(), engine.isolation());
    let detail = match engine.trouble() {
        None => format!("{kind}: {isolation}"),
        Some(trouble) => format!("no new sandbox can begin: {trouble}; those that run go on ({kind}: {isolation})"),
    };
    Level { name: ISOLATION.to_owned(), on: engine.trouble().is_none(), detail }
}

/// Whether functions that ask get a way out to the network; nothing, where the operator has not said that they may.
fn network_level(settings: &Settings, engine: &dyn SandboxEngine) -> Option<Level> {
    if settings.functions.network == Network::None {
        return None;
    }
    let (on, detail) = match engine.outbound() {
        Ok(line) => (true, format!("for functions that ask, by {line}")),
        Err(why) => (false, format!("functions.network is \"permitted\", and no function can have it: {why}")),
    };
    Some(Level { name: NETWORK.to_owned(), on, detail })
}

/// Which functions may have a way out to the network.
fn network_permission(settings: &Settings, engine: &dyn SandboxEngine) -> NetworkPermission {
    match settings.functions.network {
        Network::None => NetworkPermission::default(),
        Network::Permitted => {
            let namespaces = settings.functions.network_namespaces.0.iter().cloned().collect();
            NetworkPermission::new(engine.outbound().map(drop), namespaces)
        }
    }
}

/// Whether sandboxes are prewarmed, and how.
fn prewarm_level(settings: &Settings, engine: &dyn SandboxEngine) -> Level {
    let functions = &settings.functions;
    let (on, detail) = match engine.makes_stems() {
        _ if functions.prewarm == Prewarm::Off => (false, "functions.prewarm is off".to_owned()),
        Err(why) => (false, why),
        Ok(()) => {
            let imports = functions.prewarm_imports.0.join(", ");
            let (most, memory) = (functions.prewarm_max, functions.prewarm_memory);
            (true, format!("up to {most} sandboxes in {memory}, with {imports} imported"))
        }
    };
    Level { name: "prewarming".to_owned(), on, detail }
}

/// The interpreters, and what to say of them.
async fn pythons(settings: &Settings) -> (Level, Vec<PythonRuntime>) {
    let name = "python".to_owned();
    match python::probe(&settings.functions.python, &settings.functions.runtime_folders.0).await {
        Ok(found) => {
            let detail = format!("python3.{} at {}", found.minor, found.interpreter.display());
            (Level { name, on: true, detail }, vec![found])
        }
        Err(error) => (Level { name, on: false, detail: error.to_string() }, Vec::new()),
    }
}

fn invoker_settings(settings: &Settings, runtime: RuntimeSettings) -> InvokerSettings {
    let functions = &settings.functions;
    InvokerSettings {
        limits: PoolLimits {
            sandboxes_max: functions.sandboxes_max,
            memory_max: functions.memory,
            // Each takes a sandbox of its own.
            invocations_max: functions.sandboxes_max,
            waiting_max: functions.queue_max,
        },
        queue_wait: functions.queue.duration(),
        keep_alive: KeepAlive { idle_for: functions.keep_alive.duration(), idle_max: functions.sandboxes_max },
        freeze_grace: functions.freeze_grace.duration(),
        prewarm: (functions.prewarm == Prewarm::On).then(|| PrewarmSettings {
            memory_max: functions.prewarm_memory,
            stems_max: functions.prewarm_max,
            imports: functions.prewarm_imports.0.clone(),
        }),
        ..InvokerSettings::new(runtime, functions.memory)
    }
}

/// The memory that sandboxes and the cache share; off, where the settings say so.
fn node_memory(settings: &Settings, cache: &ObjectMemory, clock: Arc<dyn Clock>) -> std::io::Result<NodeMemory> {
    let memory = &settings.memory;
    if memory.grants == Switch::Off {
        return Ok(NodeMemory::off());
    }
    let slack = SlackBounds { first: memory.slack, min: memory.slack_min, max: memory.slack_max };
    let limits = BudgetLimits { bookable: settings.functions.memory, cache_own: settings.cache.bytes, slack };
    let shared = NodeMemorySettings { limits, park: memory.park == Switch::On, idle: memory.idle };
    NodeMemory::open(shared, Arc::new(cache.clone()) as Arc<dyn CacheMemory>, clock)
}

/// Whether sandboxes and the cache share their memory, and how strictly.
fn memory_level(settings: &Settings, memory: &NodeMemory) -> Level {
    let (booked, own) = (settings.functions.memory, settings.cache.bytes);
    let detail = match settings.memory.grants {
        Switch::Off => format!("memory.grants is off: {booked} for sandboxes, {own} for the cache, and neither lends"),
        Switch::On => {
            let held = if memory.parks() {
                "held to their grants"
            } else if settings.memory.park == Switch::Off {
                "held to what they booked on cgroup v1, as memory.park is off"
            } else {
                "held to what they booked on cgroup v1: no thread may run before others (CAP_SYS_NICE)"
            };
            format!("{booked} that sandboxes may book and {own} are shared with the cache; sandboxes are {held}")
        }
    };
    Level { name: "memory".to_owned(), on: settings.memory.grants == Switch::On, detail }
}

fn queue_limits(settings: &Settings) -> QueueLimits {
    let events = &settings.events;
    QueueLimits {
        events_max: events.queue_max,
        bytes_max: events.queue_bytes,
        running_max: events.running_max,
        dead_max: events.dead_max,
        retry_wait: events.retry_wait.duration(),
        back_off: events.back_off.duration(),
    }
}

fn execution_limits(settings: &Settings) -> ExecutionLimits {
    let workflows = &settings.workflows;
    ExecutionLimits {
        running_max: workflows.running_max,
        kept_max: workflows.kept_max,
        kept_bytes: workflows.kept_bytes.bytes(),
    }
}

/// Tasks of executions that run at a time.
fn tasks_max(settings: &Settings) -> usize {
    /// Nodes that the tasks of one are spread over, as is reckoned.
    const CLUSTER_NODES: usize = 8;
    // Each takes a sandbox: more would only wait there, and be refused.
    let sandboxes = settings.functions.sandboxes_max.max(1);
    let most = if settings.cluster.is_some() { sandboxes.saturating_mul(CLUSTER_NODES) } else { sandboxes };
    most.min(Semaphore::MAX_PERMITS)
}

/// Leads the executions of the namespaces that this node owns, as long as it runs.
async fn lead_executions(owned: OwnedExecutions) {
    while let Err(error) = owned.clone().look_after().await {
        tracing::warn!(%error, "executions of owners that are gone wait; it is tried again");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The stations in an invocation's path.
fn hooks(learning: &Learning, llc: &Llc, prefetch: Option<Arc<dyn InvocationHook>>) -> Vec<Arc<dyn InvocationHook>> {
    let meter = Arc::new(InvocationMeter) as Arc<dyn InvocationHook>;
    std::iter::once(meter).chain(learning.hook()).chain(llc.hooks()).chain(prefetch).collect()
}
