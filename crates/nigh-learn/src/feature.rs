//! The features of an invocation before it runs: named numbers and words, bounded.
//!
//! A row holds at most [`FEATURES_MAX`] features, each name once, sorted by name. A number is finite and at most
//! [`NUMBER_MAX`]; a long word is replaced by its hash, so that a large argument costs as little as a short one. A
//! refused feature gives an error with its name: a caller that must continue leaves the feature out.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use smol_str::SmolStr;
use thiserror::Error;

/// Features of a row at most; rows are encoded on the stack.
pub const FEATURES_MAX: usize = 32;
/// Bytes of a name at most.
pub const NAME_BYTES_MAX: usize = 64;
/// The longest word in bytes. A longer one is replaced by its hash.
pub const WORD_BYTES_MAX: usize = 64;
/// The largest number in either direction: products of four of them are still finite.
pub const NUMBER_MAX: f64 = 1e18;

/// The feature for cold or warm starts.
pub(crate) const START_FEATURE: &str = "start";
/// The memory of a warm sandbox before the run.
pub(crate) const USED_BEFORE_FEATURE: &str = "used_before_bytes";
/// Features of the sandbox rather than the input. Equal inputs are equal without them.
const OF_SANDBOX: [&str; 2] = [START_FEATURE, USED_BEFORE_FEATURE];
/// The bytes of a feature without its name and word.
const FEATURE_BYTES: usize = 64;

/// One feature's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FeatureValue {
    /// A number: pixels, seconds, bytes, an argument.
    Number(f64),
    /// A nominal value: a format, a codec, an argument that is text or a truth value.
    Word(SmolStr),
}

/// The name of a feature. Those of the input begin with `in_`, but for `input_size`; those of arguments with `arg_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct FeatureName(SmolStr);

/// Why a feature is not taken.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum FeatureError {
    /// The name cannot stand in a CSV header or is too long.
    #[error(
        "a feature cannot be called {shown:?}: a name has 1 to {NAME_BYTES_MAX} of the letters a-z, A-Z, 0-9, '_', '.' \
         and '-'"
    )]
    Name {
        /// The name's beginning.
        shown: String,
    },
    /// The number is not finite or exceeds the limit.
    #[error("feature {name}: {value} is not a number between -{NUMBER_MAX:e} and {NUMBER_MAX:e}; leave it out")]
    Number {
        /// Which.
        name: FeatureName,
        /// What was given.
        value: f64,
    },
    /// The row is full.
    #[error("feature {name} does not fit: a row has at most {FEATURES_MAX} features")]
    TooMany {
        /// Which.
        name: FeatureName,
    },
}

impl FeatureName {
    /// Takes a name.
    pub fn new(name: &str) -> Result<Self, FeatureError> {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(letter) {
            return Err(FeatureError::Name { shown: name.chars().take(NAME_BYTES_MAX).collect() });
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FeatureName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for FeatureName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The features of one invocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct FeatureRow(Vec<(FeatureName, FeatureValue)>);

impl FeatureRow {
    /// An empty row with capacity for `features` features.
    #[must_use]
    pub fn with_capacity(features: usize) -> Self {
        Self(Vec::with_capacity(features.min(FEATURES_MAX)))
    }

    /// Sets a number.
    pub fn set_number(&mut self, name: &str, value: f64) -> Result<(), FeatureError> {
        let name = FeatureName::new(name)?;
        if !value.is_finite() || value.abs() > NUMBER_MAX {
            return Err(FeatureError::Number { name, value });
        }
        self.set(name, FeatureValue::Number(value))
    }

    /// Sets a word; one longer than [`WORD_BYTES_MAX`] is kept as its hash.
    pub fn set_word(&mut self, name: &str, value: &str) -> Result<(), FeatureError> {
        self.set(FeatureName::new(name)?, FeatureValue::Word(kept_word(value).into()))
    }

    /// Adds the features of another row. Present features stay.
    pub fn set_from(&mut self, name: &FeatureName, value: &FeatureValue) -> Result<(), FeatureError> {
        if self.get(name.as_str()).is_none() { self.set(name.clone(), value.clone()) } else { Ok(()) }
    }

    /// Removes features.
    pub fn retain(&mut self, mut keeps: impl FnMut(&str) -> bool) {
        self.0.retain(|(name, _)| keeps(name.as_str()));
    }

    /// Its approximate memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of = |(name, value): &(FeatureName, FeatureValue)| match value {
            FeatureValue::Number(_) => FEATURE_BYTES + name.0.len(),
            FeatureValue::Word(word) => FEATURE_BYTES + name.0.len() + word.len(),
        };
        self.0.iter().map(of).sum()
    }

    /// Sets a truth value, a word of two.
    pub fn set_bool(&mut self, name: &str, value: bool) -> Result<(), FeatureError> {
        self.set_word(name, if value { "true" } else { "false" })
    }

    fn set(&mut self, name: FeatureName, value: FeatureValue) -> Result<(), FeatureError> {
        match self.0.binary_search_by(|(known, _)| known.cmp(&name)) {
            Ok(at) => self.0[at].1 = value,
            Err(_) if self.0.len() == FEATURES_MAX => return Err(FeatureError::TooMany { name }),
            Err(at) => self.0.insert(at, (name, value)),
        }
        Ok(())
    }

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&FeatureValue> {
        let at = self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        Some(&self.0[at].1)
    }

    /// All features, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&FeatureName, &FeatureValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// The number of features.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A hash of the input's features, independent of the sandbox's. Collisions: one in 2^64.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Fnv::default();
        for (name, value) in self.0.iter().filter(|(name, _)| !OF_SANDBOX.contains(&name.as_str())) {
            hash.write(name.as_str().as_bytes());
            match value {
                // Both zeros are one number.
                FeatureValue::Number(number) => hash.write(&(number + 0.0).to_bits().to_le_bytes()),
                FeatureValue::Word(word) => hash.write(word.as_bytes()),
            }
            hash.write(&[u8::from(matches!(value, FeatureValue::Word(_))), 0]);
        }
        hash.0
    }
}

