//! Compositions: an action with the annotation `conductor` decides, while they run, which actions run next.

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
/// Runs of conductors in a composition: one before, between and after all components.
const CONDUCTORS_MAX: usize = 2 * SEQUENCE_MAX + 1;

/// What has run of a composition and of all that are part of it.
#[derive(Debug, Default)]
pub(super) struct Counts {
    components: AtomicUsize,
    conductors: AtomicUsize,
}

impl Counts {
    /// One more, unless there were `most`.
    fn take(count: &AtomicUsize, most: usize) -> bool {
        let next = |before: usize| (before < most).then_some(before + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// What a composition has come to.
struct Course {
    token: Token,
    logs: Vec<String>,
    duration_ms: u64,
    /// The most that the conductor or a component booked.
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

/// What a run came to, as the input of the next.
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
    /// Whether a call of `resolved` is one of a composition.
    pub(super) fn is_composition(resolved: &ResolvedAction) -> bool {
        matches!(resolved.found, ActionTarget::Function(_)) && resolved.annotations().says(CONDUCTOR)
    }

    /// Runs a composition to its end: its conductor, what that asks for, and the conductor again with what came of it.
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
            // As what it is, not as a composition again.
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

    /// Runs the component that is asked for. What its conductor is told of it; or how the composition ends.
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
        // A composition in this one counts what it runs.
        if !Self::is_composition(&resolved) && !Counts::take(&counts.components, SEQUENCE_MAX) {
            return Ok(told(TOO_LONG.to_owned()));
        }
        let input = Input::Object(next.params).under(&resolved.parameters());
        let component = self.part_of(call, resolved, input, &course.token);
        let id = component.id;
        // Compositions in compositions would else be as deep on one stack as they are long.
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
