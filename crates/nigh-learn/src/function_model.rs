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
mod tests {
    use super::*;
    use crate::benefit::PhaseTimes;
    use crate::maturity::MaturityChange;
    use crate::training_set::{RowDecision, Start};

    const BOOKED: ByteSize = ByteSize(2_000_000_000);
    const FLOOR: ByteSize = ByteSize(5_000_000);

    fn features(at: u64) -> FeatureRow {
        let mut row = FeatureRow::default();
        row.set_number("in_width", (100 + at * 7919 % 900) as f64).unwrap();
        row.set_number("in_height", (100 + at * 104_729 % 900) as f64).unwrap();
        row.set_word("in_format", ["png", "jpeg"][(at % 2) as usize]).unwrap();
        row.set_start(Start::Warm).unwrap();
        row
    }

    fn peak(at: u64) -> ByteSize {
        ByteSize(12_000_000 + 8 * (100 + at * 7919 % 900) * (100 + at * 104_729 % 900))
    }

    fn run(mut model: FunctionModel, rows: std::ops::Range<u64>) -> FunctionModel {
        for at in rows {
            let row = TrainingRow::new(features(at), peak(at), Start::Warm).unwrap();
            if model.ended("1", row).unwrap().refit {
                model = model.refitted();
            }
        }
        model
    }

    fn new(learner: Learner) -> FunctionModel {
        FunctionModel::new("1", learner, Interval::OFC).unwrap()
    }

    #[test]
    fn until_it_is_mature_all_that_is_booked_is_granted_and_then_what_is_needed() {
        let young = run(new(Learner::default()), 0..10);
        assert_eq!(young.need("1", &features(77), FLOOR, BOOKED), Need::Booked(BOOKED));
        let old = run(young, 10..60);
        let Need::Learned(grant) = old.need("1", &features(77), FLOOR, BOOKED) else { panic!("not mature") };
        assert!(grant >= peak(77) && grant.0 < peak(77).0 + 2_000_000, "{grant} for {}", peak(77));
        assert_eq!(old.need("2", &features(77), FLOOR, BOOKED), Need::Booked(BOOKED), "other code");
        let small = ByteSize(13_000_000);
        assert!(matches!(old.need("1", &features(77), small, small), Need::Beyond { needed, .. } if needed > small));
    }

    #[test]
    fn after_a_miss_equal_features_get_the_peak_before_any_retraining() {
        let mut model = run(new(Learner::default()), 0..60);
        let high = ByteSize(peak(77).0 * 3);
        let row = TrainingRow::new(features(77), high, Start::Warm).unwrap();
        assert_eq!(model.ended("1", row).unwrap().kept, RowDecision::Miss);
        assert_eq!(model.need("1", &features(77), FLOOR, BOOKED).grant(), high);
    }

    #[test]
    fn a_function_that_changes_is_unlearned() {
        let mut model = run(new(Learner::default()), 0..60);
        let doubled = |at: u64| TrainingRow::new(features(at), ByteSize(peak(at).0 * 10), Start::Warm).unwrap();
        let unmatured =
            (100..200).any(|at| model.ended("1", doubled(at)).unwrap().maturity == MaturityChange::Unmatured);
        assert!(unmatured && !model.maturity().is_mature());
    }

    #[test]
    fn it_is_stored_and_predicts_as_before_and_what_is_broken_is_refused() {
        for learner in ["j48", "lintree"] {
            let model = run(new(learner.parse().unwrap()), 0..60);
            let stored = model.encode().unwrap();
            assert_eq!(FunctionModel::decode(&stored).unwrap(), model);
            let text = String::from_utf8(stored).unwrap();
            let other = text.replacen("\"format\":3", "\"format\":4", 1);
            assert!(matches!(FunctionModel::decode(other.as_bytes()), Err(ModelError::OtherFormat { format: 4 })));
            let half = &text.as_bytes()[..text.len() / 2];
            assert!(matches!(FunctionModel::decode(half), Err(ModelError::Broken(_))));
        }
        let large = vec![b' '; STORED_MAX + 1];
        assert!(matches!(FunctionModel::decode(&large), Err(ModelError::TooLarge { .. })));
        let model = run(new("j48".parse().unwrap()), 0..60);
        let text = String::from_utf8(model.encode().unwrap()).unwrap();
        let endless = text.replace("\"below\":1,", "\"below\":0,");
        assert_ne!(endless, text);
        assert!(matches!(FunctionModel::decode(endless.as_bytes()), Err(ModelError::Unsound { part: "model" })));
    }

