//! The names of errors that `Retry` and `Catch` can name (Amazon States Language, "Errors"), and Nigh's own.

/// Any error, except those that the definition or too much data causes.
pub(crate) const ALL: &str = "States.ALL";
/// A task or an execution ran longer than allowed.
pub(crate) const TIMEOUT: &str = "States.Timeout";
/// Any error of a task except a time-out.
pub(crate) const TASK_FAILED: &str = "States.TaskFailed";
/// A path found nothing, or a value had the wrong type.
pub(crate) const RUNTIME: &str = "States.Runtime";
/// A payload template's path found nothing.
pub(crate) const PARAMETER_PATH: &str = "States.ParameterPathFailure";
/// The value cannot be put at the result's path.
pub(crate) const RESULT_PATH: &str = "States.ResultPathMatchFailure";
/// No rule of a choice held.
pub(crate) const NO_CHOICE: &str = "States.NoChoiceMatched";
/// An intrinsic function failed.
pub(crate) const INTRINSIC: &str = "States.IntrinsicFailure";
/// A branch of a `Parallel` failed.
pub(crate) const BRANCH_FAILED: &str = "States.BranchFailed";
/// More items of a `Map` failed than it tolerates.
pub(crate) const TOLERANCE: &str = "States.ExceedToleratedFailureThreshold";
/// A state's data is larger than allowed.
pub(crate) const DATA_LIMIT: &str = "States.DataLimitExceeded";
/// The task may have run in part before a crash, and its function is not idempotent.
pub(crate) const OUTCOME_UNKNOWN: &str = "Nigh.OutcomeUnknown";

/// True if a rule of `Retry` or `Catch` with `name` applies to the error `error`.
pub(crate) fn names(name: &str, error: &str) -> bool {
    match name {
        // These errors mean that the definition is wrong: a retry cannot succeed.
        ALL => !matches!(error, RUNTIME | DATA_LIMIT),
        TASK_FAILED => !matches!(error, TIMEOUT | RUNTIME | DATA_LIMIT),
        name => name == error,
    }
}
