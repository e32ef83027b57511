//! The names of errors that `Retry` and `Catch` can name (Amazon States Language, "Errors"), and Nigh's own.

/// Any error, but those that the definition or too much data brings about.
pub const ALL: &str = "States.ALL";
/// A task or an execution ran longer than it may.
pub const TIMEOUT: &str = "States.Timeout";
/// Any error of a task but a time-out.
pub const TASK_FAILED: &str = "States.TaskFailed";
/// A path found nothing, or a value had another type than was asked.
pub const RUNTIME: &str = "States.Runtime";
/// A payload template's path found nothing.
pub const PARAMETER_PATH: &str = "States.ParameterPathFailure";
/// A result's path cannot be made.
pub const RESULT_PATH: &str = "States.ResultPathMatchFailure";
/// No rule of a choice held.
pub const NO_CHOICE: &str = "States.NoChoiceMatched";
/// An intrinsic function failed.
pub const INTRINSIC: &str = "States.IntrinsicFailure";
/// A branch of a parallel failed.
pub const BRANCH_FAILED: &str = "States.BranchFailed";
/// More items of a map failed than it tolerates.
pub const TOLERANCE: &str = "States.ExceedToleratedFailureThreshold";
/// More data than may pass between states.
pub const DATA_LIMIT: &str = "States.DataLimitExceeded";
/// It may have run in part before a crash, and does not say that it may run again.
pub const OUTCOME_UNKNOWN: &str = "Nigh.OutcomeUnknown";

/// What a rule of `Retry` or `Catch` that names `name` says of the error `error`.
#[must_use]
pub fn names(name: &str, error: &str) -> bool {
    match name {
        // These say that the definition is wrong: nothing that runs again mends them.
        ALL => !matches!(error, RUNTIME | DATA_LIMIT),
        TASK_FAILED => !matches!(error, TIMEOUT | RUNTIME | DATA_LIMIT),
        name => name == error,
    }
}
