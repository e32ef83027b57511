//! A function's training rows: one for each profiled input, all of one version of its code.
//!
//! Other code may behave differently, so a row of another version replaces all rows. The number of rows is bounded; the
//! oldest are removed.

use std::collections::VecDeque;

use nigh_terms::{ByteSize, Ways};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::miss_curve::{CurveError, MissCurve, WAYS_MAX};
use crate::time_curve::{CacheClass, CpiModel, TimeCurve, Tolerance, Work};

/// Rows kept of one function.
pub const ROWS_MAX: usize = 512;
/// Rows that are left out in turn.
const LEFT_OUT_MAX: usize = 64;

/// Features of an input beside its size.
pub const FEATURES_MAX: usize = 16;

/// The profiled code, by its digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CodeVersion(pub String);

/// The features of an input before the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SizingInput {
    /// Its size, the only feature in the paper.
    pub size: ByteSize,
    /// Further features (pixels, seconds), in the function's fixed order.
    #[serde(default)]
    pub features: Vec<f64>,
}

/// One of an input's quantities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// The size.
    Size,
    /// A feature, by index.
    Feature(u8),
}

impl SizingInput {
    /// The base-2 logarithm of a quantity (at least 1); `None` if the input lacks it.
    #[must_use]
    pub fn along(&self, axis: Axis) -> Option<f64> {
        let value = match axis {
            Axis::Size => self.size.0 as f64,
            Axis::Feature(at) => *self.features.get(usize::from(at))?,
        };
        value.is_finite().then(|| value.max(1.0).log2())
    }
}

/// Both curves of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunCurves {
    /// Misses by way count.
    pub misses: MissCurve,
    /// Time by way count.
    pub times: TimeCurve,
}

/// The measured need of one input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrainingRow {
    /// The input.
    pub input: SizingInput,
    /// The ways it needs.
    pub ways: Ways,
    /// Its class.
    pub class: CacheClass,
    /// Its curves, if measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curves: Option<RunCurves>,
}

/// The cache that a one-run profile is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OneRunRule {
    /// Cycles per event.
    pub model: CpiModel,
    /// The slowdown that counts.
    pub threshold: Tolerance,
    /// Lines of one way.
    pub lines_per_way: f64,
}

impl TrainingRow {
    /// The row of a one-run profile: the miss curve of a traced run, turned into times by the model.
    pub fn one_run(input: SizingInput, misses: MissCurve, work: &Work, rule: &OneRunRule) -> Result<Self, CurveError> {
        let misses = misses.monotone();
        let times = TimeCurve::from_misses(&misses, work, &rule.model)?;
        let ways = times.ways_needed(rule.threshold);
        let class = times.class(rule.threshold, Some((&misses, rule.lines_per_way)));
        Ok(Self { input, ways, class, curves: Some(RunCurves { misses, times }) })
    }
}

impl TrainingRow {
    /// The row with an insensitive class refined to light or thrashing, if its misses are known.
    #[must_use]
    pub fn told_apart(mut self, lines_per_way: f64) -> Self {
        if let (CacheClass::Insensitive, Some(curves)) = (self.class, &self.curves) {
            self.class = CacheClass::of_insensitive(&curves.misses, lines_per_way);
        }
        self
    }
}

/// Why a row is not taken.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RowError {
    /// A need no cache has.
    #[error("a row has a need of {ways} ways: expected 1 to {}", WAYS_MAX)]
    WrongWays {
        /// What was given.
        ways: Ways,
    },
    /// A feature is not a finite number.
    #[error("a row has {features} features or one that is not finite: give at most {FEATURES_MAX} finite numbers")]
    WrongFeatures {
        /// How many were given.
        features: usize,
    },
}

/// The rows of one version of one function's code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainingRows {
    version: CodeVersion,
    rows: VecDeque<TrainingRow>,
}

impl TrainingRows {
    /// No row yet.
    #[must_use]
    pub const fn new(version: CodeVersion) -> Self {
        Self { version, rows: VecDeque::new() }
    }

    /// The code they belong to.
    #[must_use]
    pub const fn version(&self) -> &CodeVersion {
        &self.version
    }

    /// The row of exactly this input; `None` if there is none or more than one.
    pub(crate) fn only(&self, input: &SizingInput) -> Option<&TrainingRow> {
        let mut found = self.rows.iter().filter(|row| row.input == *input);
        found.next().filter(|_| found.next().is_none())
    }

