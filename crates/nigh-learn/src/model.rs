//! Models of peak memory by name: what all of them can do, and how each is fitted.

use std::fmt;
use std::str::FromStr;

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::interval::Interval;
use crate::j48::J48;
use crate::lin_tree::LinTree;
use crate::sample::Sample;
use crate::schema::{EncodedRow, Schema};

/// A model of peak memory.
pub trait PeakModel {
    /// The memory that an invocation with these features needs, by this model's own care. Takes no memory of its own.
    fn predict(&self, features: &EncodedRow) -> ByteSize;
}

impl PeakModel for J48 {
    fn predict(&self, features: &EncodedRow) -> ByteSize {
        Self::predict(self, features)
    }
}

impl PeakModel for LinTree {
    fn predict(&self, features: &EncodedRow) -> ByteSize {
        Self::predict(self, features)
    }
}

/// A learner of models.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Learner {
    /// The paper's tree.
    J48 {
        /// Its intervals.
        interval: Interval,
        /// The next interval up from the predicted one is granted.
        next_interval_up: bool,
    },
    /// A line, a tree and a margin.
    LinTree {
        /// The share of invocations whose need the margin is to hold; 0 for no margin.
        margin_share: f64,
    },
}

impl Default for Learner {
    fn default() -> Self {
        Self::LinTree { margin_share: LinTree::MARGIN_SHARE }
    }
}

/// A fitted model of either kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FittedModel {
    /// The paper's tree.
    J48(J48),
    /// A line, a tree and a margin.
    LinTree(LinTree),
}

impl Learner {
    /// Fits a model to samples.
    #[must_use]
    pub fn fit(self, schema: &Schema, samples: &[Sample]) -> FittedModel {
        match self {
            Self::J48 { interval, next_interval_up } => {
                let tree = J48::fit(schema, samples, interval);
                FittedModel::J48(if next_interval_up { tree.with_next_interval_up() } else { tree })
            }
            Self::LinTree { margin_share } => {
                FittedModel::LinTree(LinTree::fit(schema, samples).with_margin(margin_share))
            }
        }
    }
}

impl PeakModel for FittedModel {
    fn predict(&self, features: &EncodedRow) -> ByteSize {
        match self {
            Self::J48(model) => model.predict(features),
            Self::LinTree(model) => model.predict(features),
        }
    }
}

impl FittedModel {
    /// The same model without the data that only fitting and another margin need. Its predictions are the same.
    pub(crate) fn lean(self) -> Self {
        match self {
            Self::J48(model) => Self::J48(model),
            Self::LinTree(model) => Self::LinTree(model.lean()),
        }
    }

    pub(crate) fn is_sound(&self, columns: usize) -> bool {
        match self {
            Self::J48(model) => model.is_sound(columns),
            Self::LinTree(model) => model.is_sound(columns),
        }
    }
}

/// There is no learner with this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no model is called {0:?}; there are j48, j48-next and lintree")]
pub struct UnknownLearner(String);

impl FromStr for Learner {
    type Err = UnknownLearner;

    fn from_str(name: &str) -> Result<Self, UnknownLearner> {
        match name {
            "j48" => Ok(Self::J48 { interval: Interval::OFC, next_interval_up: false }),
            "j48-next" => Ok(Self::J48 { interval: Interval::OFC, next_interval_up: true }),
            "lintree" => Ok(Self::default()),
            _ => Err(UnknownLearner(name.chars().take(40).collect())),
        }
    }
}

impl fmt::Display for Learner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::J48 { next_interval_up: false, .. } => "j48",
            Self::J48 { next_interval_up: true, .. } => "j48-next",
            Self::LinTree { .. } => "lintree",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learners_are_called_by_name() {
        for name in ["j48", "j48-next", "lintree"] {
            assert_eq!(name.parse::<Learner>().unwrap().to_string(), name);
        }
        assert!("forest".parse::<Learner>().unwrap_err().to_string().contains("lintree"));
        assert_eq!(Learner::default().to_string(), "lintree");
    }
}
