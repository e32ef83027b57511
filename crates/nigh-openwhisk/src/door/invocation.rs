//! Calls actions, waits for their end and records them.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use nigh_functions::action::names::EntityPath;
use nigh_functions::action::parameters::Parameters;
use nigh_functions::function::Function;
use nigh_invoke::invocation::{EventAttempt, InvocationResult, InvokeRequest};
use nigh_terms::{InvocationId, Namespace, Principal, Timestamp, Token};
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use super::super::error::WhiskError;
use super::super::limits::PAYLOAD_BYTES_MAX;
use super::super::put_shapes::arguments;
use super::super::record::{Record, lines, written};
use super::super::response::{Response, Status};
use super::compositions::Counts;
use super::lookup::{ActionTarget, ResolvedAction};
use super::shown::{self, ActionView};
use super::{OpenWhiskDoor, Request, WhiskResponse, WhiskResult, json_answer};

const ACTIVATION_ID: HeaderName = HeaderName::from_static("x-openwhisk-activation-id");

/// The input of an activation.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Object(Map<String, Value>),
    /// What a component of a sequence may answer: an object or a list.
    Array(Vec<Value>),
}

impl Input {
    /// The input, with `parameters` for the members that it does not set.
    pub(super) fn under(self, parameters: &Parameters) -> Self {
        match self {
            Self::Object(said) => Self::Object(parameters.input(said)),
            array @ Self::Array(_) => array,
        }
    }

    fn into_value(self) -> Value {
        match self {
            Self::Object(members) => Value::Object(members),
            Self::Array(items) => Value::Array(items),
        }
    }
}

/// A call of an action.
pub(super) struct Call {
    pub(super) id: InvocationId,
    pub(super) who: Principal,
    pub(super) resolved: ResolvedAction,
    pub(super) input: Input,
    /// The caller's token.
    pub(super) token: Token,
    /// The sequence that the call is a part of.
    pub(super) cause: Option<InvocationId>,
    /// The number of actions that the outermost sequence has run.
    pub(super) actions: Option<Arc<AtomicUsize>>,
    /// The count of the outermost composition that the call is a part of.
    pub(super) counts: Option<Arc<Counts>>,
    /// When the call arrived.
    pub(super) asked: Timestamp,
}

/// A place within the limit of activations, returned when dropped.
struct Place {
    door: OpenWhiskDoor,
    namespace: Namespace,
    _of_node: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.door.0.throttle.lock().ended(&self.namespace);
    }
}

/// The end of an activation.
pub(super) struct ActivationEnd {
    pub(super) record: Record,
    /// The activation's token.
    pub(super) token: Token,
    /// Why the action did not run.
    pub(super) refused: Option<WhiskError>,
}

/// The outcome of a call when its caller stops waiting.
pub(super) enum WaitOutcome {
    Ended(Box<ActivationEnd>),
    StillRuns(InvocationId),
}

impl OpenWhiskDoor {
    /// A call of `resolved` with this input, which includes the parameters.
    pub(super) fn call(&self, who: &Principal, resolved: ResolvedAction, input: Input, token: Token) -> Call {
        Call {
            id: InvocationId::now(),
            who: who.clone(),
            resolved,
            input,
            token,
            cause: None,
            actions: None,
            counts: None,
            asked: self.0.parts.clock.wall(),
        }
    }

    /// Begins a call, which runs to its end and is recorded even if nobody waits for it.
    pub(super) fn begin(&self, call: Call) -> Result<(InvocationId, JoinHandle<ActivationEnd>), WhiskError> {
        let most = super::ACTIVATIONS_MAX;
        let of_node = Arc::clone(&self.0.running).try_acquire_owned();
        let of_node = of_node.map_err(|_| WhiskError::too_many_at_once(most, most))?;
        let namespace = call.who.namespace.clone();
        self.0.throttle.lock().begun(&namespace)?;
        let place = Place { door: self.clone(), namespace, _of_node: of_node };
        Ok((call.id, self.spawn(call, place)))
    }

