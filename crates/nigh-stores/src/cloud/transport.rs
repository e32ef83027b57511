//! Sends opendal's requests over the same connections as those of the other stores, with the same limits and retries.
//! Redirects are not followed and bodies not resumed.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use http::header::RETRY_AFTER;
use http::{Method, Request, Response};
use nigh_data::ObjectError;
use opendal::{Buffer, Error, ErrorKind, HttpBody, HttpTransport};
use tokio::sync::Semaphore;

use crate::answer::{StoreResponse, length_of};
use crate::connections::Connections;
use crate::retry::{Failure, RetryDecision, retry_after};
use crate::wire_error::WireError;

/// opendal's HTTP client.
pub(super) struct Transport {
    connections: Connections,
    requests: Arc<Semaphore>,
    store: &'static str,
}

impl Transport {
    pub(super) fn new(connections: Connections, store: &'static str) -> Self {
        let requests = Arc::new(Semaphore::new(connections.limits().concurrency.max(1)));
        Self { connections, requests, store }
    }

    /// Sends the request once, and returns any answer.
    async fn once(&self, request: &Request<Buffer>) -> Result<StoreResponse, WireError> {
        let limit = tokio::time::timeout(self.connections.limits().answer, Arc::clone(&self.requests).acquire_owned());
        let permit = limit.await.ok().and_then(Result::ok).ok_or(WireError::Queued)?;
        let (mut head, ()) = Request::new(()).into_parts();
        head.method.clone_from(request.method());
        head.uri.clone_from(request.uri());
        head.headers.clone_from(request.headers());
        let body = request.body().clone().collect();
        let asked = (self.store, "request");
        let mut answer = self.connections.ask((head, body), asked, Duration::ZERO).await?;
        answer.hold(permit);
        Ok(answer)
    }
}

/// Marks the error of a request that was not sent.
#[derive(Debug, thiserror::Error)]
#[error("the request was not sent")]
pub(super) struct NotReached;

fn failed(store: &'static str, error: WireError) -> Error {
    match error.into_object_error(store, "request") {
        ObjectError::StoreUnreached { reason, .. } => {
            Error::new(ErrorKind::Unexpected, reason).set_temporary().set_source(NotReached)
        }
        ObjectError::StoreSilent { reason, .. } => Error::new(ErrorKind::Unexpected, reason).set_temporary(),
        ObjectError::Store { reason, .. } => Error::new(ErrorKind::Unexpected, reason),
        other => Error::new(ErrorKind::RateLimited, other.to_string()),
    }
}

impl HttpTransport for Transport {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        let policy = self.connections.limits().retry;
        let repeatable = request.method() == Method::GET || request.method() == Method::HEAD;
        let mut attempt = 1;
        let answer = loop {
            let answer = self.once(&request).await;
            let failure = match &answer {
                Ok(answer) if answer.status.is_success() => None,
                Ok(answer) => Some(Failure::Refused {
                    status: answer.status,
                    busy: false,
                    retry_after: retry_after(answer.headers.get(RETRY_AFTER)),
                }),
                Err(error) => error.failure(),
            };
            let next = failure.map(|why| policy.next(attempt, why, repeatable, rand::random()));
            let Some(RetryDecision::Wait(wait)) = next else { break answer };
            drop(answer);
            tokio::time::sleep(wait).await;
            attempt += 1;
        };
        let answer = answer.map_err(|error| failed(self.store, error))?;
        let length = length_of(&answer.headers).filter(|_| request.method() != Method::HEAD);
        let mut response = Response::builder().status(answer.status).extension(request.uri().clone());
        if let Some(headers) = response.headers_mut() {
            headers.clone_from(&answer.headers);
        }
        let pieces = answer.into_pieces(length, |error| Error::new(ErrorKind::Unexpected, error));
        let pieces = pieces.map_ok(Buffer::from);
        response
            .body(HttpBody::new(Box::pin(pieces), length))
            .map_err(|error| Error::new(ErrorKind::Unexpected, error.to_string()))
    }
}
