//! Spans of time in settings: `600 s`, `50 ms`, `10 min`. They are printed in the form in which they are read.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// A span of time in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(Duration);

const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

impl Span {
    /// A number of milliseconds.
    #[must_use]
    pub const fn millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }

    /// A number of seconds.
    #[must_use]
    pub const fn seconds(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }

    /// The span as a `Duration`.
    #[must_use]
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis() as u64;
        match UNITS.iter().find(|(_, factor)| millis >= *factor && millis.is_multiple_of(*factor)) {
            Some((unit, factor)) => write!(f, "{} {unit}", millis / factor),
            None => write!(f, "0 s"),
        }
    }
}

/// The text is not a span.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a duration; write a whole number with ms, s, min or h, for example \"600 s\"")]
pub struct ParseSpanError(String);

impl FromStr for Span {
    type Err = ParseSpanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseSpanError(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit()).ok_or_else(refused)?;
        let (digits, unit) = (&trimmed[..split], trimmed[split..].trim());
        let (_, factor) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(refused)?;
        let number: u64 = digits.parse().map_err(|_| refused())?;
        number.checked_mul(*factor).map(Self::millis).ok_or_else(refused)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpanText)
    }
}

/// Parses the text. For a bare number the error says how to write it.
struct SpanText;

impl Visitor<'_> for SpanText {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a span of time in quotes, for example \"600 s\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Span, E> {
        Err(E::custom(format!("{number} has no unit; write \"{number} s\", with the quotes, for so many seconds")))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Span, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_back_as_they_print() {
        for span in [Span::millis(50), Span::seconds(1), Span::seconds(600), Span::seconds(7200), Span::millis(0)] {
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        assert_eq!("90s".parse(), Ok(Span::seconds(90)));
        assert_eq!(Span::seconds(600).to_string(), "10 min");
    }

    #[test]
    fn a_number_without_a_unit_is_refused() {
        for bad in ["", "5", "s", "-1 s", "1.5 s", "5 days", "99999999999999999999 s"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }
}
