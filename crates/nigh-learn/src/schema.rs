//! The columns of a function's rows, learned from the rows: numbers, words, and the levels of words.
//!
//! A row is encoded into numbers on the stack, without allocation: a number as it is, a word as its level from 1. An
//! unknown word is level 0. A column with more than [`LEVELS_MAX`] words is hashed into [`HASHED_LEVELS`] levels. A
//! column in which nearly all rows have different words is left out. A missing number gets the column's median.

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, ToSmolStr as _};

use crate::feature::{FEATURES_MAX, FeatureName, FeatureRow, FeatureValue, hash_bytes};

/// The most words with their own level in a column.
pub const LEVELS_MAX: usize = 24;
/// Levels into which the words of a column of more are hashed.
pub const HASHED_LEVELS: u64 = 8;
/// A column of words is left out if its number of different words exceeds this share of the rows.
const OWN_WORD_SHARE: f64 = 0.5;

/// What a column holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ColumnKind {
    Number {
        /// Stands for a number that is missing.
        median: f64,
    },
    Words {
        /// Level `at + 1` is the word at `at`, in the order of the alphabet.
        levels: Vec<SmolStr>,
    },
    /// Words by their hash.
    Hashed,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: FeatureName,
    pub(crate) kind: ColumnKind,
}

/// The columns, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    pub(crate) columns: Vec<Column>,
}

/// A row as numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncodedRow {
    pub(crate) values: [f64; FEATURES_MAX],
}

impl Schema {
    /// Learns the columns of `rows`.
    #[must_use]
    pub fn learn<'r>(rows: impl Iterator<Item = &'r FeatureRow> + Clone) -> Self {
        let mut names: Vec<&FeatureName> = Vec::new();
        for row in rows.clone() {
            for (name, _) in row.iter() {
                if let Err(at) = names.binary_search(&name) {
                    names.insert(at, name);
                }
            }
        }
        let count = rows.clone().count();
        let kind = |name: &FeatureName| {
            let values: Vec<&FeatureValue> = rows.clone().filter_map(|row| row.get(name.as_str())).collect();
            if values.iter().all(|value| matches!(value, FeatureValue::Number(_))) {
                let numbers = values.iter().map(|value| match value {
                    FeatureValue::Number(number) => *number,
                    FeatureValue::Word(_) => 0.0,
                });
                return Some(ColumnKind::Number { median: median(numbers.collect()) });
            }
            let mut words: Vec<SmolStr> = values.iter().map(|value| word_of(value)).collect();
            words.sort();
            words.dedup();
            if words.len() <= LEVELS_MAX {
                Some(ColumnKind::Words { levels: words })
            } else {
                (words.len() as f64 <= count as f64 * OWN_WORD_SHARE).then_some(ColumnKind::Hashed)
            }
        };
        let columns = names.into_iter().filter_map(|name| Some(Column { name: name.clone(), kind: kind(name)? }));
        Self { columns: columns.take(FEATURES_MAX).collect() }
    }

    /// The row as numbers.
    #[must_use]
    pub fn encode(&self, row: &FeatureRow) -> EncodedRow {
        let mut values = [0.0; FEATURES_MAX];
        let mut given = row.iter().peekable();
        for (column, value) in self.columns.iter().zip(&mut values) {
            while given.next_if(|(name, _)| **name < column.name).is_some() {}
            let found = given.next_if(|(name, _)| **name == column.name).map(|(_, value)| value);
            *value = column.kind.encode(found);
        }
        EncodedRow { values }
    }

    /// The column of that name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.columns.binary_search_by(|column| column.name.as_str().cmp(name)).ok()
    }

    /// True if what was read from a store can be worked with.
    pub(crate) fn is_sound(&self) -> bool {
        let kind = |column: &Column| match &column.kind {
            ColumnKind::Number { median } => median.is_finite(),
            ColumnKind::Words { levels } => levels.len() <= LEVELS_MAX && levels.is_sorted(),
            ColumnKind::Hashed => true,
        };
        self.columns.len() <= FEATURES_MAX
            && self.columns.is_sorted_by(|one, next| one.name < next.name)
            && self.columns.iter().all(kind)
    }
}

