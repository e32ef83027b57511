//! Decides when a model is mature: OFC's criterion (section 5.3.1), checked as rows arrive.
//!
//! Nine in ten predictions are the needed interval or a higher one, and at least half of the others are only one below.
//! The check covers the last [`WINDOW`] rows, each predicted before it was learned. The paper first checks at 100 rows;
//! here the first check is at [`CHECKED_FROM`], since half of all functions run at most once an hour. A model that no
//! longer meets the criterion is not mature until it meets it again. New code starts again with a new value.

use std::collections::VecDeque;

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;

/// Rows that are looked at.
pub const WINDOW: usize = 100;
/// Rows at which it is checked first.
pub const CHECKED_FROM: usize = 20;

/// How near a prediction was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nearness {
    /// The interval itself.
    Exact,
    /// A larger one.
    Over,
    /// The next smaller one.
    OneBelow,
    /// Smaller still.
    FarBelow,
}

impl Nearness {
    /// How near `predicted` was to `needed`.
    #[must_use]
    pub fn of(predicted: ByteSize, needed: ByteSize, interval: Interval) -> Self {
        let (said, was) = (interval.index(predicted), interval.index(needed));
        match was.checked_sub(said) {
            Some(0) => Self::Exact,
            None => Self::Over,
            Some(1) => Self::OneBelow,
            Some(_) => Self::FarBelow,
        }
    }

    /// At least the interval that was needed.
    #[must_use]
    pub const fn holds(self) -> bool {
        matches!(self, Self::Exact | Self::Over)
    }
}

/// True if these predictions meet the criterion.
#[must_use]
pub fn is_mature(outcomes: impl Iterator<Item = Nearness>) -> bool {
    let (mut all, mut below, mut near) = (0_u64, 0_u64, 0_u64);
    for outcome in outcomes {
        all += 1;
        below += u64::from(!outcome.holds());
        near += u64::from(outcome == Nearness::OneBelow);
    }
    all > 0 && below * 10 <= all && near * 2 >= below
}

/// True if these predictions are still what the criterion is for: one row far too low among very many would fail its
/// second half, though the model is as good as ever. Nine in ten hold, and nineteen in twenty are at most one interval
/// too low.
fn stays_mature(outcomes: impl Iterator<Item = Nearness>) -> bool {
    let (mut all, mut below, mut far) = (0_u64, 0_u64, 0_u64);
    for outcome in outcomes {
        all += 1;
        below += u64::from(!outcome.holds());
        far += u64::from(outcome == Nearness::FarBelow);
    }
    below * 10 <= all && far * 20 <= all
}

/// What changed with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaturityChange {
    /// Nothing.
    None,
    /// The model is mature from now on.
    Matured,
    /// The model is no longer mature: the function's behaviour has drifted.
    Unmatured,
}

/// The maturity of a function's model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maturity {
    /// Newest last.
    recent: VecDeque<Nearness>,
    mature: bool,
    /// Rows that were judged in all.
    judged: u64,
    /// The row at which it matured first.
    matured_at: Option<u64>,
}

impl Maturity {
    /// Adds how near the prediction of one more row was.
    pub fn judge(&mut self, outcome: Nearness) -> MaturityChange {
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(outcome);
        self.judged += 1;
        let recent = || self.recent.iter().copied();
        let mature =
            if self.mature { stays_mature(recent()) } else { self.recent.len() >= CHECKED_FROM && is_mature(recent()) };
        let before = std::mem::replace(&mut self.mature, mature);
        match (before, mature) {
            (false, true) => {
                self.matured_at.get_or_insert(self.judged);
                MaturityChange::Matured
            }
            (true, false) => {
                // Predictions before the drift no longer count: the next rows are judged alone.
                self.recent.clear();
                MaturityChange::Unmatured
            }
            _ => MaturityChange::None,
        }
    }

    /// Whether the model is mature.
    #[must_use]
    pub const fn is_mature(&self) -> bool {
        self.mature
    }

    /// Rows that were judged in all.
    #[must_use]
    pub const fn judged(&self) -> u64 {
        self.judged
    }

    /// The row at which it matured first.
    #[must_use]
    pub const fn matured_at(&self) -> Option<u64> {
        self.matured_at
    }

    pub(crate) fn is_sound(&self) -> bool {
        self.recent.len() <= WINDOW
    }
}

#[cfg(test)]
mod tests {
    use Nearness::{Exact, FarBelow, OneBelow, Over};

    use super::*;

    #[test]
    fn nearness_counts_intervals() {
        let of =
            |said: u64, was: u64| Nearness::of(ByteSize(said), ByteSize(was), Interval::new(ByteSize(10)).unwrap());
        assert_eq!([of(10, 1), of(11, 10), of(10, 11), of(10, 21)], [Exact, Over, OneBelow, FarBelow]);
    }

    #[test]
    fn nine_in_ten_must_hold_and_half_of_the_rest_be_near() {
        let rows = |over: usize, near: usize, far: usize| {
            let all = [(Over, over), (OneBelow, near), (FarBelow, far)];
            is_mature(all.into_iter().flat_map(|(one, count)| std::iter::repeat_n(one, count)))
        };
        assert!(rows(90, 5, 5) && rows(100, 0, 0));
        assert!(!rows(90, 4, 6) && !rows(89, 11, 0) && !rows(0, 0, 0));
    }

    #[test]
    fn it_matures_at_its_first_check_and_unmatures_on_drift() {
        let mut maturity = Maturity::default();
        for row in 1..CHECKED_FROM {
            assert_eq!(maturity.judge(Exact), MaturityChange::None, "{row}");
        }
        assert_eq!(maturity.judge(Over), MaturityChange::Matured);
        assert_eq!(maturity.matured_at(), Some(CHECKED_FROM as u64));
        assert_eq!(maturity.judge(FarBelow), MaturityChange::None, "one is no drift");
        assert_eq!(maturity.judge(FarBelow), MaturityChange::Unmatured);
        assert!(!maturity.is_mature());
        let again = (0..CHECKED_FROM + 5).any(|_| maturity.judge(Exact) == MaturityChange::Matured);
        assert!(again && maturity.matured_at() == Some(CHECKED_FROM as u64));
    }
}