impl<'de> Deserialize<'de> for FeatureRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut row = Self::default();
        for (name, value) in Vec::<(FeatureName, FeatureValue)>::deserialize(deserializer)? {
            let set = match value {
                FeatureValue::Number(number) => row.set_number(name.as_str(), number),
                FeatureValue::Word(word) => row.set_word(name.as_str(), &word),
            };
            set.map_err(serde::de::Error::custom)?;
        }
        Ok(row)
    }
}

/// A word as rows keep it: itself, or its hash if it is long.
#[must_use]
pub fn kept_word(word: &str) -> Cow<'_, str> {
    if word.len() > WORD_BYTES_MAX {
        Cow::Owned(format!("#{:016x}", hash_bytes(word.as_bytes())))
    } else {
        Cow::Borrowed(word)
    }
}

/// FNV-1a: the same on every machine and in every build, as stored models need it.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// A hash of `bytes`, the same on every machine.
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = Fnv::default();
    hash.write(bytes);
    hash.0
}

#[cfg(test)]
mod tests {
    use nigh_terms::ByteSize;

    use super::*;
    use crate::training_set::Start;

    #[test]
    fn what_is_no_number_and_what_is_too_large_is_refused_by_name() {
        let mut row = FeatureRow::default();
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e19] {
            let error = row.set_number("arg_sigma", bad).unwrap_err();
            assert!(error.to_string().contains("arg_sigma"), "{error}");
        }
        for bad in ["", "a b", "a,b", "ä", &"x".repeat(65)] {
            assert!(matches!(row.set_number(bad, 1.0), Err(FeatureError::Name { .. })), "{bad}");
        }
        assert!(row.is_empty());
    }

    #[test]
    fn a_word_of_a_megabyte_is_kept_as_its_hash() {
        let mut row = FeatureRow::default();
        row.set_word("arg_text", &"x".repeat(1 << 20)).unwrap();
        let Some(FeatureValue::Word(kept)) = row.get("arg_text") else { panic!("{row:?}") };
        assert_eq!(kept.len(), 17);
        let mut other = FeatureRow::default();
        other.set_word("arg_text", &"y".repeat(1 << 20)).unwrap();
        assert_ne!(row, other);
    }

    #[test]
    fn a_row_is_in_the_order_of_its_names_and_full_at_its_limit() {
        let mut row = FeatureRow::default();
        for at in (0..FEATURES_MAX).rev() {
            row.set_number(&format!("f{at:02}"), at as f64).unwrap();
        }
        row.set_number("f00", 7.0).unwrap();
        assert!(matches!(row.set_number("z", 0.0), Err(FeatureError::TooMany { .. })));
        let names: Vec<_> = row.iter().map(|(name, _)| name.clone()).collect();
        assert!(names.is_sorted() && names.len() == FEATURES_MAX);
        assert_eq!(row.get("f00"), Some(&FeatureValue::Number(7.0)));
    }

    #[test]
    fn equal_rows_share_a_fingerprint_and_others_do_not() {
        let row = |width: f64, format: &str| {
            let mut row = FeatureRow::default();
            row.set_word("in_format", format).unwrap();
            row.set_number("in_width", width).unwrap();
            row
        };
        assert_eq!(row(0.0, "png").fingerprint(), row(-0.0, "png").fingerprint());
        assert_ne!(row(1.0, "png").fingerprint(), row(2.0, "png").fingerprint());
        assert_ne!(row(1.0, "png").fingerprint(), row(1.0, "gif").fingerprint());
    }

    #[test]
    fn equal_inputs_are_equal_whatever_their_sandboxes() {
        let row = |used: u64, start: Start| {
            let mut row = FeatureRow::default();
            row.set_number("in_width", 7.0).unwrap();
            row.set_used_before(ByteSize(used)).unwrap();
            row.set_start(start).unwrap();
            row
        };
        assert_ne!(row(1, Start::Warm), row(2, Start::Warm));
        assert_eq!(row(1, Start::Warm).fingerprint(), row(2, Start::Cold).fingerprint());
    }

    #[test]
    fn a_row_is_stored_and_read_back_and_a_bad_one_refused() {
        let mut row = FeatureRow::default();
        row.set_number("in_width", 0.1).unwrap();
        row.set_bool("arg_fast", true).unwrap();
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<FeatureRow>(&text).unwrap(), row);
        assert!(serde_json::from_str::<FeatureRow>("[[\"in_width\",1e300]]").is_err());
        assert!(serde_json::from_str::<FeatureRow>("[[\"in width\",1]]").is_err());
    }
}
