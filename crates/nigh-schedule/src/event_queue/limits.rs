//! The limits and waits of the queue. Pure.

use std::time::Duration;

use nigh_terms::ByteSize;
use thiserror::Error;

/// The limits and waits of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// The most unfinished events of a namespace.
    pub events_max: usize,
    /// The most bytes of a namespace's payloads.
    pub bytes_max: ByteSize,
    /// The most events that run at a time, over all namespaces.
    pub running_max: usize,
    /// The most dead letters of a namespace; their payloads may take `bytes_max`.
    pub dead_max: usize,
    /// The wait before the first retry after an error of the function; twice as long before the second.
    pub retry_wait: Duration,
    /// The first wait after a throttle; it doubles up to 300 times this.
    pub back_off: Duration,
}

impl Default for QueueLimits {
    /// Lambda's waits, and this project's limits.
    fn default() -> Self {
        Self {
            events_max: 10_000,
            bytes_max: ByteSize::mib(256),
            running_max: 100,
            dead_max: 1000,
            retry_wait: Duration::from_secs(60),
            back_off: Duration::from_secs(1),
        }
    }
}

impl QueueLimits {
    pub(super) fn after_errors(&self, attempts: u32) -> Duration {
        self.retry_wait * attempts.max(1)
    }

    /// The waits are 1, 2, 4, ... 300 times the first.
    pub(super) fn after_throttles(&self, throttles: u32) -> Duration {
        self.back_off * 2u32.saturating_pow(throttles.saturating_sub(1)).min(300)
    }
}

/// Why no further event is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QueueFull {
    /// The namespace has this many events, the most.
    #[error("{0} asynchronous invocations of this namespace are not done; wait, or drop some with `nigh events drop`")]
    Events(usize),
    /// The namespace's payloads would exceed this many bytes.
    #[error("the asynchronous invocations of this namespace that are not done have {0} of payload; wait")]
    Bytes(ByteSize),
}
