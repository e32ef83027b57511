//! The least rate at which a client must send a body, so that a slow client gives its connection back in bounded time.
//!
//! Works as `RequestReadTimeout ... MinRate` of Apache httpd does: the node waits for a client for a fixed time, and each
//! byte that comes earns more time, at `LEAST_BYTES_PER_SECOND`, but never more than that fixed time. So pauses up to the
//! fixed time are tolerated, and a client that sends a byte now and then is not.
//!
//! Only the time in which the node waits for the client counts. Time in which the node is busy with what it has, or waits
//! for a store, is not the client's.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Frame};
use thiserror::Error;
use tokio::time::{Instant, Sleep};

use crate::closed_connections::{SLOW_BODY, count_closed};

/// A fraction of what a telephone's connection gives to each of ten parallel transfers.
pub const LEAST_BYTES_PER_SECOND: u64 = 4 << 10;

/// The client sent nothing, or too little, for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the body came too slowly: after pauses of {0:?} in all, a client must send {LEAST_BYTES_PER_SECOND} bytes a second"
)]
pub struct TooSlow(Duration);

/// Watches the rate of one body.
#[derive(Debug)]
pub struct LeastRate {
    /// The most that `left` may be.
    patience: Duration,
    /// How long the node still waits.
    left: Duration,
    /// Set while the node waits.
    waiting_since: Option<Instant>,
    /// Made when the node first waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl LeastRate {
    /// Waits for `patience` at first.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self { patience, left: patience, waiting_since: None, timer: None }
    }

    /// The client has sent so many bytes.
    pub fn received(&mut self, bytes: usize) {
        if let Some(since) = self.waiting_since.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        let earned = Duration::from_micros((bytes as u64).saturating_mul(1_000_000) / LEAST_BYTES_PER_SECOND);
        self.left = self.left.saturating_add(earned).min(self.patience);
    }

    /// The node waits for the client's next bytes. Ready when it has waited for too long.
    pub fn poll_too_slow(&mut self, context: &mut Context<'_>) -> Poll<TooSlow> {
        let left = self.left;
        let since = *self.waiting_since.get_or_insert_with(|| {
            let now = Instant::now();
            if let Some(timer) = &mut self.timer {
                timer.as_mut().reset(now + left);
            }
            now
        });
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(since + left)));
        ready!(timer.as_mut().poll(context));
        count_closed(SLOW_BODY);
        Poll::Ready(TooSlow(self.patience))
    }

    /// The next frame of `body`; none at its end.
    ///
    /// # Errors
    /// If the client is too slow.
    pub async fn frame<B: Body<Data: AsRef<[u8]>> + Unpin>(
        &mut self,
        body: &mut B,
    ) -> Result<Option<Result<Frame<B::Data>, B::Error>>, TooSlow> {
        poll_fn(|context| match Pin::new(&mut *body).poll_frame(context) {
            Poll::Ready(frame) => {
                if let Some(Ok(frame)) = &frame {
                    self.received(frame.data_ref().map_or(0, |data| data.as_ref().len()));
                }
                Poll::Ready(Ok(frame))
            }
            Poll::Pending => self.poll_too_slow(context).map(Err),
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Whether the client is too slow, if the node waits for it for `seconds` and then gets `bytes`.
    async fn waits(rate: &mut LeastRate, seconds: u64, bytes: usize) -> bool {
        let too_slow = poll_fn(|context| rate.poll_too_slow(context));
        let is_too_slow = tokio::time::timeout(Duration::from_secs(seconds), too_slow).await.is_ok();
        rate.received(bytes);
        is_too_slow
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_a_byte_now_and_then_has_no_more_time_than_one_that_sends_nothing() {
        let mut silent = LeastRate::new(PATIENCE);
        assert!(!waits(&mut silent, 29, 0).await);
        assert!(waits(&mut silent, 2, 0).await);
        let mut slow = LeastRate::new(PATIENCE);
        for _ in 0..14 {
            assert!(!waits(&mut slow, 2, 1).await);
        }
        assert!(waits(&mut slow, 3, 1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_keeps_the_least_rate_may_pause_and_saves_no_more_than_one_pause() {
        let mut rate = LeastRate::new(PATIENCE);
        for _ in 0..10 {
            assert!(!waits(&mut rate, 20, 20 * LEAST_BYTES_PER_SECOND as usize).await);
        }
        assert!(!waits(&mut rate, 1, 1 << 30).await);
        assert!(waits(&mut rate, 31, 0).await, "a gigabyte buys one pause");
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_node_does_not_wait_is_not_the_clients() {
        let mut rate = LeastRate::new(PATIENCE);
        assert!(!waits(&mut rate, 1, 1).await);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!waits(&mut rate, 20, 1).await);
    }
}
