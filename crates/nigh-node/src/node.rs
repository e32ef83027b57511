//! One node: its parts are opened in order, wired together, and ended in order.
//!
//! Start: state folder (locked), health listener, registry, a new incarnation, sandbox engine (which ends sandboxes of an
//! earlier incarnation), store, object memory, functions, doors. Then the first namespace's key is made; every step that
//! may fail comes before. `endpoints.json` is written last, so whoever reads it finds open doors.
//! End: the node is not ready from the first moment. The doors stay open for `drain_delay`, and each answer closes its
//! connection. Then the doors close, running invocations and requests get `drain` to finish, homes move to other nodes,
//! records are flushed. The admin API answers until the invocations have ended, the health listener to the end.
//! After a kill at any point a restart is enough: acknowledged writes are in the store, the journal or the registry.

mod doors;
mod error;
mod foundation;
mod health_facts;
mod invocations;
mod levels;
mod listeners;
mod member_reports;
mod memory_shares;
mod meters;
mod objects;
mod open_files;
mod parts;
mod reloads;
mod running;
mod sandboxes;
mod schedules;
mod tasks;
mod tenancy;
mod workflows;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use nigh_invoke::activation_log::ActivationLog;
use nigh_objects::Notifications;
use nigh_sizing::object_sizes::{FeaturesOrSize, ObjectSizes};
use nigh_terms::{Clock as _, SystemClock};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::foundation::Foundation;
use self::invocations::Invocations;
use self::listeners::Listeners;
use self::objects::Objects;
use self::parts::{Logs, NodeParts, open_functions};
use self::reloads::{DrainTimes, TracePart};
use self::sandboxes::Sandboxes;
use self::tasks::Tasks;
use self::workflows::Workflows;
use crate::admin::{AdminSource, LiveViews, SignIns};
use crate::backup::source::BackupSource;
use crate::config::{Configuration, Settings};
use crate::credentials::Credentials;
use crate::door_certificates::DoorCertificates;
use crate::endpoints::Endpoints;
use crate::health::{HealthBoard, HealthServer, HealthSource};
use crate::learning::MemoryModels;
use crate::llc::Llc;
use crate::machine::Machine;
use crate::notifications::FunctionTargets;
use crate::outside_door::{OutsideDoor, OutsideSecrets};
use crate::recent_invocations::RecentInvocations;
use crate::reload::{Reload, ReloadError, ReloadParts, ReloadReport};
use crate::state_folder::{StateFolder, StateFolderError};
use crate::status::Level;
use crate::store;
use crate::telemetry::Telemetry;
use crate::traces::Traces;

pub use self::error::NodeError;
pub(crate) use self::open_files::few_files;
pub(crate) use self::running::RunningNode;
pub(crate) use self::sandboxes::engine_settings;

/// How long the last spans may take to be sent at the end.
const TRACES_WITHIN: Duration = Duration::from_secs(3);

/// A running node. `stop` ends it. If it is dropped instead, like a killed one, the next start cleans up.
pub struct Node {
    running: Arc<RunningNode>,
    doors: CancellationToken,
    tasks: TaskTracker,
    first_key: Option<Credentials>,
    state: StateFolder,
    health: HealthServer,
}

