//! What the history itself says of requests without an answer, so that the search for an order stays small.
//!
//! A write without an answer may have taken place at any time after it began, or never. Left open to the end of the
//! history, `n` of them double the orders `n` times. Two facts bound them, and neither changes which histories have an
//! order:
//!
//! - *A write that was found has ended.* Each value is written once. So whoever found it, by a read, a listing or a
//!   condition that held, proves that its write took place before that answer came, and the answer's time is an end of the
//!   write that every order already obeys (`end_what_was_found`). Reading an object back at every door after a fault ends the
//!   writes that the fault left open in this way.
//! - *A write that nobody found explains little.* Between it and the next write of its object stand only results that deny
//!   a state (`IsNot`), else it could be taken out of the order. Writes that nobody found are interchangeable, so no more
//!   are needed than there are such results, and of those the ones that began first. The same holds for deletions, with
//!   the results that found the object absent or not in some state (`leave_out`).
//!
//! A write that the reading back does not show is not ended by it: it may still be on its way. It stays open, and what it
//! does after the last answer of its object is in no history.

use std::collections::BTreeSet;

use super::{History, Moment, Operation, OperationResult, Value};

/// What became of the writes without an answer, by what others found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnansweredWrites {
    /// Somebody found what they wrote: they took place.
    pub found: u64,
    /// Nobody did. Deletions count here: an absent object does not tell which deletion it shows.
    pub not_found: u64,
}

/// Counts the writes without an answer.
#[must_use]
pub fn unanswered(history: &History) -> UnansweredWrites {
    // Values are unique in a history, across its objects.
    let found: BTreeSet<Value> = history.operations.iter().filter_map(found_value).map(|(value, _)| value).collect();
    let mut sum = UnansweredWrites::default();
    for made in history.operations.iter().filter(|operation| operation.end.is_none()).filter_map(|one| one.made) {
        match made {
            Some(value) if found.contains(&value) => sum.found += 1,
            _ => sum.not_found += 1,
        }
    }
    sum
}

/// The value that an answer proves to have been the object's, and when the answer came.
fn found_value(operation: &Operation) -> Option<(Value, Moment)> {
    match operation.found {
        OperationResult::Is(Some(value)) => operation.end.map(|end| (value, end)),
        OperationResult::Is(None) | OperationResult::Anything | OperationResult::IsNot(_) => None,
    }
}

/// Ends each write without an answer at the first answer that shows its value. All operations are of one object.
pub(super) fn end_what_was_found(operations: &mut [Operation]) {
    let found: Vec<(Value, Moment)> = operations.iter().filter_map(found_value).collect();
    for write in operations.iter_mut().filter(|operation| operation.end.is_none()) {
        let Some(Some(value)) = write.made else { continue };
        let first = found.iter().filter(|(found, _)| *found == value).map(|(_, end)| *end).min();
        // A value that was found before its write began is in no order, which the search shall say.
        write.end = first.filter(|end| *end >= write.begin);
    }
}

/// Removes reads without an answer, and all open writes that explain nothing or no more than those that stay.
pub(super) fn leave_out(operations: &mut Vec<Operation>) {
    let named = named_values(operations);
    let denying = |operation: &Operation| matches!(operation.found, OperationResult::IsNot(_));
    let puts = Uses::of(operations, &denying);
    let deletions = Uses::of(operations, &|operation| {
        matches!(operation.found, OperationResult::Is(None) | OperationResult::IsNot(Some(_)))
    });
    // Of those that are interchangeable, the ones that began first are kept.
    let mut begun: Vec<usize> = (0..operations.len()).collect();
    begun.sort_by_key(|at| operations[*at].begin);
    let (mut kept_puts, mut kept_deletions) = (0, 0);
    let mut kept = vec![true; operations.len()];
    for at in begun {
        let Operation { begin, end, found, made, .. } = operations[at];
        kept[at] = match (end, made) {
            (Some(_), _) => true,
            (None, None) => false,
            (None, Some(Some(value))) if named.contains(&value) => true,
            (None, Some(Some(_))) => puts.keeps(begin, found, &mut kept_puts),
            (None, Some(None)) => deletions.keeps(begin, found, &mut kept_deletions),
        };
    }
    let mut kept = kept.into_iter();
    operations.retain(|_| kept.next().unwrap_or(true));
}

/// The values that some result names. A write of any other value is interchangeable with all like it.
pub(super) fn named_values(operations: &[Operation]) -> BTreeSet<Value> {
    let named = operations.iter().filter_map(|operation| match operation.found {
        OperationResult::Is(state) | OperationResult::IsNot(state) => state,
        OperationResult::Anything => None,
    });
    named.collect()
}

/// The results that an open write can explain.
struct Uses {
    count: usize,
    /// When the last of them was known; `Moment::MAX` if one has no answer.
    last: Option<Moment>,
}

impl Uses {
    fn of(operations: &[Operation], is_use: &dyn Fn(&Operation) -> bool) -> Self {
        let ends = operations.iter().filter(|operation| is_use(operation)).map(|one| one.end.unwrap_or(Moment::MAX));
        Self { count: ends.clone().count(), last: ends.max() }
    }

