//! What the two checkers say of a part's history, and whether they refuse every mutation of it.

use std::collections::BTreeSet;

use nigh_check::history::{History, Judgement, MissedKind, MissedWrite, Mutation, Operation, judge, missed, mutated};
use serde::{Deserialize, Serialize};

use super::part::{DETAILS_MAX, PartOutcome};
use crate::LabError;
use crate::instrument::peer::porcupine;

/// How a mutated history was judged: whether it was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MutationOutcome {
    pub(super) kind: String,
    pub(super) ours: bool,
    pub(super) porcupine: bool,
}

/// What each checker found.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Checkers {
    ours: OurFindings,
    porcupine: OrderFindings,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct OurFindings {
    #[serde(flatten)]
    order: OrderFindings,
    /// Reads that missed what P1, P4 or P6 has them show, or what was acknowledged.
    missed: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct OrderFindings {
    objects: u64,
    /// Objects whose operations no order explains.
    broken: u64,
    /// Objects with too many orders to tell.
    undecided: u64,
}

impl Checkers {
    pub(super) const fn add(&mut self, other: Self) {
        self.ours.order.add(other.ours.order);
        self.ours.missed += other.ours.missed;
        self.porcupine.add(other.porcupine);
    }
}

impl OrderFindings {
    const fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.broken += other.broken;
        self.undecided += other.undecided;
    }
}

/// Whether our checkers refuse a history: objects that no order explains, objects undecided, and reads that miss.
fn ours(history: &History) -> (Vec<(String, Operation)>, u64, Vec<MissedWrite>) {
    let (mut broken, mut undecided) = (Vec::new(), 0);
    for (object, operations) in history.by_object() {
        match judge(&operations) {
            Judgement::Fits => {}
            Judgement::Broken { at } => broken.push((object.to_owned(), operations[at].clone())),
            Judgement::Undecided => undecided += 1,
        }
    }
    (broken, undecided, missed(history))
}

/// Judges the history, and counts in `outcome` what is found.
pub(super) fn judged(history: &History, part: u32, outcome: &mut PartOutcome) -> Result<(), LabError> {
    outcome.totals.operations = history.operations.len() as u64;
    let of = |is: &dyn Fn(&Operation) -> bool| history.operations.iter().filter(|one| is(one)).count() as u64;
    outcome.totals.unknown = of(&|operation| operation.end.is_none());
    outcome.totals.by_invocations = of(&|operation| operation.invocation.is_some());
    let (broken, undecided, missed) = ours(history);
    let theirs = porcupine::judge(history)?;
    let (objects, missed_reads) = (theirs.objects, missed.len() as u64);
    let found = |broken: usize, undecided| OrderFindings { objects, broken: broken as u64, undecided };
    outcome.checkers = Checkers {
        ours: OurFindings { order: found(broken.len(), undecided), missed: missed_reads },
        porcupine: found(theirs.broken.len(), theirs.undecided.len() as u64),
    };
    outcome.totals.lost = missed.iter().filter(|one| one.kind == MissedKind::Lost).count() as u64;
    // What only the search for an order found is told with the old reads: nobody can say which of them is.
    let told: BTreeSet<&str> = missed.iter().map(|one| history.operations[one.read].object.as_str()).collect();
    let unexplained =
        broken.iter().map(|(object, _)| object).chain(&theirs.broken).filter(|object| !told.contains(object.as_str()));
    let unexplained: BTreeSet<&String> = unexplained.collect();
    outcome.totals.stale = missed_reads - outcome.totals.lost + unexplained.len() as u64;
    for one in &missed {
        let read = &history.operations[one.read];
        outcome.totals.violations.push(format!(
            "part {part}: {:?}: {} shows {:?} instead of {:?}: {read:?}",
            one.kind, read.object, one.shown, one.instead
        ));
    }
    for (object, at) in broken.iter().filter(|(object, _)| unexplained.contains(object)) {
        outcome.totals.violations.push(format!("part {part}: no order explains {object}, from here on: {at:?}"));
    }
    for object in theirs.broken.iter().filter(|object| !broken.iter().any(|(ours, _)| ours == *object)) {
        outcome.totals.violations.push(format!("part {part}: porcupine alone refuses {object}"));
    }
    outcome.totals.violations.truncate(DETAILS_MAX);
    for mutation in Mutation::ALL {
        // Of the one object alone: a mutation is one change.
        let Some(changed) = mutated(history, mutation) else { continue };
        let differs = history.operations.iter().zip(&changed.operations).find(|(one, other)| one != other);
        let Some(object) = differs.map(|(one, _)| one.object.clone()) else { continue };
        let small = History {
            operations: changed.operations.into_iter().filter(|one| one.object == object).collect(),
            invocations: changed.invocations,
        };
        let (broken, _, missed) = ours(&small);
        let porcupine = !porcupine::judge(&small)?.broken.is_empty();
        let kind = mutation.name().to_owned();
        outcome.totals.mutations.push(MutationOutcome {
            kind,
            ours: !broken.is_empty() && !missed.is_empty(),
            porcupine,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nigh_check::history::OperationResult;

    use super::*;
    use crate::instrument::peer::PeerError;

    /// A history as the experiment records it, of two clients and one object.
    fn history() -> History {
        let put = |begin, end, value| {
            crate::experiment::cluster_faults::record::write(
                "x",
                None,
                begin,
                Some(end),
                OperationResult::Anything,
                Some(value),
            )
        };
        let get =
            |begin, end, value| crate::experiment::cluster_faults::record::read("x", None, begin, end, Some(value));
        let operations = vec![put(1, 2, 1), get(3, 4, 1), put(5, 9, 2), get(6, 7, 1), get(10, 11, 2), get(12, 13, 2)];
        History { operations, invocations: Vec::new() }
    }

    #[test]
    fn both_checkers_accept_a_good_history_and_refuse_every_mutation_of_it() {
        let test = "both_checkers_accept_a_good_history_and_refuse_every_mutation_of_it";
        let mut outcome = PartOutcome::default();
        match judged(&history(), 0, &mut outcome) {
            Err(LabError::Peer(error @ PeerError::NotInstalled { .. })) => println!("SKIPPED: {test}: {error}"),
            other => {
                other.unwrap();
                assert_eq!(
                    (outcome.totals.lost, outcome.totals.stale, outcome.checkers.ours.order.objects),
                    (0, 0, 1),
                    "{:?}",
                    outcome.totals.violations
                );
                assert_eq!(outcome.totals.mutations.len(), Mutation::ALL.len());
                assert!(
                    outcome.totals.mutations.iter().all(|one| one.ours && one.porcupine),
                    "{:?}",
                    outcome.totals.mutations
                );
            }
        }
    }
}
