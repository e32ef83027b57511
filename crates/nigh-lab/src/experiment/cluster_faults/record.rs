//! What clients did and saw, written down as they did it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

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

    /// All of it, how many objects were of no one write, and the first of those.
    pub(super) fn take(self) -> (History, u64, Option<String>) {
        (self.history.into_inner(), self.mixed.into_inner(), self.first_mixed.into_inner())
    }
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
