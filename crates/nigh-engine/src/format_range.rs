//! Cluster formats: what the members of one cluster may write for each other. Pure.
//!
//! A program can use a range of formats. A cluster has one format, that of its first release, until an operator raises it
//! (`nigh cluster finalize`), which needs every member to be able to use the new one. Until then members write what the
//! older programs read, so that each of them can be replaced by a newer program and back.
//!
//! | format | what it adds |
//! |---|---|
//! | 1 | |
//! | 2 | presence records of format 2, in which the roles of a cordoned node stay whole |

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cluster formats that a program can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct FormatRange {
    /// The oldest format.
    pub oldest: u32,
    /// The newest format.
    pub newest: u32,
}

impl FormatRange {
    /// The range of programs that do not tell theirs.
    pub const FIRST: Self = Self { oldest: 1, newest: 1 };
    /// The range of this program.
    pub const OWN: Self = Self { oldest: 1, newest: 2 };

    /// True if a program with this range can be a member of a cluster of `format`.
    #[must_use]
    pub const fn has(self, format: u32) -> bool {
        self.oldest <= format && format <= self.newest
    }

    /// The part of this range up to `newest`, which must not be below the oldest.
    #[must_use]
    pub fn up_to(self, newest: u32) -> Self {
        Self { oldest: self.oldest, newest: self.newest.min(newest).max(self.oldest) }
    }
}

impl Default for FormatRange {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for FormatRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.oldest, self.newest) {
            (oldest, newest) if oldest == newest => write!(f, "format {oldest}"),
            (oldest, newest) => write!(f, "formats {oldest} to {newest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_its_ends_and_is_cut_no_shorter_than_its_oldest_format() {
        let range = FormatRange { oldest: 2, newest: 4 };
        assert_eq!([1, 2, 3, 4, 5].map(|format| range.has(format)), [false, true, true, true, false]);
        assert_eq!(range.up_to(3), FormatRange { oldest: 2, newest: 3 });
        assert_eq!((range.up_to(9), range.up_to(1)), (range, FormatRange { oldest: 2, newest: 2 }));
        assert_eq!(
            (range.to_string(), FormatRange::FIRST.to_string()),
            ("formats 2 to 4".to_owned(), "format 1".to_owned())
        );
    }
}
