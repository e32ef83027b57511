//! Checks the contract's promises on a recorded history: finds reads that did not show a write that they had to.
//!
//! A write is *older* than another if its effect was known before the other began: by its own answer, or by a reader's.
//! A read of a client outside must show nothing older than what was known before it began. A read in an invocation must
//! show nothing older than
//! - what was settled before the invocation was called: written by clients outside, or seen or written by an invocation
//!   that had ended (P1);
//! - what the invocation had seen, including its part of what its caller and callees had seen (P4);
//! - what the writer of anything that it saw had seen (P6), two writers deep.

use std::collections::{BTreeMap, BTreeSet};

use super::{History, Moment, Operation, OperationResult, State, Value};

/// How many writers are followed, one after the other.
const DEPTH: u32 = 2;

/// How a read misses a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissedKind {
    /// A client outside read less than was known.
    Outside,
    /// The read breaks promise P1.
    Ended,
    /// The read breaks promise P4.
    Seen,
    /// The read breaks promise P6.
    WriterSeen,
    /// A read after all faults: an acknowledged write is lost.
    Lost,
}

/// A read, and the write that it had to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The kind of promise that the read broke.
    pub kind: MissedKind,
    /// The read, by its index in the history.
    pub read: usize,
    /// The state that it showed.
    pub shown: State,
    /// The oldest state that it was allowed to show.
    pub instead: State,
}

/// A write of one object.
#[derive(Clone, Copy, Debug)]
struct Write {
    state: State,
    begin: Moment,
    /// When the write was known to have taken place; none if it never was.
    known: Option<Moment>,
    /// From when on a called invocation must see the write; none if from no time on.
    settled: Option<Moment>,
    index: usize,
}

fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    [one, other].into_iter().flatten().min()
}

/// The state that an operation saw or wrote; none if unknown.
fn saw(operation: &Operation) -> Option<State> {
    match (operation.made, operation.found) {
        (Some(made), _) => Some(made),
        (None, OperationResult::Is(state)) => Some(state),
        (None, OperationResult::Anything | OperationResult::IsNot(_)) => None,
    }
}

struct HistoryIndex<'h> {
    history: &'h History,
    writes: BTreeMap<&'h str, Vec<Write>>,
    /// The index of the write of each value.
    by_value: BTreeMap<Value, usize>,
    /// The operations of each invocation, by time.
    by_invocation: Vec<Vec<usize>>,
    callees: Vec<Vec<usize>>,
}

impl<'h> HistoryIndex<'h> {
    fn of(history: &'h History) -> Self {
        let count = history.invocations.len();
        let mut known = Self {
            history,
            writes: BTreeMap::new(),
            by_value: BTreeMap::new(),
            by_invocation: vec![Vec::new(); count],
            callees: vec![Vec::new(); count],
        };
        // For each value: when it was first shown to anybody, and when it was settled.
        let mut shown: BTreeMap<Value, (Option<Moment>, Option<Moment>)> = BTreeMap::new();
        for (index, operation) in history.operations.iter().enumerate() {
            let ends = operation.invocation.map(|of| history.invocations.get(of).and_then(|of| of.end));
            if let Some(Some(value)) = saw(operation).filter(|_| operation.end.is_some()) {
                let entry = shown.entry(value).or_default();
                entry.0 = earlier(entry.0, operation.end);
                // A client outside passes on what it has written, and nothing that it has read.
                let settles = match ends {
                    Some(end) => end,
                    None => operation.end.filter(|_| operation.made.is_some()),
                };
                entry.1 = earlier(entry.1, settles);
            }
            if let Some(of) = operation.invocation {
                known.by_invocation[of].push(index);
            }
        }
        for (index, operation) in history.operations.iter().enumerate() {
            let Some(state) = operation.made else { continue };
            let (mut when, mut settled) = (operation.end, None);
            if let Some(value) = state {
                (when, settled) = shown.get(&value).copied().unwrap_or_default();
                known.by_value.insert(value, index);
            } else if operation.end.is_some() {
                let of = operation.invocation.and_then(|of| history.invocations.get(of));
                settled = of.map_or(operation.end, |of| of.end);
            }
            let write = Write { state, begin: operation.begin, known: when, settled, index };
            known.writes.entry(&operation.object).or_default().push(write);
        }
        for (index, invocation) in history.invocations.iter().enumerate() {
            if let Some(caller) = invocation.caller {
                known.callees[caller].push(index);
            }
        }
        known
    }

