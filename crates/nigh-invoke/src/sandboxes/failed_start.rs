//! Why a sandbox that an invocation waits for could not be made.

use std::sync::Arc;
use std::time::Duration;

use nigh_sandbox::runtime_api::InitOutcome;
use nigh_terms::{ByteSize, InvocationId, Token};

use super::cold_start::Init;
use super::live_sandbox::LiveSandbox;
use crate::invocation::InvokeError;
use crate::invocation::verdict::Verdict;

/// Why there is no sandbox for an invocation that one was made for.
pub(crate) enum FailedStart {
    /// It could not be made, or what it was made with may not begin here.
    Refused(InvokeError),
    /// It did not come to ask for its input: that is how the invocation ends.
    Init(Box<FailedInit>),
}

/// A sandbox that could not be initialised.
pub(crate) struct FailedInit {
    pub(crate) live: Arc<LiveSandbox>,
    pub(crate) init: Init,
    /// What it had seen.
    pub(crate) token: Token,
    /// How; none if its time was over.
    pub(super) end: Option<InitOutcome>,
    pub(super) limit: Duration,
    pub(crate) peak: Option<ByteSize>,
}

impl FailedInit {
    /// The verdict on the invocation that it was made for.
    pub(crate) fn verdict(&self, id: InvocationId) -> Verdict {
        match &self.end {
            Some(InitOutcome::Failed { payload, error_type }) => {
                Verdict::of_init_error(payload.clone(), error_type.clone())
            }
            Some(InitOutcome::Ended(end)) => Verdict::of_init_end(id, end),
            // It would not have failed.
            Some(InitOutcome::Ready) => Verdict::lost(id),
            None => Verdict::timed_out(id, self.limit),
        }
    }
}
