//! Records on their way to their destinations: another function, as an event, or a bucket, as an object.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use nigh_data::{Attributes, ObjectError, PutRequest, Tags, WriteConditions};
use nigh_engine::OutboxChange;
use nigh_functions::event_config::Destination;
use nigh_objects::ObjectMemory;
use nigh_schedule::event_queue::{Command, Condition, DeadLetter, EventFacts, RemainingWork};
use nigh_terms::{BucketName, InvocationId, Namespace, ObjectKey, Principal, Token};

use super::record::{EventEnd, Response, invocation_record, record_key};
use super::row::{Body, place};
use super::{EventError, EventInvoker, EventInvokerState, NewEvent};
use crate::invocation::REQUEST_BYTES_MAX;

/// Writes records to buckets.
#[async_trait]
pub trait RecordBuckets: Send + Sync {
    /// Writes `record` at `key`, durably.
    ///
    /// # Errors
    /// Why it cannot be written.
    async fn put(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        key: &ObjectKey,
        record: Bytes,
    ) -> Result<(), ObjectError>;
}

#[async_trait]
impl RecordBuckets for ObjectMemory {
    async fn put(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        key: &ObjectKey,
        record: Bytes,
    ) -> Result<(), ObjectError> {
        let length = record.len() as u64;
        let request = PutRequest {
            attributes: Attributes { content_type: Some("application/json".to_owned()), ..Attributes::default() },
            tags: Tags::default(),
            conditions: WriteConditions::default(),
            body: Box::pin(stream::once(async move { Ok(record) })),
            length: Some(length),
            md5: None,
            checksum: None,
            request: None,
        };
        Self::put(self, &Principal::outside(namespace.clone()), bucket, key, request).await.map(drop)
    }
}

impl EventInvokerState {
    pub(super) async fn record(
        &self,
        id: InvocationId,
        facts: &EventFacts,
        attempts: u32,
        condition: Condition,
        response: Option<&Response>,
    ) -> Result<Body, EventError> {
        let body = self.body(id).await?;
        let end = EventEnd {
            id,
            function: &facts.function,
            region: &self.parts.region,
            condition,
            attempts,
            request: &body.payload,
            response,
            at: self.wall(),
        };
        Ok(Body { trace: body.trace, ..Body::of(invocation_record(&end)) })
    }

    pub(super) async fn deliver(
        self: &std::sync::Arc<Self>,
        id: InvocationId,
        facts: &EventFacts,
        to: &Destination,
    ) -> Result<(), EventError> {
        let Body { payload: record, trace, .. } = self.body(id).await?;
        match nigh_trace::scope(trace, self.carry(facts, to, record)).await {
            Ok(()) => {
                if self.write(vec![OutboxChange::Remove { id: place(id) }]).await {
                    self.queue.lock().delivered(id);
                }
            }
            Err(reason) => {
                tracing::warn!(%id, function = %facts.function, %reason, "a record was not delivered");
                let give_up = self.queue.lock().not_delivered(id, &reason, self.now());
                if let Some(give_up) = give_up {
                    self.give_up(give_up).await?;
                }
            }
        }
        Ok(())
    }

    async fn carry(
        self: &std::sync::Arc<Self>,
        facts: &EventFacts,
        to: &Destination,
        record: Bytes,
    ) -> Result<(), String> {
        match to {
            Destination::Function(function) => {
                if record.len() > REQUEST_BYTES_MAX {
                    return Err(format!("the record has {} bytes, {REQUEST_BYTES_MAX} are allowed", record.len()));
                }
                let event = NewEvent {
                    namespace: facts.namespace.clone(),
                    function: function.clone(),
                    payload: record,
                    client_context: None,
                    token: Token::empty(),
                };
                let taken = EventInvoker(std::sync::Arc::clone(self)).take(event).await;
                taken.map(drop).map_err(|error| error.to_string())
            }
            Destination::Bucket(bucket) => {
                let key = record_key(&facts.function, self.wall());
                let key = ObjectKey::new(&key).map_err(|error| error.to_string())?;
                let put = self.parts.records.put(&facts.namespace, bucket, &key, record).await;
                put.map_err(|error| error.to_string())
            }
        }
    }

    pub(super) async fn give_up(&self, command: Command) -> Result<(), EventError> {
        let Command::GiveUp { id, facts, reason, to } = command else { return Ok(()) };
        metrics::counter!("nigh_event_deliveries_failed_total").increment(1);
        let reason = format!("the record could not be delivered: {reason}");
        self.bury(DeadLetter { id, facts, attempts: 0, reason, died: self.wall(), remains: RemainingWork::Record(to) })
            .await
    }
}
