//! What clients did and saw, written down as they did it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nigh_check::history::{History, Invocation, Moment, Operation, OperationResult, State, Value};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// Now, by the clock that Python's `time.monotonic_ns` reads in every process of this machine.
pub(super) fn now() -> Moment {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The history of a part, and what clients have to know of each other's writes.
#[derive(Debug, Default)]
pub(super) struct Record {
    history: Mutex<History>,
    values: AtomicU64,
    /// The generation of objects that clients use now.
    generation: AtomicU32,
    /// Entries of listings among the operations: each is a read of one object.
    listed: AtomicU64,
    /// Writes that were refused by an answer which says that nothing was done.
    refused: AtomicU64,
    /// Writes that were not sent, for want of a connection.
    not_sent: AtomicU64,
    /// Entity tags that were told, and whose they are.
    tags: Mutex<BTreeMap<String, Value>>,
    /// Objects whose bytes are of no one write.
    mixed: AtomicU64,
    first_mixed: Mutex<Option<String>>,
}

impl Record {
    /// A value that nobody has written.
    pub(super) fn value(&self) -> Value {
        self.values.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Has all clients go on with new objects: the generation that ends. What is under way still ends in that one.
    pub(super) fn next_generation(&self) -> u32 {
        self.generation.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn listed(&self, operation: Operation) {
        self.listed.fetch_add(1, Ordering::Relaxed);
        self.add(operation);
    }

    /// A write that was not done, as its answer says. It is no operation: if its value is found, nobody has written it, and
    /// no order explains that.
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A write for which there was no connection. It is no operation either.
    pub(super) fn not_sent(&self) {
        self.not_sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add(&self, operation: Operation) {
        self.history.lock().operations.push(operation);
    }

    /// An invocation that is called now: its index.
    pub(super) fn call(&self, begin: Moment, caller: Option<usize>) -> usize {
        let invocations = &mut self.history.lock().invocations;
        invocations.push(Invocation { begin, end: None, caller });
        invocations.len() - 1
    }

    pub(super) fn ended(&self, invocation: usize, end: Moment) {
        if let Some(invocation) = self.history.lock().invocations.get_mut(invocation) {
            invocation.end = Some(end);
        }
    }

    pub(super) fn tagged(&self, tag: &str, value: Value) {
        self.tags.lock().insert(tag.to_owned(), value);
    }

    pub(super) fn by_tag(&self, tag: &str) -> Option<Value> {
        self.tags.lock().get(tag).copied()
    }

    pub(super) fn mixed(&self, what: &str) {
        self.mixed.fetch_add(1, Ordering::Relaxed);
        self.first_mixed.lock().get_or_insert_with(|| what.to_owned());
    }

    /// All of it.
    pub(super) fn take(self) -> Recorded {
        Recorded {
            history: self.history.into_inner(),
            listed: self.listed.into_inner(),
            refused: self.refused.into_inner(),
            not_sent: self.not_sent.into_inner(),
            mixed: self.mixed.into_inner(),
            first_mixed: self.first_mixed.into_inner(),
        }
    }
}

/// What a part's clients have recorded.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) history: History,
    /// Operations that are entries of listings.
    pub(super) listed: u64,
    /// Writes that were refused, and not done.
    pub(super) refused: u64,
    /// Writes that were not sent.
    pub(super) not_sent: u64,
    /// Objects that were of no one write, and the first of them.
    pub(super) mixed: u64,
    pub(super) first_mixed: Option<String>,
}

pub(super) fn read(object: &str, invocation: Option<usize>, begin: Moment, end: Moment, state: State) -> Operation {
    let (object, found) = (object.to_owned(), OperationResult::Is(state));
    Operation { object, invocation, begin, end: Some(end), found, made: None, is_last: false }
}

/// A write; `end` is none if nobody knows whether it was done.
pub(super) fn write(
    object: &str,
    invocation: Option<usize>,
    begin: Moment,
    end: Option<Moment>,
    found: OperationResult,
    made: State,
) -> Operation {
    Operation { object: object.to_owned(), invocation, begin, end, found, made: Some(made), is_last: false }
}
