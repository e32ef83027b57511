//! Versions of entities: three numbers, the last of which grows with each change. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A version, first 0.0.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SemVer([u32; 3]);

/// A text that is no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a version has three numbers, as 0.0.1")]
pub struct VersionError;

impl SemVer {
    /// The version after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        let Self([major, minor, patch]) = self;
        Self([major, minor, patch.saturating_add(1)])
    }
}

impl Default for SemVer {
    fn default() -> Self {
        Self([0, 0, 1])
    }
}

impl fmt::Display for SemVer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([major, minor, patch]) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl FromStr for SemVer {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let mut numbers = [0; 3];
        let mut parts = text.split('.');
        for number in &mut numbers {
            let part = parts.next().filter(|part| part.bytes().all(|octet| octet.is_ascii_digit()));
            *number = part.and_then(|part| part.parse().ok()).ok_or(VersionError)?;
        }
        if parts.next().is_some() || numbers == [0; 3] {
            return Err(VersionError);
        }
        Ok(Self(numbers))
    }
}

impl TryFrom<String> for SemVer {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, VersionError> {
        text.parse()
    }
}

impl From<SemVer> for String {
    fn from(version: SemVer) -> Self {
        version.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_three_numbers_and_grows_at_its_end() {
        assert_eq!(SemVer::default().next().to_string(), "0.0.2");
        assert_eq!("1.2.3".parse::<SemVer>().unwrap().next().to_string(), "1.2.4");
        for bad in ["", "1", "1.2", "1.2.3.4", "0.0.0", "a.b.c", "1.+2.3", "1..2", "4294967296.0.0"] {
            assert!(bad.parse::<SemVer>().is_err(), "{bad}");
        }
    }
}
