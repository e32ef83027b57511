//! The inputs and commands of the queue. Pure.

use nigh_functions::event_config::Destination;
use nigh_terms::{ByteSize, FunctionName, InvocationId, Monotonic, Namespace, Timestamp};

/// Both clocks, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// For waits.
    pub monotonic: Monotonic,
    /// For ages across restarts.
    pub wall: Timestamp,
}

/// The facts of an event that the queue needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFacts {
    /// The namespace.
    pub namespace: Namespace,
    /// The function.
    pub function: FunctionName,
    /// Its payload's size.
    pub bytes: ByteSize,
    /// When it was accepted.
    pub accepted: Timestamp,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The function answered.
    Answered,
    /// The function failed, was ended, or its node died.
    Failed,
    /// The node had no room: nothing of it has run.
    Throttled,
    /// The node could not run it: nothing of it has run.
    Fault,
    /// There is no such function any more.
    Gone,
}

/// Why an event is done: the `condition` of Lambda's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It was processed.
    Success,
    /// The function failed as often as it was to be tried.
    RetriesExhausted,
    /// It was too old to be tried again.
    EventAgeExceeded,
    /// The function's reserved concurrency is zero.
    ZeroReservedConcurrency,
    /// The function was deleted.
    FunctionDeleted,
}

impl Condition {
    /// As the record has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::RetriesExhausted => "RetriesExhausted",
            Self::EventAgeExceeded => "EventAgeExceeded",
            Self::ZeroReservedConcurrency => "ZeroReservedConcurrency",
            Self::FunctionDeleted => "FunctionDeleted",
        }
    }
}

/// What to do with a done event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Forget it.
    Forget,
    /// Deliver its record to this destination.
    Deliver(Destination),
    /// Make it a dead letter.
    Bury,
}

/// What the queue has its shell do. The shell answers each with the call named beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Run it: `ended`. Write the attempt's number before a byte runs: the attempt counts even if the node dies meanwhile.
    Run {
        /// The event.
        id: InvocationId,
        /// Its facts.
        facts: EventFacts,
        /// Which attempt this is, from 1.
        attempt: u32,
    },
    /// It is done: `forgotten`, `to_deliver` or `buried`, by its fate.
    Finish {
        /// The event.
        id: InvocationId,
        /// Its facts.
        facts: EventFacts,
        /// How often it was tried.
        attempts: u32,
        /// Why it is done.
        condition: Condition,
        /// What to do with it.
        fate: Fate,
    },
    /// Deliver its record: `delivered` or `not_delivered`.
    Deliver {
        /// The event.
        id: InvocationId,
        /// Its facts.
        facts: EventFacts,
        /// The destination.
        to: Destination,
    },
    /// Its record cannot be delivered; make it a dead letter: `buried`.
    GiveUp {
        /// The event.
        id: InvocationId,
        /// Its facts.
        facts: EventFacts,
        /// Why, in the destination's words.
        reason: String,
        /// The destination that did not take it.
        to: Destination,
    },
}
