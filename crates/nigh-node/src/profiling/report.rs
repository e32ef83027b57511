//! What `nigh llc profile` and `nigh llc learn` send to a node, and what comes back.

use nigh_llc::{BreakEven, InputOutcome, SearchForm, TrainingRow};
use nigh_terms::{FunctionName, Namespace};
use serde::{Deserialize, Serialize};

use super::ProfilingError;

/// What is to be profiled.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileRequest {
    /// Whose function.
    pub namespace: Namespace,
    /// Which.
    pub function: FunctionName,
    /// Its inputs, of several sizes: the events it is invoked with.
    pub events: Vec<serde_json::Value>,
    /// Which numbers of ways are tried.
    pub form: SearchForm,
    /// Also run a function that is not declared idempotent.
    pub force: bool,
}

/// The result for one input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfiledInput {
    /// The objects that the event names, in its order.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// The outcome; none while its runs go on.
    pub outcome: Option<InputOutcome>,
}

/// The state of a profile, sent after each run and at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileReport {
    /// Each input.
    pub inputs: Vec<ProfiledInput>,
    /// Timed runs so far.
    pub runs: u32,
    /// Their time in seconds, data calls apart.
    pub seconds: f64,
    /// What an invocation saves at most by ways of its own, in seconds: the mean over the inputs found.
    pub saved_seconds: f64,
    /// After how many invocations the runs have paid off, if each saves that.
    pub break_even: BreakEven,
    /// Why it failed, if it failed.
    pub error: Option<String>,
    /// True for the last.
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

/// Training rows measured elsewhere, for example from memory traces.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRows {
    /// Whose function.
    pub namespace: Namespace,
    /// The function; the rows count as measured with its deployed code.
    pub function: FunctionName,
    /// The rows.
    pub rows: Vec<TrainingRow>,
}
