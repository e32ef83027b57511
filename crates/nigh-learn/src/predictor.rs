//! Predicts invocations: a fitted model, its maturity, and the floors of its under-predictions.
//!
//! The part of a [`FunctionModel`](crate::FunctionModel) that invocations use. The rows are stored elsewhere and are
//! joined with it for the next fit. [`foresee`](Predictor::foresee) predicts for an invocation.
//! [`ended`](Predictor::ended) takes its end: it judges the model, sets a floor after an under-prediction, and says
//! whether the row is worth keeping.

use std::sync::Arc;

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use crate::benefit::Benefit;
use crate::feature::FeatureRow;
use crate::interval::{Interval, clamp_grant};
use crate::maturity::{Maturity, MaturityChange, Nearness};
use crate::model::{FittedModel, Learner, PeakModel};
use crate::peak_floors::PeakFloors;
use crate::sample::Sample;
use crate::schema::Schema;
use crate::training_set::{RowDecision, TrainingRow, TrainingSet, TrainingSetError};

/// Rows that must have come since the last fit for the next one, while the model is not mature.
const REFIT_ROWS_LEARNING: usize = 5;
/// And once it is.
const REFIT_ROWS_MATURE: usize = 20;
/// The fewest rows with times for a prediction of the benefit.
const BENEFIT_ROWS_MIN: usize = 20;
/// The bytes of a predictor without its model.
const FLOOR_BYTES: usize = 32;

/// The grant of an invocation, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The model is not mature: all that is booked.
    Booked(ByteSize),
    /// The prediction, between the runtime's floor and the booking.
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

/// The prediction for an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPrediction {
    /// What it is granted.
    pub need: Need,
    /// What the model says, mature or not; none before the first fit.
    pub said: Option<ByteSize>,
    /// Whether caching pays; none if the model is not mature or few rows have times.
    pub benefits: Option<bool>,
}

impl RunPrediction {
    /// The memory that is predicted, whether or not that is granted; none without a prediction.
    #[must_use]
    pub fn predicted(&self) -> Option<ByteSize> {
        self.said.or(match self.need {
            Need::Booked(_) => None,
            Need::Learned(needed) | Need::Beyond { needed, .. } => Some(needed),
        })
    }
}

/// The result of an invocation's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnOutcome {
    /// Whether its row was kept.
    pub kept: RowDecision,
    /// The change of the maturity.
    pub maturity: MaturityChange,
    /// Whether this was an under-prediction.
    pub missed: bool,
    /// It is time to fit again.
    pub refit: bool,
}

/// A model as it was fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FittedPredictor {
    pub(crate) schema: Schema,
    pub(crate) model: FittedModel,
    /// Of the rows whose times are known.
    pub(crate) benefit: Option<Benefit>,
}

impl FittedPredictor {
    /// Fits to the rows of a set; nothing without rows.
    pub(crate) fn to(set: &TrainingSet, learner: Learner) -> Option<Self> {
        let (schema, samples) = set.samples();
        if samples.is_empty() {
            return None;
        }
        let timed: (Vec<Sample>, Vec<_>) = set
            .rows()
            .iter()
            .zip(&samples)
            .filter_map(|(row, sample)| Some((Sample { weight: 1.0, ..*sample }, row.times?)))
            .unzip();
        let benefit = (timed.1.len() >= BENEFIT_ROWS_MIN).then(|| Benefit::fit(&schema, &timed.0, &timed.1));
        let model = learner.fit(&schema, &samples);
        Some(Self { schema, model, benefit })
    }

    fn lean(self) -> Self {
        Self { model: self.model.lean(), ..self }
    }

    /// Its approximate memory, by the length of its text.
    fn bytes(&self) -> usize {
        serde_json::to_vec(self).map_or(0, |text| text.len())
    }
}

/// The predictor of one version of a function's code.
#[derive(Clone, Debug, PartialEq)]
pub struct Predictor {
    pub(crate) version: String,
    pub(crate) interval: Interval,
    pub(crate) fitted: Option<Arc<FittedPredictor>>,
    pub(crate) maturity: Maturity,
    pub(crate) floors: PeakFloors,
    /// Rows kept, and offered.
    pub(crate) rows: usize,
    pub(crate) offered: u64,
    /// Rows kept since it was fitted.
    pub(crate) fresh: usize,
}

impl Predictor {
    /// An empty predictor of `version`.
    pub(crate) fn new(version: &str, interval: Interval) -> Self {
        Self {
            version: version.to_owned(),
            interval,
            fitted: None,
            maturity: Maturity::default(),
            floors: PeakFloors::default(),
            rows: 0,
            offered: 0,
            fresh: 0,
        }
    }

    /// The version of the code.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The maturity.
    #[must_use]
    pub const fn maturity(&self) -> &Maturity {
        &self.maturity
    }

