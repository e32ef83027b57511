//! A condition variable and threads of shuttle while a scenario is explored.

use std::cell::Cell;
use std::io;
use std::time::Instant;

use super::explore::is_exploring;
use super::mutex::MutexGuard;

thread_local! {
    static WAKE_UPS_ARE_LOST: Cell<bool> = const { Cell::new(false) };
}

/// From now on wake-ups are lost in scenarios that this thread explores: a fault that a test injects.
pub(crate) fn lose_wake_ups() {
    WAKE_UPS_ARE_LOST.set(true);
}

/// A condition variable with the interface of parking_lot's.
pub(crate) struct Condvar {
    inner: parking_lot::Condvar,
    explored: shuttle::sync::Condvar,
}

/// True if a wait timed out.
pub(crate) struct TimedOut(bool);

impl TimedOut {
    pub(crate) const fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self { inner: parking_lot::Condvar::new(), explored: shuttle::sync::Condvar::new() }
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match guard.gate.take() {
            None => self.inner.wait(&mut guard.inner),
            Some(gate) => {
                let wait = || self.explored.wait(gate).unwrap_or_else(std::sync::PoisonError::into_inner);
                guard.gate = Some(parking_lot::MutexGuard::unlocked(&mut guard.inner, wait));
            }
        }
    }

    /// Waits until `until`. No time passes in an explored scenario.
    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> TimedOut {
        if guard.gate.is_some() {
            self.wait(guard);
            return TimedOut(false);
        }
        TimedOut(self.inner.wait_until(&mut guard.inner, until).timed_out())
    }

    pub(crate) fn notify_one(&self) {
        match is_exploring() {
            true if WAKE_UPS_ARE_LOST.get() => {}
            true => self.explored.notify_one(),
            false => drop(self.inner.notify_one()),
        }
    }

    pub(crate) fn notify_all(&self) {
        match is_exploring() {
            true => self.explored.notify_all(),
            false => drop(self.inner.notify_all()),
        }
    }
}

/// A thread of the system, or one of a schedule.
pub(crate) enum JoinHandle<T> {
    System(std::thread::JoinHandle<T>),
    Explored(shuttle::thread::JoinHandle<T>),
}

impl<T: 'static> JoinHandle<T> {
    pub(crate) fn join(self) -> std::thread::Result<T> {
        match self {
            Self::System(thread) => thread.join(),
            Self::Explored(thread) => thread.join(),
        }
    }
}

pub(crate) fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    if is_exploring() {
        return Ok(JoinHandle::Explored(shuttle::thread::spawn(work)));
    }
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(JoinHandle::System)
}
