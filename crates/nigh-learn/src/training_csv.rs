//! A training set as CSV: one row an invocation, words in quotes, numbers without, nothing where a feature is missing.
//!
//! The first columns are the set's own (`peak_bytes`, `touched_limit`, `page_cache_bytes`, `missed`, `input`, and if
//! known `extract_us`, `transform_us`, `load_us`: the times if the store had served everything). The others are the
//! features by name. The file has no version: an import names the code.

use nigh_terms::ByteSize;
use thiserror::Error;

use crate::benefit::PhaseTimes;
use crate::csv_table::{CsvError, CsvField, CsvTable, quoted};
use crate::feature::{FeatureError, FeatureName, FeatureRow, FeatureValue, NUMBER_MAX};
use crate::training_set::{TRAINING_ROWS_MAX, TrainingRow, TrainingSet, TrainingSetError};

const OWN: [&str; 5] = ["peak_bytes", "touched_limit", "page_cache_bytes", "missed", "input"];
/// The set's columns that are present if a row has times.
const TIMES: [&str; 3] = ["extract_us", "transform_us", "load_us"];

/// Why a text is no training set.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TrainingCsvError {
    /// No CSV.
    #[error(transparent)]
    Csv(#[from] CsvError),
    /// No features.
    #[error("row {row}: {reason}")]
    Feature {
        /// Which, from 1.
        row: usize,
        /// Why.
        reason: FeatureError,
    },
    /// A required column is missing.
    #[error("there is no column {column}; a training set has {}", OWN.join(", "))]
    Missing {
        /// Which.
        column: &'static str,
    },
    /// A field cannot be read.
    #[error(
        "row {row}: {column} cannot be {text:?}; it is a number from 0, or true or false for touched_limit and missed"
    )]
    Field {
        /// Which, from 1.
        row: usize,
        /// Of which column.
        column: &'static str,
        /// What stands there.
        text: String,
    },
    /// The rows are of another version, or the name of the version is invalid.
    #[error(transparent)]
    Set(#[from] TrainingSetError),
}

/// A field as a feature's value; nothing where it is empty. What is not in quotes and is a number is one.
pub fn feature_of(row: &mut FeatureRow, name: &str, field: &CsvField) -> Result<(), FeatureError> {
    match field.text.parse::<f64>() {
        _ if field.text.is_empty() && !field.quoted => Ok(()),
        Ok(number) if !field.quoted => row.set_number(name, number),
        _ => row.set_word(name, &field.text),
    }
}

