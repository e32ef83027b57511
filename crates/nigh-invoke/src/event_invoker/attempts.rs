//! One attempt to run an event.

use std::sync::Arc;

use nigh_schedule::event_queue::{EventFacts, RunEnd};
use nigh_terms::{InvocationId, Principal};

use super::record::Response;
use super::row::{Head, Stage};
use super::{EventError, EventInvokerState};
use crate::invocation::{EventAttempt, InvokeError, InvokeRequest};

impl EventInvokerState {
    /// Runs an event and concludes it, if it is done.
    pub(super) async fn run(
        self: Arc<Self>,
        id: InvocationId,
        facts: &EventFacts,
        attempt: u32,
    ) -> Result<(), EventError> {
        let (end, response) = self.attempt(id, facts, attempt).await;
        if self.closed.is_cancelled() && end != RunEnd::Answered {
            // The node is stopping: the row stays, and the attempt is repeated after the next start.
            return Ok(());
        }
        metrics::counter!("nigh_event_attempts_total", "end" => end_name(end)).increment(1);
        let policy = self.policy(&facts.namespace, &facts.function);
        let finish = self.queue.lock().ended(id, end, policy.as_ref(), self.now());
        // The next event may run in its place.
        self.changed.notify_one();
        match finish {
            Some(finish) => self.finish(finish, response.as_ref()).await,
            None => Ok(()),
        }
    }

    async fn attempt(&self, id: InvocationId, facts: &EventFacts, attempt: u32) -> (RunEnd, Option<Response>) {
        let fault = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, %id, "an event could not be started; it is tried again");
            (RunEnd::Fault, None)
        };
        let begun = match Head::new(facts, attempt, Stage::ToRun).change(id) {
            Ok(change) => self.parts.outbox.apply(vec![change]).await,
            Err(error) => return fault(&error),
        };
        if let Err(error) = begun {
            return fault(&error);
        }
        let body = match self.body(id).await {
            Ok(body) => body,
            Err(error) => return fault(&error),
        };
        let request = InvokeRequest {
            function: facts.function.clone(),
            payload: body.payload,
            client_context: body.client_context,
            token: body.token,
            event: Some(EventAttempt { id, attempt, wrote: body.wrote }),
        };
        match self.parts.invoke.invoke(&Principal::outside(facts.namespace.clone()), request).await {
            Ok(invoked) => {
                let end = if invoked.function_error.is_some() { RunEnd::Failed } else { RunEnd::Answered };
                (end, Some(Response { payload: invoked.payload, function_error: invoked.function_error }))
            }
            Err(InvokeError::TooManyRequests(_) | InvokeError::Gate(_) | InvokeError::ReservedConcurrency { .. }) => {
                (RunEnd::Throttled, None)
            }
            Err(InvokeError::NotFound(_)) => (RunEnd::Gone, None),
            Err(error @ (InvokeError::InvalidRequest(_) | InvokeError::PayloadTooLarge { .. })) => {
                tracing::warn!(%error, %id, "the payload of an event cannot be an input");
                (RunEnd::Failed, None)
            }
            // It may have run: that counts as an attempt.
            Err(error @ InvokeError::Lost(_)) => {
                tracing::warn!(%error, %id, "an attempt to run an event was lost");
                (RunEnd::Failed, None)
            }
            Err(InvokeError::ShuttingDown) => (RunEnd::Fault, None),
            // It lasts until an operator has mended it, as a fault does.
            Err(error @ (InvokeError::Internal(_) | InvokeError::Network(_))) => fault(&error),
        }
    }
}

const fn end_name(end: RunEnd) -> &'static str {
    match end {
        RunEnd::Answered => "answered",
        RunEnd::Failed => "failed",
        RunEnd::Throttled => "throttled",
        RunEnd::Fault => "fault",
        RunEnd::Gone => "gone",
    }
}
