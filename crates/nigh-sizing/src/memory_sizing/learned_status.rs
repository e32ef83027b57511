//! What is known of a function's memory, as people and programs are told.

use nigh_learn::{Learner, Predictor};
use nigh_terms::{FunctionName, Namespace};
use serde::{Deserialize, Serialize};

use super::input_rules::InputRules;
use super::loaded_models::Name;

/// What is learned of one version of a function's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedStatus {
    /// Whose.
    pub namespace: Namespace,
    /// Which.
    pub function: FunctionName,
    /// The version of its code.
    pub version: String,
    /// How its model is fitted.
    pub learner: String,
    /// True if the model may be believed.
    pub mature: bool,
    /// The invocation at which it could be first, of those that were foretold.
    pub matured_at: Option<u64>,
    /// Invocations that were foretold, and judged afterwards.
    pub judged: u64,
    /// Rows that are kept.
    pub rows: usize,
    /// Those of them that came since the last fit.
    pub fresh: usize,
    /// Rows that came in all.
    pub offered: u64,
    /// Inputs that get at least what an equal one was seen to need.
    pub floors: usize,
    /// Whether caching pays is told, too.
    pub tells_benefit: bool,
    /// Where inputs stand: places of named objects, arguments that are keys.
    pub inputs: Vec<String>,
    /// What the model takes in memory, about.
    pub bytes: usize,
}

impl LearnedStatus {
    pub(super) fn of(name: &Name, learner: Learner, predictor: &Predictor, rules: &InputRules) -> Self {
        let (rows, fresh, offered) = predictor.rows();
        Self {
            namespace: name.0.clone(),
            function: name.1.clone(),
            version: predictor.version().to_owned(),
            learner: learner.to_string(),
            mature: predictor.maturity().is_mature(),
            matured_at: predictor.maturity().matured_at(),
            judged: predictor.maturity().judged(),
            rows,
            fresh,
            offered,
            floors: predictor.floors(),
            tells_benefit: predictor.tells_benefit(),
            inputs: rules.words(),
            bytes: predictor.bytes(),
        }
    }
}
