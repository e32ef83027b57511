//! All that is learned of one version of a function's code, as one value: rows, model, maturity, floors.
//!
//! An invocation asks [`need`](FunctionModel::need); its end is told by [`ended`](FunctionModel::ended). Fitting again
//! is a step of its own ([`refitted`](FunctionModel::refitted)) that leaves this value as it is, so that a caller does
//! it off the path and puts the new value in the old one's place at once. It is stored as a document with a number
//! (docs/formats.md).

use nigh_terms::ByteSize;
use thiserror::Error;

use crate::feature::FeatureRow;
use crate::interval::{Interval, clamp_grant};
use crate::maturity::{Maturity, MaturityChange, Nearness};
use crate::model::{FittedModel, Learner, PeakModel};
use crate::peak_floors::PeakFloors;
use crate::schema::Schema;
use crate::training_set::{Kept, TRAINING_ROWS_MAX, TrainingRow, TrainingSet, TrainingSetError};

/// Bytes of a stored document at most.
pub const STORED_MAX: usize = 4 << 20;
/// Rows that must have come since the last fit for the next one, while the model is not mature.
const REFIT_ROWS_LEARNING: usize = 5;
/// And once it is.
const REFIT_ROWS_MATURE: usize = 20;

/// What an invocation is granted, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The model is not mature: all that is booked.
    Booked(ByteSize),
    /// What was learned, between the runtime's floor and what is booked.
    Learned(ByteSize),
    /// More than is booked would be needed, as far as is known: all that is booked, and this as advice.
    Beyond {
        /// What is granted.
        booked: ByteSize,
        /// What would be needed.
        needed: ByteSize,
    },
}

impl Need {
    /// The grant.
    #[must_use]
    pub const fn grant(self) -> ByteSize {
        match self {
            Self::Booked(grant) | Self::Learned(grant) | Self::Beyond { booked: grant, .. } => grant,
        }
    }
}

/// What came of an invocation's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learned {
    /// Whether its row was kept.
    pub kept: Kept,
    /// Whether the model may be believed now or no longer.
    pub maturity: MaturityChange,
    /// It is time to fit again.
    pub refit: bool,
}

/// Why a stored model is not taken; it is learned anew.
#[derive(Debug, Error)]
pub enum ModelError {
    /// Too large to be one.
    #[error("{bytes} bytes are no model: at most {STORED_MAX} are")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
    },
    /// No JSON, or not of this form.
    #[error("the stored model cannot be read: {0}")]
    Broken(#[from] serde_json::Error),
    /// Of another form.
    #[error("the stored model has format {format}, this build reads 1; the function is learned anew")]
    OtherFormat {
        /// Its number.
        format: u32,
    },
    /// It contradicts itself.
    #[error("the stored model is damaged: its {part} cannot be")]
    Unsound {
        /// What.
        part: &'static str,
    },
}

/// What is learned of one version of a function's code.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionModel {
    learner: Learner,
    interval: Interval,
    set: TrainingSet,
    fitted: Option<(Schema, FittedModel)>,
    maturity: Maturity,
    floors: PeakFloors,
    /// Rows kept since it was fitted.
    fresh: usize,
}

impl FunctionModel {
    /// Nothing learned yet of `version`. Errors are counted by `interval`.
    pub fn new(version: impl Into<String>, learner: Learner, interval: Interval) -> Result<Self, TrainingSetError> {
        let set = TrainingSet::new(version)?;
        let (maturity, floors) = (Maturity::default(), PeakFloors::default());
        Ok(Self { learner, interval, set, fitted: None, maturity, floors, fresh: 0 })
    }

    /// The version of the code.
    #[must_use]
    pub fn version(&self) -> &str {
        self.set.version()
    }

    /// The rows.
    #[must_use]
    pub const fn training_set(&self) -> &TrainingSet {
        &self.set
    }

    /// Whether it may be believed.
    #[must_use]
    pub const fn maturity(&self) -> &Maturity {
        &self.maturity
    }

    /// What the model says, mature or not; none before the first fit.
    #[must_use]
    pub fn predict(&self, features: &FeatureRow) -> Option<ByteSize> {
        let (schema, model) = self.fitted.as_ref()?;
        Some(self.floors.at_least(features, model.predict(&schema.encode(features))))
    }

    /// What an invocation of `version` is granted. `features` hold how the sandbox begins.
    #[must_use]
    pub fn need(&self, version: &str, features: &FeatureRow, runtime_floor: ByteSize, booked: ByteSize) -> Need {
        if version != self.version() || !self.maturity.is_mature() {
            return Need::Booked(booked);
        }
        match self.predict(features) {
            None => Need::Booked(booked),
            Some(needed) if needed > booked => Need::Beyond { booked, needed },
            Some(needed) => Need::Learned(clamp_grant(needed, runtime_floor, booked)),
        }
    }

