//! A step of making a sandbox that failed or took too long.

use std::path::Path;
use std::time::Duration;

use nigh_terms::SandboxId;
use tokio::time::timeout;

use super::launch::ProgramFault;
use super::root_tree::CODE;
use super::{SandboxError, SandboxSpec};

/// The longest that making a blank sandbox, or starting a command in it, may take. On an idle machine each takes
/// milliseconds.
pub(super) const START_PATIENCE: Duration = Duration::from_secs(20);
/// A failed step, without the sandbox's id.
#[derive(Debug)]
pub(super) struct StepFailure {
    pub(super) step: String,
    pub(super) reason: String,
    /// Set if the sandbox was complete and the kernel could not execute its program.
    pub(super) program: Option<ProgramFault>,
}

impl StepFailure {
    pub(super) fn at(step: &str, reason: impl ToString) -> Self {
        Self { step: step.to_owned(), reason: reason.to_string(), program: None }
    }

    /// The failure in words, as the reason of another error.
    pub(super) fn sentence(&self) -> String {
        format!("cannot {}: {}", self.step, self.reason)
    }

    pub(super) fn into_error(self, id: SandboxId) -> SandboxError {
        SandboxError::Start { id, step: self.step, reason: self.reason }
    }

    /// The error of a function's start. If the program that the kernel cannot execute is in the function's own code, the
    /// function's owner must repair it; every other failure is the node's.
    pub(super) fn into_start_error(self, spec: &SandboxSpec) -> SandboxError {
        let program = spec.command.first().filter(|program| Path::new(program).starts_with(CODE));
        match (self.program, program) {
            (Some(fault), Some(program)) => SandboxError::Entrypoint {
                id: spec.id,
                program: program.to_string_lossy().into_owned(),
                fault,
                reason: self.reason,
            },
            _ => self.into_error(spec.id),
        }
    }
}

/// Fails after [`START_PATIENCE`].
pub(super) async fn in_time<T>(
    step: &str,
    work: impl Future<Output = Result<T, StepFailure>>,
) -> Result<T, StepFailure> {
    timeout(START_PATIENCE, work).await.map_err(|_| StepFailure::at(step, format!("not done in {START_PATIENCE:?}")))?
}
