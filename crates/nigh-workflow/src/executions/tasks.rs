//! One task of an execution: an invocation, and its outcome for the state machine.

use bytes::Bytes;
use nigh_invoke::event_invoker::NewEvent;
use nigh_invoke::invocation::{EventAttempt, InvocationResult, InvokeError, InvokeRequest};
use nigh_schedule::scheduler::lost_invocation::RERUNS_MAX;
use nigh_terms::{Namespace, Principal, Token};
use serde_json::Value;

use super::ExecutionsState;
use crate::event::{TaskEnd, TaskRun};
use crate::language::error_names;

/// What has become of a task in this process.
pub(super) enum TaskResult {
    /// It has ended, and had seen this.
    Ended(TaskEnd, Token),
    /// It has not begun, and this process leaves.
    Unbegun,
    /// Another process continues it.
    Elsewhere,
}

impl ExecutionsState {
    /// Continues a task that began before this process. Its outcome comes from the node that ran it, if that is known.
    /// Otherwise it runs again if it may (`again`), or its outcome is unknown.
    pub(super) async fn take_up(&self, namespace: &Namespace, task: TaskRun, again: bool) -> TaskResult {
        let found = if task.later { Some(None) } else { self.found_run(namespace, &task).await };
        match found {
            None => TaskResult::Elsewhere,
            Some(Some(invoked)) => TaskResult::Ended(end_of(&invoked), invoked.token),
            Some(None) if again => self.invoke_task(namespace, task, 2, true, true).await,
            Some(None) => {
                let cause = format!(
                    "the leader of the execution ended while invocation {} of {} ran, and no node knows how the invocation \
                     ended; mark the function idempotent to have it run again",
                    task.invocation, task.function
                );
                TaskResult::Ended(failed(error_names::OUTCOME_UNKNOWN, cause), Token::empty())
            }
        }
    }

    async fn found_run(&self, namespace: &Namespace, task: &TaskRun) -> Option<Option<InvocationResult>> {
        let _turn = self.parts.over.run_until_cancelled(self.parts.turns.acquire()).await?.ok()?;
        self.parts.over.run_until_cancelled(self.parts.invoke.find(namespace, task.invocation)).await
    }

    /// Runs a task to its end. `again`: it may run more than once.
    pub(super) async fn invoke_task(
        &self,
        namespace: &Namespace,
        task: TaskRun,
        mut attempt: u32,
        is_kept: bool,
        again: bool,
    ) -> TaskResult {
        let TaskRun { invocation, function, payload, client_context, later, token, .. } = task;
        let turn = self.parts.turns.acquire();
        // A stored execution continues in another process or after a restart; any other ends with this process.
        let turn = if is_kept { self.leaving.run_until_cancelled(turn).await } else { Some(turn.await) };
        let Some(Ok(_turn)) = turn else { return TaskResult::Unbegun };
        let payload = Bytes::from(payload.to_string());
        let ended = if later {
            let event =
                NewEvent { namespace: namespace.clone(), function, payload, client_context, token: token.clone() };
            self.parts.events.accept(event).await.map(|_| (TaskEnd::Answered(Value::Null), token))
        } else {
            let who = Principal::outside(namespace.clone());
            loop {
                let request = InvokeRequest {
                    function: function.clone(),
                    payload: payload.clone(),
                    client_context: client_context.clone(),
                    token: token.clone(),
                    event: Some(EventAttempt { id: invocation, attempt, wrote: None }),
                };
                match self.parts.invoke.invoke(&who, request).await {
                    // The task's node was lost.
                    Err(InvokeError::Lost(_)) if again && attempt <= RERUNS_MAX => attempt += 1,
                    ended => break ended.map(|invoked| (end_of(&invoked), invoked.token)),
                }
            }
        };
        match ended {
            Ok((end, token)) => TaskResult::Ended(end, token),
            Err(_) if is_kept && self.parts.over.is_cancelled() => TaskResult::Elsewhere,
            // It waited for a sandbox.
            Err(InvokeError::ShuttingDown) if is_kept && self.leaving.is_cancelled() => TaskResult::Unbegun,
            Err(error) => TaskResult::Ended(refused(&error), Token::empty()),
        }
    }
}

fn failed(error: &str, cause: impl Into<String>) -> TaskEnd {
    TaskEnd::Failed { error: error.to_owned(), cause: cause.into() }
}

/// The outcome of an invocation that ran.
fn end_of(invoked: &InvocationResult) -> TaskEnd {
    let answer = serde_json::from_slice::<Value>(&invoked.payload);
    match (answer, invoked.function_error) {
        (Ok(answer), None) => TaskEnd::Answered(answer),
        (Err(error), None) => failed(error_names::RUNTIME, format!("the function's answer is no JSON: {error}")),
        (answer, Some(_)) => {
            let error = answer.unwrap_or_default();
            let kind = error.get("errorType").and_then(Value::as_str).unwrap_or("Lambda.Unknown");
            failed(kind, String::from_utf8_lossy(&invoked.payload))
        }
    }
}

/// The outcome of an invocation that did not run, with the error names of AWS's integration.
fn refused(error: &InvokeError) -> TaskEnd {
    let kind = match error {
        InvokeError::NotFound(_) => "Lambda.ResourceNotFoundException",
        InvokeError::TooManyRequests(_) | InvokeError::ReservedConcurrency { .. } | InvokeError::Gate(_) => {
            "Lambda.TooManyRequestsException"
        }
        InvokeError::InvalidRequest(_) => "Lambda.InvalidRequestContentException",
        InvokeError::PayloadTooLarge { .. } => "Lambda.RequestTooLargeException",
        InvokeError::Lost(_) => error_names::OUTCOME_UNKNOWN,
        InvokeError::Network(_) | InvokeError::ShuttingDown | InvokeError::Internal(_) => "Lambda.ServiceException",
    };
    failed(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_invoke::invocation::RunTimes;
    use nigh_schedule::scheduler::lost_invocation::LossError;
    use nigh_terms::{FunctionName, InvocationId};

    fn invoked(payload: &'static str, function_error: Option<&'static str>) -> InvocationResult {
        InvocationResult {
            id: InvocationId::now(),
            payload: Bytes::from_static(payload.as_bytes()),
            function_error,
            log: Vec::new(),
            run: RunTimes::default(),
            token: Token::empty(),
            touched: Vec::new(),
        }
    }

    #[test]
    fn ends_have_the_names_that_retry_and_catch_rules_give_them() {
        let name = |end: TaskEnd| match end {
            TaskEnd::Answered(answer) => answer.to_string(),
            TaskEnd::Failed { error, .. } => error,
        };
        assert_eq!(name(end_of(&invoked("{\"a\":1}", None))), "{\"a\":1}");
        assert_eq!(name(end_of(&invoked("plain", None))), "States.Runtime");
        assert_eq!(name(end_of(&invoked("{\"errorType\":\"ValueError\"}", Some("Unhandled")))), "ValueError");
        assert_eq!(name(end_of(&invoked("{}", Some("Unhandled")))), "Lambda.Unknown");
        let function = FunctionName::new("f").unwrap();
        assert_eq!(name(refused(&InvokeError::NotFound(function))), "Lambda.ResourceNotFoundException");
        assert_eq!(name(refused(&InvokeError::Lost(LossError::MayHaveRun))), "Nigh.OutcomeUnknown");
    }
}
