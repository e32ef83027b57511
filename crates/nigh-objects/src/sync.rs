//! Where the memory's tasks meet: a lock, tasks beside the caller's, and work that may block.
//!
//! They are parking_lot's and tokio's. In unit tests they can be explored (`tests/interleaving`): then each lock and
//! await is a point at which the schedule may change hands.

#[cfg(test)]
#[path = "../../../tests/interleaving/explore.rs"]
pub(crate) mod explore;
#[cfg(test)]
mod explored;
#[cfg(test)]
#[path = "../../../tests/interleaving/mutex.rs"]
mod mutex;

#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(test))]
pub(crate) use tokio::{
    spawn,
    task::{JoinError as TaskFailure, JoinHandle as TaskHandle, spawn_blocking},
    time::timeout,
};

/// Steps that a test can leave out, to see that exploring misses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A write waits for its turn.
    Turn,
}

/// Whether a step is left out: never, but in those tests.
#[cfg(not(test))]
pub(crate) const fn is_left_out(_: Step) -> bool {
    false
}

#[cfg(test)]
pub(crate) use self::explored::{TaskFailure, TaskHandle, is_left_out, leave_out, spawn, spawn_blocking, timeout};
#[cfg(test)]
pub(crate) use self::mutex::{Mutex, MutexGuard};
