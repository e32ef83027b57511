//! Those who wait for a sandbox, in the order in which they came. Pure; how many may wait is the pool's.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::function::Function;

/// Names one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// What one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    /// Its turn to run, or room.
    Place,
    /// The sandbox that is being made of its function. It has its turn: it counts as running.
    Made,
}

/// Why one waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotNow {
    pub(super) awaits: Awaits,
    /// In words, after "the node".
    pub(super) why: &'static str,
}

/// One who waits, and for what.
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) function: Arc<Function>,
    pub(super) not_now: NotNow,
    /// It waits for no sandbox that is being made any more.
    pub(super) insists: bool,
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

    /// How many wait for a place.
    pub(super) fn len(&self) -> usize {
        self.line.iter().filter(|one| one.not_now.awaits == Awaits::Place).count()
    }

    /// How many wait for a sandbox of this version that is being made.
    pub(super) fn for_made(&self, function: &Function) -> usize {
        let waits = |one: &&Waiting| one.not_now.awaits == Awaits::Made && one.function.same_version(function);
        self.line.iter().filter(waits).count()
    }

    /// Those who wait, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.line.iter()
    }

    /// One more waits, behind all others.
    pub(super) fn join(&mut self, function: Arc<Function>, not_now: NotNow) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.line.push_back(Waiting { ticket, function, not_now, insists: false });
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

    /// The one with this ticket, if it waits.
    pub(super) fn find(&mut self, ticket: Ticket) -> Option<&mut Waiting> {
        self.line.iter_mut().find(|one| one.ticket == ticket)
    }

    /// `ticket` waits no longer; nothing if it did not wait.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waiting> {
        let at = self.line.iter().position(|one| one.ticket == ticket)?;
        self.line.remove(at)
    }
}
