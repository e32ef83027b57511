//! The door for reports from the store's side: from Swift's middleware, and from S3 services.
//!
//! | request | from | answer |
//! |---|---|---|
//! | `POST /outside/v1/push` | middleware, signed | 200 `{"state": "pushed" or "superseded"}` when Swift has the version |
//! | `POST /outside/v1/invalidate` | middleware, signed | 200 `{"newest"}` of a begin, `{}` of an end |
//! | `POST /outside/v1/s3-events` | an S3 service, with a bearer token | 200 when the copies are dropped and unpushed writes settled; 503 after 5 s |
//!
//! `signature` authenticates a report, `message` and `s3_events` parse it, and the object memory acts on it. A body is read
//! within limits of length and time. Follows `integrations/swift/README.md`, "Wire: Swift to Nigh".

pub mod message;
pub mod s3_events;
mod secrets;
mod signature;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use nigh_data::{ObjectError, ObjectId};
use nigh_http::listener::DoorListener;
use nigh_objects::{ObjectMemory, PushOutcome};
use nigh_terms::{Clock, ObjectKey};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::message::{Invalidation, PushRequest, Target};
use self::s3_events::ChangedObject;
pub(crate) use self::secrets::OutsideSecrets;
pub(crate) use self::secrets::read_private;
pub use self::secrets::{SecretFileError, read_secrets};
use self::signature::Nonces;

/// The most connections at a time; further ones wait.
const CONNECTIONS_MAX: usize = 256;
/// The most bytes of a signed message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// The most bytes of a page of events.
const EVENTS_BYTES_MAX: usize = 4 << 20;
/// How long reading a body may take.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);
/// How long an answer may take; the sender has a time limit of its own.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

type OutsideResponse = Response<Full<Bytes>>;

