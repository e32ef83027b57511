//! The audit trail: who asked what of a node, and how it ended, one JSON object a line with CloudTrail's field names.
//!
//! Doors call `Audit::record` where a request is answered; a sink of the node writes the line. Management events (functions,
//! keys, buckets, policies, admin requests) are always recorded, data events (reads and writes of objects, invocations) only
//! if the node's settings say so. An event holds names and outcomes: no header, no query and no body, where secrets are.
//!
//! Follows the AWS CloudTrail user guide, "CloudTrail record contents", event version 1.11.

mod identity;

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{AUTHORIZATION, USER_AGENT};
use nigh_terms::{ACCOUNT, Clock};
use serde_json::{Map, Value, json};
use uuid::Uuid;

pub use self::identity::Caller;

/// The version of the record's form. CloudTrail's minor versions only add fields.
const EVENT_VERSION: &str = "1.11";
/// Longer texts of clients are cut.
const CLIENT_TEXT_CHARS_MAX: usize = 256;
/// Documents up to this length are searched for names of what a request is for.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventCategory {
    /// It configures the node: functions, keys, buckets, policies.
    Management,
    /// It uses what is there: objects and invocations.
    Data,
}

/// The API of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// The S3 API, also over the fast path.
    S3,
    /// The Lambda API and function URLs.
    Lambda,
    /// The Step Functions API.
    States,
    /// `EventBridge` Scheduler's API.
    Scheduler,
    /// The `OpenWhisk` API.
    OpenWhisk,
    /// The admin API.
    Admin,
}

impl EventSource {
    const fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3.amazonaws.com",
            Self::Lambda => "lambda.amazonaws.com",
            Self::States => "states.amazonaws.com",
            Self::Scheduler => "scheduler.amazonaws.com",
            Self::OpenWhisk => "openwhisk.nigh",
            Self::Admin => "admin.nigh",
        }
    }
}

/// Takes the lines of the trail. It must not block: it is called on the path of requests.
pub trait AuditSink: Send + Sync {
    /// Takes one event, a line of JSON without its newline.
    fn write(&self, line: String);
}

/// The client of a request, as its head shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditClient {
    address: Option<IpAddr>,
    user_agent: Option<String>,
    access_key: Option<String>,
}

impl AuditClient {
    /// The client that sent a request with these headers and this query. `address` is none over a Unix socket.
    #[must_use]
    pub fn of(headers: &HeaderMap, query: Option<&str>, address: Option<IpAddr>) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let access_key = text(AUTHORIZATION).and_then(signed_by).or_else(|| query.and_then(presigned_by)).map(cut);
        Self { address, user_agent: text(USER_AGENT).map(cut), access_key }
    }

    /// A client that sends no HTTP.
    #[must_use]
    pub fn named(program: &str) -> Self {
        Self { address: None, user_agent: Some(program.to_owned()), access_key: None }
    }

    /// The same client, which named this access key in another way than by a signature.
    #[must_use]
    pub fn with_access_key(self, key: Option<&str>) -> Self {
        Self { access_key: key.map(cut), ..self }
    }

    /// The access key that the request names. Nobody has checked it.
    #[must_use]
    pub fn claimed_key(&self) -> Option<&str> {
        self.access_key.as_deref()
    }
}

fn cut(text: &str) -> String {
    text.chars().take(CLIENT_TEXT_CHARS_MAX).collect()
}

/// The key in `AWS4-HMAC-SHA256 Credential=KEY/DATE/...`.
fn signed_by(authorization: &str) -> Option<&str> {
    authorization.split_once("Credential=").and_then(|(_, rest)| rest.split('/').next())
}

/// The key in `X-Amz-Credential=KEY%2FDATE...` of a presigned URL.
fn presigned_by(query: &str) -> Option<&str> {
    let credential = query.split('&').find_map(|pair| pair.strip_prefix("X-Amz-Credential="))?;
    credential.split(['/', '%']).next()
}

