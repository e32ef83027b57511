//! A function whose program cannot be executed.

use nigh_sandbox::sandbox::ProgramFault;

/// A program in a function's code that the kernel cannot execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokenProgram {
    /// Its path inside the sandbox.
    pub(crate) path: String,
    pub(crate) fault: ProgramFault,
    /// The system's reason.
    pub(crate) reason: String,
}

impl BrokenProgram {
    /// What the function's owner must do, for the log.
    pub(crate) fn advice(&self) -> String {
        let Self { path, fault, reason } = self;
        match fault {
            ProgramFault::Missing => {
                format!("{path} is missing: put an executable file of this name into the code and deploy it again")
            }
            ProgramFault::Unusable => format!(
                "{path} cannot be executed: {reason}; it must have the mode of an executable, be built for this node's \
                 processor, and need no interpreter that is not in the sandbox"
            ),
        }
    }
}
