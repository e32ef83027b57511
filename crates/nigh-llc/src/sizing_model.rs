//! Predicts the ways that an invocation needs, and its class: one model for each function and version of its code.
//!
//! There are three kinds of models: CASY's nearest neighbours by size, ways interpolated along size or another feature,
//! and interpolated curves. [`SizingModel::choose`] decides by the data. Ways and class may come from different models,
//! as in CASY. A chosen model adds ways if the rows' spread leaves the threshold uncertain. A prediction outside the
//! profiled range is the nearest row's and is marked, as a reason to profile. Without rows, or with rows of other code,
//! there is no prediction, and the function runs in the default class.

use nigh_terms::Ways;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::nearest_rows::{NearestRows, agreed};
use crate::row_interpolation::{CurveLine, WayLine};
use crate::slowdown_margin::SlowdownMargin;
use crate::time_curve::{CacheClass, Tolerance};
use crate::training_rows::{Axis, CodeVersion, RowError, RunCurves, SizingInput, TrainingRows};
use crate::way_loads::PredictedNeed;

/// Bytes of a stored model that are read.
pub const STORED_MAX: usize = 8 << 20;

/// The kinds of model, the simpler first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// CASY's: the nearest rows vote.
    Nearest,
    /// Ways on a line between rows that never falls.
    Rising,
    /// Ways on the line between rows.
    Interpolated,
    /// Curves between rows, the need read from the curve.
    Curves,
}

/// Where a prediction's class comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassFrom {
    /// A vote of the nearest rows, independent of the predicted ways: CASY's first model.
    NearestRows,
    /// The predicted ways: more than the fewest means sensitive.
    #[default]
    Ways,
}

/// The parameters for reading a need from a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SizingRule {
    /// The slowdown that counts.
    pub threshold: Tolerance,
    /// Lines of one way.
    pub lines_per_way: f64,
}

/// Whether the input is within the profiled range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainedRange {
    /// Within the profiled inputs.
    Trained,
    /// Outside the profiled inputs: profile this input.
    Extrapolated,
}

/// The prediction for one input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// Ways and class.
    pub predicted: PredictedNeed,
    /// Whether the input is within the profiled range.
    pub range: TrainedRange,
    /// The kind of the model.
    pub kind: ModelKind,
    /// The curves, if the rows have them; used to compare ways of sharing.
    #[serde(skip)]
    pub curves: Option<RunCurves>,
}