impl Node {
    /// Starts a node. Needs a tokio runtime.
    ///
    /// # Errors
    /// The first part that does not open, and what mends it.
    // Boxed, so that the crates that start nodes do not compile it again.
    pub fn start(configuration: Configuration) -> BoxFuture<'static, Result<Self, NodeError>> {
        Box::pin(Self::open(configuration))
    }

    async fn open(configuration: Configuration) -> Result<Self, NodeError> {
        let Configuration { mut settings, shown, layers, .. } = configuration;
        let (files, few_files) = open_files::fit(&mut settings, open_files::raise_limit())?;
        let state = StateFolder::take(&settings.state)?;
        // Nobody may find the doors of an earlier incarnation.
        remove_if_there(&state.paths().endpoints())?;
        let telemetry = Telemetry::install()?;
        let traces = Arc::new(Traces::open(&settings.traces, &settings.node).map_err(NodeError::Traces)?);
        let clock = Arc::new(SystemClock::new());
        let started = clock.wall();
        let certificates = DoorCertificates::open(&settings)?;
        let (health, health_address, board) = open_health(&settings, &clock, &certificates)?;
        let mut levels = Vec::new();

        board.starts("reads its state and joins its cluster");
        let foundation = Foundation::open(settings, files, state.paths().clone(), clock).await?;
        board.starts("opens its sandboxes and its store");
        let sandboxes = Sandboxes::open(&foundation, state.instance(), &mut levels).await?;
        let (store, store_levels) = store::open(&foundation.settings, foundation.clock()).await?;
        levels.extend(store_levels);
        levels.push(levels::cache(&foundation.settings, Machine::probe().memory));
        let sizes = Arc::new(ObjectSizes::default());
        let llc = Llc::open(
            &foundation.settings.llc,
            foundation.own_registry(),
            Arc::clone(&sizes),
            foundation.clock(),
            sandboxes.engine.sandbox_cpus(),
        )
        .await?;
        levels.push(llc.level.clone());
        board.starts("opens the journal and the object memory");
        let (objects, member) = Objects::open(&foundation, Arc::clone(&store), &sizes, &mut levels).await?;
        board.starts("opens its functions and their runtimes");
        let (functions, entities) = open_functions(&foundation).await?;
        let learning = MemoryModels::open(
            &foundation.settings.memory,
            foundation.own_registry(),
            functions.clone(),
            Arc::new(FeaturesOrSize { recorder: objects.features.clone(), sizes }),
            foundation.clock(),
        );
        levels.push(learning.level());
        levels.extend(few_files);
        let Logs { outbox, whisk_records, histories, records } = Logs::open(&foundation)?;
        let (s3, fast_path) = doors::s3(&foundation, &objects.memory)?;
        let (catalog, runtimes) = sandboxes.install_runtimes(&foundation, &mut levels).await;
        let activations = ActivationLog::new(records.clone());
        let llc = Arc::new(llc);
        let recent = RecentInvocations::new(foundation.clock());
        let parts = NodeParts {
            foundation,
            sandboxes,
            llc,
            objects,
            functions,
            catalog,
            learning,
            activations,
            recent,
            s3,
            fast_path,
        };

        let invoker_settings = invocations::invoker_settings(&parts, runtimes);
        let profiling = Arc::new(invocations::profiler(&parts, Arc::clone(&store), &invoker_settings));
        let invocations = Invocations::start(&parts, invoker_settings);
        let events = invocations.open_events(&parts, outbox).await?;
        let workflows = Workflows::open(&parts, &invocations, &events, histories).await?;
        notify_functions(&parts, FunctionTargets { functions: parts.functions.clone(), events: events.clone() })
            .await?;
        let tenancy = Arc::new(tenancy::of(&parts, &invocations, &events, &workflows, entities.clone()));
        let openwhisk = doors::openwhisk(&parts, &invocations, entities, whisk_records.clone());
        let lambda = Arc::new(doors::lambda(&parts, &invocations, &events, &workflows, openwhisk.clone()));
        invocations.lambda.open(&lambda);

        let Foundation { settings, paths, local, .. } = &parts.foundation;
        let secrets = OutsideSecrets::read(settings)?;
        levels.extend(levels::outside(settings, &secrets));
        let skew = settings.outside.clock_skew.duration();
        let outside = OutsideDoor::new(parts.objects.memory.clone(), secrets, skew, parts.foundation.clock());
        let calls = parts.foundation.cluster.as_ref().map(|cluster| cluster.own().1);
        let certificates = certificates.with_cluster(calls);
        levels.extend(certificates.level(started.date().unix_timestamp()));
        board.starts("opens its doors");
        let listeners = Listeners::bind(settings, paths, &certificates).await?;
        let endpoints = listeners.endpoints(settings, paths, health_address)?;
        let first_key = tenancy.first.issue().await?;
        tenancy.first.write_file()?;
        let backup = BackupSource::new(local.clone(), paths.clone(), settings, Some(parts.functions.clone()));
        let drain_times = Arc::new(DrainTimes::new(settings));
        let reloads = ReloadParts::new(layers, shown);
        reloads::add(&reloads, settings, &drain_times, &parts.objects.memory, openwhisk, &invocations);
        reloads::add_files(&reloads, &certificates, &tenancy, parts.foundation.audit_log.as_ref());
        reloads.add(Arc::new(TracePart(Arc::clone(&traces))));
        let running = Arc::new(RunningNode {
            parts,
            store,
            reloads,
            drain_times,
            started,
            certificates,
            endpoints,
            levels,
            telemetry,
            traces,
            records,
            whisk_records,
            backup,
            tenancy,
            invocations,
            events,
            workflows,
            profiling,
            sign_ins: SignIns::default(),
            live: LiveViews::default(),
            asked_to_stop: CancellationToken::new(),
            is_expelled: CancellationToken::new(),
            draining: OnceLock::new(),
            stop: CancellationToken::new(),
        });
        let doors = CancellationToken::new();
        let tasks = Tasks { listeners, lambda, outside, member }.start(&running, &doors).await?;
        for (number, lane) in running.parts.s3.runtimes().into_iter().enumerate() {
            board.watch(format!("{number} of the S3 door"), lane);
        }
        board.started(&(Arc::clone(&running) as Arc<dyn HealthSource>));
        Ok(Self { running, doors, tasks, first_key, state, health })
    }

    /// The addresses of its doors.
    #[must_use]
    pub fn endpoints(&self) -> &Endpoints {
        &self.running.endpoints
    }

    /// The node's features, on or off with the reason.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.running.levels
    }

    /// The key that this start made, if it was the first.
    #[must_use]
    pub const fn first_key(&self) -> Option<&Credentials> {
        self.first_key.as_ref()
    }

    /// Cancelled when the node was asked to end through its admin API.
    #[must_use]
    pub fn stop_requested(&self) -> &CancellationToken {
        &self.running.asked_to_stop
    }

    /// Reads the sources of the settings again, and changes those that can change without a restart. Blocks: it reads
    /// files.
    ///
    /// # Errors
    /// What is wrong with the settings; nothing has changed then.
    pub fn reload(&self) -> Result<ReloadReport, ReloadError> {
        AdminSource::reload(&*self.running)
    }

    /// From now on a reload also changes the settings of `part`.
    pub fn reload_also(&self, part: Arc<dyn Reload>) {
        self.running.reloads.add(part);
    }

    /// Opens log files again, which may have been renamed.
    pub fn reopen_files(&self) {
        self.running.reloads.reopen();
    }

    /// Keeps its doors open for `drain_delay` while it says that it is not ready. Then takes no new requests, lets running
    /// invocations finish within `drain`, ends those that still run, and writes everything that is not written.
    pub fn stop(self) -> BoxFuture<'static, ()> {
        Box::pin(self.close())
    }

    async fn close(self) {
        let Self { running, doors, tasks, state, health, .. } = self;
        let NodeParts { foundation, sandboxes, objects, llc, learning, .. } = &running.parts;
        let (delay, drain) = running.begin_to_drain();
        if let Some(cluster) = &foundation.cluster {
            cluster.withdraw();
        }
        if !delay.is_zero() {
            tracing::info!("draining: the node is not ready; its doors stay open for {} s", delay.as_secs_f64());
            tokio::time::sleep(delay).await;
        }
        tracing::info!("draining: new requests are rejected; {}", running.awaits());
        if let Err(error) = remove_if_there(&state.paths().endpoints()) {
            tracing::warn!(%error, "endpoints.json is still there while the doors close");
        }
        doors.cancel();
        let executions_written = running.workflows.executions.close();
        let events_written = running.events.close();
        if let Some(owned) = &running.workflows.owned {
            owned.close().await;
        }
        if let Some(dispatcher) = &running.invocations.dispatcher {
            dispatcher.leave().await;
        }
        // The doors are not closed yet, because their last requests wait for invocations.
        running.invocations.invoker.drain(drain).await;
        sandboxes.engine.close().await;
        executions_written.await;
        events_written.await;
        if objects.memory.flush_all(drain).await.is_err() {
            let waiting = objects.memory.dirty().objects;
            tracing::warn!(
                waiting,
                "the store lacks some writes; they are in the journal, and the next start pushes them"
            );
        } else {
            objects.memory.let_go_of_store().await;
        }
        if let Some(cluster) = &foundation.cluster {
            cluster.leave(drain).await;
        }
        running.stop.cancel();
        if tokio::time::timeout(drain, tasks.wait()).await.is_err() {
            tracing::warn!("requests still ran after the time to drain; their connections are closed");
        }
        llc.close();
        learning.close(drain).await;
        running.records.flush().await;
        running.whisk_records.flush().await;
        if let Some(audit) = &foundation.audit_log {
            audit.flush().await;
        }
        running.traces.close(TRACES_WITHIN).await;
        let endpoints = &running.endpoints;
        for socket in [&endpoints.admin_socket, &endpoints.s3_socket].into_iter().chain(&endpoints.fast_socket) {
            if let Err(error) = remove_if_there(socket) {
                tracing::warn!(%error, "a socket is left behind; the next start replaces it");
            }
        }
        health.end().await;
        tracing::info!("drained");
    }
}

