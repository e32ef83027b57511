//! Reads the bodies of requests within limits of length, rate, time and memory.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Incoming};
use nigh_terms::ByteSize;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::least_rate::{LeastRate, TooSlow};
use crate::shares::{Share, Shares};

/// Request bodies in memory at one time, each counted as often as it is copied.
const BODIES_IN_FLIGHT_MAX: ByteSize = ByteSize::mib(512);
/// Of these, the bodies of one requester take at most half; the rest of them wait.
const BODIES_OF_REQUESTER_MAX: ByteSize = ByteSize::mib(256);
/// Bodies up to this length do not wait for memory.
const SMALL_BODY_BYTES_MAX: u64 = 64 << 10;
/// A body above its limit is read and dropped up to this length, so that the client reads the answer.
const DISCARDED_BYTES_MAX: u64 = 256 << 20;
/// The longest time for reading a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(300);
/// How long a body may pause in all.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
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
    /// The body arrives at less than the least rate.
    #[error(transparent)]
    TooSlow(#[from] TooSlow),
    /// The connection failed.
    #[error("the body broke off: {0}; send the request again")]
    Broken(hyper::Error),
    /// Other bodies take all the memory.
    #[error("too many large requests are under way; try again later")]
    NoRoom,
    /// The requester has its share of the requests under way.
    #[error(
        "this key or function has too many requests under way at this door; try again when some have been answered"
    )]
    ShareTaken,
}

/// What a door has room for: requests under way, and memory for their bodies.
#[derive(Debug)]
pub struct BodyRoom {
    requests: Shares,
    /// A permit is one KiB.
    memory: Arc<Semaphore>,
    /// The same of each requester with large bodies.
    requesters: Mutex<HashMap<Box<str>, Weak<Semaphore>>>,
}

/// The room that one request has. Hold it as long as the request is under way and its body in memory.
#[derive(Debug)]
pub struct RoomGuard {
    _request: Share,
    _memory: Option<[OwnedSemaphorePermit; 2]>,
}

impl BodyRoom {
    /// Room for so many requests.
    #[must_use]
    pub fn new(requests_max: usize) -> Self {
        let memory = Arc::new(Semaphore::new(kib(BODIES_IN_FLIGHT_MAX.bytes()) as usize));
        Self { requests: Shares::new(requests_max), memory, requesters: Mutex::default() }
    }

    /// Counts a request of `requester` (`shares::requester_of`), and waits until its `body`, of at most `limit` bytes, may be in
    /// memory `copies` times.
    ///
    /// # Errors
    /// If the requester has its share of the requests, or other bodies take all the memory.
    pub async fn take(
        &self,
        requester: &str,
        body: &Incoming,
        limit: u64,
        copies: u64,
    ) -> Result<RoomGuard, BodyError> {
        let size = body.size_hint().upper().unwrap_or(limit).min(limit);
        let request = self.requests.take(requester).ok_or(BodyError::ShareTaken)?;
        let memory = match size {
            0..=SMALL_BODY_BYTES_MAX => None,
            _ => Some(self.take_memory(requester, size * copies).await?),
        };
        Ok(RoomGuard { _request: request, _memory: memory })
    }

    /// Waits for the requester's own memory first: a body that waits for it keeps no memory from others.
    async fn take_memory(&self, requester: &str, bytes: u64) -> Result<[OwnedSemaphorePermit; 2], BodyError> {
        let permits = kib(bytes.min(BODIES_OF_REQUESTER_MAX.bytes()));
        let own = self.memory_of(requester);
        let take = async {
            let own = own.acquire_many_owned(permits).await?;
            Ok([own, Arc::clone(&self.memory).acquire_many_owned(permits).await?])
        };
        match tokio::time::timeout(ROOM_TIME_MAX, take).await {
            Ok(Ok::<_, tokio::sync::AcquireError>(memory)) => Ok(memory),
            _ => Err(BodyError::NoRoom),
        }
    }

    fn memory_of(&self, requester: &str) -> Arc<Semaphore> {
        let mut requesters = self.requesters.lock();
        if let Some(known) = requesters.get(requester).and_then(Weak::upgrade) {
            return known;
        }
        requesters.retain(|_, memory| memory.strong_count() > 0);
        let memory = Arc::new(Semaphore::new(kib(BODIES_OF_REQUESTER_MAX.bytes()) as usize));
        requesters.insert(requester.into(), Arc::downgrade(&memory));
        memory
    }
}

const fn kib(bytes: u64) -> u32 {
    bytes.div_ceil(1 << 10) as u32
}

/// Reads a body of at most `limit` bytes.
pub async fn read_body(body: Incoming, limit: u64) -> Result<Bytes, BodyError> {
    tokio::time::timeout(BODY_TIME_MAX, collect(body, limit)).await.unwrap_or(Err(BodyError::TimedOut))
}

async fn collect<B>(mut body: B, limit: u64) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    let expected = body.size_hint().exact();
    let mut received = 0;
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    let mut rate = LeastRate::new(BODY_PATIENCE);
    while let Some(frame) = rate.frame(&mut body).await? {
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

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Gives a byte every two seconds.
    struct Slow(tokio::time::Interval);

    impl Body for Slow {
        type Data = Bytes;
        type Error = hyper::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
            self.0.poll_tick(context).map(|_| Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_a_byte_now_and_then_is_given_up() {
        let began = tokio::time::Instant::now();
        let body = Slow(tokio::time::interval(Duration::from_secs(2)));
        assert!(matches!(collect(body, MIB).await, Err(BodyError::TooSlow(_))));
        assert!(began.elapsed() < Duration::from_secs(33), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn one_requester_s_bodies_take_half_of_the_memory_and_the_next_one_s_do_not_wait() {
        let room = BodyRoom::new(10);
        let held = room.take_memory("greedy", 200 * MIB).await.unwrap();
        assert!(matches!(room.take_memory("greedy", 200 * MIB).await, Err(BodyError::NoRoom)));
        let before = tokio::time::Instant::now();
        drop(room.take_memory("second", 200 * MIB).await.unwrap());
        assert_eq!(before.elapsed(), Duration::ZERO);
        drop(held);
        drop(room.take_memory("greedy", 200 * MIB).await.unwrap());
        drop(room.take_memory("third", 1000 * MIB).await.unwrap());
        assert!(room.requesters.lock().len() <= 2, "requesters without bodies are not kept");
    }
}
