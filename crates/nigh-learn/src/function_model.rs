//! Everything learned about one version of a function's code, as one value: rows, model, maturity, floors.
//!
//! [`need`](FunctionModel::need) predicts for an invocation; [`ended`](FunctionModel::ended) takes its end. Fitting is
//! a separate step ([`refitted`](FunctionModel::refitted)) that leaves this value unchanged, so that a caller can do it
//! in the background and then replace the value. A caller with many functions keeps their [`Predictor`]s in memory and
//! this value in a store, and joins them there ([`resumed`](FunctionModel::resumed)). The stored form is a document
//! with a format number (docs/design/formats.md).

use std::sync::Arc;

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::feature::FeatureRow;
use crate::interval::Interval;
use crate::maturity::Maturity;
use crate::model::{FittedModel, Learner};
use crate::peak_floors::PeakFloors;
use crate::predictor::{FittedPredictor, LearnOutcome, Need, Predictor};
use crate::schema::Schema;
use crate::training_set::{TRAINING_ROWS_MAX, TrainingRow, TrainingSet, TrainingSetError};

/// The form of a stored document that this build writes.
const FORMAT: u32 = 3;
/// Bytes of a stored document at most.
pub const STORED_MAX: usize = 4 << 20;

/// Why a stored model is rejected. It is learned again.
#[derive(Debug, Error)]
pub enum ModelError {
    /// Too large to be one.
    #[error("the stored model has {bytes} bytes; a model has at most {STORED_MAX}")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
    },
    /// No JSON, or not of this form.
    #[error("the stored model cannot be read: {0}")]
    Broken(#[from] serde_json::Error),
    /// Of another form.
    #[error("the stored model has format {format}, this build reads 1 to {FORMAT}; the function is learned anew")]
    OtherFormat {
        /// Its number.
        format: u32,
    },
    /// The document is inconsistent.
    #[error("the stored model is damaged: its {part} is impossible")]
    Unsound {
        /// What.
        part: &'static str,
    },
}

/// The model of one version of a function's code.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionModel {
    learner: Learner,
    set: TrainingSet,
    predictor: Predictor,
}

impl FunctionModel {
    /// An empty model of `version`. Errors are counted in units of `interval`.
    pub fn new(version: impl Into<String>, learner: Learner, interval: Interval) -> Result<Self, TrainingSetError> {
        let set = TrainingSet::new(version)?;
        let predictor = Predictor::new(set.version(), interval);
        Ok(Self { learner, set, predictor })
    }

    /// Learns the rows of `set` one after the other, so that the maturity is known.
    pub fn replayed(set: &TrainingSet, learner: Learner, interval: Interval) -> Result<Self, TrainingSetError> {
        let mut model = Self::new(set.version(), learner, interval)?;
        for row in set.rows() {
            if model.ended(set.version(), row.clone())?.refit {
                model = model.refitted();
            }
        }
        let offered = model.predictor.offered.max(set.offered());
        model.set = set.clone();
        model.set.take(Vec::new(), offered);
        (model.predictor.offered, model.predictor.rows) = (offered, set.rows().len());
        Ok(model.refitted())
    }

    /// The version of the code.
    #[must_use]
    pub fn version(&self) -> &str {
        self.set.version()
    }

    /// The learner.
    #[must_use]
    pub const fn learner(&self) -> Learner {
        self.learner
    }

    /// The rows.
    #[must_use]
    pub const fn training_set(&self) -> &TrainingSet {
        &self.set
    }

    /// The maturity.
    #[must_use]
    pub const fn maturity(&self) -> &Maturity {
        &self.predictor.maturity
    }

    /// The part that invocations use, without the rows.
    #[must_use]
    pub fn predictor(&self) -> Predictor {
        self.predictor.lean()
    }

    /// The model's prediction, mature or not; none before the first fit.
    #[must_use]
    pub fn predict(&self, features: &FeatureRow) -> Option<ByteSize> {
        self.predictor.predict(features)
    }

    /// The grant of an invocation of `version`. `features` include the kind of start.
    #[must_use]
    pub fn need(&self, version: &str, features: &FeatureRow, runtime_floor: ByteSize, booked: ByteSize) -> Need {
        self.predictor.foresee(version, features, runtime_floor, booked).need
    }

    /// An invocation of `version` ended: it is judged, then learned.
    pub fn ended(&mut self, version: &str, row: TrainingRow) -> Result<LearnOutcome, TrainingSetError> {
        let (learned, row) = self.predictor.ended(version, row)?;
        self.set.take(row.into_iter().collect(), self.predictor.offered);
        self.predictor.rows = self.set.rows().len();
        Ok(learned)
    }

    /// The same, fitted to all rows.
    #[must_use]
    pub fn refitted(&self) -> Self {
        let fitted = FittedPredictor::to(&self.set, self.learner).map(Arc::new);
        let predictor = Predictor { fitted, fresh: 0, ..self.predictor.clone() };
        Self { predictor, ..self.clone() }
    }