    /// The latest moment at which the shown state can have become known, over all writes that can have caused it:
    /// writes that began later are newer. None if unknown.
    fn known(&self, object: &str, shown: State, shown_by: Moment) -> Option<Moment> {
        let writes = self.writes.get(object).map_or(&[][..], Vec::as_slice);
        match shown {
            Some(value) => {
                let index = self.by_value.get(&value)?;
                writes.iter().find(|write| write.index == *index)?.known
            }
            // Each object is absent at first.
            None => writes
                .iter()
                .filter(|write| write.state.is_none() && write.begin < shown_by)
                .try_fold(0, |latest, delete| delete.known.map(|known| known.max(latest))),
        }
    }

    /// Adds to `part` the operations whose outcome an invocation knows at `moment`: its own, its callees', its
    /// caller's.
    fn part(&self, invocation: usize, moment: Moment, part: &mut BTreeSet<usize>) {
        self.own_part(invocation, moment, part);
        let called = self.history.invocations[invocation];
        if let Some(caller) = called.caller {
            self.part(caller, called.begin, part);
        }
    }

    fn own_part(&self, invocation: usize, moment: Moment, part: &mut BTreeSet<usize>) {
        let ended = |index: &&usize| self.history.operations[**index].end.is_some_and(|end| end < moment);
        part.extend(self.by_invocation[invocation].iter().filter(ended));
        for &callee in &self.callees[invocation] {
            if self.history.invocations[callee].end.is_some_and(|end| end < moment) {
                self.own_part(callee, moment, part);
            }
        }
    }

    /// The operations known to the writers of what `part` saw, without `part` itself.
    fn writers_part(&self, part: &BTreeSet<usize>) -> BTreeSet<usize> {
        let (mut all, mut ahead) = (part.clone(), part.clone());
        for _ in 0..DEPTH {
            let mut next = BTreeSet::new();
            for index in ahead {
                let Some(Some(value)) = saw(&self.history.operations[index]) else { continue };
                let Some(write) = self.by_value.get(&value).map(|index| &self.history.operations[*index]) else {
                    continue;
                };
                if let Some(writer) = write.invocation {
                    self.part(writer, write.begin, &mut next);
                }
            }
            ahead = next.difference(&all).copied().collect();
            all.append(&mut next);
        }
        all.difference(part).copied().collect()
    }

    /// The write that an operation saw.
    fn as_write(&self, index: usize) -> Option<Write> {
        let operation = &self.history.operations[index];
        let state = saw(operation).filter(|_| operation.end.is_some())?;
        let begin = match state {
            Some(value) => self.history.operations[*self.by_value.get(&value)?].begin,
            // It is unknown which deletion was seen, unless the client itself deleted.
            None => operation.made.map(|_| operation.begin)?,
        };
        Some(Write { state, begin, known: operation.end, settled: None, index })
    }

    fn missed(&self, index: usize, read: &Operation, shown: State) -> Option<Missed> {
        let end = read.end?;
        let known = self.known(&read.object, shown, end)?;
        let older = |than: &&Write| shown != than.state && known < than.begin;
        let told = |kind: MissedKind, write: &Write| Missed { kind, read: index, shown, instead: write.state };
        let writes = self.writes.get(read.object.as_str()).map_or(&[][..], Vec::as_slice);
        let Some(invocation) = read.invocation else {
            let kind = if read.is_last { MissedKind::Lost } else { MissedKind::Outside };
            let due = writes.iter().filter(|write| write.known.is_some_and(|known| known < read.begin));
            return due.clone().find(older).map(|write| told(kind, write));
        };
        let called = self.history.invocations[invocation].begin;
        let settled = writes.iter().filter(|write| write.settled.is_some_and(|settled| settled < called));
        if let Some(write) = settled.clone().find(older) {
            return Some(told(MissedKind::Ended, write));
        }
        let mut part = BTreeSet::new();
        self.part(invocation, read.begin, &mut part);
        let of_object = |part: &BTreeSet<usize>| -> Option<Write> {
            let same = part.iter().filter(|index| self.history.operations[**index].object == read.object);
            same.filter_map(|index| self.as_write(*index)).find(|write| older(&write))
        };
        if let Some(write) = of_object(&part) {
            return Some(told(MissedKind::Seen, &write));
        }
        of_object(&self.writers_part(&part)).map(|write| told(MissedKind::WriterSeen, &write))
    }
}

