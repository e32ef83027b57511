//! Compositions: an action with the annotation `conductor` decides which action runs next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nigh_functions::function::Function;
use nigh_terms::{Timestamp, Token};
use serde_json::{Map, Value};

use super::super::continuation::{CONDUCTOR, Continuation, NextAction};
use super::super::kinds;
use super::super::limits::SEQUENCE_MAX;
use super::super::record::{Record, written};
use super::super::response::{ERROR, Response, Status};
use super::OpenWhiskDoor;
use super::invocation::{ActivationEnd, Call, Input};
use super::lookup::{ActionTarget, ResolvedAction};
use super::shown::{self, ActionView};

const TOO_LONG: &str = "Too many actions in the composition.";
const FAILED: &str = "Activation failure during composition.";
/// The most runs of a composition's conductor: before, between and after all components.
const CONDUCTORS_MAX: usize = 2 * SEQUENCE_MAX + 1;

/// The actions that have run in a composition and in the compositions within it.
#[derive(Debug, Default)]
pub(super) struct Counts {
    components: AtomicUsize,
    conductors: AtomicUsize,
}

impl Counts {
    /// Counts one more, unless `most` have run.
    fn take(count: &AtomicUsize, most: usize) -> bool {
        let next = |before: usize| (before < most).then_some(before + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// The progress of a composition.
struct Course {
    token: Token,
    logs: Vec<String>,
    duration_ms: u64,
    /// The largest booking of the conductor and the components.
    memory_mb: u64,
}

impl Course {
    fn has_had(&mut self, ended: &ActivationEnd) {
        self.logs.push(written(ended.record.id));
        self.duration_ms += ended.record.duration_ms;
        self.token.join(&ended.token);
        let limits = ended.record.annotations.get("limits");
        let memory_mb = limits.and_then(|limits| limits.get("memory")).and_then(Value::as_u64);
        self.memory_mb = self.memory_mb.max(memory_mb.unwrap_or(0));
    }
}

/// The result of a run, as the input of the next.
fn members(result: Value) -> Map<String, Value> {
    match result {
        Value::Object(members) => members,
        Value::Null => Map::new(),
        other => Map::from_iter([("value".to_owned(), other)]),
    }
}

fn told(words: String) -> Map<String, Value> {
    Map::from_iter([(ERROR.to_owned(), words.into())])
}

impl OpenWhiskDoor {
    /// Whether `resolved` is a conductor.
    pub(super) fn is_composition(resolved: &ResolvedAction) -> bool {
        matches!(resolved.found, ActionTarget::Function(_)) && resolved.annotations().says(CONDUCTOR)
    }

    /// Runs a composition to its end: its conductor, the component that it asks for, and the conductor with the result.
    pub(super) async fn run_composition(&self, mut call: Call, function: Arc<Function>) -> ActivationEnd {
        let start = self.0.parts.clock.wall();
        let counts = call.counts.get_or_insert_default().clone();
        let mut course = Course {
            token: call.token.clone(),
            logs: Vec::new(),
            duration_ms: 0,
            memory_mb: function.memory.mib_ceil(),
        };
        let mut input = call.input.clone();
        let response = loop {
            if !Counts::take(&counts.conductors, CONDUCTORS_MAX) {
                break Response::error(Status::ApplicationError, TOO_LONG);
            }
            let conductor = self.part_of(&call, call.resolved.clone(), input, &course.token);
            // The conductor runs as an action here, not as a composition.
            let ended = self.run_function(conductor, &function).await;
            self.0.parts.activations.keep(&ended.record);
            course.has_had(&ended);
            if ended.refused.is_some() {
                break Response::error(Status::WhiskError, FAILED);
            }
            let Response { status, result, size } = ended.record.response;
            let next = match Continuation::of(result) {
                Continuation::Done(result) => break Response { status, result, size },
                Continuation::Next(next) => next,
            };
            let state = next.state.clone();
            let mut came = match self.component_of(&call, next, &mut course, &counts).await {
                Ok(result) => result,
                Err(response) => break response,
            };
            came.extend(state);
            input = Input::Object(came).under(&call.resolved.parameters());
        };
        let end = self.0.parts.clock.wall();
        let view = ActionView::of(&function, call.resolved.path.clone());
        let mut limits = shown::limits(&function, view.logs_mb);
        limits["memory"] = course.memory_mb.into();
        let mut annotations = self.annotations(&call, kinds::SEQUENCE, limits);
        annotations.set("topmost", call.cause.is_none().into());
        annotations.set(CONDUCTOR, true.into());
        annotations.set("waitTime", start.millis().saturating_sub(call.asked.millis()).into());
        let record = Record {
            id: call.id,
            namespace: call.who.namespace.clone(),
            name: call.resolved.path.name.clone(),
            version: view.version,
            start,
            end: Some(Timestamp(end.millis().max(start.millis()))),
            duration_ms: course.duration_ms,
            cause: call.cause,
            response,
            logs: course.logs,
            annotations,
        };
        ActivationEnd { record, token: course.token, refused: None }
    }

    /// Runs a component. Returns the result for the conductor, or the end of the composition.
    async fn component_of(
        &self,
        call: &Call,
        next: NextAction,
        course: &mut Course,
        counts: &Counts,
    ) -> Result<Map<String, Value>, Response> {
        let namespace = &call.who.namespace;
        let path = match next.path(namespace) {
            Ok(path) => path,
            Err(none) => return Ok(told(none.words())),
        };
        if counts.components.load(Ordering::Relaxed) >= SEQUENCE_MAX {
            return Ok(told(TOO_LONG.to_owned()));
        }
        let Ok(resolved) = self.resolve(namespace, &path) else {
            return Ok(told(format!("Failed to resolve action with name '{namespace}/{path}' during composition.")));
        };
        // A composition within this one counts its own components.
        if !Self::is_composition(&resolved) && !Counts::take(&counts.components, SEQUENCE_MAX) {
            return Ok(told(TOO_LONG.to_owned()));
        }
        let input = Input::Object(next.params).under(&resolved.parameters());
        let component = self.part_of(call, resolved, input, &course.token);
        let id = component.id;
        // In a task of its own: the stack would grow with the depth of nested compositions.
        let ended = match self.spawn(component, ()).await {
            Ok(ended) => ended,
            Err(lost) => {
                tracing::error!(error = %lost, %id, "a component of a composition was lost");
                return Err(Response::error(Status::WhiskError, FAILED));
            }
        };
        course.has_had(&ended);
        match ended.refused {
            Some(_) => Err(Response::error(Status::WhiskError, FAILED)),
            None => Ok(members(ended.record.response.result)),
        }
    }

    /// A call that is part of the composition `call`.
    fn part_of(&self, call: &Call, resolved: ResolvedAction, input: Input, token: &Token) -> Call {
        Call {
            cause: Some(call.id),
            counts: call.counts.clone(),
            ..self.call(&call.who, resolved, input, token.clone())
        }
    }
}
