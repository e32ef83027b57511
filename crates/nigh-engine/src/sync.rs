//! The lock, condition variable and thread of the journal.
//!
//! They are parking_lot's and the system's. Unit tests can explore their schedules (`tests/interleaving`): each lock, wait
//! and wake-up is then a point at which another thread may run.

#[cfg(not(test))]
mod meeting {
    pub(crate) use parking_lot::{Condvar, Mutex};
    pub(crate) use std::thread::JoinHandle;

    /// A thread of the system.
    pub(crate) fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work)
    }
}

#[cfg(test)]
#[path = "../../../tests/interleaving/explore.rs"]
pub(crate) mod explore;
#[cfg(test)]
mod explored;
#[cfg(test)]
#[path = "../../../tests/interleaving/mutex.rs"]
mod mutex;

#[cfg(test)]
pub(crate) use self::explored::{Condvar, JoinHandle, lose_wake_ups, spawn_thread};
#[cfg(not(test))]
pub(crate) use self::meeting::{Condvar, JoinHandle, Mutex, spawn_thread};
#[cfg(test)]
pub(crate) use self::mutex::Mutex;
