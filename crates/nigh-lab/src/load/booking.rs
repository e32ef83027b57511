//! How much memory a tenant books (OFC, section 7.2.2): by not caring, by the most that was ever used, or by that and some
//! more. Pure.

use clap::ValueEnum;
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

/// What the naive book: OpenWhisk's most, in the paper.
pub(crate) const NAIVE_MB: u64 = 2048;
/// Lambda's least and most.
const LEAST_MB: u64 = 128;
const MOST_MB: u64 = 10_240;
/// The most that was ever used is rounded up to whole steps: a run that repeats one differs by less.
const STEP_MB: u64 = 16;
/// Of the normal over the advanced.
const NORMAL: f64 = 1.7;

/// What a tenant books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BookingProfile {
    /// Two gigabytes, whatever is needed.
    Naive,
    /// The most that its function was ever seen to use.
    Advanced,
    /// 1.7 times that.
    Normal,
}

impl BookingProfile {
    pub(crate) const ALL: [Self; 3] = [Self::Naive, Self::Advanced, Self::Normal];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Advanced => "advanced",
            Self::Normal => "normal",
        }
    }

    /// What is booked in MB, where the function was seen to use `most`.
    pub(crate) fn booked_mb(self, most: ByteSize) -> u64 {
        let advanced = most.mib_ceil().next_multiple_of(STEP_MB);
        let booked = match self {
            Self::Naive => NAIVE_MB.max(advanced),
            Self::Advanced => advanced,
            Self::Normal => (advanced as f64 * NORMAL).ceil() as u64,
        };
        booked.clamp(LEAST_MB, MOST_MB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_what_is_used_books_that_who_does_not_books_two_gigabytes() {
        let booked = |most_mb| BookingProfile::ALL.map(|profile| profile.booked_mb(ByteSize::mib(most_mb)));
        assert_eq!(booked(300), [2048, 304, 517]);
        assert_eq!(booked(3), [2048, 128, 128], "nobody may book less than Lambda takes");
        assert_eq!(booked(3000), [3008, 3008, 5114], "who needs more than two gigabytes books what it needs");
    }
}
