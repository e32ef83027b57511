//! How old a copy may be: the bound that a bucket's policy sets, and what the store was last seen to have.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use nigh_data::ObjectId;
use nigh_terms::Monotonic;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use super::dirty::Base;

/// The most objects of which it is remembered what the store had. At the limit all are forgotten: the store is asked at
/// their next hits.
const SEEN_MAX: usize = 50_000;

const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

/// How long ago the store may have been asked, at most, about an object that is served from memory; in whole
/// milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(with = "String")]
pub struct Freshness(Duration);

impl Freshness {
    /// The store is asked each time.
    pub const ALWAYS: Self = Self(Duration::ZERO);

    /// This many milliseconds.
    #[must_use]
    pub const fn millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }
}

impl fmt::Display for Freshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis() as u64;
        match UNITS.iter().find(|(_, factor)| millis >= *factor && millis.is_multiple_of(*factor)) {
            Some((unit, factor)) => write!(f, "{}{unit}", millis / factor),
            None => f.write_str("0s"),
        }
    }
}

/// A text that is no bound.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a duration; write a whole number with ms, s, min or h: `0s` asks the store at each hit, `30s` lets a \
         copy serve for 30 seconds"
)]
pub struct ParseFreshnessError(String);

impl FromStr for Freshness {
    type Err = ParseFreshnessError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseFreshnessError(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit()).ok_or_else(refused)?;
        let (digits, unit) = (&trimmed[..split], trimmed[split..].trim());
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
        let number: u64 = digits.parse().map_err(|_| refused())?;
        number.checked_mul(*factor).map(Self::millis).ok_or_else(refused)
    }
}

impl Serialize for Freshness {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Freshness {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What the store was last seen to have of each object, and when it was asked.
#[derive(Debug, Default)]
pub(super) struct LastSeen(HashMap<ObjectId, (Base, Monotonic)>);

impl LastSeen {
    /// The store, asked at `asked`, had `holds`.
    pub(super) fn note(&mut self, object: &ObjectId, holds: Base, asked: Monotonic) {
        if self.0.len() >= SEEN_MAX && !self.0.contains_key(object) {
            self.0.clear();
        }
        let seen = self.0.entry(object.clone()).or_insert_with(|| (holds.clone(), asked));
        if seen.1 <= asked {
            *seen = (holds, asked);
        }
    }

    /// What the store had, if it was asked within `bound` before `now`.
    pub(super) fn within(&self, object: &ObjectId, bound: Freshness, now: Monotonic) -> Option<&Base> {
        let (holds, asked) = self.0.get(object)?;
        (now.since(*asked) < bound.0).then_some(holds)
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{BucketName, Namespace, ObjectKey};

    use super::*;

    fn object(key: usize) -> ObjectId {
        ObjectId {
            namespace: Namespace::new("n").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(&key.to_string()).unwrap(),
        }
    }

    #[test]
    fn a_bound_is_read_as_it_is_written_and_a_number_without_a_unit_is_refused() {
        for (text, bound) in
            [("0s", Freshness::ALWAYS), ("500ms", Freshness::millis(500)), ("2min", Freshness::millis(120_000))]
        {
            assert_eq!((text.parse::<Freshness>(), bound.to_string()), (Ok(bound), text.to_owned()));
            assert_eq!(serde_json::from_str::<Freshness>(&serde_json::to_string(&bound).unwrap()).unwrap(), bound);
        }
        assert_eq!("90 s".parse::<Freshness>(), Ok(Freshness::millis(90_000)));
        for bad in ["", "5", "s", "-1s", "1.5s", "5 days", "99999999999999999999s"] {
            assert!(bad.parse::<Freshness>().unwrap_err().to_string().contains("ms, s, min or h"), "{bad}");
        }
    }

    #[test]
    fn what_was_seen_counts_until_the_bound_and_what_is_remembered_is_bounded() {
        let (mut seen, second) = (LastSeen::default(), |n: u64| Monotonic(n * 1_000_000_000));
        seen.note(&object(0), Base::Absent, second(2));
        seen.note(&object(0), Base::Unknown, second(1));
        let two = Freshness::millis(2000);
        assert_eq!(seen.within(&object(0), two, second(3)), Some(&Base::Absent), "an earlier answer changes nothing");
        assert_eq!(seen.within(&object(0), two, second(4)), None);
        assert_eq!(seen.within(&object(0), Freshness::ALWAYS, second(2)), None, "zero asks each time");
        for n in 1..=SEEN_MAX {
            seen.note(&object(n), Base::Absent, second(3));
        }
        assert!(seen.0.len() <= SEEN_MAX && seen.within(&object(SEEN_MAX), two, second(3)).is_some());
    }
}