/// Opens the health listener, which answers from now on. Returns its address, and the board of what it tells.
fn open_health(
    settings: &Settings,
    clock: &Arc<SystemClock>,
    certificates: &DoorCertificates,
) -> Result<(HealthServer, SocketAddr, Arc<HealthBoard>), NodeError> {
    let (listener, address) = listeners::bind_health(settings)?;
    let board = Arc::new(HealthBoard::new(&settings.node, Arc::clone(clock)));
    board.watch("of the node".to_owned(), Handle::current());
    let server = HealthServer::start(listener, certificates.doors().cloned(), Arc::clone(&board));
    Ok((server.map_err(NodeError::io("starting the health listener"))?, address, board))
}

fn remove_if_there(path: &Path) -> Result<(), StateFolderError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(StateFolderError::Io { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// From now on changes in buckets notify the functions in the buckets' configurations.
async fn notify_functions(parts: &NodeParts, targets: FunctionTargets) -> Result<(), NodeError> {
    let foundation = &parts.foundation;
    let region = foundation.settings.region.clone();
    let notifications = Notifications::open(foundation.registry(), Arc::new(targets), region).await?;
    if foundation.cluster.is_some() {
        notifications.follow().await?;
    }
    parts.objects.memory.notify_by(notifications);
    Ok(())
}
