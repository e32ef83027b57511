//! The linear part: terms taken in one by one, the one that explains most first, while that is more than chance.

use serde::{Deserialize, Serialize};

use super::moments::Moments;
use super::terms::{Basis, Term, Values};

/// Terms of a model at most.
pub(super) const CHOSEN_MAX: usize = 32;
/// A term is left out if its part independent of the chosen terms is less than this share.
const OWN_SHARE_MIN: f64 = 1e-6;

/// A fitted sum of terms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LinearModel {
    intercept: f64,
    terms: Vec<(Term, f64)>,
}

impl LinearModel {
    /// Fits to moments over `[1, terms over scales..., target]`, once for each of `strictnesses`, the strictest first.
    /// A term comes in while its part of what is left is more than chance: its F statistic at least the strictness
    /// times the logarithm of the rows, Schwarz's criterion at 1. What is taken in does not depend on the strictness,
    /// only how long: one path.
    pub(super) fn fit<const N: usize>(
        moments: &Moments,
        terms: &[Term],
        scales: &[f64],
        strictnesses: [f64; N],
    ) -> [Self; N] {
        let target = terms.len() + 1;
        let mut swept = moments.full();
        if moments.rows == 0 {
            return std::array::from_fn(|_| Self::default());
        }
        let squares: Vec<f64> = (0..=terms.len()).map(|at| swept.at(at, at)).collect();
        swept.sweep(0);
        let mut chosen: Vec<usize> = Vec::new();
        let rows = moments.rows as f64;
        strictnesses.map(|strictness| {
            while chosen.len() < CHOSEN_MAX {
                let free = rows - chosen.len() as f64 - 2.0;
                let left = swept.at(target, target);
                let part = |at: usize| {
                    let own = swept.at(at, at);
                    let new = !chosen.contains(&at) && own > OWN_SHARE_MIN * squares[at];
                    if new { swept.at(at, target).powi(2) / own } else { 0.0 }
                };
                let parts = (1..=terms.len()).map(|at| (at, part(at)));
                let Some((best, part)) = parts.max_by(|one, other| one.1.total_cmp(&other.1)) else { break };
                // F to enter; what is left after it must not be nothing by rounding.
                let chance = strictness * rows.ln() * (left - part).max(left * 1e-12);
                if free < 1.0 || left <= 0.0 || part <= 0.0 || part * free < chance {
                    break;
                }
                swept.sweep(best);
                chosen.push(best);
            }
            let coefficient = |&at: &usize| (terms[at - 1], swept.at(at, target) / scales[at - 1]);
            Self { intercept: swept.at(0, target), terms: chosen.iter().map(coefficient).collect() }
        })
    }

    #[inline]
    pub(super) fn of(&self, values: &Values) -> f64 {
        self.terms.iter().fold(self.intercept, |sum, (term, coefficient)| sum + coefficient * term.of(values))
    }

    pub(super) fn is_sound(&self, basis: &Basis) -> bool {
        self.intercept.is_finite()
            && self.terms.len() <= CHOSEN_MAX
            && self.terms.iter().all(|(term, coefficient)| coefficient.is_finite() && term.is_sound(basis))
    }
}
