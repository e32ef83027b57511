//! What the two checkers say of a part's history, and whether they refuse every mutation of it.
//!
//! Both get every operation: an entry of a listing is a read of its object. Ours judges each object's order
//! (`register`) and each read by itself (`promises`); porcupine judges each object's order.

use std::collections::BTreeSet;

use nigh_check::history::{
    History, Judgement, MissedKind, MissedWrite, Mutation, Operation, UnansweredWrites, UndecidedReason, judge, missed,
    mutated, unanswered,
};
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

/// An object whose operations have too many orders for a checker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UndecidedObject {
    pub(super) object: String,
    pub(super) checker: String,
    pub(super) why: String,
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

    /// The share of objects that a checker could not decide: of the one that could decide fewer.
    pub(super) fn undecided_share(&self) -> f64 {
        self.ours.order.undecided_share().max(self.porcupine.undecided_share())
    }
}

impl OrderFindings {
    fn undecided_share(&self) -> f64 {
        self.undecided as f64 / self.objects.max(1) as f64
    }

    const fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.broken += other.broken;
        self.undecided += other.undecided;
    }
}

/// What our checkers find in a history.
struct OurVerdict {
    /// Objects that no order explains, with the operation that ended when none was left.
    broken: Vec<(String, Operation)>,
    undecided: Vec<(String, UndecidedReason)>,
    missed: Vec<MissedWrite>,
}

fn ours(history: &History) -> OurVerdict {
    let (mut broken, mut undecided) = (Vec::new(), Vec::new());
    for (object, operations) in history.by_object() {
        match judge(&operations) {
            Judgement::Fits => {}
            Judgement::Broken { at } => broken.push((object.to_owned(), operations[at].clone())),
            Judgement::Undecided(reason) => undecided.push((object.to_owned(), reason)),
        }
    }
    OurVerdict { broken, undecided, missed: missed(history) }
}

fn in_words(reason: UndecidedReason) -> String {
    match reason {
        UndecidedReason::Orders { open } => format!("too many orders at a time, of {open} open operations"),
        UndecidedReason::OpenOperations => "too many operations open at a time".to_owned(),
    }
}

/// Judges the history, and counts in `outcome` what is found.
pub(super) fn judged(history: &History, part: u32, outcome: &mut PartOutcome) -> Result<(), LabError> {
    let totals = &mut outcome.totals;
    totals.operations = history.operations.len() as u64;
    let of = |is: &dyn Fn(&Operation) -> bool| history.operations.iter().filter(|one| is(one)).count() as u64;
    totals.unknown = of(&|operation| operation.end.is_none());
    let UnansweredWrites { found, not_found } = unanswered(history);
    (totals.unknown_found, totals.unknown_not_found) = (found, not_found);
    totals.read_back = of(&|operation| operation.is_last);
    totals.by_invocations = of(&|operation| operation.invocation.is_some());
    let OurVerdict { broken, undecided, missed } = ours(history);
    let theirs = porcupine::judge(history)?;
    let (objects, missed_reads) = (theirs.objects, missed.len() as u64);
    let found =
        |broken: usize, undecided: usize| OrderFindings { objects, broken: broken as u64, undecided: undecided as u64 };
    outcome.checkers = Checkers {
        ours: OurFindings { order: found(broken.len(), undecided.len()), missed: missed_reads },
        porcupine: found(theirs.broken.len(), theirs.undecided.len()),
    };
    let by = |checker: &str, object: String, why: String| UndecidedObject { object, checker: checker.to_owned(), why };
    totals.undecided.extend(undecided.into_iter().map(|(object, reason)| by("ours", object, in_words(reason))));
    let too_long = |operations: u64| format!("no verdict in time on {operations} operations");
    totals.undecided.extend(theirs.undecided.into_iter().map(|(object, many)| by("porcupine", object, too_long(many))));
    totals.undecided.truncate(DETAILS_MAX);
    totals.lost = missed.iter().filter(|one| one.kind == MissedKind::Lost).count() as u64;
    // What only the search for an order found is told with the old reads: nobody can say which of them is.
    let told: BTreeSet<&str> = missed.iter().map(|one| history.operations[one.read].object.as_str()).collect();
    let unexplained =
        broken.iter().map(|(object, _)| object).chain(&theirs.broken).filter(|object| !told.contains(object.as_str()));
    let unexplained: BTreeSet<&String> = unexplained.collect();
    totals.stale = missed_reads - totals.lost + unexplained.len() as u64;
    for one in &missed {
        let read = &history.operations[one.read];
        totals.violations.push(format!(
            "part {part}: {:?}: {} shows {:?} instead of {:?}: {read:?}",
            one.kind, read.object, one.shown, one.instead
        ));
    }
    for (object, at) in broken.iter().filter(|(object, _)| unexplained.contains(object)) {
        totals.violations.push(format!("part {part}: no order explains {object}, from here on: {at:?}"));
    }
    for object in theirs.broken.iter().filter(|object| !broken.iter().any(|(ours, _)| ours == *object)) {
        totals.violations.push(format!("part {part}: porcupine alone refuses {object}"));
    }
    totals.violations.truncate(DETAILS_MAX);
    totals.mutations = judged_mutations(history)?;
    Ok(())
}

/// How both checkers judge the history with each change that breaks it.
fn judged_mutations(history: &History) -> Result<Vec<MutationOutcome>, LabError> {
    let mut outcomes = Vec::new();
    for mutation in Mutation::ALL {
        // Of the one object alone: a mutation is one change.
        let Some(changed) = mutated(history, mutation) else { continue };
        let differs = history.operations.iter().zip(&changed.operations).find(|(one, other)| one != other);
        let Some(object) = differs.map(|(one, _)| one.object.clone()) else { continue };
        let small = History {
            operations: changed.operations.into_iter().filter(|one| one.object == object).collect(),
            invocations: changed.invocations,
        };
        let OurVerdict { broken, missed, .. } = ours(&small);
        let porcupine = !porcupine::judge(&small)?.broken.is_empty();
        let kind = mutation.name().to_owned();
        outcomes.push(MutationOutcome { kind, ours: !broken.is_empty() && !missed.is_empty(), porcupine });
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use nigh_check::history::OperationResult;

    use super::*;
    use crate::instrument::peer::PeerError;
    use crate::skipped::skip;

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
            Err(LabError::Peer(error @ PeerError::NotInstalled { .. })) => skip(test, error),
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

    #[test]
    fn both_checkers_refuse_an_old_entry_of_a_listing() {
        let test = "both_checkers_refuse_an_old_entry_of_a_listing";
        let mut listed = history();
        listed.operations.push(crate::experiment::cluster_faults::record::read("x", None, 20, 21, Some(1)));
        let mut outcome = PartOutcome::default();
        match judged(&listed, 0, &mut outcome) {
            Err(LabError::Peer(error @ PeerError::NotInstalled { .. })) => skip(test, error),
            other => {
                other.unwrap();
                let Checkers { ours, porcupine } = outcome.checkers;
                assert_eq!((ours.order.broken, ours.missed, porcupine.broken), (1, 1, 1));
                assert_eq!((outcome.totals.stale, outcome.checkers.undecided_share()), (1, 0.0));
            }
        }
    }
}
