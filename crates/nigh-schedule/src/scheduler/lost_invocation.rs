//! What happens to an invocation whose node is declared dead: pure.
//!
//! Law 9 of ARCHITECTURE.md: retry is the function's choice. Nigh runs an invocation again only if its function is idempotent,
//! or if no byte of it can have run; the event queue retries asynchronous ones as Lambda does. The last report of the lost
//! node proves little: the run may have begun since. So only a dispatch that was never sent, or that the node refused, counts
//! as not run. Nothing is decided before every home has fenced the incarnation: until then a put of the lost run may still be
//! acknowledged, and a second run would race it.

use nigh_terms::Monotonic;
use serde::{Deserialize, Serialize};

use crate::event_queue::RunEnd;

/// How far an invocation is known to have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The invocation was placed, but not sent.
    NotSent,
    /// The invocation was sent, and the node refused it.
    Refused,
    /// The invocation was sent. A byte of it may have run, whatever the node has reported since.
    Sent,
    /// The invocation's end was reported, with all that the invocation had seen.
    Ended,
}

/// Who waits for an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A caller that waits for the answer until this time.
    Waits(Monotonic),
    /// The event queue.
    EventQueue,
}

/// An invocation whose node is declared dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostInvocation {
    /// The invocation's progress.
    pub progress: Progress,
    /// True if every home has fenced the node's incarnation (`nigh_protocol::Frontier::fenced`).
    pub fenced: bool,
    /// True if its function says that it is idempotent (`idempotence::says`).
    pub idempotent: bool,
    /// Who waits for the invocation.
    pub caller: Caller,
    /// Number of times that it was run again after the loss of a node.
    pub reruns: u32,
}

/// The most times that an invocation is run again after the loss of a node: one that kills its nodes must not kill them
/// all.
pub const RERUNS_MAX: u32 = 2;

/// Why an invocation of a lost node fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum LossError {
    /// The invocation may have run in part.
    #[error(
        "the node that ran it was lost, and it may have run in part; mark the function idempotent to have it run again"
    )]
    MayHaveRun,
    /// Too many nodes were lost while they ran it.
    #[error("the node that ran it was lost, and {RERUNS_MAX} before it; check whether the function kills its nodes")]
    TooOften,
    /// The invocation's caller no longer waits.
    #[error("the node that ran it was lost, and its deadline passed before it could be run again")]
    TooLate,
}

/// What to do after the loss of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// Ask again when every home has fenced the incarnation.
    Wait,
    /// Nothing: the invocation has ended.
    Nothing,
    /// Dispatch it again, to another incarnation, with the current frontier.
    RunAgain,
    /// Tell the event queue that the attempt has ended like this.
    Tell(RunEnd),
    /// Return this error to its caller.
    Fail(LossError),
}

/// What to do about `lost` at `now`.
#[must_use]
pub fn after_loss(lost: &LostInvocation, now: Monotonic) -> AfterLoss {
    let LostInvocation { progress, fenced, idempotent, caller, reruns } = *lost;
    match progress {
        Progress::Ended => return AfterLoss::Nothing,
        Progress::Sent if !fenced => return AfterLoss::Wait,
        Progress::NotSent | Progress::Refused | Progress::Sent => {}
    }
    let may_have_run = progress == Progress::Sent;
    match caller {
        Caller::EventQueue if may_have_run => AfterLoss::Tell(RunEnd::Failed),
        Caller::EventQueue => AfterLoss::Tell(RunEnd::Fault),
        Caller::Waits(until) if until <= now => AfterLoss::Fail(LossError::TooLate),
        Caller::Waits(_) if may_have_run && !idempotent => AfterLoss::Fail(LossError::MayHaveRun),
        Caller::Waits(_) if may_have_run && reruns >= RERUNS_MAX => AfterLoss::Fail(LossError::TooOften),
        Caller::Waits(_) => AfterLoss::RunAgain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Monotonic = Monotonic(5);
    const LOST: LostInvocation = LostInvocation {
        progress: Progress::Sent,
        fenced: true,
        idempotent: false,
        caller: Caller::Waits(Monotonic(10)),
        reruns: 0,
    };

    #[test]
    fn what_may_have_run_runs_again_only_if_its_function_says_that_it_may() {
        assert_eq!(after_loss(&LOST, NOW), AfterLoss::Fail(LossError::MayHaveRun));
        let idempotent = LostInvocation { idempotent: true, ..LOST };
        assert_eq!(after_loss(&idempotent, NOW), AfterLoss::RunAgain);
        let unlucky = LostInvocation { reruns: RERUNS_MAX, ..idempotent };
        assert_eq!(after_loss(&unlucky, NOW), AfterLoss::Fail(LossError::TooOften));
    }

    #[test]
    fn what_never_left_or_was_refused_runs_again_whatever_the_function_says() {
        for progress in [Progress::NotSent, Progress::Refused] {
            let lost = LostInvocation { progress, fenced: false, reruns: 9, ..LOST };
            assert_eq!(after_loss(&lost, NOW), AfterLoss::RunAgain);
        }
    }

    #[test]
    fn nothing_is_decided_of_what_was_sent_before_every_home_has_fenced_the_node() {
        for idempotent in [false, true] {
            for caller in [LOST.caller, Caller::EventQueue] {
                let lost = LostInvocation { fenced: false, idempotent, caller, ..LOST };
                assert_eq!(after_loss(&lost, NOW), AfterLoss::Wait);
            }
        }
    }

    #[test]
    fn asynchronous_ones_go_back_to_their_queue_and_those_that_ended_are_left_alone() {
        let event = LostInvocation { caller: Caller::EventQueue, ..LOST };
        assert_eq!(after_loss(&event, NOW), AfterLoss::Tell(RunEnd::Failed), "an attempt that counts");
        let not_sent = LostInvocation { progress: Progress::NotSent, ..event };
        assert_eq!(after_loss(&not_sent, NOW), AfterLoss::Tell(RunEnd::Fault));
        let ended = LostInvocation { progress: Progress::Ended, fenced: false, ..LOST };
        assert_eq!(after_loss(&ended, NOW), AfterLoss::Nothing);
    }

    #[test]
    fn nobody_is_given_an_answer_after_his_time() {
        let late = LostInvocation { idempotent: true, caller: Caller::Waits(NOW), ..LOST };
        assert_eq!(after_loss(&late, NOW), AfterLoss::Fail(LossError::TooLate));
    }
}