    /// Each row with all the others; of more than [`LEFT_OUT_MAX`] rows, that many spread evenly.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = (&TrainingRow, Self)> {
        let step = self.rows.len().div_ceil(LEFT_OUT_MAX).max(1);
        self.rows.iter().enumerate().step_by(step).map(|(left_out, row)| {
            let mut others = self.clone();
            others.rows.remove(left_out);
            (row, others)
        })
    }

    /// The rows, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &TrainingRow> + Clone {
        self.rows.iter()
    }

    /// Adds a row. A row of other code removes all present rows.
    pub fn add(&mut self, version: &CodeVersion, row: TrainingRow) -> Result<(), RowError> {
        row.check()?;
        if *version != self.version {
            *self = Self::new(version.clone());
        }
        if self.rows.len() >= ROWS_MAX {
            self.rows.pop_front();
        }
        self.rows.push_back(row);
        Ok(())
    }

    /// Checks rows that come from a file.
    pub(crate) fn check(&self) -> Result<(), RowError> {
        self.rows.iter().try_for_each(TrainingRow::check)
    }
}

impl TrainingRow {
    fn check(&self) -> Result<(), RowError> {
        if self.ways.0 == 0 || self.ways > WAYS_MAX {
            return Err(RowError::WrongWays { ways: self.ways });
        }
        let features = &self.input.features;
        if features.len() > FEATURES_MAX || features.iter().any(|feature| !feature.is_finite()) {
            return Err(RowError::WrongFeatures { features: features.len() });
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn version() -> CodeVersion {
        CodeVersion("sha256:0f".to_owned())
    }

    pub(crate) fn row(kib: u64, ways: u8) -> TrainingRow {
        let class = if ways == 1 { CacheClass::Light } else { CacheClass::Sensitive };
        let input = SizingInput { size: ByteSize::kib(kib), features: vec![] };
        TrainingRow { input, ways: Ways(ways), class, curves: None }
    }

    pub(crate) fn rows(given: &[(u64, u8)]) -> TrainingRows {
        let mut rows = TrainingRows::new(version());
        for &(kib, ways) in given {
            rows.add(&version(), row(kib, ways)).unwrap();
        }
        rows
    }

    #[test]
    fn rows_of_other_code_start_anew() {
        let mut rows = rows(&[(124, 1), (361, 1)]);
        rows.add(&CodeVersion("sha256:1f".to_owned()), row(699, 4)).unwrap();
        assert_eq!((rows.iter().len(), rows.version().0.as_str()), (1, "sha256:1f"));
    }

    #[test]
    fn the_oldest_row_goes_when_there_are_too_many() {
        let mut many = rows(&[(1, 1)]);
        for _ in 0..ROWS_MAX {
            many.add(&version(), row(2, 2)).unwrap();
        }
        assert_eq!(many.iter().len(), ROWS_MAX);
        assert!(many.iter().all(|row| row.ways == Ways(2)));
    }

    #[test]
    fn rows_that_no_cache_gives_are_refused() {
        let mut rows = rows(&[]);
        assert_eq!(rows.add(&version(), row(1, 0)), Err(RowError::WrongWays { ways: Ways(0) }));
        let mut odd = row(1, 1);
        odd.input.features = vec![f64::NAN];
        assert_eq!(rows.add(&version(), odd), Err(RowError::WrongFeatures { features: 1 }));
    }

    #[test]
    fn a_one_run_profile_is_a_row_with_its_curves() {
        let model = CpiModel {
            cycles_per_instruction: 0.5,
            hit_cycles: 20.0,
            miss_cycles: 200.0,
            neighbour_miss_cycles: None,
            megahertz: 2400.0,
        };
        let rule = OneRunRule { model, threshold: Tolerance::FIVE_PERCENT, lines_per_way: 20_480.0 };
        let misses =
            MissCurve::new(451e3, vec![389e3, 285e3, 183e3, 107e3, 60e3, 31e3, 16e3, 7e3, 3e3, 1e3, 5e2]).unwrap();
        let work = Work { instructions: 739e6, neighbour_share: 0.0 };
        let row = TrainingRow::one_run(row(699, 1).input, misses, &work, &rule).unwrap();
        // By hand: 378.5 M cycles with all hits, 180 more a miss: 4 ways (107 k misses) 5.1 %, 5 ways (60 k) 2.9 %.
        assert_eq!((row.ways, row.class), (Ways(5), CacheClass::Sensitive));
        assert!(row.curves.is_some());
    }

    #[test]
    fn an_insensitive_row_is_told_apart_by_its_misses() {
        let times = TimeCurve::new(vec![1e4; 3]).unwrap();
        let row_of = |accesses: f64, misses: f64| TrainingRow {
            class: CacheClass::Insensitive,
            curves: Some(RunCurves {
                misses: MissCurve::new(accesses, vec![misses; 3]).unwrap(),
                times: times.clone(),
            }),
            ..row(1, 1)
        };
        assert_eq!(row_of(1e6, 9e5).told_apart(20_480.0).class, CacheClass::Thrashing);
        assert_eq!(row_of(1e6, 9e3).told_apart(20_480.0).class, CacheClass::Light);
        let uncounted = TrainingRow { class: CacheClass::Insensitive, ..row(1, 1) };
        assert_eq!(uncounted.told_apart(20_480.0).class, CacheClass::Insensitive);
        assert_eq!(row(1, 4).told_apart(20_480.0).class, CacheClass::Sensitive);
    }
}
