//! What is told of an answered request: its metrics, and its event in the audit trail.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;
use futures::FutureExt as _;
use http::request::Parts;
use http_body_util::BodyExt as _;
use nigh_http::audit::{AuditClient, AuditEvent, Caller, EventCategory, EventSource, fields, picked};
use nigh_terms::{AccessKeyId, Principal};
use nigh_trace::Span;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::response::{LambdaResponse, header};
use crate::{LambdaDoor, Operation, SchedulerOperation};

/// The names in answers of what was made or changed. Whatever else they have may be a secret.
const MADE: [&str; 9] = [
    "FunctionName",
    "FunctionArn",
    "FunctionUrl",
    "CodeSha256",
    "RevisionId",
    "LayerVersionArn",
    "ScheduleArn",
    "stateMachineArn",
    "executionArn",
];
/// The names in requests of the Step Functions API.
const OF_STATES: [&str; 4] = ["name", "stateMachineArn", "executionArn", "resourceArn"];

/// What a request is.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestKind<'a> {
    /// A call of a function's URL, or a CloudEvent.
    Url,
    /// An operation of an API.
    Operation(Operation<'a>),
    /// No operation of this door.
    Unknown,
}

/// What is known of a request when its signature has been checked, in its head's extensions.
#[derive(Clone, Debug, Default)]
pub(super) struct SignerNotes {
    caller: OnceLock<Caller>,
    names: OnceLock<Map<String, Value>>,
}

impl SignerNotes {
    /// Notes who signed a request, and the names that only its body has.
    pub(super) fn note(head: &Parts, operation: Operation<'_>, key: &AccessKeyId, who: &Principal, body: &[u8]) {
        let Some(notes) = head.extensions.get::<Self>() else { return };
        let names = match operation {
            Operation::Create => picked(body, &["FunctionName"]),
            Operation::States(_) => picked(body, &OF_STATES),
            _ => Map::new(),
        };
        // A request's signature is checked once.
        let _ = notes.caller.set(Caller::Key { access_key: key.clone(), principal: Some(who.clone()) });
        let _ = notes.names.set(names);
    }
}

impl RequestKind<'_> {
    /// The name in metrics.
    pub(super) const fn meter_name(&self) -> &'static str {
        match self {
            Self::Url => "Url",
            Self::Operation(operation) => operation.name(),
            Self::Unknown => "none",
        }
    }

    /// The category of its event, whether or not it is recorded; none if the request has no event.
    pub(super) fn category(&self) -> Option<EventCategory> {
        match self {
            Self::Url | Self::Operation(Operation::Invoke(_)) => Some(EventCategory::Data),
            Self::Operation(Operation::States(operation)) if operation.is_of_executions() => Some(EventCategory::Data),
            Self::Operation(_) => Some(EventCategory::Management),
            Self::Unknown => None,
        }
    }
}

impl LambdaDoor {
    /// Counts an answered request, logs it, and records its event.
    pub(super) fn answered(
        &self,
        kind: RequestKind<'_>,
        span: &Span,
        head: &Parts,
        from: IpAddr,
        began: Instant,
        answer: &LambdaResponse,
    ) {
        let (name, status) = (kind.meter_name(), answer.status().as_str().to_owned());
        metrics::counter!("nigh_lambda_requests_total", "operation" => name, "status" => status).increment(1);
        metrics::histogram!("nigh_lambda_request_duration_seconds", "operation" => name).record(began.elapsed());
        let request = answer.headers().get(header::REQUEST_ID).and_then(|id| id.to_str().ok());
        if tracing::enabled!(tracing::Level::DEBUG) {
            let status = answer.status().as_u16();
            span.logged(|| tracing::debug!(request, operation = name, status, "a Lambda request was answered"));
        }
        if let Some(category) = kind.category().filter(|category| self.audit.wants(*category)) {
            self.record(kind, category, head, from, answer);
        }
    }

