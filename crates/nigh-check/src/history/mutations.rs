//! Breaks recorded histories on purpose, in ways that a checker must notice.

use super::{History, Operation, OperationResult, State};

/// The mutations of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A read shows a value that was overwritten before the read began.
    StaleRead,
    /// After an acknowledged write, all reads show the state before it.
    LostWrite,
    /// Two successive reads show each other's value.
    SwappedValues,
}

impl Mutation {
    /// Every mutation.
    pub const ALL: [Self; 3] = [Self::StaleRead, Self::LostWrite, Self::SwappedValues];

    /// The mutation's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StaleRead => "stale_read",
            Self::LostWrite => "lost_write",
            Self::SwappedValues => "swapped_values",
        }
    }
}

/// The value that a client outside read; none for any other operation.
fn told(operation: &Operation) -> Option<State> {
    match operation.found {
        OperationResult::Is(state @ Some(_)) if operation.made.is_none() && operation.invocation.is_none() => {
            Some(state)
        }
        _ => None,
    }
}

/// The history with `mutation` at the first place where it breaks a promise; none if there is no such place.
#[must_use]
pub fn mutated(history: &History, mutation: Mutation) -> Option<History> {
    let operations = &history.operations;
    let mut changed = history.clone();
    for (at, write) in operations.iter().enumerate() {
        let (Some(Some(_)), Some(end)) = (write.made, write.end) else { continue };
        // A write that had ended before the read's write began.
        let before = operations.iter().find(|other| {
            other.object == write.object
                && matches!(other.made, Some(Some(_)))
                && other.end.is_some_and(|end| end < write.begin)
        });
        let Some(before) = before.and_then(|before| before.made) else { continue };
        let later = |(_, read): &(usize, &Operation)| {
            read.object == write.object && read.end.is_some() && read.begin > end && told(read).is_some()
        };
        let mut reads = operations.iter().enumerate().filter(later);
        match mutation {
            Mutation::StaleRead => {
                let Some((read, _)) = reads.next() else { continue };
                changed.operations[read].found = OperationResult::Is(before);
                return Some(changed);
            }
            Mutation::LostWrite => {
                let mut shown = reads.filter(|(_, read)| told(read) == write.made).peekable();
                if shown.peek().is_none() {
                    continue;
                }
                for (read, _) in shown {
                    changed.operations[read].found = OperationResult::Is(before);
                }
                return Some(changed);
            }
            Mutation::SwappedValues => {
                let Some((second, newer)) = reads.find(|(_, read)| told(read) == write.made) else { continue };
                let first = operations.iter().enumerate().find(|(other, read)| {
                    *other != at
                        && read.object == write.object
                        && told(read) == Some(before)
                        && read.end.is_some_and(|end| end < newer.begin)
                });
                let Some((first, _)) = first else { continue };
                changed.operations[first].found = OperationResult::Is(write.made.flatten());
                changed.operations[second].found = OperationResult::Is(before);
                return Some(changed);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tests::{get, put};
    use super::super::{Judgement, judge, missed};
    use super::*;

    #[test]
    fn each_mutation_of_a_history_that_fits_is_found_by_both_algorithms() {
        let operations = vec![
            put(0, 1, 1),
            get(2, 3, Some(1)),
            put(4, 5, 2),
            get(6, 7, Some(2)),
            get(8, 9, Some(2)),
            put(10, 11, 3),
            get(12, 13, Some(3)),
        ];
        let history = History { operations, invocations: Vec::new() };
        assert_eq!((judge(&history.by_object()["x"]), missed(&history).len()), (Judgement::Fits, 0));
        for mutation in Mutation::ALL {
            let broken = mutated(&history, mutation).unwrap();
            assert_ne!(broken, history);
            let judged = judge(&broken.by_object()["x"]);
            assert!(matches!(judged, Judgement::Broken { .. }), "{mutation:?}: {judged:?}");
            assert!(!missed(&broken).is_empty(), "{mutation:?}");
        }
        assert_eq!(mutated(&History::default(), Mutation::StaleRead), None);
    }
}
