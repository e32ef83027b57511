//! The calls of an invocation while they are under way.

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The calls of one invocation.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    /// Cancelled when the invocation has ended.
    pub(super) ended: CancellationToken,
    pub(super) under_way: TaskTracker,
}

impl Calls {
    pub(super) fn end(&self) {
        self.under_way.close();
        self.ended.cancel();
    }
}

/// A call under way. Hold it until the call can have no more effect: the invocation's end waits for it.
#[derive(Debug)]
pub struct CallGuard(pub(super) Option<(CancellationToken, TaskTrackerToken)>);

impl CallGuard {
    /// True if the invocation has ended; never for a client of the namespace.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|(ended, _)| ended.is_cancelled())
    }

    /// Is cancelled when the invocation has ended, and then a call whose request is incomplete must be dropped; none for a
    /// client of the namespace.
    #[must_use]
    pub fn cancelled(&self) -> Option<WaitForCancellationFutureOwned> {
        self.0.as_ref().map(|(ended, _)| ended.clone().cancelled_owned())
    }
}
