//! Answers the calls of dispatch: those to a node that runs functions, those to a controller, or both.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_rpc::{Call, Handler, Method, Refusal, RefusalKind, Reply};

use crate::dispatcher::Dispatcher;
use crate::run_door::{RunDoor, head_of, reply};
use crate::wire::{
    AskedStates, BODY_MAX, HAND_OVER, HandOverHead, INVOKE, InvokeHead, OF_CONTROLLERS, OF_NODES, REPORT, ReportHead,
    STATES, StatesAnswer,
};

/// Answers the calls whose methods are numbered from [`super::FIRST_DISPATCH_METHOD`] on.
pub struct DispatchCalls {
    /// Takes runs for this node; None where none run.
    pub door: Option<Arc<RunDoor>>,
    /// Dispatches. It answers other processes only if it may own namespaces.
    pub dispatcher: Option<Dispatcher>,
}

#[async_trait]
impl Handler for DispatchCalls {
    fn method(&self, number: u16) -> Option<&'static Method> {
        let here = |methods: &[&'static Method]| methods.iter().find(|method| method.number == number).copied();
        let of_node = self.door.as_ref().and_then(|_| here(&OF_NODES));
        of_node.or_else(|| self.dispatcher.as_ref().filter(|one| one.owns()).and_then(|_| here(&OF_CONTROLLERS)))
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Refusal> {
        let number = call.method.number;
        if let Some(door) = self.door.as_ref().filter(|_| OF_NODES.iter().any(|method| method.number == number)) {
            return door.answer(call).await;
        }
        let dispatcher = self.dispatcher.as_ref();
        let dispatcher =
            dispatcher.ok_or_else(|| Refusal::new(RefusalKind::UnknownMethod, "this process dispatches nothing"))?;
        match number {
            number if number == REPORT.number => {
                let report: ReportHead = head_of(&call)?;
                let is_own =
                    (call.peer.identity.name(), call.peer.incarnation) == (&*report.node.0, report.from.incarnation.0);
                if !is_own {
                    return Err(Refusal::new(RefusalKind::Forbidden, "a node reports only of itself"));
                }
                Ok(reply(&dispatcher.report(report), Bytes::new()))
            }
            number if number == HAND_OVER.number => {
                let head: HandOverHead = head_of(&call)?;
                Ok(reply(&dispatcher.0.handed_over(head).await, Bytes::new()))
            }
            number if number == INVOKE.number => {
                let head: InvokeHead = head_of(&call)?;
                let body = call.body.collect(BODY_MAX).await;
                let payload = body.map_err(|error| Refusal::new(RefusalKind::Busy, error.to_string()))?;
                let (answer, body) = dispatcher.handed(head, payload).await;
                Ok(reply(&answer, body))
            }
            number if number == STATES.number => {
                let asked: AskedStates = head_of(&call)?;
                let body = call.body.collect(BODY_MAX).await;
                let body = body.map_err(|error| Refusal::new(RefusalKind::Busy, error.to_string()))?;
                Ok(match dispatcher.answer_states(asked, body).await {
                    Some((status, answer)) => reply(&StatesAnswer::Answered(status), answer),
                    None => reply(&StatesAnswer::NotOwner, Bytes::new()),
                })
            }
            _ => Err(Refusal::new(RefusalKind::UnknownMethod, "a controller has no such method")),
        }
    }
}
