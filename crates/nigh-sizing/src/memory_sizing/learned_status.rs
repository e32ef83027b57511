//! The status of a function's memory model, for people and programs.

use nigh_learn::{Learner, Predictor};
use nigh_terms::{FunctionName, Namespace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input_rules::InputRules;
use super::loaded_models::Name;

/// The model of one version of a function's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LearnedStatus {
    /// Whose.
    pub namespace: Namespace,
    /// Which.
    pub function: FunctionName,
    /// The version of its code.
    pub version: String,
    /// The learner.
    pub learner: String,
    /// Whether the model is mature.
    pub mature: bool,
    /// The first predicted invocation at which the model was mature.
    pub matured_at: Option<u64>,
    /// Predicted invocations that were compared with their result.
    pub judged: u64,
    /// Training rows.
    pub rows: usize,
    /// Training rows since the last fit.
    pub fresh: usize,
    /// Rows that came in all.
    pub offered: u64,
    /// Inputs that get at least what an equal one was seen to need.
    pub floors: usize,
    /// Whether the model also predicts if caching pays.
    pub tells_benefit: bool,
    /// The inputs: places of named objects, arguments that are keys.
    pub inputs: Vec<String>,
    /// The model's approximate memory.
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
