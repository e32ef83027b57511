//! The owner epochs (terms) that a node knows, and which dispatches it takes: pure.
//!
//! A node asks the registry before it takes the first dispatch of a term, and a new owner announces its term to every node
//! before its first dispatch. So once an owner has begun, no node takes a dispatch of the former one. A run that ends under an
//! earlier term says so (`is_over`): the new owner must hear of its token before the caller does.

use std::collections::{BTreeMap, VecDeque};

use nigh_terms::{Namespace, invariant};

/// Namespaces whose terms are known. With one more, the one known longest is forgotten and the registry is asked again.
const NAMESPACES_MAX: usize = 65_536;

/// What a node makes of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TermJudgement {
    /// Its term is the newest known one.
    Takes,
    /// A higher term is known.
    Over(u64),
    /// The registry must be asked for the newest term.
    Ask,
}

/// The newest known terms.
#[derive(Debug, Default)]
pub(super) struct Terms {
    highest: BTreeMap<Namespace, u64>,
    order: VecDeque<Namespace>,
}

impl Terms {
    /// Whether a dispatch of `term` is taken.
    pub(super) fn judge(&self, namespace: &Namespace, term: u64) -> TermJudgement {
        match self.highest.get(namespace) {
            Some(highest) if term == *highest => TermJudgement::Takes,
            Some(highest) if term < *highest => TermJudgement::Over(*highest),
            _ => TermJudgement::Ask,
        }
    }

    /// There is an owner in this term.
    pub(super) fn learn(&mut self, namespace: &Namespace, term: u64) {
        if let Some(highest) = self.highest.get_mut(namespace) {
            let before = *highest;
            *highest = term.max(before);
            // Else this node would take a former owner's dispatches again.
            invariant!(*highest >= before, "the term of {namespace} goes down from {before} to {highest}");
            return;
        }
        if self.order.len() >= NAMESPACES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.highest.remove(&oldest);
        }
        self.order.push_back(namespace.clone());
        self.highest.insert(namespace.clone(), term);
    }

    /// True if there may be a later owner than that of `term`.
    pub(super) fn is_over(&self, namespace: &Namespace, term: u64) -> bool {
        self.highest.get(namespace) != Some(&term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_term_is_refused_and_an_unknown_one_is_asked_for() {
        let (mut terms, tenant) = (Terms::default(), Namespace::new("tenant").unwrap());
        assert_eq!(terms.judge(&tenant, 3), TermJudgement::Ask);
        terms.learn(&tenant, 3);
        terms.learn(&tenant, 2);
        assert_eq!(terms.judge(&tenant, 3), TermJudgement::Takes);
        assert_eq!(terms.judge(&tenant, 2), TermJudgement::Over(3));
        assert_eq!(terms.judge(&tenant, 4), TermJudgement::Ask);
        assert!(!terms.is_over(&tenant, 3));
        terms.learn(&tenant, 4);
        assert!(terms.is_over(&tenant, 3));
        assert_eq!(terms.judge(&Namespace::new("other").unwrap(), 1), TermJudgement::Ask);
    }

    #[test]
    fn what_is_forgotten_counts_as_over_and_is_asked_for_again() {
        let mut terms = Terms::default();
        let tenant = |number: usize| Namespace::new(&format!("tenant-{number}")).unwrap();
        (0..=NAMESPACES_MAX).for_each(|number| terms.learn(&tenant(number), 1));
        assert!(terms.is_over(&tenant(0), 1) && terms.judge(&tenant(0), 1) == TermJudgement::Ask);
        assert_eq!(terms.judge(&tenant(1), 1), TermJudgement::Takes);
    }
}
