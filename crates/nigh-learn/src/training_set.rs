//! The rows that a function's model is fitted to: few, chosen, of one version of its code.
//!
//! Until the model is mature and has [`CHOSEN_FROM`] rows, all rows are kept. After that, as in OFC's section 5.3.3,
//! under-predicted rows, which count double, and rows far below their prediction. Unlike the paper, also one in ten of
//! the others, since a set of errors alone would teach the model that errors are the rule. A full set removes its
//! oldest row that was no under-prediction.

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::benefit::PhaseTimes;
use crate::feature::{FeatureError, FeatureRow, START_FEATURE, USED_BEFORE_FEATURE, hash_bytes};
use crate::interval::Interval;
use crate::sample::Sample;
use crate::schema::Schema;

/// Rows of a set at most.
pub const TRAINING_ROWS_MAX: usize = 1000;
/// Bytes of a version's name at most.
pub const VERSION_BYTES_MAX: usize = 128;
/// All rows up to this number are kept, mature or not: a model that matures at twenty rows still has to learn its
/// margin.
pub const CHOSEN_FROM: usize = 200;
/// The weight of an under-predicted row.
const MISS_WEIGHT: f64 = 2.0;
/// An over-prediction by more intervals than this is worth a row.
const FAR_OVER_INTERVALS: u64 = 6;
/// One in this many well predicted rows is kept.
const GOOD_ONE_IN: u64 = 10;

/// The kind of start: the peak of a cold start includes the runtime's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The sandbox was made for it.
    Cold,
    /// The sandbox had run before.
    Warm,
}

impl Start {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

/// One invocation as it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingRow {
    /// What was known before it ran, how it started among it.
    pub features: FeatureRow,
    /// The most memory it needed; of page cache what is worth its room is in it, the rest is not.
    pub peak: ByteSize,
    /// Whether it reached its limit and may have needed more.
    pub touched_limit: bool,
    /// Page cache at its peak. It can be reclaimed, so it is no need; kept for inspection.
    pub page_cache: ByteSize,
    /// Whether it was under-predicted.
    pub missed: bool,
    /// Invocations on one input share it.
    pub input: u64,
    /// Its times if the store had served everything; none if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<PhaseTimes>,
}

impl TrainingRow {
    /// A row that nothing was predicted for.
    pub fn new(mut features: FeatureRow, peak: ByteSize, start: Start) -> Result<Self, FeatureError> {
        features.set_start(start)?;
        let input = features.fingerprint();
        let (page_cache, times) = (ByteSize::ZERO, None);
        Ok(Self { features, peak, touched_limit: false, page_cache, missed: false, input, times })
    }

    /// What it takes in memory, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.features.bytes()
    }
}

impl FeatureRow {
    /// Sets how the sandbox begins.
    pub fn set_start(&mut self, start: Start) -> Result<(), FeatureError> {
        self.set_word(START_FEATURE, start.word())
    }

    /// Sets what a warm sandbox uses before it runs.
    pub fn set_used_before(&mut self, used: ByteSize) -> Result<(), FeatureError> {
        self.set_number(USED_BEFORE_FEATURE, used.bytes() as f64)
    }
}

/// Why a row or a set is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TrainingSetError {
    /// The code has changed since.
    #[error("the row is of version {given}, the training set of {known}; a new version begins a set of its own")]
    OtherVersion {
        /// What the set is of.
        known: String,
        /// What the row is of.
        given: String,
    },
    /// No version's name.
    #[error("a version's name has 1 to {VERSION_BYTES_MAX} bytes, not {bytes}")]
    Version {
        /// How many it has.
        bytes: usize,
    },
}

/// The result for an offered row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowDecision {
    /// Kept, because the model is not mature or has few rows.
    Learning,
    /// The need was above what was predicted.
    Miss,
    /// Far too much was predicted.
    FarOver,
    /// One of the good ones.
    Good,
    /// Kept, because the benefit was predicted wrongly.
    Benefit,
    /// Not kept: the model knows it.
    No,
}

impl RowDecision {
    /// Whether to keep a row with the prediction `predicted` of a mature model, with `rows` kept of `offered` rows.
    pub(crate) fn choose(
        row: &TrainingRow,
        predicted: Option<ByteSize>,
        interval: Interval,
        rows: usize,
        offered: u64,
    ) -> Self {
        let Some(predicted) = predicted else { return Self::Learning };
        let few = rows < CHOSEN_FROM;
        let (said, was) = (interval.index(predicted), interval.index(row.peak));
        // A draw that needs no source of chance: by what the row is and how many came before it.
        let drawn = row.features.fingerprint()
            ^ offered.to_le_bytes().iter().fold(0, |hash, byte| hash * 31 + u64::from(*byte));
        if said < was || row.touched_limit {
            Self::Miss
        } else if few {
            Self::Learning
        } else if said - was > FAR_OVER_INTERVALS {
            Self::FarOver
        } else if hash_bytes(&drawn.to_le_bytes()).is_multiple_of(GOOD_ONE_IN) {
            Self::Good
        } else {
            Self::No
        }
    }
}

/// The rows of one version of a function's code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingSet {
    version: String,
    /// Oldest first.
    rows: Vec<TrainingRow>,
    /// Rows that were offered.
    offered: u64,
}

impl TrainingSet {
    /// An empty set of this version of the code.
    pub fn new(version: impl Into<String>) -> Result<Self, TrainingSetError> {
        let version = version.into();
        if version.is_empty() || version.len() > VERSION_BYTES_MAX {
            return Err(TrainingSetError::Version { bytes: version.len() });
        }
        Ok(Self { version, rows: Vec::new(), offered: 0 })
    }