/// Why a request is rejected.
#[derive(Debug)]
enum Refusal {
    /// The sender is not authenticated, and learns no more.
    Unknown(&'static str),
    /// The request is not a valid message.
    Bad(String),
    TooLarge,
    NotFound,
    /// The object memory cannot do it now.
    Failed(ObjectError),
    TooSlow,
}

impl Refusal {
    fn answer(&self) -> OutsideResponse {
        let (status, reason) = match self {
            Self::Unknown(why) => (StatusCode::FORBIDDEN, (*why).to_owned()),
            Self::Bad(why) => (StatusCode::BAD_REQUEST, why.clone()),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the body is too long".to_owned()),
            Self::NotFound => (StatusCode::NOT_FOUND, "there is nothing here".to_owned()),
            Self::Failed(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            Self::TooSlow => (StatusCode::SERVICE_UNAVAILABLE, "it takes too long".to_owned()),
        };
        answer(status, &json!({ "reason": reason }))
    }
}

fn answer(status: StatusCode, members: &Value) -> OutsideResponse {
    let mut answer = Response::new(Full::new(Bytes::from(members.to_string())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// The door.
pub(crate) struct OutsideDoor {
    memory: ObjectMemory,
    secrets: OutsideSecrets,
    skew: Duration,
    nonces: Mutex<Nonces>,
    clock: Arc<dyn Clock>,
}

impl OutsideDoor {
    /// A door that accepts signatures whose dates are within `skew`.
    pub(crate) fn new(memory: ObjectMemory, secrets: OutsideSecrets, skew: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { memory, secrets, skew, nonces: Mutex::default(), clock }
    }

    /// Serves on `listener` until `until` is cancelled. Returns when the requests that had begun are answered.
    pub(crate) async fn serve(self: Arc<Self>, listener: impl Into<DoorListener>, until: CancellationToken) {
        nigh_http::listener::serve("outside door", listener, CONNECTIONS_MAX, until, move |request, _| {
            let door = Arc::clone(&self);
            async move { door.answer(request).await }
        })
        .await;
    }

    async fn answer(&self, request: Request<Incoming>) -> OutsideResponse {
        let (head, body) = request.into_parts();
        let (kind, asked) = match head.uri.path() {
            _ if head.method != Method::POST => ("none", Err(Refusal::NotFound)),
            path if path.ends_with("/outside/v1/push") => ("push", self.push(&head, body).await),
            path if path.ends_with("/outside/v1/invalidate") => ("invalidate", self.invalidate(&head, body).await),
            path if path.ends_with("/outside/v1/s3-events") => ("s3-events", self.s3_events(&head, body).await),
            _ => ("none", Err(Refusal::NotFound)),
        };
        let answer = match asked {
            Ok(members) => answer(StatusCode::OK, &members),
            Err(refusal) => {
                tracing::debug!(kind, ?refusal, "a message from outside is rejected");
                refusal.answer()
            }
        };
        let status = answer.status().as_str().to_owned();
        metrics::counter!("nigh_outside_requests_total", "kind" => kind, "status" => status).increment(1);
        answer
    }

    async fn push(&self, head: &Parts, body: Incoming) -> Result<Value, Refusal> {
        let body = self.signed(head, body).await?;
        let PushRequest { target, version } = message::parse_push(&body).map_err(Refusal::Bad)?;
        let state = match self.object(&target)? {
            None => PushOutcome::Unknown,
            Some(object) => bounded(self.memory.push_now(&object, version)).await?,
        };
        Ok(json!({"state": match state {
            PushOutcome::Pushed => "pushed",
            PushOutcome::Superseded => "superseded",
            PushOutcome::Unknown => "unknown",
        }}))
    }

    async fn invalidate(&self, head: &Parts, body: Incoming) -> Result<Value, Refusal> {
        let body = self.signed(head, body).await?;
        let invalidation = message::parse_invalidation(&body).map_err(Refusal::Bad)?;
        match invalidation {
            Invalidation::Begin { target, token, lease } => {
                let Some(object) = self.object(&target)? else { return Ok(json!({})) };
                let newest = bounded(self.memory.outside_write_begins(&object, &token, lease)).await?;
                Ok(newest.map_or_else(|| json!({}), |newest| json!({ "newest": newest.0 })))
            }
            Invalidation::End { target, token, applied } => {
                if let Some(object) = self.object(&target)? {
                    bounded(self.memory.outside_write_ended(&object, &token, applied)).await?;
                }
                Ok(json!({}))
            }
        }
    }

    async fn s3_events(&self, head: &Parts, body: Incoming) -> Result<Value, Refusal> {
        let given = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let given = given.and_then(|text| text.strip_prefix(b"Bearer "));
        if !given.is_some_and(|given| self.secrets.is_events_token(given)) {
            return Err(Refusal::Unknown("the token is not the one of outside.events_token_file"));
        }
        let body = read(body, EVENTS_BYTES_MAX).await?;
        let mut notices = Vec::new();
        for ChangedObject { bucket, key, change } in s3_events::parse(&body).map_err(Refusal::Bad)? {
            // No object with an invalid key is cached.
            let Ok(key) = ObjectKey::new(&key) else { continue };
            for (namespace, bucket) in self.memory.bucket_named(None, &bucket) {
                let object = ObjectId { namespace, bucket, key: key.clone() };
                let (memory, change) = (self.memory.clone(), change.clone());
                notices.push(async move { memory.noticed(&object, &change).await });
            }
        }
        // All at once: every copy is dropped before any of them waits.
        let noticed = futures::future::join_all(notices).await;
        let dropped = noticed.iter().filter(|noticed| matches!(noticed, Ok(true))).count() as u64;
        metrics::counter!("nigh_outside_copies_dropped_total").increment(dropped);
        match noticed.into_iter().find_map(Result::err) {
            Some(error) => Err(Refusal::Failed(error)),
            None => Ok(json!({ "dropped": dropped })),
        }
    }

    /// The body of a message that the middleware has signed, and has not sent before.
    async fn signed(&self, head: &Parts, body: Incoming) -> Result<Bytes, Refusal> {
        let body = read(body, MESSAGE_BYTES_MAX).await?;
        let now_s = self.clock.wall().millis() / 1000;
        let nonce = signature::verify(self.secrets.signing(), head, &body, now_s, self.skew.as_secs());
        let nonce = nonce.map_err(Refusal::Unknown)?;
        let is_new = self.nonces.lock().use_once(nonce, now_s, self.skew.as_secs());
        let why = "the nonce was used before, or too many are remembered; sign the message again with a new nonce";
        if is_new { Ok(body) } else { Err(Refusal::Unknown(why)) }
    }

    /// The object of a message; none if it is in no bucket of this node.
    fn object(&self, target: &Target) -> Result<Option<ObjectId>, Refusal> {
        let named = self.memory.bucket_named(Some(&target.account), &target.container);
        let Some((namespace, bucket)) = named.into_iter().next() else { return Ok(None) };
        let Ok(key) = ObjectKey::new(&target.object) else { return Ok(None) };
        Ok(Some(ObjectId { namespace, bucket, key }))
    }
}

async fn read(body: Incoming, limit: usize) -> Result<Bytes, Refusal> {
    let read = tokio::time::timeout(BODY_TIME_MAX, Limited::new(body, limit).collect()).await;
    let read = read.map_err(|_| Refusal::TooSlow)?;
    read.map(http_body_util::Collected::to_bytes).map_err(|_| Refusal::TooLarge)
}

async fn bounded<T>(work: impl Future<Output = Result<T, ObjectError>>) -> Result<T, Refusal> {
    let done = tokio::time::timeout(ANSWER_TIME_MAX, work).await.map_err(|_| Refusal::TooSlow)?;
    done.map_err(Refusal::Failed)
}

#[cfg(test)]
mod tests;
