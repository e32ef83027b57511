//! What manages the keys and namespaces of a node.

use std::sync::Arc;

use nigh_invoke::event_invoker::EventInvoker;
use nigh_openwhisk::entity_store::EntityStore;

use super::invocations::Invocations;
use super::parts::NodeParts;
use super::workflows::Workflows;
use crate::credentials::FirstKeys;
use crate::tenancy::Tenancy;

/// What manages keys and namespaces.
pub(super) fn of(
    parts: &NodeParts,
    invocations: &Invocations,
    events: &EventInvoker,
    workflows: &Workflows,
    entities: EntityStore,
) -> Tenancy {
    let foundation = &parts.foundation;
    let first = &foundation.settings.namespace;
    let others = foundation.settings.namespaces.keys().filter(|name| *name != first);
    Tenancy {
        keys: foundation.keys.clone(),
        registry: foundation.registry(),
        clock: foundation.clock(),
        first: FirstKeys {
            keys: foundation.keys.clone(),
            registry: foundation.registry(),
            namespaces: std::iter::once(first).chain(others).cloned().collect(),
            file: foundation.paths.credentials(),
        },
        namespace: first.clone(),
        memory: parts.objects.memory.clone(),
        functions: parts.functions.clone(),
        entities,
        machines: workflows.machines.clone(),
        events: events.clone(),
        invoke: Arc::clone(&invocations.invoke),
    }
}