    /// The version of the code.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The rows, oldest first.
    #[must_use]
    pub fn rows(&self) -> &[TrainingRow] {
        &self.rows
    }

    /// Offers a row of `version`. `predicted` is a mature model's prediction, by which the paper chooses; none without
    /// a mature model.
    pub fn offer(
        &mut self,
        version: &str,
        mut row: TrainingRow,
        predicted: Option<ByteSize>,
        interval: Interval,
    ) -> Result<RowDecision, TrainingSetError> {
        if version != self.version {
            return Err(TrainingSetError::OtherVersion { known: self.version.clone(), given: version.to_owned() });
        }
        self.offered += 1;
        let kept = RowDecision::choose(&row, predicted, interval, self.rows.len(), self.offered);
        row.missed |= kept == RowDecision::Miss;
        if kept != RowDecision::No {
            self.keep(row);
        }
        Ok(kept)
    }

    /// Rows that were offered so far, kept or not.
    #[must_use]
    pub const fn offered(&self) -> u64 {
        self.offered
    }

    /// Takes rows that were chosen elsewhere from `offered` rows.
    pub(crate) fn take(&mut self, rows: Vec<TrainingRow>, offered: u64) {
        self.offered = offered;
        for row in rows {
            self.keep(row);
        }
    }

    /// Removes the older half of the rows; false if there are none.
    pub(crate) fn halve(&mut self) -> bool {
        self.rows.drain(..self.rows.len().div_ceil(2)).count() > 0
    }

    pub(crate) fn keep(&mut self, row: TrainingRow) {
        if self.rows.len() == TRAINING_ROWS_MAX {
            let oldest_good = self.rows.iter().position(|row| !row.missed).unwrap_or(0);
            self.rows.remove(oldest_good);
        }
        self.rows.push(row);
    }

    /// The columns of the rows and the rows by them, ready to be fitted.
    #[must_use]
    pub fn samples(&self) -> (Schema, Vec<Sample>) {
        let schema = Schema::learn(self.rows.iter().map(|row| &row.features));
        let sample = |row: &TrainingRow| Sample {
            features: schema.encode(&row.features),
            peak: row.peak,
            bound: row.touched_limit,
            weight: if row.missed { MISS_WEIGHT } else { 1.0 },
            group: row.input,
        };
        let samples = self.rows.iter().map(sample).collect();
        (schema, samples)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn row(at: u64, peak_mb: u64) -> TrainingRow {
        let mut features = FeatureRow::default();
        features.set_number("in_width", at as f64).unwrap();
        TrainingRow::new(features, ByteSize(peak_mb * 1_000_000), Start::Warm).unwrap()
    }

    fn set() -> TrainingSet {
        TrainingSet::new("1").unwrap()
    }

    #[test]
    fn a_mature_set_keeps_misses_far_overs_and_a_share_of_the_good() {
        let mut set = set();
        let offer = |set: &mut TrainingSet, at, peak, said: u64| {
            set.offer("1", row(at, peak), Some(ByteSize(said * 1_000_000)), Interval::OFC).unwrap()
        };
        for at in 0..CHOSEN_FROM as u64 {
            assert_eq!(offer(&mut set, at, 10, 16), RowDecision::Learning);
        }
        assert_eq!(offer(&mut set, 0, 17, 16), RowDecision::Miss);
        assert_eq!(offer(&mut set, 1, 10, 16 * 8), RowDecision::FarOver);
        let good = (0..1000).filter(|at| offer(&mut set, *at, 10, 16 * 7) == RowDecision::Good).count();
        assert!((70..130).contains(&good), "{good} of 1000 good rows");
        let mut touched = row(7, 10);
        touched.touched_limit = true;
        assert_eq!(set.offer("1", touched, Some(ByteSize(16_000_000)), Interval::OFC), Ok(RowDecision::Miss));
        assert!(set.rows()[CHOSEN_FROM].missed && !set.rows()[CHOSEN_FROM + 1].missed);
    }

    #[test]
    fn a_full_set_gives_up_its_oldest_good_row() {
        let mut set = set();
        let mut missed = row(0, 1);
        missed.missed = true;
        set.offer("1", missed.clone(), None, Interval::OFC).unwrap();
        for at in 1..=TRAINING_ROWS_MAX as u64 {
            set.offer("1", row(at, 1), None, Interval::OFC).unwrap();
        }
        assert_eq!(set.rows().len(), TRAINING_ROWS_MAX);
        assert_eq!(set.rows()[0], missed);
        assert_eq!(set.rows()[1], row(2, 1));
    }

    #[test]
    fn rows_of_other_code_are_refused_and_a_version_has_a_name() {
        let error = set().offer("2", row(1, 1), None, Interval::OFC).unwrap_err();
        assert!(error.to_string().contains("version 2"), "{error}");
        assert!(TrainingSet::new("").is_err() && TrainingSet::new("x".repeat(129)).is_err());
    }

    #[test]
    fn misses_count_more_limits_are_bounds_and_starts_are_told_apart() {
        let mut set = set();
        let cold = TrainingRow::new(FeatureRow::default(), ByteSize(9), Start::Cold).unwrap();
        let mut limited = row(1, 5);
        (limited.touched_limit, limited.missed) = (true, true);
        set.keep(cold);
        set.keep(limited);
        let (schema, samples) = set.samples();
        assert_eq!((samples[0].weight, samples[1].weight), (1.0, MISS_WEIGHT));
        assert_eq!((samples[0].bound, samples[1].bound), (false, true));
        let start = schema.position(START_FEATURE).unwrap();
        assert_ne!(samples[0].features.values[start], samples[1].features.values[start]);
    }
}