    /// An invocation of `version` ended: it is judged, then learned.
    pub fn ended(&mut self, version: &str, row: TrainingRow) -> Result<Learned, TrainingSetError> {
        let said = self.predict(&row.features);
        let chosen_by = said.filter(|_| self.maturity.is_mature());
        let (features, peak) = (row.features.clone(), row.peak);
        let kept = self.set.offer(version, row, chosen_by, self.interval)?;
        let mut maturity = MaturityChange::None;
        if let Some(said) = said {
            maturity = self.maturity.judge(Nearness::of(said, peak, self.interval));
            if said < peak {
                self.floors.missed(&features, peak);
            }
        }
        self.fresh += usize::from(kept != Kept::No);
        let enough = if self.maturity.is_mature() { REFIT_ROWS_MATURE } else { REFIT_ROWS_LEARNING };
        Ok(Learned { kept, maturity, refit: self.fresh >= enough || maturity == MaturityChange::Unmatured })
    }

    /// The same, fitted to all rows.
    #[must_use]
    pub fn refitted(&self) -> Self {
        let (schema, samples) = self.set.samples();
        let fitted = (!samples.is_empty()).then(|| {
            let model = self.learner.fit(&schema, &samples);
            (schema, model)
        });
        Self { fitted, fresh: 0, ..self.clone() }
    }

    /// The document that it is stored as.
    pub fn encode(&self) -> Result<Vec<u8>, ModelError> {
        Ok(serde_json::to_vec(&v1::Stored {
            format: v1::FORMAT,
            learner: self.learner,
            interval: self.interval,
            set: self.set.clone(),
            fitted: self.fitted.clone(),
            maturity: self.maturity.clone(),
            floors: self.floors.clone(),
            fresh: self.fresh,
        })?)
    }

    /// A stored one.
    pub fn decode(stored: &[u8]) -> Result<Self, ModelError> {
        if stored.len() > STORED_MAX {
            return Err(ModelError::TooLarge { bytes: stored.len() });
        }
        let v1::Header { format } = serde_json::from_slice(stored)?;
        if format != v1::FORMAT {
            return Err(ModelError::OtherFormat { format });
        }
        let v1::Stored { learner, interval, set, fitted, maturity, floors, fresh, .. } =
            serde_json::from_slice(stored)?;
        let sound = |part: &'static str, is: bool| if is { Ok(()) } else { Err(ModelError::Unsound { part }) };
        sound("number of rows", set.rows().len() <= TRAINING_ROWS_MAX)?;
        sound("version", TrainingSet::new(set.version()).is_ok())?;
        sound("maturity", maturity.is_sound())?;
        if let Some((schema, model)) = &fitted {
            sound("columns", schema.is_sound())?;
            sound("model", model.is_sound(schema.columns.len()))?;
        }
        Ok(Self { learner, interval, set, fitted, maturity, floors, fresh })
    }
}

mod v1 {
    use serde::{Deserialize, Serialize};

    use super::{FittedModel, Interval, Learner, Maturity, PeakFloors, Schema, TrainingSet};

    pub(super) const FORMAT: u32 = 1;

    #[derive(Deserialize)]
    pub(super) struct Header {
        pub(super) format: u32,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct Stored {
        pub(super) format: u32,
        pub(super) learner: Learner,
        pub(super) interval: Interval,
        pub(super) set: TrainingSet,
        pub(super) fitted: Option<(Schema, FittedModel)>,
        pub(super) maturity: Maturity,
        pub(super) floors: PeakFloors,
        pub(super) fresh: usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training_set::Start;

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
        assert_eq!(model.ended("1", row).unwrap().kept, Kept::Miss);
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
            let other = text.replacen("\"format\":1", "\"format\":2", 1);
            assert!(matches!(FunctionModel::decode(other.as_bytes()), Err(ModelError::OtherFormat { format: 2 })));
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
    fn a_model_of_the_first_form_predicts_as_it_did() {
        let model = FunctionModel::decode(include_bytes!("../tests/fixtures/function-model-1.json")).unwrap();
        assert_eq!((model.version(), model.training_set().rows().len()), ("1", 30));
        assert_eq!(model.predict(&features(77)), Some(ByteSize(FIXTURE_SAYS)));
    }

    /// What the stored model said when it was stored.
    const FIXTURE_SAYS: u64 = 13_049_433;
}