impl ColumnKind {
    fn encode(&self, value: Option<&FeatureValue>) -> f64 {
        match (self, value) {
            (Self::Number { .. }, Some(FeatureValue::Number(number))) => *number,
            // A word where numbers were seen is as good as nothing.
            (Self::Number { median }, _) => *median,
            (_, None) => 0.0,
            (Self::Words { levels }, Some(FeatureValue::Word(word))) => level(levels, word),
            // Rare enough to pay for the text: a number in a column where words were seen, too.
            (Self::Words { levels }, Some(number)) => level(levels, &word_of(number)),
            (Self::Hashed, Some(FeatureValue::Word(word))) => hashed(word),
            (Self::Hashed, Some(number)) => hashed(&word_of(number)),
        }
    }

    /// The number of levels of a column of words.
    pub(crate) fn levels(&self) -> usize {
        match self {
            Self::Number { .. } => 0,
            Self::Words { levels } => levels.len(),
            Self::Hashed => HASHED_LEVELS as usize,
        }
    }
}

fn level(levels: &[SmolStr], word: &str) -> f64 {
    levels.binary_search_by(|known| known.as_str().cmp(word)).map_or(0.0, |at| (at + 1) as f64)
}

fn hashed(word: &str) -> f64 {
    (1 + hash_bytes(word.as_bytes()) % HASHED_LEVELS) as f64
}

fn word_of(value: &FeatureValue) -> SmolStr {
    match value {
        FeatureValue::Word(word) => word.clone(),
        FeatureValue::Number(number) => number.to_smolstr(),
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(width: Option<f64>, format: &str) -> FeatureRow {
        let mut row = FeatureRow::default();
        if let Some(width) = width {
            row.set_number("in_width", width).unwrap();
        }
        row.set_word("in_format", format).unwrap();
        row
    }

    #[test]
    fn words_are_levels_unseen_ones_are_zero_and_a_missing_number_is_the_median() {
        let rows = [row(Some(10.0), "png"), row(Some(30.0), "gif"), row(Some(20.0), "png")];
        let schema = Schema::learn(rows.iter());
        assert_eq!(schema.encode(&rows[0]).values[..2], [2.0, 10.0]);
        assert_eq!(schema.encode(&row(None, "bmp")).values[..2], [0.0, 20.0]);
        let mut odd = row(Some(1.0), "gif");
        odd.set_number("a_new_one", 5.0).unwrap();
        odd.set_word("in_width", "wide").unwrap();
        assert_eq!(schema.encode(&odd).values[..2], [1.0, 20.0]);
        assert!(schema.is_sound());
    }

    #[test]
    fn many_words_are_hashed_and_a_word_of_its_own_in_each_row_is_left_out() {
        let many: Vec<_> = (0..200).map(|at| row(None, &format!("word{}", at % 50))).collect();
        let schema = Schema::learn(many.iter());
        assert_eq!(schema.columns[0].kind, ColumnKind::Hashed);
        let encoded: Vec<f64> = many.iter().map(|row| schema.encode(row).values[0]).collect();
        assert!(encoded.iter().all(|level| (1.0..=HASHED_LEVELS as f64).contains(level)));
        assert!(encoded.iter().any(|level| *level != encoded[0]));
        let own: Vec<_> = (0..200).map(|at| row(None, &format!("word{at}"))).collect();
        assert!(Schema::learn(own.iter()).columns.is_empty());
    }

    #[test]
    fn a_column_with_a_word_in_it_is_one_of_words() {
        let mut number = FeatureRow::default();
        number.set_number("arg_k", 3.0).unwrap();
        let mut word = FeatureRow::default();
        word.set_word("arg_k", "auto").unwrap();
        let schema = Schema::learn([&number, &word].into_iter());
        assert_eq!(schema.encode(&number).values[0], 1.0);
        assert_eq!(schema.encode(&word).values[0], 2.0);
    }
}
