//! What the settings ask of each part of a node.

use std::sync::Arc;

use nigh_functions::function_network::NetworkPermission;
use nigh_invoke::hooks::InvocationHook;
use nigh_invoke::hooks::meter::InvocationMeter;
use nigh_invoke::invoker::InvokerSettings;
use nigh_invoke::node_memory::{CacheMemory, NodeMemory, NodeMemorySettings};
use nigh_objects::ObjectMemory;
use nigh_s3::FastPathLimits;
use nigh_sandbox::cgroup::cpuset::Cpusets;
use nigh_sandbox::runtime_command::{PythonRuntime, RuntimeSettings};
use nigh_sandbox::sandbox::local::{EngineSettings, LocalEngine};
use nigh_sandbox::sandbox::{OutboundSettings, SandboxEngine, SandboxError};
use nigh_schedule::event_queue::QueueLimits;
use nigh_schedule::keep_alive::KeepAlive;
use nigh_schedule::memory::budget::BudgetLimits;
use nigh_schedule::prewarm::PrewarmSettings;
use nigh_schedule::sandbox_pool::PoolLimits;
use nigh_terms::Clock;
use nigh_workflow::executions::ExecutionLimits;
use tokio::sync::Semaphore;

use super::memory_shares::MemoryShares;
use crate::config::{LlcBind, Network, PrewarmMode, Settings, Switch};
use crate::learning::Learning;
use crate::llc::Llc;
use crate::python;
use crate::status::Level;

/// User ids set aside for sandboxes, from `functions.uid_base` on.
pub(super) const UIDS: u32 = 32_768;

pub(super) async fn sandbox_engine(settings: &Settings, instance: &str) -> Result<Arc<LocalEngine>, SandboxError> {
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

/// Which functions may have a way out to the network.
pub(super) fn network_permission(settings: &Settings, engine: &dyn SandboxEngine) -> NetworkPermission {
    match settings.functions.network {
        Network::None => NetworkPermission::default(),
        Network::Permitted => {
            let namespaces = settings.functions.network_namespaces.0.iter().cloned().collect();
            NetworkPermission::new(engine.outbound().map(drop), namespaces)
        }
    }
}

/// The interpreters, and what to say of them.
pub(super) async fn pythons(settings: &Settings) -> (Level, Vec<PythonRuntime>) {
    let name = "python".to_owned();
    match python::probe(&settings.functions.python, &settings.functions.runtime_folders.0).await {
        Ok(found) => {
            let detail = format!("python3.{} at {}", found.minor, found.interpreter.display());
            (Level { name, on: true, detail }, vec![found])
        }
        Err(error) => (Level { name, on: false, detail: error.to_string() }, Vec::new()),
    }
}

/// What the fast path allows; none if it is off.
pub(super) fn fast_path_limits(settings: &Settings) -> Option<FastPathLimits> {
    (settings.s3.fast_path == Switch::On).then(|| FastPathLimits {
        connections: settings.s3.connections_max,
        drain: settings.drain.duration(),
        ..FastPathLimits::new(settings.cache.held_max)
    })
}

pub(super) fn invoker_settings(settings: &Settings, runtime: RuntimeSettings) -> InvokerSettings {
    let (functions, shares) = (&settings.functions, MemoryShares::of(settings));
    InvokerSettings {
        limits: PoolLimits {
            sandboxes_max: functions.sandboxes_max,
            memory_max: functions.memory,
            lent_max: shares.lent_max,
            // Each takes a sandbox of its own.
            invocations_max: functions.sandboxes_max,
            waiting_max: functions.queue_max,
            wait_max: functions.queue.duration(),
            processors: shares.processors,
        },
        keep_alive: KeepAlive { idle_for: functions.keep_alive.duration(), idle_max: functions.sandboxes_max },
        freeze_grace: functions.freeze_grace.duration(),
        prewarm: (functions.prewarm == PrewarmMode::On).then(|| PrewarmSettings {
            memory_max: shares.prewarm_memory,
            stems_max: functions.prewarm_max,
            imports: functions.prewarm_imports.0.clone(),
        }),
        ..InvokerSettings::new(runtime, functions.memory)
    }
}

/// The memory that sandboxes and the cache share; off, where the settings say so.
pub(super) fn node_memory(
    settings: &Settings,
    cache: &ObjectMemory,
    clock: Arc<dyn Clock>,
) -> std::io::Result<NodeMemory> {
    let memory = &settings.memory;
    if memory.grants == Switch::Off {
        return Ok(NodeMemory::off());
    }
    let slack = MemoryShares::of(settings).slack;
    let limits = BudgetLimits { bookable: settings.functions.memory, cache_own: settings.cache.bytes, slack };
    let shared = NodeMemorySettings { limits, park: memory.park == Switch::On, idle: memory.idle };
    NodeMemory::open(shared, Arc::new(cache.clone()) as Arc<dyn CacheMemory>, clock)
}

pub(super) fn queue_limits(settings: &Settings) -> QueueLimits {
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

pub(super) fn execution_limits(settings: &Settings) -> ExecutionLimits {
    let workflows = &settings.workflows;
    ExecutionLimits {
        running_max: workflows.running_max,
        kept_max: workflows.kept_max,
        kept_bytes: workflows.kept_bytes.bytes(),
    }
}

/// Tasks of executions that run at a time.
pub(super) fn tasks_max(settings: &Settings) -> usize {
    /// Nodes that the tasks of one are spread over, as is reckoned.
    const CLUSTER_NODES: usize = 8;
    // Each takes a sandbox: more would only wait there, and be refused.
    let sandboxes = settings.functions.sandboxes_max.max(1);
    let most = if settings.cluster.is_some() { sandboxes.saturating_mul(CLUSTER_NODES) } else { sandboxes };
    most.min(Semaphore::MAX_PERMITS)
}

/// The stations in an invocation's path.
pub(super) fn hooks(
    learning: &Learning,
    llc: &Llc,
    prefetch: Option<Arc<dyn InvocationHook>>,
) -> Vec<Arc<dyn InvocationHook>> {
    let meter = Arc::new(InvocationMeter) as Arc<dyn InvocationHook>;
    std::iter::once(meter).chain(learning.hook()).chain(llc.hooks()).chain(prefetch).collect()
}
