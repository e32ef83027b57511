//! The names of errors that `Retry` and `Catch` can name (Amazon States Language, "Errors"), and Nigh's own.

/// Any error, but those that the definition or too much data brings about.
pub(crate) const ALL: &str = "States.ALL";
/// A task or an execution ran longer than it may.
pub(crate) const TIMEOUT: &str = "States.Timeout";
/// Any error of a task but a time-out.
pub(crate) const TASK_FAILED: &str = "States.TaskFailed";
/// A path found nothing, or a value had another type than was asked.
pub(crate) const RUNTIME: &str = "States.Runtime";
/// A payload template's path found nothing.
pub(crate) const PARAMETER_PATH: &str = "States.ParameterPathFailure";
/// A result's path cannot be made.
pub(crate) const RESULT_PATH: &str = "States.ResultPathMatchFailure";
/// No rule of a choice held.
pub(crate) const NO_CHOICE: &str = "States.NoChoiceMatched";
/// An intrinsic function failed.
pub(crate) const INTRINSIC: &str = "States.IntrinsicFailure";
/// A branch of a parallel failed.
pub(crate) const BRANCH_FAILED: &str = "States.BranchFailed";
/// More items of a map failed than it tolerates.
pub(crate) const TOLERANCE: &str = "States.ExceedToleratedFailureThreshold";
/// More data than may pass between states.
pub(crate) const DATA_LIMIT: &str = "States.DataLimitExceeded";
/// It may have run in part before a crash, and does not say that it may run again.
pub(crate) const OUTCOME_UNKNOWN: &str = "Nigh.OutcomeUnknown";

/// What a rule of `Retry` or `Catch` that names `name` says of the error `error`.
pub(crate) fn names(name: &str, error: &str) -> bool {
    match name {
        // These say that the definition is wrong: nothing that runs again mends them.
        ALL => !matches!(error, RUNTIME | DATA_LIMIT),
        TASK_FAILED => !matches!(error, TIMEOUT | RUNTIME | DATA_LIMIT),
        name => name == error,
    }
}