    fn record(
        &self,
        kind: RequestKind<'_>,
        category: EventCategory,
        head: &Parts,
        from: IpAddr,
        answer: &LambdaResponse,
    ) {
        let client = AuditClient::of(&head.headers, head.uri.query(), Some(from));
        let notes = head.extensions.get::<SignerNotes>();
        let caller = notes.and_then(|notes| notes.caller.get().cloned());
        let mut parameters = notes.and_then(|notes| notes.names.get().cloned()).unwrap_or_default();
        let (source, name) = match kind {
            RequestKind::Operation(operation) => {
                if let Some((field, target)) = target(&operation) {
                    let target = percent_decode_str(target).decode_utf8_lossy();
                    parameters.extend(fields(&[(field, Some(&*target))]));
                }
                (source(&operation), operation.name())
            }
            RequestKind::Url | RequestKind::Unknown => {
                let host = head.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
                parameters.extend(fields(&[("host", host), ("path", Some(head.uri.path()))]));
                (EventSource::Lambda, "InvokeFunctionUrl")
            }
        };
        let read_only = ["Get", "List", "Describe", "Validate"].iter().any(|verb| name.starts_with(verb));
        let status = answer.status();
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let is_error = status.is_client_error() || status.is_server_error();
        let has_document = is_error || category == EventCategory::Management && !read_only;
        let document = if has_document { body_of(answer) } else { Bytes::new() };
        let of_states = is_error.then(|| picked(&document, &["__type"]));
        let of_states = of_states.as_ref().and_then(|document| document.get("__type")?.as_str());
        let error = header(header::ERROR_TYPE).or(of_states).or(status.canonical_reason());
        self.audit.record(AuditEvent {
            source,
            name,
            category,
            read_only,
            caller: caller.unwrap_or_else(|| Caller::claimed(client.claimed_key())),
            client: &client,
            request_id: header(header::REQUEST_ID).unwrap_or_default(),
            status: status.as_u16(),
            error: error.filter(|_| is_error),
            parameters,
            response: if is_error { Map::new() } else { picked(&document, &MADE) },
        });
    }
}

const fn source(operation: &Operation<'_>) -> EventSource {
    match operation {
        Operation::States(_) => EventSource::States,
        Operation::Scheduler(_) => EventSource::Scheduler,
        _ => EventSource::Lambda,
    }
}

/// What the path names, and CloudTrail's field for it.
const fn target<'a>(operation: &Operation<'a>) -> Option<(&'static str, &'a str)> {
    match *operation {
        Operation::Get(name)
        | Operation::GetConfiguration(name)
        | Operation::UpdateCode(name)
        | Operation::UpdateConfiguration(name)
        | Operation::Delete(name)
        | Operation::Invoke(name)
        | Operation::ListVersions(name)
        | Operation::ListAliases(name)
        | Operation::GetPolicy(name)
        | Operation::GetConcurrency(name)
        | Operation::PutConcurrency(name)
        | Operation::DeleteConcurrency(name)
        | Operation::PutEventConfig(name)
        | Operation::UpdateEventConfig(name)
        | Operation::GetEventConfig(name)
        | Operation::DeleteEventConfig(name)
        | Operation::ListEventConfigs(name)
        | Operation::CreateUrl(name)
        | Operation::GetUrl(name)
        | Operation::UpdateUrl(name)
        | Operation::DeleteUrl(name)
        | Operation::ListUrls(name) => Some(("functionName", name)),
        Operation::PublishLayer(name)
        | Operation::ListLayerVersions(name)
        | Operation::GetLayer(name, _)
        | Operation::DeleteLayer(name, _) => Some(("layerName", name)),
        Operation::ListTags(arn) => Some(("resource", arn)),
        Operation::Scheduler(
            SchedulerOperation::Create(name)
            | SchedulerOperation::Get(name)
            | SchedulerOperation::Update(name)
            | SchedulerOperation::Delete(name)
            | SchedulerOperation::GetGroup(name),
        ) => Some(("name", name)),
        Operation::Create
        | Operation::List
        | Operation::ListLayers
        | Operation::GetAccountSettings
        | Operation::States(_)
        | Operation::Scheduler(SchedulerOperation::List | SchedulerOperation::ListGroups) => None,
    }
}

/// The bytes of an answer, which are in memory.
fn body_of(answer: &LambdaResponse) -> Bytes {
    let collected = answer.body().clone().collect().now_or_never();
    collected.and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn an_operation_names_what_it_is_for_and_its_category() {
        for (method, path, named, category) in [
            (Method::POST, "/2015-03-31/functions", None, EventCategory::Management),
            (Method::DELETE, "/2015-03-31/functions/f", Some(("functionName", "f")), EventCategory::Management),
            (Method::POST, "/2015-03-31/functions/f/invocations", Some(("functionName", "f")), EventCategory::Data),
            (Method::POST, "/2018-10-31/layers/l/versions", Some(("layerName", "l")), EventCategory::Management),
            (Method::PUT, "/schedules/s", Some(("name", "s")), EventCategory::Management),
        ] {
            let operation = Operation::of(&method, path).unwrap();
            assert_eq!(target(&operation), named, "{path}");
            assert_eq!(RequestKind::Operation(operation).category(), Some(category), "{path}");
        }
        assert_eq!(RequestKind::Url.category(), Some(EventCategory::Data));
        assert_eq!(RequestKind::Unknown.category(), None);
        let operation = Operation::of(&Method::GET, "/schedules").unwrap();
        assert_eq!((source(&operation), target(&operation)), (EventSource::Scheduler, None));
    }

    #[test]
    fn an_answers_bytes_are_read_and_left() {
        let answer = crate::response::json_answer(http::StatusCode::OK, &serde_json::json!({ "FunctionName": "f" }));
        assert_eq!(picked(&body_of(&answer), &MADE), fields(&[("functionName", Some("f"))]));
        assert_eq!(body_of(&answer), body_of(&answer));
    }
}
