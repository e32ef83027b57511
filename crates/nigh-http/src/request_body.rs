//! Reads the bodies of requests within limits of length, time and memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use nigh_terms::ByteSize;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Request bodies in memory at one time, each counted as often as it is copied.
const BODIES_IN_FLIGHT_MAX: ByteSize = ByteSize::mib(512);
/// Bodies up to this length do not wait for memory.
const SMALL_BODY_BYTES_MAX: u64 = 64 << 10;
/// A body above its limit is read and dropped up to this length, so that the client reads the answer.
const DISCARDED_BYTES_MAX: u64 = 256 << 20;
/// The longest time for reading a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(300);
/// The longest wait of a body for memory.
const ROOM_TIME_MAX: Duration = Duration::from_secs(30);

/// Why a body could not be read.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The body is longer than its limit.
    #[error("the body has {received} bytes; {limit} are allowed")]
    TooLarge {
        /// Bytes received so far, or announced.
        received: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// The body did not arrive in time.
    #[error("the request's body did not arrive within 300 seconds")]
    TimedOut,
    /// The connection failed.
    #[error("the body broke off: {0}")]
    Broken(hyper::Error),
    /// Other bodies take all the memory.
    #[error("too many large requests are under way; try again later")]
    NoRoom,
}

/// The memory for bodies; a permit is one KiB.
#[derive(Clone, Debug)]
pub struct BodyRoom(Arc<Semaphore>);

impl Default for BodyRoom {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new((BODIES_IN_FLIGHT_MAX.bytes() >> 10) as usize)))
    }
}

impl BodyRoom {
    /// Waits until `body`, of at most `limit` bytes, may be in memory `copies` times.
    pub async fn take(
        &self,
        body: &Incoming,
        limit: u64,
        copies: u64,
    ) -> Result<Option<OwnedSemaphorePermit>, BodyError> {
        let size = body.size_hint().upper().unwrap_or(limit).min(limit);
        if size <= SMALL_BODY_BYTES_MAX {
            return Ok(None);
        }
        let room = (size * copies).div_ceil(1 << 10) as u32;
        match tokio::time::timeout(ROOM_TIME_MAX, Arc::clone(&self.0).acquire_many_owned(room)).await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            _ => Err(BodyError::NoRoom),
        }
    }
}

/// Reads a body of at most `limit` bytes.
pub async fn read_body(body: Incoming, limit: u64) -> Result<Bytes, BodyError> {
    tokio::time::timeout(BODY_TIME_MAX, collect(body, limit)).await.unwrap_or(Err(BodyError::TimedOut))
}

async fn collect(mut body: Incoming, limit: u64) -> Result<Bytes, BodyError> {
    let expected = body.size_hint().exact();
    let mut received = 0;
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(BodyError::Broken)?;
        let Ok(data) = frame.into_data() else { continue };
        received += data.len() as u64;
        if received > DISCARDED_BYTES_MAX {
            break;
        }
        if received > limit {
            (first, whole) = (None, BytesMut::new());
            continue;
        }
        match &first {
            None if whole.is_empty() => first = Some(data),
            _ => {
                if let Some(first) = first.take() {
                    whole.reserve(expected.unwrap_or(received).min(limit) as usize);
                    whole.extend_from_slice(&first);
                }
                whole.extend_from_slice(&data);
            }
        }
    }
    if received > limit {
        return Err(BodyError::TooLarge { received, limit });
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}
