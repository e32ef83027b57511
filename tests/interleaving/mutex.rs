//! A mutex that is shuttle's while a scenario is explored, and parking_lot's else. It looks like the latter.

use std::ops::{Deref, DerefMut};

use super::explore::is_exploring;

/// Under a schedule the gate is taken first, so that the lock behind it is free.
#[derive(Default)]
pub(crate) struct Mutex<T> {
    gate: Gate,
    inner: parking_lot::Mutex<T>,
}

struct Gate(shuttle::sync::Mutex<()>);

impl Default for Gate {
    fn default() -> Self {
        Self(shuttle::sync::Mutex::new(()))
    }
}

/// The lock is let go before the gate.
pub(crate) struct MutexGuard<'a, T> {
    pub(super) inner: parking_lot::MutexGuard<'a, T>,
    pub(super) gate: Option<shuttle::sync::MutexGuard<'a, ()>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { gate: Gate::default(), inner: parking_lot::Mutex::new(value) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // One who panicked under the lock has ended the schedule.
        let gate = is_exploring().then(|| self.gate.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        MutexGuard { inner: self.inner.lock(), gate }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        debug_assert_eq!(self.gate.is_some(), is_exploring(), "a schedule sees all of its locks");
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}
