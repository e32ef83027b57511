//! Learns what an invocation needs: features, models of peak memory and of caching benefit, maturity, training sets.
//!
//! This crate does no I/O, reads no clock and draws no random numbers. It follows section 5 of OFC, with a C4.5-like
//! tree as the baseline. docs/design/learning.md gives the reasons for departures.

mod benefit;
mod csv_table;
mod feature;
mod function_model;
mod interval;
mod j48;
mod lin_tree;
mod maturity;
pub mod media;
mod model;
mod peak_floors;
mod predictor;
mod quantities;
mod sample;
mod schema;
#[cfg(test)]
#[path = "../../../tests/skipped.rs"]
mod skipped;
mod training_csv;
mod training_set;

pub use benefit::{BENEFIT_SHARE, Benefit, PhaseTimes, STORE_TIMES_MAX, StoreLine, StoreTimes};
pub use csv_table::{CSV_COLUMNS_MAX, CSV_FIELD_BYTES_MAX, CsvError, CsvField, CsvTable, quoted};
pub use feature::{
    FEATURES_MAX, FeatureError, FeatureName, FeatureRow, FeatureValue, NAME_BYTES_MAX, NUMBER_MAX, WORD_BYTES_MAX,
    hash_bytes, kept_word,
};
pub use function_model::{FunctionModel, ModelError, STORED_MAX};
pub use interval::{EmptyInterval, Interval, clamp_grant};
pub use j48::J48;
pub use lin_tree::LinTree;
pub use maturity::{CHECKED_FROM, Maturity, MaturityChange, Nearness, WINDOW, is_mature};
pub use model::{FittedModel, Learner, PeakModel, UnknownLearner};
pub use peak_floors::{FLOORS_MAX, PeakFloors};
pub use predictor::{LearnOutcome, Need, Predictor, RunPrediction};
pub use sample::{Sample, fold_of};
pub use schema::{EncodedRow, HASHED_LEVELS, LEVELS_MAX, Schema};
pub use training_csv::{TrainingCsvError, feature_of};
pub use training_set::{
    CHOSEN_FROM, RowDecision, Start, TRAINING_ROWS_MAX, TrainingRow, TrainingSet, TrainingSetError, VERSION_BYTES_MAX,
};
