//! The answer of a store, whose body is read as it arrives. A body that breaks off, stalls, or differs in length from the
//! announced length is an error. A read is never resumed, because the rest could be of another version.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use nigh_data::{ByteStream, ObjectError};
use tokio::sync::OwnedSemaphorePermit;

use super::wire_error::{WireError, chain};

/// The longest answer that is read into memory, in bytes. A page of 1000 encoded keys of 1024 bytes fits.
const ANSWER_MAX: usize = 8 << 20;
/// The slowest accepted transfer, in bytes per second. A request may take its time-out plus the time for its bytes at
/// this rate.
pub(super) const BYTES_PER_SECOND_MIN: u64 = 1024 * 1024;

/// A successful answer. It counts against the limit of requests until its body is read or dropped.
pub(super) struct StoreResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Incoming,
    operation: &'static str,
    store: &'static str,
    idle: Duration,
    permit: Option<OwnedSemaphorePermit>,
}

/// The part of the object that is in an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The length of the body, in bytes.
    pub(super) length: u64,
    /// The size of the whole object, in bytes.
    pub(super) size: u64,
}

pub(super) fn length_of(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The size of the object, from a header such as `bytes 0-9/100`. None if no header states it.
fn total_of(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_RANGE)?.to_str().ok()?.rsplit_once('/')?.1.parse().ok()
}

impl StoreResponse {
    /// The answer of `store` to `operation`. Reading the body fails if no byte arrives for `idle`.
    pub(super) fn new(
        answer: Response<Incoming>,
        (store, operation): (&'static str, &'static str),
        idle: Duration,
    ) -> Self {
        let (head, body) = answer.into_parts();
        Self { status: head.status, headers: head.headers, body, operation, store, idle, permit: None }
    }

    /// Keeps the permit until the body is read or dropped.
    pub(super) fn hold(&mut self, permit: OwnedSemaphorePermit) {
        self.permit = Some(permit);
    }

    /// The extent of the body, if it is the requested `range`.
    pub(super) fn extent(&self, range: Option<&Range<u64>>) -> Result<Extent, ObjectError> {
        let wrong = |reason: &str| ObjectError::Store {
            store: self.store,
            operation: self.operation,
            reason: reason.to_owned(),
        };
        let length = length_of(&self.headers).ok_or_else(|| wrong("the answer has no length"))?;
        let Some(range) = range else { return Ok(Extent { length, size: length }) };
        let size = total_of(&self.headers).filter(|_| self.status == StatusCode::PARTIAL_CONTENT);
        let size = size.ok_or_else(|| wrong("the answer is not the range asked for"))?;
        if range.end - range.start != length {
            return Err(ObjectError::InvalidRange { size });
        }
        Ok(Extent { length, size })
    }

    /// Reads the whole body. A failure is an error of the store.
    pub(super) async fn text(self) -> Result<Bytes, ObjectError> {
        let (store, operation) = (self.store, self.operation);
        self.read().await.map_err(|error| error.into_object_error(store, operation))
    }

    /// Reads the whole body. A failure is a `WireError`.
    pub(super) async fn read(self) -> Result<Bytes, WireError> {
        let body = Limited::new(self.body, ANSWER_MAX).collect();
        match tokio::time::timeout(self.idle + Duration::from_secs((ANSWER_MAX as u64) / BYTES_PER_SECOND_MIN), body)
            .await
        {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) => Err(WireError::Failed(format!("the answer broke off: {error}"))),
            Err(_) => Err(WireError::Failed("the answer stalled".to_owned())),
        }
    }

    /// The body as a stream of `length` bytes.
    pub(super) fn into_stream(self, length: u64) -> ByteStream {
        let (store, operation) = (self.store, self.operation);
        Box::pin(self.into_pieces(Some(length), move |reason| ObjectError::Store { store, operation, reason }))
    }

    /// The body as a stream, of `length` bytes if that is known. `broken` turns the reason of a failure into an error.
    pub(super) fn into_pieces<E>(
        self,
        length: Option<u64>,
        broken: impl Fn(String) -> E + Send + Sync,
    ) -> impl futures::Stream<Item = Result<Bytes, E>> + Send + Sync {
        let broken = Arc::new(broken);
        futures::stream::try_unfold((self, length, broken), |(mut answer, rest, broken)| async move {
            loop {
                let frame = tokio::time::timeout(answer.idle, answer.body.frame())
                    .await
                    .map_err(|_| broken(format!("no byte arrived for {} s", answer.idle.as_secs_f32())))?;
                match frame {
                    Some(Ok(frame)) => {
                        let Ok(bytes) = frame.into_data() else { continue };
                        let left = rest.map(|rest| rest.checked_sub(bytes.len() as u64));
                        if left == Some(None) {
                            return Err(broken("more bytes arrived than were announced".to_owned()));
                        }
                        return Ok(Some((bytes, (answer, left.flatten(), broken))));
                    }
                    Some(Err(error)) => return Err(broken(format!("the body broke off: {}", chain(&error)))),
                    None if rest.is_none_or(|rest| rest == 0) => {
                        drop(answer.permit);
                        return Ok(None);
                    }
                    None => return Err(broken(format!("the body ended {} bytes early", rest.unwrap_or(0)))),
                }
            }
        })
    }
}
