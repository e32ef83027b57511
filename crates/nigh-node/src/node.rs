//! One node: everything wired together, started in order, ended in order.
//!
//! Start: state folder (locked), registry, a new incarnation, sandbox engine (what an earlier life left is swept away),
//! store, object memory, functions, doors; then the first namespace's key, which is shown once: not before all that may
//! fail. `endpoints.json` is written last: whoever reads it finds open doors.
//! End: the doors take nothing new, running invocations and requests get `drain` to finish, records are flushed. The
//! admin API answers until what ran has ended.
//! A kill at any point needs nothing but a restart: what was acknowledged is in the store and the registry.

mod levels;
mod listeners;
mod memory_shares;
mod parts;
mod running;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nigh_data::{ObjectError, ObjectObserver};
use nigh_dispatch::{AnswerStates, DispatchSettings};
use nigh_engine::{
    AccessKeys, JournalError, LocalHistories, LocalMembership, LocalRegistry, Membership, Outbox, RecordLog, Registry,
    RegistryError, Retention, StateError, StateFile,
};
use nigh_functions::function_store::{FunctionLimits, FunctionStore, FunctionStoreError};
use nigh_functions::runtime_catalog::RuntimeCatalog;
use nigh_invoke::activation_log::ActivationLog;
use nigh_invoke::applications::Applications;
use nigh_invoke::event_invoker::{EventError, EventInvoker, EventParts};
use nigh_invoke::hooks::InvocationHook;
use nigh_invoke::hooks::prefetch::PrefetchHook;
use nigh_invoke::invocation::Invoke;
use nigh_invoke::invocation::phase_accountant::PhaseAccountant;
use nigh_invoke::invoker::{Invoker, InvokerParts, InvokerSettings};
use nigh_lambda::{LambdaDoor, LambdaDoorParts, LambdaDoorSettings};
use nigh_objects::{MemoryLimits, Notifications, ObjectMemory};
use nigh_openwhisk::activation_store::ActivationStore;
use nigh_openwhisk::entity_store::{EntityStore, EntityStoreError};
use nigh_openwhisk::{NamespaceLimits, OpenWhiskDoor, OpenWhiskParts, OpenWhiskSettings};
use nigh_s3::{DoorLimits, FastPath, S3Door};
use nigh_sandbox::runtime_command::RuntimeSettings;
use nigh_sandbox::sandbox::{SandboxEngine, SandboxError};
use nigh_sizing::object_features::trigger_features::TriggerFeatures;
use nigh_sizing::object_sizes::{FeaturesOrSize, ObjectSizes};
use nigh_terms::{Clock, Epoch, NodeId, SystemClock};
use nigh_workflow::executions::{ExecutionError, ExecutionParts, Executions};
use nigh_workflow::machine_store::{MachineError, MachineStore};
use nigh_workflow::owned::{OwnedExecutions, OwnedParts};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::listeners::Listeners;
use self::running::RunningNode;
use crate::action_runtimes::{self, ActionRuntimes};
use crate::admin;
use crate::background;
use crate::backup::source::BackupSource;
use crate::cluster::memory::{MemberMemory, MemoryDoor, MemoryHost, MemoryParts};
use crate::cluster::{ClusterEngine, ClusterStartError};
use crate::config::{Configuration, Settings, Switch};
use crate::credentials::{self, Credentials};
use crate::data_door::SandboxDataDoor;
use crate::endpoints::Endpoints;
use crate::features;
use crate::http_adapter;
use crate::learning::Learning;
use crate::llc::{Llc, LlcError};
use crate::notifications::FunctionTargets;
use crate::outside_door::{OutsideDoor, OutsideSecrets, SecretFileError};
use crate::profiling::{FunctionProfiler, ProfilingParts};
use crate::python_library;
use crate::state_folder::{StateFolder, StateFolderError};
use crate::status::Level;
use crate::store::{self, StoreOpenError};
use crate::telemetry::{Telemetry, TelemetryError};
use crate::writes;

/// Data calls listed in one activation record; further ones are counted only.
const DATA_CALLS_MAX: usize = 1000;
/// The table of OpenWhisk's activations in the state file.
const OPENWHISK_RECORDS: &str = "openwhisk-records";

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

/// A running node. It ends by `stop`; if it is dropped instead, as by a kill, the next start tidies up.
pub struct Node {
    running: Arc<RunningNode>,
    doors: CancellationToken,
    tasks: TaskTracker,
    first_key: Option<Credentials>,
    state: StateFolder,
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

