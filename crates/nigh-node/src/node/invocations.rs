//! The parts that run functions: the invoker, a cluster's dispatcher before it, and the queue of events.

use std::sync::Arc;

use nigh_dispatch::{DispatchSettings, Dispatcher};
use nigh_engine::Outbox;
use nigh_invoke::applications::Applications;
use nigh_invoke::event_invoker::{EventInvoker, EventParts};
use nigh_invoke::hooks::InvocationHook;
use nigh_invoke::hooks::meter::InvocationMeter;
use nigh_invoke::hooks::prefetch::PrefetchHook;
use nigh_invoke::invocation::Invoke;
use nigh_invoke::invoker::{Invoker, InvokerParts, InvokerSettings};
use nigh_sandbox::runtime_command::RuntimeSettings;
use nigh_sandbox::sandbox::SandboxEngine;
use nigh_schedule::event_queue::QueueLimits;
use nigh_schedule::keep_alive::KeepAlive;
use nigh_schedule::prewarm::PrewarmSettings;
use nigh_schedule::sandbox_pool::PoolLimits;
use nigh_sizing::object_features::trigger_features::TriggerFeatures;
use nigh_stores::Store;

use super::NodeError;
use super::doors::fast_path_limits;
use super::memory_shares::MemoryShares;
use super::parts::NodeParts;
use crate::config::{PrewarmMode, Settings, Switch};
use crate::data_door::{LambdaInside, SandboxDataDoor};
use crate::profiling::{FunctionProfiler, ProfilingParts};

pub(super) struct Invocations {
    pub(super) invoker: Arc<Invoker>,
    /// The dispatcher of a cluster; none if the node is alone.
    pub(super) dispatcher: Option<Dispatcher>,
    /// `dispatcher`; `invoker` if the node is alone.
    pub(super) invoke: Arc<dyn Invoke>,
    pub(super) applications: Applications,
    /// Counts what runs here.
    pub(super) meter: Arc<InvocationMeter>,
    /// The Lambda door in sandboxes, closed until it is opened.
    pub(super) lambda: LambdaInside,
}

impl Invocations {
    pub(super) fn start(parts: &NodeParts, settings: InvokerSettings) -> Self {
        let foundation = &parts.foundation;
        let memory = &parts.objects.memory;
        let applications = Applications::default();
        let prefetched = (foundation.settings.memory.prefetch == Switch::On).then(|| memory.clone());
        // In a cluster the dispatch owner prefetches.
        let prefetch = foundation.cluster.is_none().then(|| {
            let hook = PrefetchHook::new(applications.clone(), prefetched.clone(), foundation.clock());
            Arc::new(hook) as Arc<dyn InvocationHook>
        });
        let meter = Arc::new(InvocationMeter::new(foundation.settings.metrics.functions, foundation.clock()));
        let lambda = LambdaInside::default();
        let invoker = Arc::new(Invoker::new(
            InvokerParts {
                functions: Arc::new(parts.functions.clone()),
                engine: Arc::clone(&parts.sandboxes.engine) as Arc<dyn SandboxEngine>,
                data_door: Arc::new(SandboxDataDoor {
                    http: parts.s3.clone(),
                    fast: parts.fast_path.clone(),
                    lambda: Some(lambda.clone()),
                }),
                keys: foundation.keys.clone(),
                gate: Arc::new(memory.clone()),
                accountant: Arc::clone(&parts.objects.accountant),
                activations: parts.activations.clone(),
                hooks: hooks(parts, &meter, prefetch),
                clock: foundation.clock(),
                memory: parts.objects.node_memory.clone(),
                node: foundation.membership.node().clone(),
                incarnation: foundation.membership.incarnation(),
            },
            settings,
        ));
        for (namespace, function, reserved) in parts.functions.reserves() {
            invoker.set_reserved(&namespace, &function, Some(reserved));
        }
        let dispatcher = foundation.cluster.as_ref().map(|cluster| {
            let functions = Arc::new(parts.functions.clone());
            if cluster.runs() {
                cluster.start_running(Arc::clone(&invoker) as _, Arc::clone(&functions) as _, memory);
            }
            cluster.start_dispatch(functions, memory, (applications.clone(), prefetched), DispatchSettings::default())
        });
        if let Some(dispatcher) = &dispatcher {
            dispatcher.limit_by(foundation.keys.namespaces().clone());
        }
        for (name, own) in &foundation.settings.namespaces {
            let Some(share) = own.share else { continue };
            invoker.set_share(name, share.get());
            if let Some(dispatcher) = &dispatcher {
                dispatcher.set_share(name, share.get());
            }
        }
        let invoke = match &dispatcher {
            Some(dispatcher) => Arc::new(dispatcher.clone()) as Arc<dyn Invoke>,
            None => Arc::clone(&invoker) as Arc<dyn Invoke>,
        };
        Self { invoker, dispatcher, invoke, applications, meter, lambda }
    }

