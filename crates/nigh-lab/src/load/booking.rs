//! How much memory a tenant books (OFC, section 7.2.2): two gigabytes, the most that its function used, or 1.7 times that.
//! Pure.

use clap::ValueEnum;
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

/// The naive booking: OpenWhisk's maximum, in the paper.
pub(crate) const NAIVE_MB: u64 = 2048;
/// Lambda's bounds.
const LEAST_MB: u64 = 128;
const MOST_MB: u64 = 10_240;
/// The measured use is rounded up to whole steps; two runs of one invocation differ by less.
const STEP_MB: u64 = 16;
/// The normal booking over the advanced one.
const NORMAL: f64 = 1.7;

/// What a tenant books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BookingProfile {
    /// Two gigabytes, whatever is needed.
    Naive,
    /// The most that the tenant's function used.
    Advanced,
    /// 1.7 times the most that the tenant's function used.
    Normal,
}

impl BookingProfile {
    /// The booking in MB of a function that used `most`.
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
        let booked = |most_mb| {
            BookingProfile::value_variants()
                .iter()
                .map(|profile| profile.booked_mb(ByteSize::mib(most_mb)))
                .collect::<Vec<_>>()
        };
        assert_eq!(booked(300), [2048, 304, 517]);
        assert_eq!(booked(3), [2048, 128, 128], "nobody may book less than Lambda takes");
        assert_eq!(booked(3000), [3008, 3008, 5114], "who needs more than two gigabytes books what it needs");
    }
}