    /// Runs a call in a task of its own, which holds `place`.
    pub(super) fn spawn(&self, call: Call, place: impl Send + 'static) -> JoinHandle<ActivationEnd> {
        let door = self.clone();
        self.0.tasks.spawn(nigh_trace::follow(async move {
            let _place = place;
            Box::pin(door.run(call)).await
        }))
    }

    /// Counts a call; rejects it if the namespace has used up its calls of this minute.
    pub(super) fn count_invocation(&self, namespace: &Namespace) -> Result<(), WhiskError> {
        self.0.throttle.lock().invoked(namespace, self.0.parts.clock.monotonic())
    }

    /// Begins a call that nobody waits for.
    pub(super) fn begin_unawaited(
        &self,
        namespace: &Namespace,
        resolved: ResolvedAction,
        input: Input,
        token: Token,
    ) -> Result<InvocationId, WhiskError> {
        let who = Principal::outside(namespace.clone());
        let (id, _goes_on) = self.begin(self.call(&who, resolved, input, token))?;
        Ok(id)
    }

    /// Begins a call and waits for its end.
    pub(super) async fn begin_and_wait(&self, call: Call, wait: Duration) -> Result<WaitOutcome, WhiskError> {
        let (id, task) = self.begin(call)?;
        match tokio::time::timeout(wait, task).await {
            Err(_) => Ok(WaitOutcome::StillRuns(id)),
            Ok(Ok(ended)) => Ok(WaitOutcome::Ended(Box::new(ended))),
            Ok(Err(lost)) => {
                tracing::error!(error = %lost, "an activation was lost");
                Err(WhiskError::internal("the activation was lost; Nigh's log says why"))
            }
        }
    }

    /// Runs a call to its end, and records it.
    pub(super) async fn run(&self, call: Call) -> ActivationEnd {
        let ended = match &call.resolved.found {
            ActionTarget::Sequence(held) => {
                let sequence = Arc::clone(&held.entity);
                self.run_sequence(call, sequence).await
            }
            ActionTarget::Function(deployed) => {
                let function = Arc::clone(&deployed.function);
                if Self::is_composition(&call.resolved) {
                    self.run_composition(call, function).await
                } else {
                    self.run_function(call, &function).await
                }
            }
        };
        self.0.parts.activations.keep(&ended.record);
        ended
    }

    pub(super) async fn run_function(&self, mut call: Call, function: &Arc<Function>) -> ActivationEnd {
        let input = std::mem::replace(&mut call.input, Input::Array(Vec::new())).into_value();
        let payload = Bytes::from(input.to_string());
        if payload.len() > PAYLOAD_BYTES_MAX {
            let refused = WhiskError::larger_than("Payload", payload.len(), PAYLOAD_BYTES_MAX);
            return self.refused(&call, function, Status::ApplicationError, refused);
        }
        let request = InvokeRequest {
            function: function.name.clone(),
            payload,
            client_context: None,
            token: call.token.clone(),
            // The run gets the id that the caller knows.
            event: Some(EventAttempt::first(call.id)),
        };
        match self.0.parts.invoke.invoke(&call.who, request).await {
            Ok(invoked) => self.ended(&call, function, invoked),
            Err(error) => self.refused(&call, function, Status::WhiskError, error.into()),
        }
    }

    fn ended(&self, call: &Call, function: &Function, invoked: InvocationResult) -> ActivationEnd {
        let view = ActionView::of(function, call.resolved.path.clone());
        let response = Response::of_run(&invoked, function.timeout, function.action.is_some());
        let (wait_ms, init_ms) = (invoked.run.wait_us / 1000, invoked.run.init_us.map(|init| init.div_ceil(1000)));
        let duration_ms = invoked.run.duration_us.div_ceil(1000) + init_ms.unwrap_or(0);
        let start = Timestamp(call.asked.millis() + wait_ms);
        let end = Timestamp(start.millis() + duration_ms);
        let mut annotations = self.annotations(call, &view.kind, shown::limits(function, view.logs_mb));
        annotations.set("waitTime", wait_ms.into());
        if let Some(init_ms) = init_ms {
            annotations.set("initTime", init_ms.into());
        }
        annotations.set("timeout", response.is_timeout().into());
        let record = Record {
            id: call.id,
            namespace: call.who.namespace.clone(),
            name: call.resolved.path.name.clone(),
            version: view.version,
            start,
            end: Some(end),
            duration_ms,
            cause: call.cause,
            response,
            logs: lines(&String::from_utf8_lossy(&invoked.log), invoked.run.log_omitted, end),
            annotations,
        };
        ActivationEnd { record, token: invoked.token, refused: None }
    }

