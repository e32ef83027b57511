//! The doors to objects and to functions.

use std::sync::Arc;

use nigh_engine::RecordLog;
use nigh_invoke::event_invoker::EventInvoker;
use nigh_lambda::{LambdaDoor, LambdaDoorParts, LambdaDoorSettings};
use nigh_objects::ObjectMemory;
use nigh_openwhisk::activation_store::ActivationStore;
use nigh_openwhisk::entity_store::EntityStore;
use nigh_openwhisk::{NamespaceLimits, OpenWhiskDoor, OpenWhiskParts, OpenWhiskSettings};
use nigh_s3::{DoorLimits, FastPath, FastPathLimits, S3Door};

use super::NodeError;
use super::foundation::Foundation;
use super::invocations::Invocations;
use super::parts::NodeParts;
use super::workflows::Workflows;
use crate::config::{Settings, Switch};

/// The S3 door, and its fast path if that is on.
pub(super) fn s3(foundation: &Foundation, memory: &ObjectMemory) -> Result<(S3Door, Option<FastPath>), NodeError> {
    let settings = &foundation.settings;
    let limits = DoorLimits {
        connections: settings.s3.connections_max,
        sandbox_connections: foundation.files.sandbox_connections,
        drain: settings.drain.duration(),
        ..DoorLimits::default()
    };
    let s3 = S3Door::new(Arc::new(memory.clone()), foundation.keys.clone(), limits)
        .map_err(NodeError::io("starting the threads of the S3 door"))?
        .with_farewell(foundation.farewell.clone());
    let fast_path = fast_path_limits(foundation).map(|limits| FastPath::new(&s3, limits));
    Ok((s3, fast_path))
}

/// The limits of the fast path; none if it is off.
pub(super) fn fast_path_limits(foundation: &Foundation) -> Option<FastPathLimits> {
    let settings = &foundation.settings;
    (settings.s3.fast_path == Switch::On).then(|| FastPathLimits {
        connections: settings.s3.connections_max,
        sandbox_connections: foundation.files.sandbox_connections,
        drain: settings.drain.duration(),
        ..FastPathLimits::new(settings.cache.held_max)
    })
}

/// The Lambda door, with OpenWhisk's paths below it.
pub(super) fn lambda(
    parts: &NodeParts,
    invocations: &Invocations,
    events: &EventInvoker,
    workflows: &Workflows,
    openwhisk: OpenWhiskDoor,
) -> LambdaDoor {
    let foundation = &parts.foundation;
    LambdaDoor::new(
        LambdaDoorParts {
            functions: parts.functions.clone(),
            invoke: Arc::clone(&invocations.invoke),
            events: events.clone(),
            machines: workflows.machines.clone(),
            executions: workflows.executions.clone(),
            owned: workflows.owned.clone(),
            keys: foundation.keys.clone(),
            objects: Arc::new(parts.objects.memory.clone()),
            catalog: parts.catalog.clone(),
            clock: foundation.clock(),
            mounted: Some(Arc::new(openwhisk)),
        },
        LambdaDoorSettings {
            region: foundation.settings.region.clone(),
            concurrency: foundation.settings.functions.sandboxes_max,
            network: parts.sandboxes.network.clone(),
        },
    )
    .with_connections(foundation.files.lambda_connections)
    .with_farewell(foundation.farewell.clone())
}

/// The limits of each namespace at OpenWhisk's API.
pub(super) fn whisk_limits(settings: &Settings) -> NamespaceLimits {
    let limits = &settings.openwhisk;
    NamespaceLimits {
        invocations_per_minute: limits.invocations_per_minute,
        fires_per_minute: limits.fires_per_minute,
        concurrent_invocations: limits.concurrent_invocations,
    }
}

pub(super) fn openwhisk(
    parts: &NodeParts,
    invocations: &Invocations,
    entities: EntityStore,
    records: RecordLog,
) -> OpenWhiskDoor {
    let foundation = &parts.foundation;
    OpenWhiskDoor::new(
        OpenWhiskParts {
            functions: parts.functions.clone(),
            entities,
            activations: ActivationStore::new(records, parts.activations.clone(), parts.functions.clone()),
            invoke: Arc::clone(&invocations.invoke),
            scratch: Arc::new(parts.objects.memory.clone()),
            keys: foundation.keys.clone(),
            catalog: parts.catalog.clone(),
            clock: foundation.clock(),
        },
        OpenWhiskSettings {
            concurrency: foundation.settings.functions.sandboxes_max,
            limits: whisk_limits(&foundation.settings),
            network: parts.sandboxes.network.clone(),
        },
    )
}
