//! One attempt to run an event.

use std::sync::Arc;

use nigh_schedule::event_queue::{EventFacts, RunEnd};
use nigh_terms::{FunctionName, InvocationId, Principal};
use nigh_trace::{Span, SpanContext, SpanKind, past, unix_ns};

use super::reason::error_words;
use super::record::Response;
use super::row::{Head, Stage};
use super::{EventError, EventInvokerState};
use crate::invocation::{EventAttempt, InvokeError, InvokeRequest};

/// How an attempt ended.
struct AttemptEnd {
    end: RunEnd,
    response: Option<Response>,
    /// What went wrong, if the function did not say it in its response.
    error: Option<String>,
}

impl AttemptEnd {
    fn failed(end: RunEnd, error: &dyn std::fmt::Display) -> Self {
        Self { end, response: None, error: Some(error.to_string()) }
    }

    /// What went wrong, in words.
    fn words(&self) -> Option<String> {
        let failed = self.response.as_ref().filter(|response| response.function_error.is_some());
        self.error.clone().or_else(|| failed.map(|response| error_words(&response.payload)))
    }
}

impl EventInvokerState {
    /// Runs an event and concludes it, if it is done.
    pub(super) async fn run(
        self: Arc<Self>,
        id: InvocationId,
        facts: &EventFacts,
        attempt: u32,
    ) -> Result<(), EventError> {
        let ended = self.attempt(id, facts, attempt).await;
        let (words, AttemptEnd { end, response, .. }) = (ended.words(), ended);
        if self.closed.is_cancelled() && end != RunEnd::Answered {
            // The node is stopping: the row stays, and the attempt is repeated after the next start.
            return Ok(());
        }
        metrics::counter!("nigh_event_attempts_total", "end" => end_name(end)).increment(1);
        let policy = self.policy(&facts.namespace, &facts.function);
        let finish = self.queue.lock().ended(id, end, policy.as_ref(), self.now());
        if let Some(words) = words {
            self.last_errors.lock().insert(id, words);
        }
        // The next event may run in its place.
        self.changed.notify_one();
        match finish {
            Some(finish) => self.finish(finish, response.as_ref()).await,
            None => Ok(()),
        }
    }

    async fn attempt(&self, id: InvocationId, facts: &EventFacts, attempt: u32) -> AttemptEnd {
        let fault = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, %id, "an event could not be started; it is tried again");
            AttemptEnd::failed(RunEnd::Fault, error)
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
        let span = event_span(body.trace, id, facts, attempt);
        let request = InvokeRequest {
            function: facts.function.clone(),
            payload: body.payload,
            client_context: body.client_context,
            token: body.token,
            event: Some(EventAttempt { id, attempt, wrote: body.wrote }),
        };
        let who = Principal::outside(facts.namespace.clone());
        match span.scope(self.parts.invoke.invoke(&who, request)).await {
            Ok(invoked) => {
                let end = if invoked.function_error.is_some() { RunEnd::Failed } else { RunEnd::Answered };
                let response = Response { payload: invoked.payload, function_error: invoked.function_error };
                AttemptEnd { end, response: Some(response), error: None }
            }
            Err(
                error @ (InvokeError::TooManyRequests(_)
                | InvokeError::Gate(_)
                | InvokeError::ReservedConcurrency { .. }),
            ) => AttemptEnd::failed(RunEnd::Throttled, &error),
            Err(InvokeError::NotFound(name)) => AttemptEnd::failed(RunEnd::Gone, &no_function(&name)),
            Err(error @ (InvokeError::InvalidRequest(_) | InvokeError::PayloadTooLarge { .. })) => {
                tracing::warn!(%error, %id, "the payload of an event cannot be an input");
                AttemptEnd::failed(RunEnd::Failed, &error)
            }
            // It may have run: that counts as an attempt.
            Err(error @ InvokeError::Lost(_)) => {
                tracing::warn!(%error, %id, "an attempt to run an event was lost");
                AttemptEnd::failed(RunEnd::Failed, &error)
            }
            Err(error @ InvokeError::ShuttingDown) => AttemptEnd::failed(RunEnd::Fault, &error),
            // It lasts until an operator has mended it, as a fault does.
            Err(error @ (InvokeError::Internal(_) | InvokeError::Network(_))) => fault(&error),
        }
    }
}

/// The span of an attempt. Before the first one the event was in the queue.
fn event_span(trace: Option<SpanContext>, id: InvocationId, facts: &EventFacts, attempt: u32) -> Span {
    let mut span = Span::under(trace, "event", SpanKind::Consumer);
    span.record(|span| {
        span.set("faas.invocation_id", id.to_string());
        span.set("faas.invoked_name", facts.function.as_str());
        span.set("nigh.attempt", u64::from(attempt));
    });
    if attempt == 1 {
        let waited = (facts.accepted.millis().saturating_mul(1_000_000), unix_ns());
        past(span.context(), "wait in the event queue", SpanKind::Internal, waited, |_| {});
    }
    span
}

fn no_function(name: &FunctionName) -> String {
    format!("there is no function {name}; deploy it, or drop the event")
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