    /// Whether an open write that began at `begin` is needed, beside `kept` that began before it.
    fn keeps(&self, begin: Moment, condition: OperationResult, kept: &mut usize) -> bool {
        let is_of_use = self.last.is_some_and(|last| begin <= last);
        if condition != OperationResult::Anything {
            // One with a condition of its own stands for no other.
            return is_of_use;
        }
        let is_needed = is_of_use && *kept < self.count;
        *kept += usize::from(is_needed);
        is_needed
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{done, get, put};
    use super::super::{Judgement, State, judge};
    use super::*;

    fn unknown(begin: Moment, made: State) -> Operation {
        Operation { end: None, ..done(begin, 0, OperationResult::Anything, Some(made)) }
    }

    fn refused(begin: Moment, end: Moment) -> Operation {
        done(begin, end, OperationResult::IsNot(None), None)
    }

    #[test]
    fn a_write_ends_at_the_first_answer_that_shows_it() {
        let mut operations = vec![unknown(1, Some(7)), get(5, 9, Some(7)), get(4, 8, Some(7)), unknown(2, Some(8))];
        end_what_was_found(&mut operations);
        assert_eq!(operations.iter().map(|one| one.end).collect::<Vec<_>>(), [Some(8), Some(9), Some(8), None]);
        // Shown before it began: it stays open, and the search refuses the read.
        let mut early = vec![get(1, 2, Some(7)), unknown(5, Some(7))];
        end_what_was_found(&mut early);
        assert_eq!((early[1].end, judge(&early)), (None, Judgement::Broken { at: 0 }));
    }

    #[test]
    fn open_writes_are_kept_for_the_results_that_they_can_explain() {
        let mut operations = vec![unknown(1, Some(1)), unknown(2, Some(2)), get(5, 6, Some(2)), unknown(7, Some(3))];
        operations.push(Operation { end: None, ..get(7, 8, None) });
        let mut with_condition = operations.clone();
        leave_out(&mut operations);
        assert_eq!(operations, [unknown(2, Some(2)), get(5, 6, Some(2))], "nobody saw 1, and no result denies a state");
        // One refusal: one write that nobody saw can explain it, and the first can wherever the second can.
        with_condition.push(refused(9, 10));
        leave_out(&mut with_condition);
        let kept = [unknown(1, Some(1)), unknown(2, Some(2)), get(5, 6, Some(2)), refused(9, 10)];
        assert_eq!(with_condition, kept);
        let mut late = vec![refused(1, 2), unknown(3, Some(1)), unknown(4, None)];
        leave_out(&mut late);
        assert_eq!(late, [refused(1, 2)], "what began later explains nothing");
    }

    #[test]
    fn as_many_deletions_are_kept_as_the_object_was_found_absent() {
        let deletions = |count: u64| (0..count).map(|n| unknown(10 + n, None));
        let mut operations: Vec<Operation> = [put(0, 1, 1)].into_iter().chain(deletions(5)).collect();
        operations.push(get(30, 31, None));
        leave_out(&mut operations);
        assert_eq!(operations, [put(0, 1, 1), unknown(10, None), get(30, 31, None)]);
    }

    #[test]
    fn what_is_left_out_changes_no_verdict() {
        // All histories of one object with up to six operations of these, at all their places in time.
        let kinds = |at: Moment, value: Value| {
            [
                put(at, at + 15, value),
                unknown(at, Some(value)),
                unknown(at, None),
                get(at, at + 5, None),
                get(at, at + 15, Some(1)),
                refused(at, at + 5),
                done(at, at + 5, OperationResult::Is(None), Some(Some(value))),
            ]
        };
        let (mut broken, mut fit) = (0, 0);
        for code in 0..7_usize.pow(6) {
            let digit = |place: u32| code / 7_usize.pow(place) % 7;
            let all: Vec<Operation> =
                (0..6_u32).map(|n| kinds(u64::from(n) * 10, u64::from(n))[digit(n)].clone()).collect();
            let mut reduced = all.clone();
            end_what_was_found(&mut reduced);
            leave_out(&mut reduced);
            let (whole, reduced) = (judge(&all), judge(&reduced));
            assert_eq!(whole == Judgement::Fits, reduced == Judgement::Fits, "{all:#?}");
            match whole {
                Judgement::Fits => fit += 1,
                _ => broken += 1,
            }
        }
        assert!(fit > 1000 && broken > 1000, "{fit} {broken}");
    }

    #[test]
    fn unanswered_writes_are_counted_by_whether_somebody_found_them() {
        let operations =
            vec![unknown(1, Some(1)), unknown(1, Some(2)), unknown(1, None), get(5, 6, Some(2)), put(7, 8, 3)];
        let history = History { operations, invocations: Vec::new() };
        assert_eq!(unanswered(&history), UnansweredWrites { found: 1, not_found: 2 });
    }
}