impl TrainingSet {
    /// The rows as CSV.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut names: Vec<&FeatureName> =
            self.rows().iter().flat_map(|row| row.features.iter().map(|(name, _)| name)).collect();
        names.sort();
        names.dedup();
        let timed = self.rows().iter().any(|row| row.times.is_some());
        let mut text = OWN.join(",");
        if timed {
            text.push(',');
            text += &TIMES.join(",");
        }
        for name in &names {
            text.push(',');
            text.push_str(name.as_str());
        }
        text.push('\n');
        for row in self.rows() {
            let TrainingRow { peak, touched_limit, page_cache, missed, input, features, times } = row;
            text += &format!("{},{touched_limit},{},{missed},{input}", peak.bytes(), page_cache.bytes());
            match times {
                _ if !timed => {}
                Some(times) => {
                    text += &format!(",{},{},{}", times.extract_us, times.transform_us, times.load_us);
                }
                None => text += ",,,",
            }
            for name in &names {
                text.push(',');
                match features.get(name.as_str()) {
                    Some(FeatureValue::Number(number)) => text += &number.to_string(),
                    Some(FeatureValue::Word(word)) => text += &quoted(word),
                    None => {}
                }
            }
            text.push('\n');
        }
        text
    }

    /// A set of `version` from CSV.
    pub fn from_csv(version: &str, text: &str) -> Result<Self, TrainingCsvError> {
        let table = CsvTable::read(text, TRAINING_ROWS_MAX)?;
        let mut own = [0; OWN.len()];
        for (place, column) in own.iter_mut().zip(OWN) {
            *place = table.column(column).ok_or(TrainingCsvError::Missing { column })?;
        }
        let of_times = TIMES.map(|column| table.column(column));
        let mut set = Self::new(version)?;
        for (at, fields) in table.rows.iter().enumerate() {
            let row = at + 1;
            let mut features = FeatureRow::default();
            for (place, (name, field)) in table.header.iter().zip(fields).enumerate() {
                if !own.contains(&place) && !of_times.contains(&Some(place)) {
                    feature_of(&mut features, name, field)
                        .map_err(|reason| TrainingCsvError::Feature { row, reason })?;
                }
            }
            let text = |which: usize| fields[own[which]].text.as_str();
            let wrong =
                |which: usize| TrainingCsvError::Field { row, column: OWN[which], text: text(which).to_owned() };
            let number = |which: usize| text(which).parse::<u64>().map_err(|_| wrong(which));
            let truth = |which: usize| text(which).parse::<bool>().map_err(|_| wrong(which));
            let mut spent = [None; TIMES.len()];
            for ((into, place), column) in spent.iter_mut().zip(of_times).zip(TIMES) {
                let text = place.map_or("", |place| fields[place].text.as_str());
                let wrong = || TrainingCsvError::Field { row, column, text: text.to_owned() };
                *into = match text.parse::<f64>() {
                    _ if text.is_empty() => None,
                    Ok(us) if (0.0..=NUMBER_MAX).contains(&us) => Some(us),
                    _ => return Err(wrong()),
                };
            }
            let times = match spent {
                [Some(extract_us), Some(transform_us), Some(load_us)] => {
                    Some(PhaseTimes { extract_us, transform_us, load_us })
                }
                _ => None,
            };
            set.keep(TrainingRow {
                features,
                times,
                peak: ByteSize(number(0)?),
                touched_limit: truth(1)?,
                page_cache: ByteSize(number(2)?),
                missed: truth(3)?,
                input: number(4)?,
            });
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::training_set::Start;

    proptest! {
        #[test]
        fn a_set_reads_back_as_it_was_written(
            rows in prop::collection::vec((any::<u32>(), -1e9..1e9_f64, ".{0,20}", any::<bool>()), 0..20),
        ) {
            let mut set = TrainingSet::new("1").unwrap();
            for (peak, number, word, truth) in rows {
                let mut features = FeatureRow::default();
                features.set_number("in_width", number).unwrap();
                features.set_word("arg_text", &word).unwrap();
                if truth {
                    features.set_word("arg_number_like", "12").unwrap();
                }
                let mut row = TrainingRow::new(features, ByteSize(peak.into()), Start::Cold).unwrap();
                (row.missed, row.page_cache) = (truth, ByteSize(7));
                row.times = truth.then(|| PhaseTimes { extract_us: number.abs(), transform_us: 1.5, load_us: 0.0 });
                set.keep(row);
            }
            let read = TrainingSet::from_csv("1", &set.to_csv()).unwrap();
            prop_assert_eq!(read.rows(), set.rows());
        }
    }

    #[test]
    fn what_is_no_set_is_refused_with_row_and_column() {
        let head = "peak_bytes,touched_limit,page_cache_bytes,missed,input,in_width\n";
        let refused = |rows: &str| TrainingSet::from_csv("1", &format!("{head}{rows}")).unwrap_err().to_string();
        assert!(refused("-1,false,0,false,0,3\n").contains("row 1: peak_bytes"));
        assert!(refused("1,no,0,false,0,3\n").contains("touched_limit"));
        assert!(refused("1,false,0,false,0,NaN\n").contains("in_width"));
        assert!(refused("1,false,0,false,0,inf\n").contains("in_width"));
        assert!(refused("1,false,0,false,0\n").contains("line 2"));
        let missing = TrainingSet::from_csv("1", "peak_bytes\n").unwrap_err().to_string();
        assert!(missing.contains("touched_limit"), "{missing}");
        let many = format!("{head}{}", "1,false,0,false,0,3\n".repeat(TRAINING_ROWS_MAX + 1));
        assert!(TrainingSet::from_csv("1", &many).is_err());
    }
}
