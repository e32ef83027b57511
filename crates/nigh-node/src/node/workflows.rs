//! State machines and their executions.

use std::sync::Arc;
use std::time::Duration;

use nigh_engine::LocalHistories;
use nigh_invoke::event_invoker::EventInvoker;
use nigh_workflow::executions::{ExecutionLimits, ExecutionParts, Executions};
use nigh_workflow::machine_store::MachineStore;
use nigh_workflow::owned::{OwnedExecutions, OwnedParts};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::NodeError;
use super::invocations::Invocations;
use super::parts::NodeParts;
use crate::config::Settings;

pub(super) struct Workflows {
    pub(super) machines: MachineStore,
    pub(super) executions: Executions,
    /// In a cluster: the executions of the namespaces whose dispatch owner this node is.
    pub(super) owned: Option<OwnedExecutions>,
}

impl Workflows {
    pub(super) async fn open(
        parts: &NodeParts,
        invocations: &Invocations,
        events: &EventInvoker,
        histories: LocalHistories,
    ) -> Result<Self, NodeError> {
        let foundation = &parts.foundation;
        let settings = &foundation.settings;
        let machines = MachineStore::open(foundation.registry(), foundation.clock()).await?;
        if foundation.cluster.is_some() {
            machines.follow().await?;
        }
        let execution_parts = ExecutionParts {
            functions: parts.functions.clone(),
            invoke: Arc::clone(&invocations.invoke),
            events: events.clone(),
            histories: Arc::new(histories),
            scratch: Arc::new(parts.objects.memory.clone()),
            clock: foundation.clock(),
            region: settings.region.clone(),
            turns: Arc::new(Semaphore::new(tasks_max(settings))),
            over: CancellationToken::new(),
        };
        let limits = ExecutionLimits {
            running_max: settings.workflows.running_max,
            kept_max: settings.workflows.kept_max,
            kept_bytes: settings.workflows.kept_bytes.bytes(),
        };
        let executions = Executions::open(execution_parts.clone(), limits).await?;
        let owned = foundation.cluster.as_ref().zip(invocations.dispatcher.clone()).map(|(cluster, dispatcher)| {
            OwnedExecutions::new(OwnedParts {
                dispatcher,
                histories: Arc::new(cluster.histories().clone()),
                registry: foundation.registry(),
                present: cluster.present(),
                like: execution_parts,
                limits,
            })
        });
        Ok(Self { machines, executions, owned })
    }
}

/// The most tasks of executions that run at a time.
fn tasks_max(settings: &Settings) -> usize {
    /// The number of nodes that the tasks of one dispatch owner are assumed to use.
    const CLUSTER_NODES: usize = 8;
    // A task needs a sandbox; a further task would wait for one, and be rejected.
    let sandboxes = settings.functions.sandboxes_max.max(1);
    let most = if settings.cluster.is_some() { sandboxes.saturating_mul(CLUSTER_NODES) } else { sandboxes };
    most.min(Semaphore::MAX_PERMITS)
}

/// Runs the executions of the namespaces that this node owns, until it stops.
pub(super) async fn lead_executions(owned: OwnedExecutions) {
    while let Err(error) = owned.clone().look_after().await {
        tracing::warn!(%error, "the executions of lost dispatch owners wait; this node tries again in a second");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
