//! Looks at an object before the function runs that the object's event triggers. For later reads the features come in
//! the background; without this, the triggered invocation would be predicted without features.
//!
//! A stage before the invoker. It waits for a bounded time and continues in any case.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use nigh_data::ObjectId;
use nigh_invoke::invocation::{InvocationResult, Invoke, InvokeError, InvokeRequest, UpcomingInvocation};
use nigh_schedule::inputs::payload_walk::PayloadWalk;
use nigh_terms::{FunctionName, InvocationId, Namespace, Principal, Token};

use super::recorder::FeatureRecorder;

/// The longest time that an event waits for the features of its objects.
const WITHIN: Duration = Duration::from_millis(20);
/// A text in every notification and in few other events.
const MARK: &[u8] = b"\"aws:s3\"";

/// An invoker of events that waits for the features of what triggers them.
pub struct TriggerFeatures {
    features: FeatureRecorder,
    invoke: Arc<dyn Invoke>,
}

impl TriggerFeatures {
    /// The stage before `invoke`.
    #[must_use]
    pub const fn new(features: FeatureRecorder, invoke: Arc<dyn Invoke>) -> Self {
        Self { features, invoke }
    }
}

#[async_trait]
impl Invoke for TriggerFeatures {
    async fn invoke(&self, who: &Principal, request: InvokeRequest) -> Result<InvocationResult, InvokeError> {
        if request.event.is_some() && memchr::memmem::find(&request.payload, MARK).is_some() {
            let named = PayloadWalk::of(&request.payload).objects.into_iter();
            let objects: Vec<ObjectId> = named
                .map(|named| ObjectId { namespace: who.namespace.clone(), bucket: named.bucket, key: named.key })
                .collect();
            let _known_in_time = self.features.await_looks(&objects, WITHIN).await;
        }
        self.invoke.invoke(who, request).await
    }

    fn seen(&self, who: &Principal) -> Token {
        self.invoke.seen(who)
    }

    fn prepare(&self, namespace: &Namespace, next: UpcomingInvocation) {
        self.invoke.prepare(namespace, next);
    }

    async fn find(&self, namespace: &Namespace, id: InvocationId) -> Option<InvocationResult> {
        self.invoke.find(namespace, id).await
    }

    fn set_reserved(&self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        self.invoke.set_reserved(namespace, function, concurrency);
    }
}
