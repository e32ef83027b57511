//! Histories of real clients, checked: what was done to objects, when it began and ended, and what was seen.
//!
//! Two questions with two algorithms. `register`: for each object alone, is there one order of all operations that
//! explains what each client saw (linearizability)? `promises`: did a read miss a write that it had to show, by the
//! contract's promises P1, P4 and P6, and how? Each value is written once, so a value identifies its write. Pure: all
//! times are of one clock. `mutations` breaks a history on purpose, to prove that the checker notices. `unanswered` keeps
//! the search small where requests had no answer.

mod mutations;
mod promises;
mod register;
mod unanswered;

use std::collections::BTreeMap;

pub use mutations::{Mutation, mutated};
pub use promises::{Missed as MissedWrite, MissedKind, missed};
pub use register::{Judgement, UndecidedReason, judge};
pub use unanswered::{UnansweredWrites, unanswered};

/// Nanoseconds of one clock.
pub type Moment = u64;
/// The value that a write gave its object; each write has its own.
pub type Value = u64;
/// The state of an object: a value, or absent.
pub type State = Option<Value>;

/// What an operation found, or the condition that held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationResult {
    /// The result says nothing about the state.
    Anything,
    /// The object had this state.
    Is(State),
    /// The object did not have this state.
    IsNot(State),
}

impl OperationResult {
    /// True if an object in `state` matches.
    #[must_use]
    pub fn fits(self, state: State) -> bool {
        match self {
            Self::Anything => true,
            Self::Is(expected) => state == expected,
            Self::IsNot(other) => state != other,
        }
    }
}

/// One request of one client for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The object's name.
    pub object: String,
    /// The index in `History::invocations` of the invocation that did it; none for a client outside.
    pub invocation: Option<usize>,
    /// When it was sent, in nanoseconds.
    pub begin: Moment,
    /// When its answer came; none if the outcome is unknown.
    pub end: Option<Moment>,
    /// What the request found.
    pub found: OperationResult,
    /// The state that it left; none for a read.
    pub made: Option<State>,
    /// True for a read after all faults: what it misses is lost.
    pub is_last: bool,
}

/// An invocation, with the times that its caller measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// When it was called.
    pub begin: Moment,
    /// When its answer came; none if no answer came.
    pub end: Option<Moment>,
    /// The invocation that called it; none if a client did.
    pub caller: Option<usize>,
}

/// The operations and invocations of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The operations of clients and invocations, in any order.
    pub operations: Vec<Operation>,
    /// Invocations that may have run.
    pub invocations: Vec<Invocation>,
}

impl History {
    /// The operations of each object for the check of linearizability. A read in an invocation starts as early as the
    /// contract allows; what the history says of requests without an answer is used, and those that prove nothing are
    /// left out.
    #[must_use]
    pub fn by_object(&self) -> BTreeMap<&str, Vec<Operation>> {
        let mut objects: BTreeMap<&str, Vec<Operation>> = BTreeMap::new();
        for operation in &self.operations {
            objects.entry(&operation.object).or_default().push(operation.clone());
        }
        for operations in objects.values_mut() {
            self.widen(operations);
            unanswered::end_what_was_found(operations);
            unanswered::leave_out(operations);
        }
        objects
    }

    /// An invocation may see the state at its call, or the state before the write of another invocation that had not
    /// ended then. So its read counts from that time on.
    fn widen(&self, operations: &mut [Operation]) {
        let mut unsettled: Vec<(Moment, Option<Moment>)> = Vec::new();
        for write in operations.iter().filter(|operation| operation.made.is_some()) {
            if let Some(of) = write.invocation.and_then(|of| self.invocations.get(of)) {
                unsettled.push((write.begin, of.end));
            }
        }
        for read in operations.iter_mut().filter(|operation| operation.made.is_none()) {
            let Some(called) = read.invocation.and_then(|of| self.invocations.get(of)).map(|of| of.begin) else {
                continue;
            };
            let open = unsettled.iter().filter(|(_, end)| end.is_none_or(|end| end >= called));
            let earliest = open.map(|(begin, _)| *begin).min().unwrap_or(called);
            read.begin = read.begin.min(called).min(earliest);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An operation of a client outside.
    pub(crate) fn done(begin: Moment, end: Moment, found: OperationResult, made: Option<State>) -> Operation {
        let object = "x".to_owned();
        Operation { object, invocation: None, begin, end: Some(end), found, made, is_last: false }
    }

    pub(crate) fn put(begin: Moment, end: Moment, value: Value) -> Operation {
        done(begin, end, OperationResult::Anything, Some(Some(value)))
    }

    pub(crate) fn get(begin: Moment, end: Moment, state: State) -> Operation {
        done(begin, end, OperationResult::Is(state), None)
    }

    #[test]
    fn a_read_of_an_invocation_counts_from_its_call_or_from_an_open_write() {
        let by = |mut operation: Operation, invocation| {
            operation.invocation = Some(invocation);
            operation
        };
        let history = History {
            operations: vec![put(0, 5, 1), by(put(10, 12, 2), 0), by(get(40, 41, Some(1)), 1)],
            invocations: vec![
                Invocation { begin: 8, end: Some(50), caller: None },
                Invocation { begin: 30, end: Some(45), caller: None },
            ],
        };
        assert_eq!(history.by_object()["x"][2].begin, 10, "the write's invocation had not ended");
        let mut ended = history.clone();
        ended.invocations[0].end = Some(20);
        assert_eq!(ended.by_object()["x"][2].begin, 30);
        assert_eq!(judge(&history.by_object()["x"]), Judgement::Fits);
        assert!(matches!(judge(&ended.by_object()["x"]), Judgement::Broken { .. }));
    }
}
