//! Why a sandbox that an invocation waits for could not be made.

use std::sync::Arc;
use std::time::Duration;

use nigh_sandbox::log_capture::LogCapture;
use nigh_sandbox::runtime_api::InitOutcome;
use nigh_terms::{ByteSize, InvocationId, SandboxId, Token};

use super::cold_start::Init;
use crate::invocation::InvokeError;
use crate::invocation::broken_program::BrokenProgram;
use crate::invocation::verdict::Verdict;

/// Why there is no sandbox for an invocation that one was made for.
pub(crate) enum FailedStart {
    /// It could not be made, or what it was made with may not begin here.
    Refused(InvokeError),
    /// The function did not come to ask for its input: that is how the invocation ends.
    Init(Box<FailedInit>),
}

/// An initialisation that failed.
pub(crate) struct FailedInit {
    /// The sandbox; none if it never ran the function's program.
    pub(crate) sandbox: Option<SandboxId>,
    /// What it printed.
    pub(crate) log: Arc<LogCapture>,
    /// The memory that it was granted.
    pub(crate) granted: ByteSize,
    /// How often its grant was raised.
    pub(crate) grown: u32,
    pub(crate) init: Init,
    /// What it had seen.
    pub(crate) token: Token,
    pub(crate) peak: Option<ByteSize>,
    pub(super) cause: InitFailure,
}

/// Why an initialisation failed.
pub(super) enum InitFailure {
    /// The kernel cannot execute the function's program.
    Program(BrokenProgram),
    /// The program reported an error, or ended.
    Ended(InitOutcome),
    /// It took longer than this.
    TimedOut(Duration),
}

impl FailedInit {
    /// The verdict on the invocation that it was made for.
    pub(crate) fn verdict(&self, id: InvocationId) -> Verdict {
        match &self.cause {
            InitFailure::Program(program) => Verdict::of_broken_program(id, program),
            InitFailure::Ended(InitOutcome::Failed { payload, error_type }) => {
                Verdict::of_init_error(payload.clone(), error_type.clone())
            }
            InitFailure::Ended(InitOutcome::Ended(end)) => Verdict::of_init_end(id, end),
            // It would not have failed.
            InitFailure::Ended(InitOutcome::Ready) => Verdict::lost(id),
            InitFailure::TimedOut(limit) => Verdict::init_timed_out(id, *limit),
        }
    }
}
