//! Linearizability of one object: just-in-time linearization, after Lowe ("Testing for linearizability", 2017).
//!
//! One pass through time. It keeps all possible orders of the ended operations, each as the object's state and the set
//! of open operations that have taken place. When an operation ends, each order is extended until that operation has
//! taken place, and orders without it are dropped. A matching read takes place at once, since that can only help. Open
//! writes that are interchangeable take place in the order in which they began, since any order of them serves alike.

use std::collections::HashSet;

use super::unanswered::named_values;
use super::{Moment, Operation, OperationResult, State};

/// The most orders at a time. Above it the object has no verdict.
const WAYS_MAX: usize = 400_000;
/// The most operations that are open at a time, including those without an answer.
const OPEN_MAX: u32 = 128;

/// The verdict on one object's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// One order explains them all.
    Fits,
    /// No order explains the operations up to the end of this one.
    Broken {
        /// The operation's index.
        at: usize,
    },
    /// Undecided: the search met one of its limits.
    Undecided(UndecidedReason),
}

/// The limit at which the search gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndecidedReason {
    /// There were more orders at a time than the search keeps.
    Orders {
        /// How many operations were open then.
        open: usize,
    },
    /// More operations were open at a time than the search can follow.
    OpenOperations,
}

/// The object's state, and one bit for each open operation that has taken place.
type Way = (State, u128);

/// An operation that has begun and has not ended.
#[derive(Clone, Copy)]
struct OpenOperation<'o> {
    slot: u32,
    index: usize,
    operation: &'o Operation,
    /// Equal for writes that are interchangeable; none for all others.
    class: Option<Class>,
}

/// What interchangeable open writes have in common: the condition, and whether they delete. Nobody names what they wrote.
type Class = (OperationResult, bool);

impl OpenOperation<'_> {
    /// When it began; of those that began together, the index decides.
    fn age(&self) -> (Moment, usize) {
        (self.operation.begin, self.index)
    }
}

/// Checks whether one order of `operations` explains what each found. All are of one object that is absent at first.
#[must_use]
pub fn judge(operations: &[Operation]) -> Judgement {
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        events.push((operation.begin, false, index));
        events.extend(operation.end.map(|end| (end, true, index)));
    }
    // Beginnings first: an operation that ends as another begins is concurrent with it.
    events.sort_unstable();
    let named = named_values(operations);
    let class_of = |operation: &Operation| match (operation.end, operation.made) {
        (None, Some(Some(value))) if !named.contains(&value) => Some((operation.found, false)),
        (None, Some(None)) => Some((operation.found, true)),
        _ => None,
    };
    let mut open: Vec<OpenOperation<'_>> = Vec::new();
    let mut ways: HashSet<Way> = HashSet::from([(None, 0)]);
    for (_, is_end, index) in events {
        if !is_end {
            let taken = open.iter().fold(0_u128, |taken, one| taken | 1 << one.slot);
            let slot = (!taken).trailing_zeros();
            if slot >= OPEN_MAX {
                return Judgement::Undecided(UndecidedReason::OpenOperations);
            }
            let operation = &operations[index];
            open.push(OpenOperation { slot, index, operation, class: class_of(operation) });
            ways = ways.into_iter().map(|way| with_reads(way, &open)).collect();
            continue;
        }
        let Some(at) = open.iter().position(|one| one.index == index) else { continue };
        let Some(followed) = followed(&ways, &open, open[at].slot) else {
            return Judgement::Undecided(UndecidedReason::Orders { open: open.len() });
        };
        if followed.is_empty() {
            return Judgement::Broken { at: index };
        }
        let slot = open.swap_remove(at).slot;
        ways = followed.into_iter().map(|(state, done)| (state, done & !(1 << slot))).collect();
    }
    Judgement::Fits
}

