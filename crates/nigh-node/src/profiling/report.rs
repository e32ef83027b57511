//! The requests of `nigh llc profile` and `nigh llc learn` to a node, and the node's reports.

use nigh_llc::{BreakEven, InputOutcome, SearchForm, TrainingRow};
use nigh_terms::{FunctionName, Namespace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ProfilingError;

/// The function to profile.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileRequest {
    /// The function's namespace.
    pub namespace: Namespace,
    /// The name of the function.
    pub function: FunctionName,
    /// The events it is invoked with: inputs of several sizes.
    pub events: Vec<serde_json::Value>,
    /// The numbers of ways that are tried.
    pub form: SearchForm,
    /// Profile the function even if it is not declared idempotent.
    pub force: bool,
}

/// The result for one input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfiledInput {
    /// The objects that the event names, in order.
    pub name: String,
    /// The bytes of these objects.
    pub bytes: u64,
    /// The outcome; none until its runs have ended.
    pub outcome: Option<InputOutcome>,
}

/// The state of a profile, sent after each run and at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileReport {
    /// The result for each input.
    pub inputs: Vec<ProfiledInput>,
    /// Number of timed runs so far.
    pub runs: u32,
    /// The duration of these runs in seconds, without data calls.
    pub seconds: f64,
    /// The most that an invocation saves with ways of its own, in seconds: the mean over the finished inputs.
    pub saved_seconds: f64,
    /// The number of invocations after which the runs have paid off, if each saves `saved_seconds`.
    pub break_even: BreakEven,
    /// Why it failed; none if it did not.
    pub error: Option<String>,
    /// True for the last report.
    pub done: bool,
}

impl ProfileReport {
    /// The last report of a profile that failed.
    pub(crate) fn refused(error: &ProfilingError) -> Self {
        Self {
            inputs: Vec::new(),
            runs: 0,
            seconds: 0.0,
            saved_seconds: 0.0,
            break_even: BreakEven::Never,
            error: Some(error.to_string()),
            done: true,
        }
    }
}

/// Training rows that were measured elsewhere, for example from memory traces.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelRows {
    /// The function's namespace.
    pub namespace: Namespace,
    /// The function; the rows count as measured with its deployed code.
    pub function: FunctionName,
    /// The rows.
    pub rows: Vec<TrainingRow>,
}
