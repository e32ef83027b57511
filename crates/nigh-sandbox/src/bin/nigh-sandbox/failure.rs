//! Why a sandbox cannot be made: the step, and the system's reason.

use std::fmt::Display;

use nigh_sandbox::sandbox::ProgramFault;

/// A step that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What was tried.
    pub(crate) step: String,
    /// The system's reason.
    pub(crate) reason: String,
    /// Set if the kernel could not execute the program of the command: what is wrong with the program.
    pub(crate) program: Option<ProgramFault>,
}

/// Names the step that a result belongs to.
pub(crate) trait Step<T> {
    /// Turns an error into a `Failure` that names the step.
    fn step(self, step: impl Display) -> Result<T, Failure>;
}

impl<T, E: Display> Step<T> for Result<T, E> {
    fn step(self, step: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure { step: step.to_string(), reason: error.to_string(), program: None })
    }
}