    #[test]
    fn what_stands_in_the_path_has_no_rows_and_comes_together_with_them_again() {
        let whole = run(new(Learner::default()), 0..60);
        let mut predictor = whole.predictor();
        assert_eq!(predictor.predict(&features(77)), whole.predict(&features(77)));
        let (mut kept, mut missed) = (Vec::new(), 0);
        let mut beside = whole.clone();
        for at in 60..90 {
            let high = ByteSize(peak(at).0 * if at % 10 == 0 { 3 } else { 1 });
            let row = TrainingRow::new(features(at), high, Start::Warm).unwrap();
            let (learned, row) = predictor.ended("1", row.clone()).unwrap();
            missed += usize::from(learned.missed && high > peak(at));
            kept.extend(row);
            beside.ended("1", TrainingRow::new(features(at), high, Start::Warm).unwrap()).unwrap();
        }
        assert_eq!(missed, 3);
        assert_eq!(whole.resumed(&predictor, kept), beside);
        let newer = beside.refitted();
        predictor.take_model_of(&newer.predictor(), 0);
        assert_eq!(predictor.predict(&features(77)), newer.predict(&features(77)));
        assert!(newer.predictor().bytes() < 32 << 10, "{}", newer.predictor().bytes());
    }

    #[test]
    fn rows_that_are_gone_through_again_teach_what_they_taught() {
        let model = run(new(Learner::default()), 0..60);
        let again = FunctionModel::replayed(model.training_set(), Learner::default(), Interval::OFC).unwrap();
        assert!(again.maturity().is_mature());
        assert_eq!(again.maturity().matured_at(), model.maturity().matured_at());
        let other = again.with_learner("j48-next".parse().unwrap()).unwrap();
        assert_eq!((other.learner().to_string().as_str(), other.training_set().rows().len()), ("j48-next", 60));
        assert!(other.predict(&features(77)).is_some());
    }

    #[test]
    fn whether_caching_pays_is_told_once_the_model_is_mature_and_times_are_known() {
        let mut model = new(Learner::default());
        let said = |model: &FunctionModel, at| model.predictor().foresee("1", &features(at), FLOOR, BOOKED).benefits;
        for at in 0..60 {
            let mut row = TrainingRow::new(features(at), peak(at), Start::Warm).unwrap();
            // Small pictures are mostly fetched, large ones mostly worked on.
            let transform_us = (peak(at).0 / 1000) as f64;
            row.times = Some(PhaseTimes { extract_us: 7000.0, transform_us, load_us: 7000.0 });
            assert_eq!(said(&model, at).filter(|_| at < 20), None);
            if model.ended("1", row).unwrap().refit {
                model = model.refitted();
            }
        }
        let right = (100..200).filter(|at| said(&model, *at) == Some(peak(*at).0 < 14_000_000)).count();
        assert!(right > 70, "{right}");
        assert_eq!(FunctionModel::decode(&model.encode().unwrap()).unwrap(), model);
    }

    #[test]
    fn a_set_too_large_to_be_stored_is_stored_by_its_newer_rows() {
        let mut model = new(Learner::default());
        for at in 0..TRAINING_ROWS_MAX as u64 {
            let mut row = features(at);
            for word in 0..26 {
                let name = format!("arg_{word:02}{}", "n".repeat(58));
                row.set_word(&name, &format!("{at:04}{}", "\"".repeat(60))).unwrap();
            }
            model.ended("1", TrainingRow::new(row, peak(at), Start::Warm).unwrap()).unwrap();
        }
        let stored = FunctionModel::decode(&model.encode().unwrap()).unwrap();
        let (all, kept) = (model.training_set().rows(), stored.training_set().rows());
        assert!(kept.len() < all.len() && kept.len() > 100 && kept.last() == all.last(), "{}", kept.len());
    }

    #[test]
    fn models_of_earlier_forms_predict_as_they_did() {
        let first = &include_bytes!("../tests/fixtures/function-model-1.json")[..];
        let second = &include_bytes!("../tests/fixtures/function-model-2.json")[..];
        for stored in [first, second] {
            let model = FunctionModel::decode(stored).unwrap();
            assert_eq!((model.version(), model.training_set().rows().len()), ("1", 30));
            // What each said when it was stored.
            assert_eq!(model.predict(&features(77)), Some(ByteSize(13_049_433)));
        }
    }
}
