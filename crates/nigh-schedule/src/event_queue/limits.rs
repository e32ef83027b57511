//! The limits and waits of the queue. Pure.

use std::time::Duration;

use nigh_terms::ByteSize;
use thiserror::Error;

/// The limits and waits of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Events of one namespace that are not done.
    pub events_max: usize,
    /// What the payloads of a namespace may take together.
    pub bytes_max: ByteSize,
    /// Events that run at once, of all namespaces.
    pub running_max: usize,
    /// Dead letters of one namespace; what their payloads may take is `bytes_max`.
    pub dead_max: usize,
    /// The wait before the first retry after an error of the function; before the second it is twice as long.
    pub retry_wait: Duration,
    /// The first wait after a throttle; it doubles up to 300 times this.
    pub back_off: Duration,
}

impl Default for QueueLimits {
    /// Lambda's waits; the limits are this project's.
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

    /// 1 s, 2 s, 4 s, ... 5 min, in units of the first.
    pub(super) fn after_throttles(&self, throttles: u32) -> Duration {
        self.back_off * 2u32.saturating_pow(throttles.saturating_sub(1)).min(300)
    }
}

/// Why no further event is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QueueFull {
    /// There are too many events.
    #[error("{0} asynchronous invocations of this namespace are not done; wait, or drop some with `nigh events drop`")]
    Events(usize),
    /// There are too many bytes.
    #[error("the asynchronous invocations of this namespace that are not done have {0} of payload; wait")]
    Bytes(ByteSize),
}
