//! The beginning of an invocation's id, as people type it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::InvocationId;

/// Fewer digits name too many invocations: the first ones of an id are its time, and twelve are a millisecond.
const DIGITS_MIN: usize = 4;
/// The digits of a whole id.
const DIGITS_MAX: usize = 32;

/// The first hexadecimal digits of invocations' ids; a whole id is one, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct InvocationIdPrefix {
    /// Lower case, without dashes.
    digits: String,
    lowest: u128,
    highest: u128,
}

/// The text is no beginning of an id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not an invocation's id, nor the beginning of one: {DIGITS_MIN} to {DIGITS_MAX} digits of 0 to 9 and a to f"
)]
pub struct ParseIdPrefixError(String);

impl InvocationIdPrefix {
    /// The lowest id that begins so.
    #[must_use]
    pub const fn lowest(&self) -> InvocationId {
        InvocationId::of_bytes(self.lowest.to_be_bytes())
    }

    /// The highest id that begins so.
    #[must_use]
    pub const fn highest(&self) -> InvocationId {
        InvocationId::of_bytes(self.highest.to_be_bytes())
    }

    /// True if `id` begins so.
    #[must_use]
    pub fn is_of(&self, id: InvocationId) -> bool {
        (self.lowest()..=self.highest()).contains(&id)
    }

    /// The id, if all its digits are given.
    #[must_use]
    pub fn whole(&self) -> Option<InvocationId> {
        (self.lowest == self.highest).then(|| self.lowest())
    }
}

impl FromStr for InvocationIdPrefix {
    type Err = ParseIdPrefixError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits: String = text.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect();
        let wrong = || ParseIdPrefixError(text.chars().take(64).collect());
        let fits = (DIGITS_MIN..=DIGITS_MAX).contains(&digits.len()) && digits.chars().all(|c| c.is_ascii_hexdigit());
        if !fits {
            return Err(wrong());
        }
        let given = u128::from_str_radix(&digits, 16).map_err(|_| wrong())?;
        let open = 4 * (DIGITS_MAX - digits.len()) as u32;
        let lowest = given << open;
        Ok(Self { digits, lowest, highest: lowest | ((1u128 << open) - 1) })
    }
}

impl fmt::Display for InvocationIdPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.digits)
    }
}

impl TryFrom<String> for InvocationIdPrefix {
    type Error = ParseIdPrefixError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<InvocationIdPrefix> for String {
    fn from(prefix: InvocationIdPrefix) -> Self {
        prefix.digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_holds_the_ids_that_begin_so_and_no_others() {
        let id = InvocationId::now();
        let text = id.to_string();
        for length in [4, 8, 9, 13, 20, 36] {
            let prefix: InvocationIdPrefix = text[..length].parse().unwrap();
            assert!(prefix.is_of(id), "{prefix}");
            assert_eq!(prefix.whole(), (length == 36).then_some(id));
            assert!(prefix.lowest() <= id && id <= prefix.highest());
        }
        let other: InvocationIdPrefix = "ffff".parse().unwrap();
        assert!(!other.is_of(id));
        assert_eq!(text.to_uppercase().parse::<InvocationIdPrefix>().unwrap().whole(), Some(id));
    }

    #[test]
    fn what_is_too_short_too_long_or_no_number_is_refused() {
        let long = "0".repeat(33);
        for wrong in ["", "abc", "abc-", "xyz1", "é123", long.as_str()] {
            let refused = wrong.parse::<InvocationIdPrefix>();
            assert!(refused.is_err(), "{wrong:?}");
        }
        let words = "not-an-id".parse::<InvocationIdPrefix>().unwrap_err().to_string();
        assert!(words.starts_with("\"not-an-id\" is not an invocation's id"), "{words}");
    }

    #[test]
    fn it_travels_as_text() {
        let prefix: InvocationIdPrefix = "01A20EBD-7".parse().unwrap();
        assert_eq!(serde_json::to_string(&prefix).unwrap(), "\"01a20ebd7\"");
        assert_eq!(serde_json::from_str::<InvocationIdPrefix>("\"01a20ebd7\"").unwrap(), prefix);
        assert!(serde_json::from_str::<InvocationIdPrefix>("\"no\"").is_err());
    }
}
