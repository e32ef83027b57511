//! The primitives of the memory's tasks: a lock, tasks, and work that may block.
//!
//! They are parking_lot's and tokio's. In unit tests they can be explored (`tests/interleaving`): then the schedule may
//! switch at each lock and await.

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

/// Steps that a test can leave out, to prove that exploring notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A write waits for the write lock.
    Turn,
}

/// True if the step is left out: never, except in those tests.
#[cfg(not(test))]
pub(crate) const fn is_left_out(_: Step) -> bool {
    false
}

#[cfg(test)]
pub(crate) use self::explored::{TaskFailure, TaskHandle, is_left_out, leave_out, spawn, spawn_blocking, timeout};
#[cfg(test)]
pub(crate) use self::mutex::{Mutex, MutexGuard};