/// A request that was answered.
#[derive(Clone, Debug)]
pub struct AuditEvent<'a> {
    /// The API.
    pub source: EventSource,
    /// The operation, by the name in the API reference.
    pub name: &'a str,
    /// What the event is about.
    pub category: EventCategory,
    /// Whether it changes nothing.
    pub read_only: bool,
    /// On whose behalf it acted.
    pub caller: Caller,
    /// Where it came from.
    pub client: &'a AuditClient,
    /// Its id, as its answer has it; empty if it has none.
    pub request_id: &'a str,
    /// The status of its answer.
    pub status: u16,
    /// The code of the error that it was answered with.
    pub error: Option<&'a str>,
    /// The names of what it is for.
    pub parameters: Map<String, Value>,
    /// The names of what it made.
    pub response: Map<String, Value>,
}

struct Trail {
    sink: Arc<dyn AuditSink>,
    data: bool,
    region: String,
    node: String,
    clock: Arc<dyn Clock>,
}

/// The audit trail of a node. Cheap to clone.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Trail>>);

impl Audit {
    /// A trail that records nothing.
    #[must_use]
    pub const fn off() -> Self {
        Self(None)
    }

    /// A trail into `sink`, with data events if `data` says so.
    #[must_use]
    pub fn new(sink: Arc<dyn AuditSink>, data: bool, region: &str, node: &str, clock: Arc<dyn Clock>) -> Self {
        Self(Some(Arc::new(Trail { sink, data, region: region.to_owned(), node: node.to_owned(), clock })))
    }

    /// Whether events of this category are recorded.
    #[must_use]
    pub fn wants(&self, category: EventCategory) -> bool {
        self.0.as_ref().is_some_and(|trail| trail.data || category == EventCategory::Management)
    }

    /// Records an event, if its category is wanted.
    pub fn record(&self, event: AuditEvent<'_>) {
        if let Some(trail) = self.0.as_ref().filter(|_| self.wants(event.category)) {
            trail.sink.write(trail.line(event).to_string());
        }
    }
}

impl Trail {
    fn line(&self, event: AuditEvent<'_>) -> Value {
        let is_management = event.category == EventCategory::Management;
        let mut more = Map::new();
        more.insert("node".to_owned(), self.node.as_str().into());
        more.insert("httpStatus".to_owned(), event.status.into());
        event.caller.describe(&mut more);
        let mut line = json!({
            "eventVersion": EVENT_VERSION,
            "userIdentity": event.caller.identity(),
            "eventTime": self.clock.wall().rfc3339(),
            "eventSource": event.source.name(),
            "eventName": event.name,
            "awsRegion": self.region,
            "requestParameters": document(event.parameters),
            "responseElements": document(event.response),
            "additionalEventData": more,
            "eventID": Uuid::new_v4().to_string(),
            "readOnly": event.read_only,
            "eventType": "AwsApiCall",
            "managementEvent": is_management,
            "recipientAccountId": ACCOUNT,
            "eventCategory": if is_management { "Management" } else { "Data" },
        });
        let mut set = |name: &str, text: Option<&str>| {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                line[name] = text.into();
            }
        };
        set("requestID", Some(event.request_id));
        set("sourceIPAddress", event.client.address.map(|address| address.to_string()).as_deref());
        set("userAgent", event.client.user_agent.as_deref());
        set("errorCode", event.error);
        line
    }
}

/// CloudTrail writes null for an empty document.
fn document(fields: Map<String, Value>) -> Value {
    if fields.is_empty() { Value::Null } else { Value::Object(fields) }
}

/// A document with these names and texts; those without a text are left out.
#[must_use]
pub fn fields(all: &[(&str, Option<&str>)]) -> Map<String, Value> {
    all.iter().filter_map(|(name, text)| Some(((*name).to_owned(), Value::from((*text)?)))).collect()
}

/// The texts that a JSON document has at its top under these names, with their first letters in lower case, as CloudTrail
/// writes them. Anything else in the document may be a secret, and is left out. A document beyond 1 MiB gives none.
#[must_use]
pub fn picked(document: &[u8], names: &[&str]) -> Map<String, Value> {
    if document.len() > DOCUMENT_BYTES_MAX {
        return Map::new();
    }
    let found: Map<String, Value> = serde_json::from_slice(document).unwrap_or_default();
    let texts = names.iter().filter_map(|name| Some((lower_camel(name), Value::from(found.get(*name)?.as_str()?))));
    texts.collect()
}

fn lower_camel(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests;