/// Why a stored model is not read.
#[derive(Debug, Error)]
pub enum ModelError {
    /// Larger than any model is.
    #[error("a stored model has {bytes} bytes, and at most {STORED_MAX} are read; profile the function anew")]
    TooLarge {
        /// How many.
        bytes: usize,
    },
    /// The document is damaged.
    #[error("a stored model cannot be read ({0}): profile the function anew")]
    Broken(#[from] serde_json::Error),
    /// The document is of another version of Nigh.
    #[error("a stored model has format {format}, and this version reads {}: profile the function anew", v1::FORMAT)]
    OtherFormat {
        /// Its format.
        format: u32,
    },
    /// A row is invalid.
    #[error("a stored model has an invalid row: {0}; profile the function anew")]
    BadRow(#[from] RowError),
    /// The kind does not fit the rows.
    #[error("a stored model of kind {kind:?} does not fit its rows: profile the function anew")]
    Unfit {
        /// Its kind.
        kind: ModelKind,
    },
}

/// A fitted model with its rows.
#[derive(Debug, Clone)]
pub struct SizingModel {
    rows: TrainingRows,
    rule: SizingRule,
    kind: ModelKind,
    axis: Axis,
    class_from: ClassFrom,
    nearest: NearestRows,
    line: Option<WayLine>,
    curves: Option<CurveLine>,
    /// Only in a chosen model, and only if enough rows have curves.
    margin: Option<SlowdownMargin>,
    careful: bool,
}

impl SizingModel {
    /// A model of a given kind, with the class from the ways and no margin; `None` if the rows do not allow it.
    #[must_use]
    pub fn fit(rows: TrainingRows, rule: SizingRule, kind: ModelKind, axis: Axis) -> Option<Self> {
        let nearest = NearestRows::fit(rows.iter(), axis)?;
        let line = match kind {
            ModelKind::Nearest | ModelKind::Curves => None,
            ModelKind::Rising => Some(WayLine::fit(rows.iter(), axis, true)?),
            ModelKind::Interpolated => Some(WayLine::fit(rows.iter(), axis, false)?),
        };
        let curves = CurveLine::fit(rows.iter(), axis);
        if kind == ModelKind::Curves && curves.is_none() {
            return None;
        }
        let class_from = ClassFrom::default();
        Some(Self { rows, rule, kind, axis, class_from, nearest, line, curves, margin: None, careful: false })
    }

    /// The same model with another source of the class.
    #[must_use]
    pub fn with_class(self, class_from: ClassFrom) -> Self {
        Self { class_from, ..self }
    }

    /// The same model with ways added until, by the rows' spread, the time is within the threshold for all but one
    /// input in twenty.
    #[must_use]
    pub fn careful(self) -> Self {
        Self { margin: SlowdownMargin::of(&self.rows, self.axis), careful: true, ..self }
    }

    /// The prediction for an input of this code; `None` for other code, or if the input lacks the quantity.
    #[must_use]
    pub fn predict(&self, version: &CodeVersion, input: &SizingInput) -> Option<Prediction> {
        if version != self.rows.version() {
            return None;
        }
        let at = input.along(self.axis)?;
        let curves = self.curves.as_ref().and_then(|curves| curves.predict(at));
        let (ways, class) = match (&self.line, &curves, self.kind) {
            (_, Some(curves), ModelKind::Curves) => {
                let threshold = self.rule.threshold;
                let class = curves.times.class(threshold, Some((&curves.misses, self.rule.lines_per_way)));
                (curves.times.ways_needed(threshold), class)
            }
            (Some(line), ..) => {
                let ways = line.predict(at);
                (ways, self.class_at(at, ways))
            }
            _ => self.nearest.predict(at),
        };
        let (ways, class) = match (self.class_from, self.nearest.class(at)) {
            (ClassFrom::Ways, _) => (ways, agreed(ways, class)),
            (ClassFrom::NearestRows, CacheClass::Sensitive) => (ways.max(Ways(2)), CacheClass::Sensitive),
            (ClassFrom::NearestRows, insensitive) => (self.fewest(), insensitive),
        };
        let unsure = |margin: &SlowdownMargin| {
            let curves = curves.as_ref().filter(|_| !class.is_insensitive())?;
            Some(margin.ways_needed(&curves.times, self.rule.threshold))
        };
        let ways = self.margin.as_ref().and_then(unsure).map_or(ways, |sure| ways.max(sure));
        let (least, greatest) = self.nearest.range();
        let range = if at < least || at > greatest { TrainedRange::Extrapolated } else { TrainedRange::Trained };
        // A profiled input uses its own curves, wherever it is on the axis.
        let curves = self.rows.only(input).and_then(|row| row.curves.clone()).or(curves);
        Some(Prediction { predicted: PredictedNeed { ways, class }, range, kind: self.kind, curves })
    }

    /// The ways of an insensitive row: one, or the fewest of a mask.
    fn fewest(&self) -> Ways {
        self.rows.iter().map(|row| row.ways).min().unwrap_or(Ways(1))
    }

    /// The class for interpolated ways: the nearest row's, unless the ways contradict it.
    fn class_at(&self, at: f64, ways: Ways) -> CacheClass {
        let nearest = self.nearest.class(at);
        if ways > self.fewest() && nearest.is_insensitive() { CacheClass::Sensitive } else { nearest }
    }

    /// The rows it was fitted to.
    #[must_use]
    pub const fn rows(&self) -> &TrainingRows {
        &self.rows
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> ModelKind {
        self.kind
    }

    /// The quantity it goes by.
    #[must_use]
    pub const fn axis(&self) -> Axis {
        self.axis
    }

    /// Where its class comes from.
    #[must_use]
    pub const fn class_from(&self) -> ClassFrom {
        self.class_from
    }

    /// The model as it is stored.
    pub fn encode(&self) -> Result<Vec<u8>, ModelError> {
        let stored = v1::StoredSizingModel {
            format: v1::FORMAT,
            kind: self.kind,
            axis: self.axis,
            class_from: self.class_from,
            careful: self.careful,
            rule: self.rule,
            rows: self.rows.clone(),
        };
        Ok(serde_json::to_vec(&stored)?)
    }

    /// A stored model, fitted again to its rows.
    pub fn decode(stored: &[u8]) -> Result<Self, ModelError> {
        if stored.len() > STORED_MAX {
            return Err(ModelError::TooLarge { bytes: stored.len() });
        }
        let v1::Header { format } = serde_json::from_slice(stored)?;
        if format != v1::FORMAT {
            return Err(ModelError::OtherFormat { format });
        }
        let v1::StoredSizingModel { kind, axis, class_from, careful, rule, rows, .. } = serde_json::from_slice(stored)?;
        rows.check()?;
        let model = Self::fit(rows, rule, kind, axis).ok_or(ModelError::Unfit { kind })?.with_class(class_from);
        Ok(if careful { model.careful() } else { model })
    }
}

mod v1 {
    use serde::{Deserialize, Serialize};

    use super::{Axis, ClassFrom, ModelKind, SizingRule, TrainingRows};

    pub(super) const FORMAT: u32 = 1;

    #[derive(Deserialize)]
    pub(super) struct Header {
        pub(super) format: u32,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct StoredSizingModel {
        pub(super) format: u32,
        pub(super) kind: ModelKind,
        pub(super) axis: Axis,
        /// Models stored before it was a choice had it from the ways, and no margin.
        #[serde(default)]
        pub(super) class_from: ClassFrom,
        #[serde(default)]
        pub(super) careful: bool,
        pub(super) rule: SizingRule,
        pub(super) rows: TrainingRows,
    }
}

#[cfg(test)]
pub(crate) mod tests;
