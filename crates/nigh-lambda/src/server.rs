//! The door's HTTP: connections, limits and signatures.
//!
//! A request's head is checked, and its share of the door taken, before its body is read. The body is read within limits of
//! length, rate and time, and not parsed before its signature is verified: who knows a key and not its secret can use up
//! that key's share for the time of a body, and nothing of others.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderValue, Request as HttpRequest};
use hyper::body::Incoming;
use nigh_http::audit::EventCategory;
use nigh_http::listener::DoorListener;
use nigh_http::request_body::{BodyError, RoomGuard, read_body};
use nigh_http::request_trace::{of_answer, request_span};
use nigh_http::shares::requester_of;
use nigh_http::sigv4::{Authorization, RequestHead};
use nigh_terms::{AccessKeyId, Hex, InvocationId, Principal};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::actions::{action, function_of};
use super::answered::{RequestKind, SignerNotes};
use super::operations::Request;
use super::response::{LambdaResponse, error_answer, header};
use super::{LambdaDoor, LambdaError, Operation, states, stray};

/// Connections at a time, and so requests under way; while none is idle, further ones wait.
pub(super) const CONNECTIONS_MAX: usize = 1024;
/// The payload of an invocation (Lambda quotas: 6 MB).
const PAYLOAD_BYTES_MAX: u64 = 6 << 20;
/// A body with an archive of 50 MiB in base64, Lambda's limit.
const CODE_BYTES_MAX: u64 = 70_167_211;
/// Any other body.
const BODY_BYTES_MAX: u64 = 1 << 20;
/// Longer bodies are hashed on a thread that serves no other request.
const HASH_INLINE_BYTES_MAX: usize = 256 << 10;

impl LambdaDoor {
    /// Serves on `listener` until `until` is cancelled; returns when the requests that had begun are answered.
    pub fn serve(
        self: Arc<Self>,
        listener: impl Into<DoorListener>,
        until: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        self.serve_door(listener.into(), until)
    }

    fn serve_door(self: Arc<Self>, listener: DoorListener, until: CancellationToken) -> BoxFuture<'static, ()> {
        self.has_tls.store(listener.tls().is_some(), Ordering::Relaxed);
        Box::pin(async move {
            let door = Arc::clone(&self);
            nigh_http::listener::serve("Lambda door", listener, self.connections_max, until, move |request, from| {
                let door = Arc::clone(&door);
                async move {
                    let mut answer = door.answer(request, from).await;
                    door.farewell.mark(answer.headers_mut());
                    answer
                }
            })
            .await;
            if let Some(mounted) = &self.parts.mounted {
                mounted.finished().await;
            }
        })
    }

    /// Answers a request that came from within the sandbox whose key is `only`: no other key is good there, and nothing
    /// that needs no key is served.
    pub async fn answer_sandbox(&self, only: &AccessKeyId, head: Parts, body: Incoming) -> LambdaResponse {
        self.answer_api(head, body, IpAddr::V4(Ipv4Addr::LOCALHOST), Some(only)).await
    }

    async fn answer(&self, request: HttpRequest<Incoming>, from: IpAddr) -> LambdaResponse {
        let (head, body) = request.into_parts();
        if let Some(mounted) = self.parts.mounted.as_ref().filter(|api| api.answers(head.uri.path())) {
            return mounted.answer(&head, body, &self.bodies, from).await;
        }
        self.answer_api(head, body, from, None).await
    }

    /// Answers a request of this door's own APIs; one from within a sandbox is signed with its key, which is `only`.
    async fn answer_api(
        &self,
        mut head: Parts,
        body: Incoming,
        from: IpAddr,
        only: Option<&AccessKeyId>,
    ) -> LambdaResponse {
        let began = Instant::now();
        if self.audit.wants(EventCategory::Management) {
            head.extensions.insert(SignerNotes::default());
        }
        let mut span = request_span("Lambda", &head.headers, || self.caller(&head));
        let (kind, answer) = span.scope(Box::pin(self.respond(&head, body, from, only))).await;
        let operation = kind.meter_name();
        span.record(|span| {
            span.name(format!("Lambda.{operation}"));
            span.set("rpc.system.name", "aws-api");
            span.set("rpc.service", "Lambda");
            span.set("rpc.method", operation);
            span.set("url.path", head.uri.path());
            of_answer(span, &answer);
        });
        self.answered(kind, &span, &head, from, began, &answer);
        answer
    }

    /// The invocation whose sandbox's key a request claims.
    fn caller(&self, head: &Parts) -> Option<InvocationId> {
        let authorization = Authorization::of(&head.headers).ok()?;
        self.parts.keys.principal(&AccessKeyId::new(authorization.access_key)).ok()?.invocation
    }

    /// Answers a request, and says what it was.
    async fn respond<'head>(
        &self,
        head: &'head Parts,
        body: Incoming,
        from: IpAddr,
        only: Option<&AccessKeyId>,
    ) -> (RequestKind<'head>, LambdaResponse) {
        let body = match only {
            Some(only) => match check_only(head, only) {
                Ok(()) => body,
                Err(error) => return (RequestKind::Unknown, error_answer(&error)),
            },
            None => match self.by_url(head, body, from).await {
                Ok(answer) => return (RequestKind::Url, answer),
                Err(body) => body,
            },
        };
        let asked_states = states::operation_of(&head.headers);
        let is_states = asked_states.is_some();
        let operation = match asked_states {
            Some(asked) => asked.map(Operation::States),
            None => Operation::of(&head.method, head.uri.path()),
        };
        let kind = operation.as_ref().map_or(RequestKind::Unknown, |known| RequestKind::Operation(*known));
        let result = match operation {
            Ok(operation) => self.signed(operation, head, body).await,
            Err(error) => Err(error),
        };
        let refused = |error: LambdaError| match error.is_unknown_operation().then(|| stray::answer(head)).flatten() {
            Some(answer) => answer,
            None if is_states => states::refusal(&error),
            None => error_answer(&error),
        };
        let mut answer = result.unwrap_or_else(refused);
        if !answer.headers().contains_key(header::REQUEST_ID)
            && let Ok(id) = HeaderValue::from_str(&Uuid::new_v4().to_string())
        {
            answer.headers_mut().insert(header::REQUEST_ID, id);
        }
        (kind, answer)
    }

    async fn signed(
        &self,
        operation: Operation<'_>,
        head: &Parts,
        body: Incoming,
    ) -> Result<LambdaResponse, LambdaError> {
        let SignedRequest { who, body, room: _room, .. } = self.signed_body(operation, head, body).await?;
        let query = head.uri.query().unwrap_or("");
        self.perform(operation, Request { who, query, headers: &head.headers, body }).await
    }

    /// Reads an unsigned body for `requester` within the limits of `operation`.
    pub(super) async fn unsigned_body(
        &self,
        requester: &str,
        operation: Operation<'_>,
        body: Incoming,
    ) -> Result<(Bytes, RoomGuard), LambdaError> {
        let room = self.room_for(requester, operation, &body).await?;
        Ok((body_of(operation, body).await?, room))
    }

    /// Reads and verifies a signed request within the limits of `operation`.
    pub(super) async fn signed_body(
        &self,
        operation: Operation<'_>,
        head: &Parts,
        body: Incoming,
    ) -> Result<SignedRequest, LambdaError> {
        let authorization = Authorization::of(&head.headers)?;
        authorization.check_claims(&head.headers, operation.service(), self.parts.clock.wall())?;
        let key = AccessKeyId::new(authorization.access_key);
        let function = function_of(operation);
        let action = action(operation, function.as_ref());
        // Rejects unknown keys, and what a key may not do, before reading the body.
        let signer = self.parts.keys.authorize(&key, action)?;
        let requester = requester_of(&signer, &key);
        let secret = self.parts.keys.secret(&key);
        let secret = secret.ok_or_else(|| LambdaError::unrecognized_client("the access key was revoked"))?;

        let room = self.room_for(&requester, operation, &body).await?;
        let body = body_of(operation, body).await?;
        let digest = digest(&body).await?;
        let signed = RequestHead {
            method: head.method.as_str(),
            path: head.uri.path(),
            query: head.uri.query().unwrap_or(""),
            headers: &head.headers,
        };
        authorization.check_signature(&signed, &Hex(&digest), &secret, &self.signing)?;
        SignerNotes::note(head, operation, &key, &signer, &body);
        // The key or its sandbox may have ended while the body arrived.
        let (who, _) = self.parts.keys.admit(&key, action)?;
        Ok(SignedRequest { who, key: key.to_string(), body, room })
    }

    /// Takes the share of this request, and waits for memory for its body.
    async fn room_for(
        &self,
        requester: &str,
        operation: Operation<'_>,
        body: &Incoming,
    ) -> Result<RoomGuard, LambdaError> {
        // An archive is in memory as text, as bytes and unpacked.
        let copies = if operation.carries_code() { 3 } else { 1 };
        let room = self.bodies.take(requester, body, body_limit(operation), copies).await;
        room.map_err(|error| refused(operation, &error))
    }
}

