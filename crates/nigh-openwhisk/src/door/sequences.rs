//! Sequences: which may be, and how one runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nigh_functions::action::names::EntityPath;
use nigh_invoke::invocation::UpcomingInvocation;
use nigh_terms::{FunctionName, Namespace, Timestamp};
use serde_json::{Map, Value};

use super::super::entities::Sequence;
use super::super::error::WhiskError;
use super::super::limits::SEQUENCE_MAX;
use super::super::record::{Record, written};
use super::super::response::{Response, Status};
use super::OpenWhiskDoor;
use super::invocation::{ActivationEnd, Call, Input};
use super::lookup::ActionTarget;
use super::sequence_scratch::SequenceScratch;
use super::shown;

const TOO_LONG: &str = "Too many actions in the sequence.";
const CYCLIC: &str = "Sequence may not refer to itself.";
const NO_COMPONENT: &str = "Sequence component does not exist.";

impl OpenWhiskDoor {
    /// Refuses a sequence at `path` that lacks a component, is too long or would run itself.
    pub(super) fn check_sequence(
        &self,
        namespace: &Namespace,
        path: &EntityPath,
        components: &[EntityPath],
    ) -> Result<(), WhiskError> {
        let mut actions = 0;
        let mut open = components.to_vec();
        while let Some(component) = open.pop() {
            // A component may be what this one replaces: then it is not looked for.
            let is_self = component == *path;
            let resolved = self.resolve(namespace, &component);
            if is_self || resolved.as_ref().is_ok_and(|resolved| resolved.path == *path) {
                return Err(WhiskError::bad_request(CYCLIC));
            }
            match resolved.map_err(|_| WhiskError::bad_request(NO_COMPONENT))?.found {
                ActionTarget::Function(_) => actions += 1,
                ActionTarget::Sequence(held) => open.extend(held.entity.components.iter().cloned()),
            }
            if actions + open.len() > SEQUENCE_MAX {
                return Err(WhiskError::bad_request(TOO_LONG));
            }
        }
        Ok(())
    }

    /// Runs a sequence to its end: each component with the answer of the one before, until one fails. While one runs the next
    /// is made ready.
    pub(super) async fn run_sequence(&self, call: Call, sequence: Arc<Sequence>) -> ActivationEnd {
        let start = self.0.parts.clock.wall();
        let actions = call.actions.clone().unwrap_or_else(|| Arc::new(AtomicUsize::new(0)));
        let mut token = call.token.clone();
        let (mut logs, mut duration_ms) = (Vec::new(), 0);
        let mut response = None;
        let mut input = call.input.clone();
        let scratch = SequenceScratch::of(&sequence, call.id);
        for (index, component) in sequence.components.iter().enumerate() {
            let ended = match self.component(&call, component, scratch.named_in(input), &token, &actions) {
                Ok(now) => {
                    if let Some(next) = sequence.components.get(index + 1) {
                        self.prepare(&now, next);
                    }
                    Box::pin(self.run(now)).await
                }
                Err(error) => {
                    response = Some(Response::error(Status::ApplicationError, error.message.into_owned()));
                    break;
                }
            };
            logs.push(written(ended.record.id));
            duration_ms += ended.record.duration_ms;
            token.join(&ended.token);
            let failed = ended.record.response.status != Status::Success;
            input = match &ended.record.response.result {
                Value::Object(members) => Input::Object(members.clone()),
                Value::Array(items) => Input::Array(items.clone()),
                _ => Input::Object(Map::new()),
            };
            response = Some(ended.record.response);
            if failed {
                break;
            }
        }
        self.drop_scratch(&call.who.namespace, &scratch).await;
        let end = self.0.parts.clock.wall();
        let mut annotations = self.annotations(&call, "sequence", shown::sequence_limits(&sequence));
        annotations.set("topmost", call.cause.is_none().into());
        annotations.set("waitTime", start.millis().saturating_sub(call.asked.millis()).into());
        let record = Record {
            id: call.id,
            namespace: call.who.namespace.clone(),
            name: call.resolved.path.name.clone(),
            version: sequence.common.version,
            start,
            end: Some(Timestamp(end.millis().max(start.millis()))),
            duration_ms,
            cause: call.cause,
            response: response.unwrap_or_else(|| Response::error(Status::WhiskError, "Sequence failed.")),
            logs,
            annotations,
        };
        ActivationEnd { record, token, refused: None }
    }

    /// The function that runs first when the action at `path` is called.
    fn first_function(&self, namespace: &Namespace, path: &EntityPath) -> Option<FunctionName> {
        let mut path = path.clone();
        // Sequences are nested at most as deep as a sequence may be long.
        for _ in 0..=SEQUENCE_MAX {
            match self.resolve(namespace, &path).ok()?.found {
                ActionTarget::Function(deployed) => return Some(deployed.function.name.clone()),
                ActionTarget::Sequence(held) => path = held.entity.components.first()?.clone(),
            }
        }
        None
    }

    /// Has what the component `next` begins with made ready while `now` runs. Its input is not known before that ends.
    fn prepare(&self, now: &Call, next: &EntityPath) {
        let namespace = &now.who.namespace;
        let runs = match &now.resolved.found {
            ActionTarget::Function(deployed) => Some(&deployed.function.name),
            ActionTarget::Sequence(_) => None,
        };
        // If `next` begins with the function that runs now, the sandbox of this run will be free for it.
        if let Some(function) = self.first_function(namespace, next).filter(|next| Some(next) != runs) {
            self.0.parts.invoke.prepare(namespace, UpcomingInvocation { function, input: None, after: Some(now.id) });
        }
    }

    /// The call of a component.
    fn component(
        &self,
        call: &Call,
        component: &EntityPath,
        input: Input,
        token: &nigh_terms::Token,
        actions: &Arc<AtomicUsize>,
    ) -> Result<Call, WhiskError> {
        let resolved = self.resolve(&call.who.namespace, component);
        let resolved = resolved.map_err(|_| WhiskError::bad_request(NO_COMPONENT))?;
        // Sequences count too: one that was changed while it ran may lead to itself.
        if actions.fetch_add(1, Ordering::Relaxed) >= 2 * SEQUENCE_MAX {
            return Err(WhiskError::bad_request(TOO_LONG));
        }
        let input = input.under(&resolved.parameters());
        Ok(Call {
            cause: Some(call.id),
            actions: Some(Arc::clone(actions)),
            counts: call.counts.clone(),
            ..self.call(&call.who, resolved, input, token.clone())
        })
    }
}
