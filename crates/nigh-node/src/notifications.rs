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
                        "the queue of asynchronous invocations is full; `nigh events list` shows it",
                    ));
                }
                Err(InvokeError::ShuttingDown) => return Err(ObjectError::SlowDown("the node is shutting down")),
                // This build checks each rule when it is set: another version of Nigh has set this one.
                Err(error) => {
                    tracing::error!(%error, arn, "a bucket's event is lost because its rule names no function");
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use nigh_engine::{LocalRegistry, Outbox, Registry, StateFile};
    use nigh_functions::function_store::FunctionLimits;
    use nigh_invoke::event_invoker::{EventParts, RecordBuckets};
    use nigh_invoke::invocation::{InvocationResult, Invoke, InvokeRequest};
    use nigh_schedule::event_queue::QueueLimits;
    use nigh_terms::{BucketName, Clock, ObjectKey, Principal, SystemClock, Token};
    use serde_json::json;

    use super::*;

    /// A node without functions and buckets.
    struct Empty;

    #[async_trait]
    impl Invoke for Empty {
        async fn invoke(&self, _: &Principal, request: InvokeRequest) -> Result<InvocationResult, InvokeError> {
            Err(InvokeError::NotFound(request.function))
        }

        fn seen(&self, _: &Principal) -> Token {
            Token::empty()
        }

        fn set_reserved(&self, _: &Namespace, _: &FunctionName, _: Option<usize>) {}
    }

    #[async_trait]
    impl RecordBuckets for Empty {
        async fn put(&self, _: &Namespace, bucket: &BucketName, _: &ObjectKey, _: Bytes) -> Result<(), ObjectError> {
            Err(ObjectError::NoSuchBucket(bucket.clone()))
        }
    }

    #[tokio::test]
    async fn what_a_bucket_tells_a_function_that_is_gone_becomes_a_dead_letter() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state.clone()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let root = folder.path().join("functions");
        let functions = FunctionStore::open(registry, &root, Arc::clone(&clock), FunctionLimits::default());
        let functions = functions.await.unwrap();
        let parts = EventParts {
            functions: functions.clone(),
            invoke: Arc::new(Empty),
            outbox: Outbox::open(state).unwrap(),
            records: Arc::new(Empty),
            clock,
            region: "us-east-1".to_owned(),
        };
        let events = EventInvoker::open(parts, QueueLimits { dead_max: 2, ..QueueLimits::default() }).await.unwrap();
        let targets = FunctionTargets { functions, events: events.clone() };
        let (tenant, arn) = (Namespace::new("tenant").unwrap(), "arn:aws:lambda:us-east-1:000000000000:function:gone");
        assert!(targets.check(&tenant, arn).is_err());
        for number in 0..3 {
            let reserved = targets.reserve(&tenant, &[(arn, 100)]).unwrap();
            let document = Bytes::from(json!({ "number": number }).to_string());
            reserved.send(vec![document], Writer { token: Token::empty(), wrote: None }).await.unwrap();
            let waiting = async {
                while events.list(&tenant, true, 10).pending > 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap();
            let newest = events.list(&tenant, false, 10).events[0].clone();
            assert_eq!((newest.function.as_str(), newest.attempts), ("gone", 0));
            assert_eq!(newest.reason.as_deref(), Some("FunctionDeleted: there is no function gone"));
            let shown = events.show(&tenant, newest.id).await.unwrap().unwrap();
            assert_eq!(shown.payload, json!({ "number": number }));
        }
        assert_eq!(events.list(&tenant, false, 10).dead, 2, "dead letters are bounded");
        events.close().await;
    }
}
