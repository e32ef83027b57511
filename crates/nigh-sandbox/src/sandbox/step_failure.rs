//! A step of making a sandbox that failed or took too long.

use std::time::Duration;

use nigh_terms::SandboxId;
use tokio::time::timeout;

use super::SandboxError;

/// The longest that making a blank sandbox, or starting a command in it, may take. On an idle machine each takes
/// milliseconds.
pub(super) const START_PATIENCE: Duration = Duration::from_secs(20);
/// A failed step, without the sandbox's id.
#[derive(Debug)]
pub(super) struct StepFailure {
    pub(super) step: String,
    pub(super) reason: String,
}

impl StepFailure {
    pub(super) fn at(step: &str, reason: impl ToString) -> Self {
        Self { step: step.to_owned(), reason: reason.to_string() }
    }

    /// The failure in words, as the reason of another error.
    pub(super) fn sentence(&self) -> String {
        format!("cannot {}: {}", self.step, self.reason)
    }

    pub(super) fn into_error(self, id: SandboxId) -> SandboxError {
        SandboxError::Start { id, step: self.step, reason: self.reason }
    }
}

/// Fails after [`START_PATIENCE`].
pub(super) async fn in_time<T>(
    step: &str,
    work: impl Future<Output = Result<T, StepFailure>>,
) -> Result<T, StepFailure> {
    timeout(START_PATIENCE, work).await.map_err(|_| StepFailure::at(step, format!("not done in {START_PATIENCE:?}")))?
}
