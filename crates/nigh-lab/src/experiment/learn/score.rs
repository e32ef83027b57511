//! The quality of predictions: exact, exact or over (OFC table 1), and memory granted in vain.

use nigh_learn::{Interval, Nearness, is_mature};
use nigh_terms::ByteSize;
use serde::Serialize;

/// What was granted, and what was needed.
pub(super) type Outcome = (ByteSize, ByteSize);

/// The scores of one model at one width of interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Score {
    /// Percent in the very interval.
    pub(super) exact: f64,
    /// Percent in the interval or above.
    pub(super) exact_or_over: f64,
    /// Million bytes granted beyond the need, over all invocations.
    pub(super) over_mb: f64,
}

impl Score {
    pub(super) fn of(outcomes: &[Outcome], interval: Interval) -> Self {
        let share = |count: usize| 100.0 * count as f64 / outcomes.len().max(1) as f64;
        let nearness = || outcomes.iter().map(|(granted, needed)| Nearness::of(*granted, *needed, interval));
        let over = |(granted, needed): &Outcome| granted.saturating_sub(*needed).bytes() as f64 / 1e6;
        Self {
            exact: share(nearness().filter(|one| *one == Nearness::Exact).count()),
            exact_or_over: share(nearness().filter(|one| one.holds()).count()),
            over_mb: outcomes.iter().map(over).sum::<f64>() / outcomes.len().max(1) as f64,
        }
    }

    /// The mean over functions, each counted once.
    pub(super) fn mean<'s>(scores: impl Iterator<Item = &'s Self> + Clone) -> Self {
        let count = scores.clone().count().max(1) as f64;
        let mean = |of: fn(&Self) -> f64| scores.clone().map(of).sum::<f64>() / count;
        Self {
            exact: mean(|score| score.exact),
            exact_or_over: mean(|score| score.exact_or_over),
            over_mb: mean(|score| score.over_mb),
        }
    }
}

/// True if these outcomes meet OFC's maturation criterion.
pub(super) fn matured(outcomes: &[Outcome], interval: Interval) -> bool {
    is_mature(outcomes.iter().map(|(granted, needed)| Nearness::of(*granted, *needed, interval)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_shares_and_over_counts_all_invocations() {
        let interval = Interval::OFC;
        let mb = |megabytes: u64| ByteSize(megabytes * 1_000_000);
        let outcomes = [(mb(16), mb(10)), (mb(32), mb(10)), (mb(16), mb(17)), (mb(16), mb(60))];
        let score = Score::of(&outcomes, interval);
        assert_eq!(score, Score { exact: 25.0, exact_or_over: 50.0, over_mb: 7.0 });
        assert!(!matured(&outcomes, interval));
        assert!(matured(&outcomes[..2], interval));
        let other = Score { exact: 75.0, exact_or_over: 100.0, over_mb: 1.0 };
        assert_eq!(Score::mean([score, other].iter()), Score { exact: 50.0, exact_or_over: 75.0, over_mb: 4.0 });
    }
}
