//! Those who wait for a sandbox, in the order in which they came. Pure; how many may wait is the pool's.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::function::Function;

/// Names one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// One who waits, and for what.
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) function: Arc<Function>,
}

/// The line of those who wait.
pub(super) struct WaitingLine {
    line: VecDeque<Waiting>,
    /// The number of the last ticket.
    tickets: u64,
}

impl WaitingLine {
    pub(super) const fn new() -> Self {
        Self { line: VecDeque::new(), tickets: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.line.len()
    }

    /// Those who wait, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.line.iter()
    }

    /// One more waits, behind all others.
    pub(super) fn join(&mut self, function: Arc<Function>) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.line.push_back(Waiting { ticket, function });
        ticket
    }

    /// Everyone steps out, in order; who is not served is kept.
    pub(super) fn take_all(&mut self) -> VecDeque<Waiting> {
        std::mem::take(&mut self.line)
    }

    /// One who stepped out waits on, behind those kept before.
    pub(super) fn keep(&mut self, one: Waiting) {
        self.line.push_back(one);
    }

    /// `ticket` waits no longer. False if it did not.
    pub(super) fn leave(&mut self, ticket: Ticket) -> bool {
        let before = self.line.len();
        self.line.retain(|one| one.ticket != ticket);
        self.line.len() < before
    }
}
