//! What a running node shows of itself.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nigh_dispatch::Dispatcher;
use nigh_engine::{Journal, Membership, RecordLog};
use nigh_functions::function_store::FunctionStore;
use nigh_invoke::activation_log::ActivationLog;
use nigh_invoke::event_invoker::EventInvoker;
use nigh_invoke::invoker::Invoker;
use nigh_invoke::node_memory::NodeMemory;
use nigh_objects::ObjectMemory;
use nigh_s3::{FastPath, FastPathUsage};
use nigh_sandbox::sandbox::local::LocalEngine;
use nigh_sizing::object_features::recorder::FeatureRecorder;
use nigh_terms::{ByteSize, Clock, Monotonic, SystemClock, Timestamp};
use nigh_workflow::executions::Executions;
use nigh_workflow::owned::OwnedExecutions;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::levels;
use crate::admin;
use crate::backup::source::BackupSource;
use crate::cluster::ClusterEngine;
use crate::config::{Settings, ShownSetting};
use crate::endpoints::Endpoints;
use crate::learning::Learning;
use crate::llc::{Llc, LlcStatus};
use crate::profiling::{FunctionProfiler, ModelRows, ProfileReport, ProfileRequest, ProfilingError};
use crate::status::{CacheStatus, DrainStatus, FastPathStatus, Level, SandboxStatus, Status};
use crate::telemetry::{ProcessUse, Telemetry};
use crate::writes;

/// What a running node shows of itself.
pub(super) struct RunningNode {
    pub(super) settings: Settings,
    pub(super) shown: Vec<ShownSetting>,
    pub(super) membership: Arc<dyn Membership>,
    /// None where it is alone.
    pub(super) cluster: Option<ClusterEngine>,
    pub(super) started: Timestamp,
    pub(super) clock: Arc<SystemClock>,
    pub(super) endpoints: Endpoints,
    pub(super) levels: Vec<Level>,
    pub(super) telemetry: Telemetry,
    pub(super) records: RecordLog,
    pub(super) whisk_records: RecordLog,
    pub(super) activations: ActivationLog,
    pub(super) memory: ObjectMemory,
    pub(super) journal: Arc<Journal>,
    /// None where it is off.
    pub(super) fast_path: Option<FastPath>,
    /// None where headers of objects are not looked at.
    pub(super) features: Option<FeatureRecorder>,
    pub(super) functions: FunctionStore,
    pub(super) backup: BackupSource,
    pub(super) engine: Arc<LocalEngine>,
    pub(super) invoker: Arc<Invoker>,
    /// In a cluster.
    pub(super) dispatcher: Option<Dispatcher>,
    pub(super) events: EventInvoker,
    pub(super) executions: Executions,
    /// In a cluster.
    pub(super) owned: Option<OwnedExecutions>,
    pub(super) node_memory: NodeMemory,
    pub(super) llc: Arc<Llc>,
    pub(super) learning: Learning,
    pub(super) profiling: Arc<FunctionProfiler>,
    /// Somebody asked for the end through the admin API.
    pub(super) asked_to_stop: CancellationToken,
    /// When the end began.
    pub(super) draining: OnceLock<Instant>,
    /// What ran has ended.
    pub(super) stop: CancellationToken,
}

impl RunningNode {
    /// What it awaits before it ends, if it ends now or has begun to.
    pub(super) fn awaits(&self) -> DrainStatus {
        let pool = self.invoker.in_use();
        let since = self.draining.get().map_or(Duration::ZERO, Instant::elapsed);
        DrainStatus {
            invocations: pool.running + pool.waiting,
            left_s: self.settings.drain.duration().saturating_sub(since).as_secs_f64().ceil() as u64,
        }
    }

    /// What works, as it is now: whether sandboxes can be made may change while the node runs.
    fn levels_now(&self) -> Vec<Level> {
        let mut levels = self.levels.clone();
        if let Some(isolation) = levels.iter_mut().find(|level| level.name == levels::ISOLATION) {
            *isolation = levels::isolation(&*self.engine);
        }
        if let Some(network) = levels.iter_mut().find(|level| level.name == levels::NETWORK)
            && let Some(now) = levels::network(&self.settings, &*self.engine)
        {
            *network = now;
        }
        levels
    }
}

impl admin::AdminSource for RunningNode {
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
                idle_held: pool.idle_held,
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
            ("nigh_sandboxes_idle_bytes", pool.idle_held.bytes() as f64),
            ("nigh_invocations_running", pool.running as f64),
            ("nigh_invocations_waiting", pool.waiting as f64),
            ("nigh_activation_records_dropped_total", self.records.dropped() as f64),
        ];
        self.telemetry.render(&[&own[..], &writes::meters(self.journal.usage())].concat())
    }

    fn config(&self) -> &[ShownSetting] {
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

    fn shut_down(&self) -> DrainStatus {
        self.asked_to_stop.cancel();
        self.awaits()
    }

    fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

/// Has a node end whose life as a member is over: homes may refuse it for ever. Who started it starts it again, in a new
/// life.
pub(super) async fn end_with_life(running: Arc<RunningNode>) {
    let mut members = running.membership.watch();
    let own = (running.membership.node().clone(), running.membership.incarnation());
    let over = members.wait_for(|members| !members.contains(&own));
    if running.stop.run_until_cancelled(over).await.is_some() && running.draining.get().is_none() {
        tracing::error!("this node's life as a member of its cluster is over: it drains and ends; start it again");
        running.asked_to_stop.cancel();
    }
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