/// A request whose signature was checked.
pub(super) struct SignedRequest {
    pub(super) who: Principal,
    pub(super) key: String,
    pub(super) body: Bytes,
    /// Held as long as the request is under way.
    pub(super) room: RoomGuard,
}

/// Refuses a request that claims another key than `only`.
fn check_only(head: &Parts, only: &AccessKeyId) -> Result<(), LambdaError> {
    if Authorization::of(&head.headers)?.access_key == only.as_str() {
        return Ok(());
    }
    Err(LambdaError::unrecognized_client("in a sandbox only the key in its environment is good, AWS_ACCESS_KEY_ID"))
}

const fn body_limit(operation: Operation<'_>) -> u64 {
    match operation {
        Operation::Invoke(_) => PAYLOAD_BYTES_MAX,
        // A definition or an input is a text within JSON.
        Operation::States(_) => PAYLOAD_BYTES_MAX,
        Operation::Create | Operation::UpdateCode(_) | Operation::PublishLayer(_) => CODE_BYTES_MAX,
        _ => BODY_BYTES_MAX,
    }
}

fn refused(operation: Operation<'_>, error: &BodyError) -> LambdaError {
    match error {
        BodyError::TooLarge { limit, .. } => {
            let message = format!("Request must be smaller than {limit} bytes for the {} operation", operation.name());
            match operation {
                Operation::Invoke(_) => LambdaError::too_large(message),
                _ => LambdaError::entity_too_large(message),
            }
        }
        BodyError::TimedOut | BodyError::TooSlow(_) => LambdaError::timed_out(error.to_string()),
        BodyError::Broken(_) => LambdaError::invalid_content(error.to_string()),
        BodyError::NoRoom | BodyError::ShareTaken => LambdaError::too_many_requests(error.to_string()),
    }
}

async fn body_of(operation: Operation<'_>, body: Incoming) -> Result<Bytes, LambdaError> {
    read_body(body, body_limit(operation)).await.map_err(|error| refused(operation, &error))
}

async fn digest(body: &Bytes) -> Result<[u8; 32], LambdaError> {
    if body.len() <= HASH_INLINE_BYTES_MAX {
        return Ok(Sha256::digest(body).into());
    }
    let body = body.clone();
    let digest = tokio::task::spawn_blocking(move || Sha256::digest(body).into()).await;
    digest.map_err(|join| LambdaError::service(join.to_string()))
}