/// Lets all matching open reads take place.
fn with_reads((state, done): Way, open: &[OpenOperation<'_>]) -> Way {
    let fits = open.iter().filter(|one| one.operation.made.is_none() && one.operation.found.fits(state));
    (state, fits.fold(done, |done, one| done | 1 << one.slot))
}

/// All orders in which the operation of `slot` has taken place; none if there are too many.
fn followed(ways: &HashSet<Way>, open: &[OpenOperation<'_>], slot: u32) -> Option<HashSet<Way>> {
    let mut arrived = HashSet::new();
    let mut met: HashSet<Way> = ways.clone();
    let mut ahead: Vec<Way> = ways.iter().copied().collect();
    while let Some((state, done)) = ahead.pop() {
        if done & 1 << slot != 0 {
            arrived.insert((state, done));
            continue;
        }
        let is_left = |one: &&OpenOperation<'_>| done & 1 << one.slot == 0;
        for one in open.iter().filter(is_left) {
            let is_younger = |class: Class| {
                let mut alike = open.iter().filter(is_left).filter(|other| other.class == Some(class));
                alike.any(|other| other.age() < one.age())
            };
            if one.class.is_some_and(is_younger) {
                continue;
            }
            let Some(made) = one.operation.made.filter(|_| one.operation.found.fits(state)) else { continue };
            let next = with_reads((made, done | 1 << one.slot), open);
            if met.insert(next) {
                ahead.push(next);
            }
        }
        if met.len() > WAYS_MAX {
            return None;
        }
    }
    Some(arrived)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{done, get, put};
    use super::super::{Operation, OperationResult};
    use super::*;

    #[test]
    fn reads_beside_a_write_may_see_either_and_never_go_back() {
        assert_eq!(judge(&[put(0, 10, 1), get(2, 3, None), get(4, 5, Some(1)), get(11, 12, Some(1))]), Judgement::Fits);
        assert_eq!(judge(&[put(0, 10, 1), get(2, 3, Some(1)), get(4, 5, None)]), Judgement::Broken { at: 2 });
        assert_eq!(judge(&[put(0, 1, 1), put(2, 3, 2), get(4, 5, Some(1))]), Judgement::Broken { at: 2 });
        assert_eq!(judge(&[put(0, 1, 1), get(2, 3, None)]), Judgement::Broken { at: 1 });
        assert_eq!(judge(&[get(0, 1, Some(9))]), Judgement::Broken { at: 0 }, "nobody wrote it");
    }

    #[test]
    fn a_write_without_an_answer_may_land_at_any_time_or_never() {
        let unknown = Operation { end: None, ..put(0, 0, 1) };
        assert_eq!(judge(&[unknown.clone(), put(1, 2, 2), get(3, 4, Some(2))]), Judgement::Fits);
        assert_eq!(judge(&[unknown.clone(), put(1, 2, 2), get(3, 4, Some(1)), get(5, 6, Some(1))]), Judgement::Fits);
        let back = [unknown, put(1, 2, 2), get(3, 4, Some(1)), get(5, 6, Some(2))];
        assert_eq!(
            judge(&back),
            Judgement::Broken { at: 3 },
            "it landed before the second write, and that was overwritten"
        );
    }

    #[test]
    fn conditions_are_part_of_the_order() {
        let create = |begin, end, value| done(begin, end, OperationResult::Is(None), Some(Some(value)));
        let refused = |begin, end| done(begin, end, OperationResult::IsNot(None), None);
        assert_eq!(judge(&[create(0, 5, 1), refused(1, 4)]), Judgement::Fits);
        assert_eq!(judge(&[create(0, 5, 1), create(6, 7, 2)]), Judgement::Broken { at: 1 });
        assert_eq!(judge(&[refused(0, 1), create(2, 3, 1)]), Judgement::Broken { at: 0 });
        let delete = done(6, 7, OperationResult::Anything, Some(None));
        assert_eq!(judge(&[create(0, 5, 1), delete, create(8, 9, 2)]), Judgement::Fits);
    }

    #[test]
    fn many_clients_at_once_are_judged() {
        let mut operations: Vec<Operation> = (0..40).map(|n| put(n, 100 + n, n)).collect();
        operations.push(get(200, 201, Some(7)));
        operations.push(get(202, 203, Some(8)));
        // Forty open writes have more orders than can be followed, so the checker must not guess.
        assert!(matches!(judge(&operations), Judgement::Undecided(UndecidedReason::Orders { open: 40 })));
        let few: Vec<Operation> =
            (0..8).map(|n| put(n, 100 + n, n)).chain([get(200, 201, Some(7)), get(202, 203, Some(8))]).collect();
        assert_eq!(judge(&few), Judgement::Broken { at: 9 });
    }

    #[test]
    fn many_writes_without_an_answer_are_decided() {
        let unknown = |n: u64, made| Operation { end: None, ..done(n, 0, OperationResult::Anything, Some(made)) };
        let refused = |at| done(at, at + 1, OperationResult::IsNot(None), None);
        // Of sixty that nobody saw, one is needed.
        let mut operations: Vec<Operation> = (0..60).map(|n| unknown(n, Some(n))).collect();
        operations.extend((0..60).map(|n| unknown(100 + n, None)));
        operations.extend([get(200, 201, None), refused(202), get(204, 205, None), refused(206)]);
        assert_eq!(judge(&operations), Judgement::Fits);
        // Two refusals, with the object absent before and between, need two writes.
        let few = [unknown(0, Some(1)), unknown(1, None), refused(10), get(12, 13, None), refused(14)];
        assert_eq!(judge(&few), Judgement::Broken { at: 4 });
    }
}