    /// Opens the queue of events, and continues those that an earlier incarnation accepted.
    pub(super) async fn open_events(&self, parts: &NodeParts, outbox: Outbox) -> Result<EventInvoker, NodeError> {
        let settings = &parts.foundation.settings;
        let invoke = match &parts.objects.features {
            Some(features) => Arc::new(TriggerFeatures::new(features.clone(), Arc::clone(&self.invoke))),
            None => Arc::clone(&self.invoke),
        };
        let event_parts = EventParts {
            functions: parts.functions.clone(),
            invoke,
            outbox,
            records: Arc::new(parts.objects.memory.clone()),
            clock: parts.foundation.clock(),
            region: settings.region.clone(),
        };
        Ok(EventInvoker::open(event_parts, queue_limits(settings)).await?)
    }
}

/// The profiler, with an invoker of its own that has the settings of the node's.
pub(super) fn profiler(parts: &NodeParts, store: Arc<dyn Store>, settings: &InvokerSettings) -> FunctionProfiler {
    let foundation = &parts.foundation;
    FunctionProfiler(ProfilingParts {
        store,
        engine: Arc::clone(&parts.sandboxes.engine) as Arc<dyn SandboxEngine>,
        keys: foundation.keys.clone(),
        functions: parts.functions.clone(),
        invoker: InvokerSettings { prewarm: None, ..settings.clone() },
        clock: foundation.clock(),
        memory: parts.objects.node_memory.clone(),
        node: foundation.membership.node().clone(),
        incarnation: foundation.membership.incarnation(),
        object_max: foundation.settings.s3.object_max,
        fast_path: fast_path_limits(foundation),
        folder: foundation.paths.profiles(),
    })
}

pub(super) fn invoker_settings(parts: &NodeParts, runtime: RuntimeSettings) -> InvokerSettings {
    let settings = &parts.foundation.settings;
    let (functions, shares) = (&settings.functions, MemoryShares::of(settings));
    InvokerSettings {
        limits: PoolLimits {
            sandboxes_max: functions.sandboxes_max,
            memory_max: functions.memory,
            lent_max: shares.lent_max,
            // Each invocation has a sandbox of its own.
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
        network: parts.sandboxes.network.clone(),
        ..InvokerSettings::new(runtime, functions.memory)
    }
}

fn hooks(
    parts: &NodeParts,
    meter: &Arc<InvocationMeter>,
    prefetch: Option<Arc<dyn InvocationHook>>,
) -> Vec<Arc<dyn InvocationHook>> {
    let meter = Arc::clone(meter) as Arc<dyn InvocationHook>;
    // After the models, so that it knows what they predict.
    let recent = Arc::new(parts.recent.clone()) as Arc<dyn InvocationHook>;
    let hooks = std::iter::once(meter).chain(parts.learning.hook()).chain(parts.llc.hooks());
    hooks.chain([recent]).chain(prefetch).collect()
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
