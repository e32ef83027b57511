//! Amounts of memory and data.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// A number of bytes. Reads and prints as `64 MiB`; serialised as a number, read from a number or text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "u64")]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl ByteSize {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// `n` times 1024 bytes.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` times 1024² bytes.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` times 1024³ bytes.
    #[must_use]
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The number of whole mebibytes, rounded up.
    #[must_use]
    pub const fn mib_ceil(self) -> u64 {
        self.0.div_ceil(1 << 20)
    }

    /// The difference to `other`, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for ByteSize {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for ByteSize {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sum for ByteSize {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in UNITS {
            if self.0 >= factor && factor > 1 {
                return if self.0.is_multiple_of(factor) {
                    write!(f, "{} {unit}", self.0 / factor)
                } else {
                    write!(f, "{:.1} {unit}", self.0 as f64 / factor as f64)
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// The text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a size; write a number with B, KiB, MiB, GiB or TiB, for example \"64 MiB\"")]
pub struct ParseByteSizeError(String);

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseByteSizeError(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (digits, unit) = (&trimmed[..split], trimmed[split..].trim());
        let factor = match unit {
            "" => 1,
            _ => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(refused)?.1,
        };
        let number: u64 = digits.parse().map_err(|_| refused())?;
        number.checked_mul(factor).map(Self).ok_or_else(refused)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(number) => Ok(Self(number)),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back_as_they_print() {
        for size in [ByteSize(0), ByteSize(17), ByteSize::kib(3), ByteSize::mib(64), ByteSize::gib(5)] {
            assert_eq!(size.to_string().parse(), Ok(size));
        }
        assert_eq!("128mib".parse(), Ok(ByteSize::mib(128)));
        assert_eq!("4096".parse(), Ok(ByteSize::kib(4)));
        for bad in ["", "MiB", "12 MB", "-1", "99999999999 TiB"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
    }
}
