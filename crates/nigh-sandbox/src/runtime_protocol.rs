//! The Runtime API of one sandbox as a state machine: pure.
//!
//! A sandbox's state decides what it may request: it asks for its first input, which ends its initialisation, responds
//! to its invocation, and asks for the next input. Other requests are refused with the status that AWS documents
//! (Lambda developer guide, "Runtime API") and change nothing. The owner's calls go to the same machine, so both sides
//! agree about who has the invocation.

use nigh_terms::InvocationId;
use thiserror::Error;

/// The state of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The sandbox has not asked for an input yet.
    Initialising,
    /// The sandbox has no invocation.
    Idle,
    /// The sandbox gets this invocation when it asks for an input.
    Assigned(InvocationId),
    /// The sandbox runs this invocation.
    Running(InvocationId),
    /// The sandbox's process has ended, or its initialisation failed.
    Ended,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The request names an invocation that the sandbox does not run.
    #[error("Invalid request ID")]
    InvalidRequestId,
    /// The request is not allowed in the sandbox's state.
    #[error("Transition from {from} to {to} is not allowed.")]
    InvalidStateTransition {
        /// The sandbox's state.
        from: &'static str,
        /// The state that the request would lead to.
        to: &'static str,
    },
}

/// The result of a request for the next input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextReply {
    /// No input yet: the request waits.
    Wait {
        /// True if the sandbox is initialised by this request.
        initialised: bool,
    },
    /// The request takes this invocation.
    Take(InvocationId),
}

/// The protocol of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    state: State,
}

impl Default for Protocol {
    fn default() -> Self {
        Self { state: State::Initialising }
    }
}

impl Protocol {
    /// The sandbox's state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    const fn refuse(&self, to: &'static str) -> Refusal {
        let from = match self.state {
            State::Initialising => "Init",
            State::Idle | State::Assigned(_) => "Ready",
            State::Running(_) => "Running",
            State::Ended => "Ended",
        };
        Refusal::InvalidStateTransition { from, to }
    }

    /// The sandbox asks for its next input.
    ///
    /// # Errors
    /// If it has an invocation without a response, or has ended.
    pub const fn next(&mut self) -> Result<NextReply, Refusal> {
        match self.state {
            State::Initialising => {
                self.state = State::Idle;
                Ok(NextReply::Wait { initialised: true })
            }
            State::Idle => Ok(NextReply::Wait { initialised: false }),
            State::Assigned(id) => {
                self.state = State::Running(id);
                Ok(NextReply::Take(id))
            }
            State::Running(_) | State::Ended => Err(self.refuse("Ready")),
        }
    }

    /// The owner has an invocation for the sandbox. False if it cannot have one now.
    #[must_use]
    pub const fn assign(&mut self, id: InvocationId) -> bool {
        let idle = matches!(self.state, State::Idle);
        if idle {
            self.state = State::Assigned(id);
        }
        idle
    }

    /// The input of `id` did not reach the sandbox: it waits again. False if the sandbox does not run it.
    #[must_use]
    pub fn give_back(&mut self, id: InvocationId) -> bool {
        let runs = self.state == State::Running(id);
        if runs {
            self.state = State::Assigned(id);
        }
        runs
    }

    /// Whether the sandbox may answer the invocation called `id` now.
    ///
    /// # Errors
    /// If it runs another invocation or none.
    pub fn check_answer(&self, id: &str) -> Result<InvocationId, Refusal> {
        match self.state {
            State::Running(running) if id.parse() == Ok(running) => Ok(running),
            State::Running(_) => Err(Refusal::InvalidRequestId),
            _ => Err(self.refuse("InvocationResponse")),
        }
    }

    /// The sandbox has answered the invocation called `id`, with a response or an error.
    ///
    /// # Errors
    /// The same as for `check_answer`.
    pub fn answer(&mut self, id: &str) -> Result<InvocationId, Refusal> {
        let running = self.check_answer(id)?;
        self.state = State::Idle;
        Ok(running)
    }

    /// The sandbox reports that its initialisation failed. This is final.
    ///
    /// # Errors
    /// If the sandbox is initialised already.
    pub const fn init_error(&mut self) -> Result<(), Refusal> {
        match self.state {
            State::Initialising => {
                self.state = State::Ended;
                Ok(())
            }
            _ => Err(self.refuse("InitError")),
        }
    }

    /// The sandbox has ended. Returns its former state.
    pub const fn end(&mut self) -> State {
        let was = self.state;
        self.state = State::Ended;
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> (Protocol, InvocationId) {
        let (mut protocol, id) = (Protocol::default(), InvocationId::now());
        assert_eq!(protocol.next(), Ok(NextReply::Wait { initialised: true }));
        assert!(protocol.assign(id));
        assert_eq!(protocol.next(), Ok(NextReply::Take(id)));
        (protocol, id)
    }

    #[test]
    fn an_invocation_is_asked_for_taken_and_answered() {
        let (mut protocol, id) = running();
        assert_eq!(protocol.state(), State::Running(id));
        assert_eq!(protocol.answer(&id.to_string()), Ok(id));
        assert_eq!(protocol.state(), State::Idle);
        assert_eq!(protocol.next(), Ok(NextReply::Wait { initialised: false }));
    }

    #[test]
    fn answers_to_nothing_to_another_invocation_or_for_a_second_time_change_nothing() {
        let (mut protocol, id) = running();
        for wrong in [InvocationId::now().to_string(), "garbage".to_owned(), String::new()] {
            assert_eq!(protocol.answer(&wrong), Err(Refusal::InvalidRequestId));
        }
        assert_eq!(protocol.state(), State::Running(id));
        assert_eq!(protocol.answer(&id.to_string()), Ok(id));
        let idle = protocol.clone();
        assert!(matches!(protocol.answer(&id.to_string()), Err(Refusal::InvalidStateTransition { .. })));
        assert_eq!(protocol, idle);
    }

    #[test]
    fn an_input_is_not_given_before_the_last_one_is_answered() {
        let (mut protocol, id) = running();
        assert!(matches!(protocol.next(), Err(Refusal::InvalidStateTransition { .. })));
        assert!(!protocol.assign(InvocationId::now()));
        assert_eq!(protocol.state(), State::Running(id));
    }

    #[test]
    fn an_assigned_invocation_can_be_answered_only_once_it_was_taken() {
        let (mut protocol, id) = (Protocol::default(), InvocationId::now());
        assert!(!protocol.assign(id));
        assert!(protocol.next().is_ok());
        assert!(protocol.assign(id));
        assert!(protocol.answer(&id.to_string()).is_err());
        assert_eq!(protocol.end(), State::Assigned(id));
    }

    #[test]
    fn only_an_uninitialised_sandbox_can_say_that_it_cannot_be_initialised() {
        let mut protocol = Protocol::default();
        assert_eq!(protocol.init_error(), Ok(()));
        assert_eq!(protocol.state(), State::Ended);
        let (mut protocol, id) = running();
        assert!(protocol.init_error().is_err());
        assert_eq!(protocol.state(), State::Running(id));
    }

    #[test]
    fn nothing_is_answered_after_the_end() {
        let (mut protocol, id) = running();
        assert_eq!(protocol.end(), State::Running(id));
        assert!(protocol.next().is_err());
        assert!(protocol.answer(&id.to_string()).is_err());
        assert!(protocol.init_error().is_err());
        assert!(!protocol.assign(id));
    }
}
