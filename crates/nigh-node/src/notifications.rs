//! Bucket notifications invoke functions: connects `nigh_objects` to `nigh_invoke`.

use async_trait::async_trait;
use bytes::Bytes;
use nigh_data::ObjectError;
use nigh_functions::event_config::{Destination, NamedDestination};
use nigh_functions::function_store::FunctionStore;
use nigh_invoke::event_invoker::{EventInvoker, EventSlot};
use nigh_invoke::invocation::{InvokeError, TriggerObject};
use nigh_objects::{NotificationTargets, ReservedEvents, Writer};
use nigh_terms::{FunctionName, Namespace};

/// This node's functions as targets of notifications.
pub(crate) struct FunctionTargets {
    pub(crate) functions: FunctionStore,
    pub(crate) events: EventInvoker,
}

fn function(arn: &str) -> Result<FunctionName, String> {
    match NamedDestination::of_arn(arn).map_err(|error| error.to_string())?.to {
        Destination::Function(name) => Ok(name),
        Destination::Bucket(_) => Err("a bucket notifies functions only".to_owned()),
    }
}

#[async_trait]
impl NotificationTargets for FunctionTargets {
    fn check(&self, namespace: &Namespace, function_arn: &str) -> Result<(), String> {
        let name = function(function_arn)?;
        let found = self.functions.get(namespace, &name).map(drop);
        found.ok_or_else(|| format!("there is no function {name} in the namespace"))
    }

    fn reserve(&self, namespace: &Namespace, events: &[(&str, usize)]) -> Result<Box<dyn ReservedEvents>, ObjectError> {
        let mut slots = Vec::with_capacity(events.len());
        for (arn, bytes) in events {
            let reserved = match function(arn) {
                Ok(name) => self.events.reserve(namespace, &name, *bytes),
                Err(why) => Err(InvokeError::InvalidRequest(why)),
            };
            slots.push(match reserved {
                Ok(slot) => Some(slot),
                Err(InvokeError::TooManyRequests(_)) => {
                    return Err(ObjectError::SlowDown(
                        "the queue of asynchronous invocations is full; `nigh events list --all` shows it",
                    ));
                }
                Err(InvokeError::ShuttingDown) => return Err(ObjectError::SlowDown("the node is shutting down")),
                Err(gone) => {
                    tracing::warn!(%gone, arn, "a bucket's event is dropped because its function is gone");
                    None
                }
            });
        }
        Ok(Box::new(Slots { events: self.events.clone(), slots }))
    }
}

struct Slots {
    events: EventInvoker,
    slots: Vec<Option<EventSlot>>,
}

#[async_trait]
impl ReservedEvents for Slots {
    async fn send(self: Box<Self>, documents: Vec<Bytes>, writer: Writer) -> Result<(), String> {
        let wrote = writer.wrote.map(|(node, bytes)| TriggerObject { node, bytes });
        let filled = self.slots.into_iter().zip(documents);
        let filled =
            filled.filter_map(|(slot, document)| Some((slot?, document, writer.token.clone(), wrote))).collect();
        self.events.fill_with(filled).await.map_err(|error| error.to_string())
    }
}
