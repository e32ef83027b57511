//! The terms that a node knows, and whose dispatch it takes: pure.
//!
//! A node asks the registry before it takes the first dispatch of a term, and a new owner tells every node of its term
//! before its first dispatch. So once an owner has begun, no node takes a dispatch of the one before; and who ends in an
//! earlier term says so (`is_over`), for its owner's caller is not to hear of it before the new owner has.

use std::collections::{BTreeMap, VecDeque};

use nigh_terms::Namespace;

/// Namespaces whose terms are known. With one more the one known longest is forgotten: the registry is asked again.
const NAMESPACES_MAX: usize = 65_536;

/// What a node makes of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TermJudgement {
    /// It is of the term that is known.
    Takes,
    /// A higher one is known.
    Over(u64),
    /// The registry is to be asked which is the highest.
    Ask,
}

/// The highest terms known.
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
            *highest = term.max(*highest);
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

    /// Whether there may be an owner after the one of `term`.
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