/// All reads that missed a write, each with the first such write.
///
/// # Panics
/// If an operation names an unknown invocation.
#[must_use]
pub fn missed(history: &History) -> Vec<Missed> {
    let known = HistoryIndex::of(history);
    let reads = history.operations.iter().enumerate().filter(|(_, operation)| operation.made.is_none());
    reads
        .filter_map(|(index, read)| match read.found {
            OperationResult::Is(shown) => known.missed(index, read, shown),
            OperationResult::Anything | OperationResult::IsNot(_) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Invocation;
    use super::super::tests::{done, get, put};
    use super::*;

    fn by(invocation: usize, mut operation: Operation) -> Operation {
        operation.invocation = Some(invocation);
        operation
    }

    fn of(object: &str, mut operation: Operation) -> Operation {
        object.clone_into(&mut operation.object);
        operation
    }

    fn invocation(begin: Moment, end: Moment) -> Invocation {
        Invocation { begin, end: Some(end), caller: None }
    }

    fn kinds(operations: Vec<Operation>, invocations: Vec<Invocation>) -> Vec<MissedKind> {
        missed(&History { operations, invocations }).iter().map(|missed| missed.kind).collect()
    }

    #[test]
    fn a_client_outside_sees_all_that_is_known() {
        assert_eq!(kinds(vec![put(0, 1, 1), put(2, 3, 2), get(4, 5, Some(1))], vec![]), [MissedKind::Outside]);
        let last = Operation { is_last: true, ..get(4, 5, None) };
        assert_eq!(kinds(vec![put(1, 2, 1), last], vec![]), [MissedKind::Lost]);
        let delete = done(2, 3, OperationResult::Anything, Some(None));
        assert_eq!(kinds(vec![put(0, 1, 1), delete.clone(), get(4, 5, None)], vec![]), []);
        assert_eq!(kinds(vec![delete, put(4, 5, 1), get(6, 7, None)], vec![]), [MissedKind::Outside]);
        // A write without an answer has taken place if somebody saw it.
        let unknown = Operation { end: None, ..put(2, 0, 2) };
        let seen = vec![put(0, 1, 1), unknown, get(4, 5, Some(2)), get(6, 7, Some(1))];
        assert_eq!(kinds(seen, vec![]), [MissedKind::Outside]);
    }

    #[test]
    fn an_invocation_sees_what_ended_ones_and_clients_outside_wrote_before_its_call() {
        let wrote = |end| vec![invocation(0, end), invocation(20, 40)];
        let operations = vec![put(0, 1, 1), by(0, put(5, 6, 2)), by(1, get(30, 31, Some(1)))];
        assert_eq!(kinds(operations.clone(), wrote(10)), [MissedKind::Ended]);
        assert_eq!(kinds(operations, wrote(25)), [], "the writer had not ended");
        let outside = vec![put(0, 1, 1), put(5, 6, 2), by(1, get(30, 31, Some(1)))];
        assert_eq!(kinds(outside, wrote(10)), [MissedKind::Ended]);
        // A reader of the value has seen the write too.
        let read = vec![put(0, 1, 1), by(2, put(2, 3, 2)), by(0, get(5, 6, Some(2))), by(1, get(30, 31, Some(1)))];
        let invocations = vec![invocation(0, 10), invocation(20, 40), Invocation { begin: 0, end: None, caller: None }];
        assert_eq!(kinds(read, invocations), [MissedKind::Ended]);
    }

    #[test]
    fn an_invocation_does_not_go_back_and_sees_what_its_callees_and_caller_saw() {
        // The writer continues to run, so that only seen writes count.
        let writer = Invocation { begin: 0, end: None, caller: None };
        let base = [put(0, 1, 1), by(0, put(2, 3, 2))];
        let with = |more: Vec<Operation>| base.iter().cloned().chain(more).collect::<Vec<_>>();
        let back = with(vec![by(1, get(20, 21, Some(2))), by(1, get(22, 23, Some(1)))]);
        assert_eq!(kinds(back, vec![writer, invocation(10, 40)]), [MissedKind::Seen]);
        let callee = Invocation { begin: 15, end: Some(25), caller: Some(1) };
        let after = with(vec![by(2, get(20, 21, Some(2))), by(1, get(30, 31, Some(1)))]);
        assert_eq!(kinds(after, vec![writer, invocation(10, 40), callee]), [MissedKind::Seen]);
        let before = with(vec![by(1, get(12, 13, Some(2))), by(2, get(20, 21, Some(1)))]);
        assert_eq!(kinds(before, vec![writer, invocation(10, 40), callee]), [MissedKind::Seen]);
    }

    #[test]
    fn who_reads_a_version_sees_what_its_writer_had_seen() {
        // The writer overwrites x, then writes y, and continues to run; a reader that sees y must see x.
        let writer = Invocation { begin: 0, end: None, caller: None };
        let operations = vec![
            put(0, 1, 1),
            by(0, put(2, 3, 2)),
            by(0, of("y", put(4, 5, 3))),
            by(1, of("y", get(20, 21, Some(3)))),
            by(1, get(22, 23, Some(1))),
        ];
        let invocations = vec![writer, invocation(10, 40)];
        assert_eq!(kinds(operations.clone(), invocations.clone()), [MissedKind::WriterSeen]);
        let mut other_order = operations;
        other_order.swap(3, 4);
        (other_order[3].begin, other_order[3].end) = (18, Some(19));
        assert_eq!(kinds(other_order, invocations), [], "it had not seen y yet");
    }
}