    /// The same rows, with `learner` from now on. Another learner than before starts with a new maturity and goes
    /// through the rows again.
    pub fn with_learner(self, learner: Learner) -> Result<Self, TrainingSetError> {
        if learner == self.learner {
            return Ok(self);
        }
        Self::replayed(&self.set, learner, self.predictor.interval)
    }

    /// The same, joined with `predictor`, which was taken from it: its maturity, and the rows that it returned. The
    /// model is unchanged until it is [`refitted`](Self::refitted).
    #[must_use]
    pub fn resumed(mut self, predictor: &Predictor, rows: Vec<TrainingRow>) -> Self {
        if predictor.version != self.version() {
            return self;
        }
        self.set.take(rows, predictor.offered);
        let fitted = self.predictor.fitted.take();
        self.predictor = Predictor { fitted, rows: self.set.rows().len(), ..predictor.clone() };
        self
    }

    /// The document that it is stored as; of a set that would be too large the newer rows.
    pub fn encode(&self) -> Result<Vec<u8>, ModelError> {
        let mut set = self.set.clone();
        loop {
            let stored = serde_json::to_vec(&StoredFunctionModel {
                format: FORMAT,
                learner: self.learner,
                interval: self.predictor.interval,
                set: set.clone(),
                fitted: self.predictor.fitted.as_deref().cloned(),
                maturity: self.predictor.maturity.clone(),
                floors: self.predictor.floors.clone(),
                fresh: self.predictor.fresh,
            })?;
            if stored.len() <= STORED_MAX {
                return Ok(stored);
            }
            if !set.halve() {
                return Err(ModelError::TooLarge { bytes: stored.len() });
            }
        }
    }

    /// A stored one.
    pub fn decode(stored: &[u8]) -> Result<Self, ModelError> {
        if stored.len() > STORED_MAX {
            return Err(ModelError::TooLarge { bytes: stored.len() });
        }
        let Header { format } = serde_json::from_slice(stored)?;
        let StoredFunctionModel { learner, interval, set, fitted, maturity, floors, fresh, .. } = match format {
            1 => serde_json::from_slice::<StoredFunctionModel<FittedV1>>(stored)?.upgraded(),
            2 => serde_json::from_slice::<StoredFunctionModel<FittedV2>>(stored)?.upgraded(),
            FORMAT => serde_json::from_slice(stored)?,
            format => return Err(ModelError::OtherFormat { format }),
        };
        let sound = |part: &'static str, is: bool| if is { Ok(()) } else { Err(ModelError::Unsound { part }) };
        sound("number of rows", set.rows().len() <= TRAINING_ROWS_MAX)?;
        sound("version", TrainingSet::new(set.version()).is_ok())?;
        sound("maturity", maturity.is_sound())?;
        if let Some(FittedPredictor { schema, model, benefit }) = &fitted {
            let columns = schema.columns.len();
            sound("columns", schema.is_sound())?;
            sound("model", model.is_sound(columns))?;
            sound("benefit", benefit.as_ref().is_none_or(|benefit| benefit.is_sound(columns)))?;
        }
        let predictor = Predictor {
            version: set.version().to_owned(),
            interval,
            fitted: fitted.map(Arc::new),
            maturity,
            floors,
            rows: set.rows().len(),
            offered: set.offered(),
            fresh,
        };
        Ok(Self { learner, set, predictor })
    }
}

#[derive(Deserialize)]
struct Header {
    format: u32,
}

/// A document, whose forms differ in what a fitted model is.
#[derive(Serialize, Deserialize)]
struct StoredFunctionModel<F> {
    format: u32,
    learner: Learner,
    interval: Interval,
    set: TrainingSet,
    fitted: Option<F>,
    maturity: Maturity,
    floors: PeakFloors,
    fresh: usize,
}

impl<F: Into<FittedPredictor>> StoredFunctionModel<F> {
    fn upgraded(self) -> StoredFunctionModel<FittedPredictor> {
        let Self { learner, interval, set, fitted, maturity, floors, fresh, .. } = self;
        StoredFunctionModel {
            format: FORMAT,
            learner,
            interval,
            set,
            fitted: fitted.map(Into::into),
            maturity,
            floors,
            fresh,
        }
    }
}

/// A document from before times were learned: a model of memory only.
#[derive(Deserialize)]
struct FittedV1(Schema, FittedModel);

impl From<FittedV1> for FittedPredictor {
    fn from(FittedV1(schema, model): FittedV1) -> Self {
        Self { schema, model, benefit: None }
    }
}

/// A document with a tree of two classes for the benefit, which is left out until the next fit.
#[derive(Deserialize)]
struct FittedV2 {
    schema: Schema,
    model: FittedModel,
}

impl From<FittedV2> for FittedPredictor {
    fn from(FittedV2 { schema, model }: FittedV2) -> Self {
        Self { schema, model, benefit: None }
    }
}

#[cfg(test)]
mod tests;
