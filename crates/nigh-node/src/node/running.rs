//! A running node, and the reports of its admin API.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nigh_engine::RecordLog;
use nigh_functions::function_store::FunctionStore;
use nigh_http::audit::Audit;
use nigh_invoke::activation_log::ActivationLog;
use nigh_invoke::event_invoker::EventInvoker;
use nigh_invoke::invocation::Invoke;
use nigh_invoke::node_memory::SandboxShare;
use nigh_objects::ObjectMemory;
use nigh_s3::FastPathUsage;
use nigh_sizing::object_features::recorder::FeatureRecorder;
use nigh_stores::Store;
use nigh_terms::{
    AdminRole, ByteSize, Clock, ClosId, InvocationId, Monotonic, Namespace, SandboxId, SecretKey, Timestamp,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::invocations::Invocations;
use super::levels;
use super::parts::NodeParts;
use super::reloads::DrainTimes;
use super::workflows::Workflows;
use crate::admin::{self, LiveViews, SignIns, WorkflowSource};
use crate::backup::source::BackupSource;
use crate::cluster::ClusterEngine;
use crate::config::ShownSetting;
use crate::door_certificates::{self, DoorCertificates};
use crate::endpoints::Endpoints;
use crate::learning::MemoryModels;
use crate::llc::LlcStatus;
use crate::profiling::{FunctionProfiler, ModelRows, ProfileReport, ProfileRequest, ProfilingError};
use crate::recent_invocations::RecentInvocations;
use crate::reload::{ReloadError, ReloadParts, ReloadReport};
use crate::status::{CacheStatus, DrainStatus, FastPathStatus, Level, SandboxStatus, Status};
use crate::telemetry::{MetricsText, ProcessUse, Telemetry, set_certificate_expiry};
use crate::tenancy::Tenancy;
use crate::traces::Traces;
use crate::writes;

pub(crate) struct RunningNode {
    pub(super) parts: NodeParts,
    pub(super) store: Arc<dyn Store>,
    pub(super) reloads: ReloadParts,
    pub(super) drain_times: Arc<DrainTimes>,
    pub(super) started: Timestamp,
    pub(super) certificates: DoorCertificates,
    pub(super) endpoints: Endpoints,
    pub(super) levels: Vec<Level>,
    pub(super) telemetry: Telemetry,
    pub(super) traces: Arc<Traces>,
    pub(super) records: RecordLog,
    pub(super) whisk_records: RecordLog,
    pub(super) backup: BackupSource,
    pub(super) tenancy: Arc<Tenancy>,
    pub(super) invocations: Invocations,
    pub(super) events: EventInvoker,
    pub(super) workflows: Workflows,
    pub(super) profiling: Arc<FunctionProfiler>,
    pub(super) sign_ins: SignIns,
    pub(super) live: LiveViews,
    /// Cancelled when a client of the admin API requests the end.
    pub(super) asked_to_stop: CancellationToken,
    /// Cancelled when the cluster has ended this node's membership, or a home has declared this node dead.
    pub(super) is_expelled: CancellationToken,
    /// When the node began to drain, and how long it may take; not set before.
    pub(super) draining: OnceLock<(Instant, Duration)>,
    /// Cancelled when all invocations have ended.
    pub(super) stop: CancellationToken,
}

impl RunningNode {
    /// Begins to drain: health says so from now on. Returns how long the doors stay open, and how long requests and
    /// invocations then have to finish.
    pub(super) fn begin_to_drain(&self) -> (Duration, Duration) {
        let (delay, drain) = self.drain_times.now();
        // Other nodes refuse what a node that is no member would answer.
        let delay = if self.is_expelled.is_cancelled() { Duration::ZERO } else { delay };
        // First, so that whoever sees that the node drains is asked to leave.
        self.parts.foundation.farewell.begin(drain);
        self.draining.get_or_init(|| (Instant::now(), delay + drain));
        (delay, drain)
    }

    /// True from the moment at which the node was told to end.
    pub(super) fn ends(&self) -> bool {
        self.draining.get().is_some() || self.asked_to_stop.is_cancelled()
    }

    /// What this node waits for before it ends, if it drains or begins to drain now.
    pub(super) fn awaits(&self) -> DrainStatus {
        let pool = self.invocations.invoker.in_use();
        let left = match self.draining.get() {
            Some((began, most)) => most.saturating_sub(began.elapsed()),
            None => {
                let (delay, drain) = self.drain_times.now();
                delay + drain
            }
        };
        DrainStatus { invocations: pool.running + pool.waiting, left_s: left.as_secs_f64().ceil() as u64 }
    }

    /// The seconds since the node started. The monotonic clock starts with the node, and does not jump with the date.
    pub(super) fn uptime_s(&self) -> u64 {
        self.parts.foundation.clock.monotonic().since(Monotonic::default()).as_secs()
    }

    /// The levels now: whether sandboxes can start and whether the cluster's servers answer may change while the node
    /// runs.
    fn levels_now(&self) -> Vec<Level> {
        let mut levels = self.levels.clone();
        if let Some(isolation) = levels.iter_mut().find(|level| level.name == levels::ISOLATION) {
            *isolation = levels::isolation(&*self.parts.sandboxes.engine);
        }
        if let Some(network) = levels.iter_mut().find(|level| level.name == levels::NETWORK)
            && let Some(now) = levels::network(&self.parts.foundation.settings, &*self.parts.sandboxes.engine)
        {
            *network = now;
        }
        let now = self.parts.foundation.clock.wall().date().unix_timestamp();
        if let Some(tls) = levels.iter_mut().find(|level| level.name == door_certificates::LEVEL)
            && let Some(now) = self.certificates.level(now)
        {
            *tls = now;
        }
        if let Some(now) = self.parts.foundation.cluster.as_ref().map(ClusterEngine::level)
            && let Some(cluster) = levels.iter_mut().find(|level| level.name == now.name)
        {
            *cluster = now;
        }
        levels
    }
}

impl admin::AdminSource for RunningNode {
    fn name(&self) -> &str {
        &self.parts.foundation.settings.node
    }

    fn namespace(&self) -> &Namespace {
        &self.parts.foundation.settings.namespace
    }

    fn recent(&self) -> &RecentInvocations {
        &self.parts.recent
    }

    fn classes_of_running(&self) -> HashMap<InvocationId, ClosId> {
        self.parts.llc.classes_of_running()
    }

    fn sandbox_share(&self, sandbox: SandboxId) -> Option<SandboxShare> {
        self.parts.objects.node_memory.sandbox(sandbox)
    }

    fn invoke(&self) -> &Arc<dyn Invoke> {
        &self.invocations.invoke
    }

    fn workflows(&self) -> WorkflowSource<'_> {
        let Workflows { machines, executions, owned } = &self.workflows;
        WorkflowSource { machines, executions, owned: owned.as_ref() }
    }

    fn live(&self) -> &LiveViews {
        &self.live
    }

    fn llc(&self) -> LlcStatus {
        self.parts.llc.status()
    }

    async fn profile(
        &self,
        request: ProfileRequest,
        tell: mpsc::UnboundedSender<ProfileReport>,
    ) -> Result<ProfileReport, ProfilingError> {
        let tell = |report: &ProfileReport| {
            let _nobody_listens_any_more = tell.send(report.clone());
        };
        self.parts.llc.profile(&self.profiling, &request, tell).await
    }

    fn learning(&self) -> &MemoryModels {
        &self.parts.learning
    }

    async fn learn(&self, rows: ModelRows) -> Result<(), ProfilingError> {
        self.parts.llc.learn(&self.profiling, rows).await
    }

    fn status(&self) -> Status {
        let usage = self.parts.objects.memory.usage();
        let pool = self.invocations.invoker.in_use();
        Status {
            node: self.parts.foundation.settings.node.clone(),
            incarnation: self.parts.foundation.membership.incarnation().0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: self.started.rfc3339(),
            uptime_s: self.uptime_s(),
            endpoints: self.endpoints.clone(),
            draining: self.draining.get().map(|_| self.awaits()),
            levels: self.levels_now(),
            cluster: self.parts.foundation.cluster.as_ref().map(ClusterEngine::status),
            runtimes: self.parts.catalog.names(),
            functions: self.parts.functions.totals(&self.parts.foundation.settings.namespace).0,
            cache: CacheStatus {
                budget: usage.budget,
                kept: usage.kept,
                pooled: usage.pooled,
                objects: usage.objects,
                hits: usage.hits,
                misses: usage.misses,
                past: usage.past,
                writes: usage.writes,
                evictions: usage.evictions,
            },
            writes: writes::status(self.parts.objects.memory.dirty(), self.parts.objects.journal.usage()),
            refused_writes: self.refused_writes(),
            fast_path: self.parts.fast_path.as_ref().map(|fast_path| fast_path_status(fast_path.usage())),
            features: self.parts.objects.features.as_ref().map(FeatureRecorder::status),
            sandboxes: SandboxStatus {
                alive: pool.sandboxes,
                idle: pool.idle,
                max: self.parts.foundation.settings.functions.sandboxes_max,
                booked: pool.booked,
                idle_held: pool.idle_held,
                idle_booked: pool.idle_booked,
                prewarmed: pool.stems,
                prewarmed_booked: pool.prewarmed,
                memory: self.parts.foundation.settings.functions.memory,
                running: pool.running,
                waiting: pool.waiting,
            },
            memory: self.parts.objects.node_memory.status(),
            stems: self.invocations.invoker.stems(),
            resident: ByteSize(ProcessUse::now().resident_bytes),
            records_dropped: self.records.dropped() + self.whisk_records.dropped(),
        }
    }

    fn metrics(&self, accept: Option<&str>) -> MetricsText {
        for (name, ends) in self.certificates.expiries() {
            set_certificate_expiry(name, ends);
        }
        self.telemetry.render(&self.samples(), accept)
    }

    fn audit(&self) -> &Audit {
        &self.parts.foundation.audit
    }

    fn config(&self) -> Vec<ShownSetting> {
        self.reloads.shown()
    }

    fn reload(&self) -> Result<ReloadReport, ReloadError> {
        let reloaded = self.reloads.reload();
        match &reloaded {
            Ok(report) => tracing::info!(%report, "the settings were read again"),
            Err(error) => tracing::error!(%error, "the settings were read again"),
        }
        reloaded
    }

    fn activations(&self) -> &ActivationLog {
        &self.parts.activations
    }

    fn cluster(&self) -> Option<&ClusterEngine> {
        self.parts.foundation.cluster.as_ref()
    }

    fn events(&self) -> &EventInvoker {
        &self.events
    }

    fn functions(&self) -> &FunctionStore {
        &self.parts.functions
    }

    fn backup(&self) -> (&BackupSource, Timestamp) {
        (&self.backup, self.parts.foundation.clock.wall())
    }

    fn tenancy(&self) -> &Tenancy {
        &self.tenancy
    }

    fn memory(&self) -> &ObjectMemory {
        &self.parts.objects.memory
    }

    fn features(&self) -> Option<&FeatureRecorder> {
        self.parts.objects.features.as_ref()
    }

    fn admin_role(&self, access_key: &str, secret: &SecretKey) -> Option<AdminRole> {
        self.parts.foundation.keys.admin_role(access_key, secret)
    }

    fn sign_ins(&self) -> &SignIns {
        &self.sign_ins
    }

    fn shut_down(&self) -> DrainStatus {
        self.asked_to_stop.cancel();
        self.awaits()
    }

    fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

/// Ends a node that is no longer a member: homes may reject its incarnation for good. The service manager that started
/// the node starts it again, with a new incarnation.
pub(super) async fn end_with_membership(running: Arc<RunningNode>) {
    let mut members = running.parts.foundation.membership.watch();
    let own = (running.parts.foundation.membership.node().clone(), running.parts.foundation.membership.incarnation());
    let over = async {
        tokio::select! {
            _ = members.wait_for(|members| !members.contains(&own)) => {
                if running.draining.get().is_none() {
                    tracing::error!("this node is no longer a member of its cluster: it drains and ends; start it again");
                    running.is_expelled.cancel();
                }
            }
            // A home has declared this node dead, which was logged.
            () = running.is_expelled.cancelled() => {}
        }
    };
    if running.stop.run_until_cancelled(over).await.is_some() && running.is_expelled.is_cancelled() {
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