    /// The kept rows, those of them since the last fit, and all offered rows.
    #[must_use]
    pub const fn rows(&self) -> (usize, usize, u64) {
        (self.rows, self.fresh, self.offered)
    }

    /// Whether it predicts if caching pays.
    #[must_use]
    pub fn tells_benefit(&self) -> bool {
        self.fitted.as_ref().is_some_and(|fitted| fitted.benefit.is_some())
    }

    /// Invocations that get what an equal one was seen to need.
    #[must_use]
    pub fn floors(&self) -> usize {
        self.floors.len()
    }

    /// Its approximate memory. Too slow to call during invocations.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let fitted = self.fitted.as_ref().map_or(0, |fitted| fitted.bytes());
        size_of::<Self>() + fitted + self.floors.len() * FLOOR_BYTES
    }

    /// What the model says, mature or not; none before the first fit.
    #[must_use]
    pub fn predict(&self, features: &FeatureRow) -> Option<ByteSize> {
        let fitted = self.fitted.as_ref()?;
        Some(self.floors.at_least(features, fitted.model.predict(&fitted.schema.encode(features))))
    }

    /// The prediction for an invocation of `version`. `features` include the kind of start.
    #[must_use]
    pub fn foresee(
        &self,
        version: &str,
        features: &FeatureRow,
        runtime_floor: ByteSize,
        booked: ByteSize,
    ) -> RunPrediction {
        let nothing = RunPrediction { need: Need::Booked(booked), said: None, benefits: None };
        let Some(fitted) = self.fitted.as_ref().filter(|_| version == self.version) else { return nothing };
        let encoded = fitted.schema.encode(features);
        let said = self.floors.at_least(features, fitted.model.predict(&encoded));
        if !self.maturity.is_mature() {
            return RunPrediction { said: Some(said), ..nothing };
        }
        let need = if said > booked {
            Need::Beyond { booked, needed: said }
        } else {
            Need::Learned(clamp_grant(said, runtime_floor, booked))
        };
        let benefits = fitted.benefit.as_ref().map(|benefit| benefit.predict(&encoded));
        RunPrediction { need, said: Some(said), benefits }
    }

    /// Takes the end of an invocation of `version` and judges the model by it. Returns the row if it should be kept.
    pub fn ended(
        &mut self,
        version: &str,
        mut row: TrainingRow,
    ) -> Result<(LearnOutcome, Option<TrainingRow>), TrainingSetError> {
        if version != self.version {
            return Err(TrainingSetError::OtherVersion { known: self.version.clone(), given: version.to_owned() });
        }
        let said = self.predict(&row.features);
        let chosen_by = said.filter(|_| self.maturity.is_mature());
        self.offered += 1;
        let mut kept = RowDecision::choose(&row, chosen_by, self.interval, self.rows, self.offered);
        if kept == RowDecision::No && self.was_wrong_on_benefit(&row) {
            kept = RowDecision::Benefit;
        }
        row.missed |= kept == RowDecision::Miss;
        let (mut maturity, mut missed) = (MaturityChange::None, false);
        if let Some(said) = said {
            maturity = self.maturity.judge(Nearness::of(said, row.peak, self.interval));
            missed = said < row.peak;
            if missed {
                self.floors.missed(&row.features, row.peak);
            }
        }
        let is_kept = kept != RowDecision::No;
        self.fresh += usize::from(is_kept);
        self.rows += usize::from(is_kept);
        let enough = if self.maturity.is_mature() { REFIT_ROWS_MATURE } else { REFIT_ROWS_LEARNING };
        let refit = self.fresh >= enough || maturity == MaturityChange::Unmatured;
        Ok((LearnOutcome { kept, maturity, missed, refit }, is_kept.then_some(row)))
    }

    fn was_wrong_on_benefit(&self, row: &TrainingRow) -> bool {
        let (Some(fitted), Some(times)) = (&self.fitted, &row.times) else { return false };
        let Some(benefit) = &fitted.benefit else { return false };
        benefit.predict(&fitted.schema.encode(&row.features)) != times.benefits()
    }

    /// From now on invocations with these features get at least this: one was killed at its limit.
    pub fn set_floor(&mut self, features: &FeatureRow, at_least: ByteSize) {
        self.floors.missed(features, at_least);
    }

    /// Takes the model of `newer`, which was fitted meanwhile to all rows except the last `fresh`. The maturity stays.
    pub fn take_model_of(&mut self, newer: &Self, fresh: usize) {
        self.fitted.clone_from(&newer.fitted);
        self.fresh = fresh;
        self.rows = newer.rows + fresh;
    }

    /// The same for invocations only, without the data that only fitting needs.
    pub(crate) fn lean(&self) -> Self {
        let fitted = self.fitted.as_deref().map(|fitted| Arc::new(fitted.clone().lean()));
        Self { fitted, ..self.clone() }
    }
}