    /// The end of an activation that did not run.
    fn refused(&self, call: &Call, function: &Function, status: Status, refused: WhiskError) -> ActivationEnd {
        let view = ActionView::of(function, call.resolved.path.clone());
        let now = self.0.parts.clock.wall();
        let record = Record {
            id: call.id,
            namespace: call.who.namespace.clone(),
            name: call.resolved.path.name.clone(),
            version: view.version,
            start: now,
            end: Some(now),
            duration_ms: 0,
            cause: call.cause,
            response: Response::error(status, refused.message.to_string()),
            logs: Vec::new(),
            annotations: self.annotations(call, &view.kind, shown::limits(function, view.logs_mb)),
        };
        ActivationEnd { record, token: call.token.clone(), refused: Some(refused) }
    }

    /// The annotations of every record of an action.
    pub(super) fn annotations(&self, call: &Call, kind: &str, limits: Value) -> Parameters {
        let mut annotations = Parameters::default();
        annotations.set("path", format!("{}/{}", call.who.namespace, call.resolved.path).into());
        annotations.set("kind", kind.into());
        annotations.set("limits", limits);
        if call.cause.is_some() {
            annotations.set("causedBy", "sequence".into());
        }
        if let Some(binding) = &call.resolved.binding {
            annotations.set("binding", format!("{}/{binding}", call.who.namespace).into());
        }
        annotations
    }

    pub(super) async fn invoke_action(&self, path: &EntityPath, request: Request) -> WhiskResult {
        let (blocking, only_result) = (request.query.flag("blocking", false)?, request.query.flag("result", false)?);
        let wait = request.query.wait()?;
        self.count_invocation(&request.namespace)?;
        let said = arguments(&request.body)?;
        let resolved = self.resolve(&request.namespace, path)?;
        let parameters = resolved.parameters();
        if resolved.fixed(&parameters).iter().any(|fixed| said.contains_key(fixed)) {
            return Err(WhiskError::bad_request(
                "Request defines parameters that are not allowed (e.g., reserved properties).",
            ));
        }
        let token = self.0.parts.invoke.seen(&request.who);
        let input = Input::Object(said).under(&parameters);
        if !blocking {
            return Ok(accepted(self.begin_unawaited(&request.namespace, resolved, input, token)?));
        }
        let call = self.call(&request.who, resolved, input, token);
        match self.begin_and_wait(call, wait).await? {
            WaitOutcome::StillRuns(id) => Ok(accepted(id)),
            WaitOutcome::Ended(ended) => match ended.refused {
                Some(refused) => Err(refused),
                None => Ok(done(&ended.record, only_result)),
            },
        }
    }
}

fn done(record: &Record, only_result: bool) -> WhiskResponse {
    let status = match record.response.status {
        Status::Success => StatusCode::OK,
        Status::ApplicationError | Status::DeveloperError => StatusCode::BAD_GATEWAY,
        Status::WhiskError => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let answer =
        if only_result { json_answer(status, &record.response.result) } else { json_answer(status, &record.shown()) };
    with_id(answer, record.id)
}

/// The answer to a call that is still running.
pub(super) fn accepted(id: InvocationId) -> WhiskResponse {
    with_id(json_answer(StatusCode::ACCEPTED, &json!({ "activationId": written(id) })), id)
}

/// `answer` with the header that names the activation.
pub(super) fn with_id(mut answer: WhiskResponse, id: InvocationId) -> WhiskResponse {
    if let Ok(id) = HeaderValue::from_str(&written(id)) {
        answer.headers_mut().insert(ACTIVATION_ID, id);
    }
    answer
}
