//! The HTTP around the door: connections, limits, signatures, and the end.
//!
//! A request's head is judged before its body is read, the body is read within a limit and a time, and nothing of
//! it is looked at before its signature holds.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request as HttpRequest};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nigh_http::request_body::{BodyError, read_body};
use nigh_terms::{AccessKeyId, Principal};
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::operations::{LambdaResponse, Request, error_answer, header};
use super::{LambdaDoor, LambdaError, Operation, states};
use crate::sigv4::{Authorization, RequestHead};

/// Connections at a time; the next ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 1024;
/// A request's head, and what is read at once of a body.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// A connection that sends no whole head for so long is closed; idle ones too.
const HEAD_TIME_MAX: Duration = Duration::from_secs(60);
/// The payload of an invocation (Lambda quotas: 6 MB).
const PAYLOAD_BYTES_MAX: u64 = 6 << 20;
/// A body that carries an archive of 50 MiB as base64, as Lambda limits it.
const CODE_BYTES_MAX: u64 = 70_167_211;
/// Any other body.
const BODY_BYTES_MAX: u64 = 1 << 20;
/// Bodies above this are hashed away from the threads that serve others.
const HASH_INLINE_BYTES_MAX: usize = 256 << 10;
/// How long to wait when no connection can be accepted, for want of descriptors, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl LambdaDoor {
    /// Serves on `listener` until `until` is cancelled; returns when the requests that had begun are answered.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, until: CancellationToken) {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let tracker = TaskTracker::new();
        loop {
            let next = async {
                let place = Arc::clone(&connections).acquire_owned().await;
                (place, listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                () = until.cancelled() => break,
                next = next => next,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let connection = Arc::clone(&self).connection(stream, peer.ip(), until.clone());
                    tracker.spawn(async move {
                        let _place = place;
                        connection.await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the Lambda door cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        tracker.close();
        tracker.wait().await;
        if let Some(mounted) = &self.parts.mounted {
            mounted.finished().await;
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, from: IpAddr, until: CancellationToken) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection is gone before its first request");
            return;
        }
        let service = service_fn(|request| {
            let door = Arc::clone(&self);
            async move { Ok::<_, std::convert::Infallible>(door.answer(request, from).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = until.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "a connection ended badly");
        }
    }

    async fn answer(&self, request: HttpRequest<Incoming>, from: IpAddr) -> LambdaResponse {
        let (head, body) = request.into_parts();
        if let Some(mounted) = self.parts.mounted.as_ref().filter(|api| api.answers(head.uri.path())) {
            return mounted.answer(&head, body, &self.bodies).await;
        }
        let body = match self.by_url(&head, body, from).await {
            Ok(answer) => {
                let status = answer.status().as_str().to_owned();
                metrics::counter!("nigh_lambda_requests_total", "operation" => "Url", "status" => status).increment(1);
                return answer;
            }
            Err(body) => body,
        };
        let asked_states = states::operation_of(&head.headers);
        let is_states = asked_states.is_some();
        let operation = match asked_states {
            Some(asked) => asked.map(Operation::States),
            None => Operation::of(&head.method, head.uri.path()),
        };
        let name = operation.as_ref().map_or("none", Operation::name);
        let result = match operation {
            Ok(operation) => self.signed(operation, &head, body).await,
            Err(error) => Err(error),
        };
        let refused = |error: LambdaError| if is_states { states::refusal(&error) } else { error_answer(&error) };
        let mut answer = result.unwrap_or_else(refused);
        let status = answer.status().as_str().to_owned();
        metrics::counter!("nigh_lambda_requests_total", "operation" => name, "status" => status).increment(1);
        if !answer.headers().contains_key(header::REQUEST_ID)
            && let Ok(id) = HeaderValue::from_str(&Uuid::new_v4().to_string())
        {
            answer.headers_mut().insert(header::REQUEST_ID, id);
        }
        answer
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

    /// Reads a body that nobody signed, within the limits of `operation`.
    pub(super) async fn unsigned_body(
        &self,
        operation: Operation<'_>,
        body: Incoming,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), LambdaError> {
        let room = self.room_for(operation, &body).await?;
        Ok((body_of(operation, body).await?, room))
    }

    /// A request whose signature holds, within the limits of `operation`.
    pub(super) async fn signed_body(
        &self,
        operation: Operation<'_>,
        head: &Parts,
        body: Incoming,
    ) -> Result<SignedRequest, LambdaError> {
        let authorization = Authorization::of(&head.headers)?;
        authorization.check_claims(&head.headers, operation.service(), self.parts.clock.wall())?;
        let key = AccessKeyId::new(authorization.access_key);
        // Fails for a key that nobody has, before its holder may make us read a body.
        self.principal(&key)?;
        let secret = self.parts.keys.secret(&key);
        let secret = secret.ok_or_else(|| LambdaError::unrecognized_client("the access key was revoked"))?;

        let room = self.room_for(operation, &body).await?;
        let body = body_of(operation, body).await?;
        let digest = digest(&body).await?;
        let signed = RequestHead {
            method: head.method.as_str(),
            path: head.uri.path(),
            query: head.uri.query().unwrap_or(""),
            headers: &head.headers,
        };
        authorization.check_signature(&signed, &digest, &secret)?;
        // Once more, for what has become of the key and its sandbox while the body came.
        Ok(SignedRequest { who: self.principal(&key)?, key: key.to_string(), body, room })
    }

    fn principal(&self, key: &AccessKeyId) -> Result<Principal, LambdaError> {
        Ok(self.parts.keys.principal(key)?)
    }

    /// Waits until this body may be in memory.
    async fn room_for(
        &self,
        operation: Operation<'_>,
        body: &Incoming,
    ) -> Result<Option<OwnedSemaphorePermit>, LambdaError> {
        // An archive is there as text, as bytes and in the unpacker's hands.
        let copies = if operation.carries_code() { 3 } else { 1 };
        let room = self.bodies.take(body, body_limit(operation), copies).await;
        room.map_err(|error| refused(operation, &error))
    }
}

/// A request whose signature was checked.
pub(super) struct SignedRequest {
    pub(super) who: Principal,
    pub(super) key: String,
    pub(super) body: Bytes,
    /// To be held while the body is.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

const fn body_limit(operation: Operation<'_>) -> u64 {
    match operation {
        Operation::Invoke(_) => PAYLOAD_BYTES_MAX,
        // A definition, or an input, as text within JSON.
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
        BodyError::TimedOut => LambdaError::timed_out(error.to_string()),
        BodyError::Broken(_) => LambdaError::invalid_content(error.to_string()),
        BodyError::NoRoom => LambdaError::too_many_requests(error.to_string()),
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