        let engine = parts::sandbox_engine(&settings, state.instance()).await?;
        let swept = engine.sweep().await?;
        if swept > 0 {
            tracing::info!(swept, "ended sandboxes that an earlier life of this node left");
        }
        let mut levels = vec![levels::isolation(&*engine)];
        levels.extend(cluster.as_ref().map(ClusterEngine::level));
        let (python_level, pythons) = parts::pythons(&settings).await;
        let no_python = (!python_level.on).then(|| python_level.detail.clone());
        levels.push(python_level);
        levels.push(levels::prewarming(&settings, &*engine));
        levels.push(levels::fast_path(&settings));
        levels.extend(levels::network(&settings, &*engine));
        let network = parts::network_permission(&settings, &*engine);

        let accountant = Arc::new(PhaseAccountant::new(DATA_CALLS_MAX));
        let (store, store_levels) = store::open(&settings, Arc::clone(&clock) as Arc<dyn Clock>).await?;
        levels.extend(store_levels);
        levels.push(levels::cache(&settings));
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
        let parser_user = settings.functions.uid_base.saturating_add(parts::UIDS);
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
        let node_memory = parts::node_memory(&settings, &memory, Arc::clone(&clock) as Arc<dyn Clock>)
            .map_err(|source| NodeError::Io { what: "starting the threads of the node's memory", source })?;
        levels.push(levels::memory(&settings, &node_memory));
        let functions = FunctionStore::open(
            Arc::clone(&registry),
            &paths.functions(),
            Arc::clone(&clock) as Arc<dyn Clock>,
            // Of a cluster's nodes another may have more.
            FunctionLimits {
                memory: cluster.is_none().then_some(settings.functions.memory),
                ..FunctionLimits::default()
            },
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
            Arc::new(FeaturesOrSize { recorder: features.clone(), sizes }),
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
        let fast_path = parts::fast_path_limits(&settings).map(|limits| FastPath::new(&s3, limits));
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
        let invoker_settings =
            InvokerSettings { network: network.clone(), ..parts::invoker_settings(&settings, runtime) };
        let profiling = FunctionProfiler(ProfilingParts {
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
            fast_path: parts::fast_path_limits(&settings),
            folder: paths.profiles(),
        });
        let applications = Applications::default();
        let prefetched = (settings.memory.prefetch == Switch::On).then(|| memory.clone());
        // In a cluster whoever dispatches does this.
        let station = cluster.is_none().then(|| {
            let clock = Arc::clone(&clock) as Arc<dyn Clock>;
            Arc::new(PrefetchHook::new(applications.clone(), prefetched.clone(), clock)) as Arc<dyn InvocationHook>
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
                hooks: parts::hooks(&learning, &llc, station),
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
        for (namespace, share) in settings.namespaces.iter().filter_map(|(name, own)| Some((name, own.share?))) {
            invoker.set_share(namespace, share.get());
            if let Some(dispatcher) = &dispatcher {
                dispatcher.set_share(namespace, share.get());
            }
        }
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
            parts::queue_limits(&settings),
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
            turns: Arc::new(Semaphore::new(parts::tasks_max(&settings))),
            over: CancellationToken::new(),
        };
        let limits = parts::execution_limits(&settings);
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
                mounted: Some(Arc::new(openwhisk)),
            },
            LambdaDoorSettings {
                region: settings.region.clone(),
                concurrency: settings.functions.sandboxes_max,
                network,
            },
        ));

        let secrets = OutsideSecrets::read(&settings)?;
        let skew = settings.outside.clock_skew.duration();
        levels.extend(levels::outside(&settings, &secrets));
        let outside = OutsideDoor::new(memory.clone(), secrets, skew, Arc::clone(&clock) as Arc<dyn Clock>);
        let listeners = Listeners::bind(&settings, &paths).await?;
        let endpoints = listeners.endpoints(&settings, &paths)?;
        let first_key = keep_credentials(&keys, &*registry, &settings, &paths.credentials()).await?;
        let (stop, doors, tasks) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
        let running = Arc::new(RunningNode {
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
            tasks.spawn(running::end_with_life(Arc::clone(&running)));
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

/// Leads the executions of the namespaces that this node owns, as long as it runs.
async fn lead_executions(owned: OwnedExecutions) {
    while let Err(error) = owned.clone().look_after().await {
        tracing::warn!(%error, "executions of owners that are gone wait; it is tried again");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
