//! The waiting events of a function, by the time when they are due. Pure.

use std::collections::BTreeSet;

use nigh_terms::{InvocationId, Monotonic};

/// The line of a function's events.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiting: BTreeSet<(Monotonic, InvocationId)>,
    /// Number of events of this line that run now.
    pub(super) running: usize,
}

impl Line {
    /// True if no event waits or runs.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running == 0
    }

    pub(super) fn join(&mut self, due: Monotonic, id: InvocationId) {
        self.waiting.insert((due, id));
    }

    pub(super) fn leave(&mut self, due: Monotonic, id: InvocationId) {
        self.waiting.remove(&(due, id));
    }

    pub(super) fn first_due(&self) -> Option<Monotonic> {
        self.waiting.first().map(|(due, _)| *due)
    }

    pub(super) fn is_due(&self, now: Monotonic) -> bool {
        self.first_due().is_some_and(|due| due <= now)
    }

    /// Removes and returns the first event, if it is due.
    pub(super) fn take_due(&mut self, now: Monotonic) -> Option<InvocationId> {
        self.is_due(now).then(|| self.waiting.pop_first().map(|(_, id)| id)).flatten()
    }

    /// Removes and returns the first event, if it is due and `why` returns something.
    pub(super) fn take_due_if<W>(
        &mut self,
        now: Monotonic,
        why: impl Fn(&InvocationId) -> Option<W>,
    ) -> Option<(InvocationId, W)> {
        let (due, id) = *self.waiting.first()?;
        let why = (due <= now).then(|| why(&id)).flatten()?;
        self.waiting.remove(&(due, id));
        Some((id, why))
    }

    /// When the first event that is not due yet will be due.
    pub(super) fn first_due_after(&self, now: Monotonic) -> Option<Monotonic> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.waiting.range((Excluded((now, InvocationId::LAST)), Unbounded)).next().map(|(due, _)| *due)
    }
}
