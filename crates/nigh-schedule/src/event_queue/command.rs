//! The inputs and commands of the queue. Pure.

use nigh_functions::event_config::Destination;
use nigh_terms::{ByteSize, FunctionName, InvocationId, Monotonic, Namespace, Timestamp};

/// Both clocks, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The monotonic clock, for waits.
    pub monotonic: Monotonic,
    /// The date, for ages across restarts.
    pub wall: Timestamp,
}

/// The facts of an event that the queue needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFacts {
    /// The namespace.
    pub namespace: Namespace,
    /// The name of the function.
    pub function: FunctionName,
    /// The size of its payload.
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
    /// The node had no room, so nothing of it has run.
    Throttled,
    /// The node could not run it, so nothing of it has run.
    Fault,
    /// The function no longer exists.
    Gone,
}

/// Why an event is done: the `condition` of Lambda's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The event was processed.
    Success,
    /// The function failed in every allowed attempt.
    RetriesExhausted,
    /// The event was too old to be tried again.
    EventAgeExceeded,
    /// The function's reserved concurrency is zero.
    ZeroReservedConcurrency,
    /// The function was deleted.
    FunctionDeleted,
}

impl Condition {
    /// The name in the record.
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
    /// Forget the event.
    Forget,
    /// Deliver the event's record to this destination.
    Deliver(Destination),
    /// Make it a dead letter.
    Bury,
}

/// What the shell must do for the queue. It reports each result by the call that the variant names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Run the event, then call `ended`. Store the attempt's number before a byte runs: the attempt counts even if the
    /// node dies meanwhile.
    Run {
        /// The id of the event.
        id: InvocationId,
        /// The event's facts.
        facts: EventFacts,
        /// The attempt's number, from 1.
        attempt: u32,
    },
    /// The event is done. Do what `fate` says, then call `forgotten`, `to_deliver` or `buried`.
    Finish {
        /// The id of the event.
        id: InvocationId,
        /// The event's facts.
        facts: EventFacts,
        /// Number of attempts.
        attempts: u32,
        /// Why the event is done.
        condition: Condition,
        /// What to do with the event.
        fate: Fate,
    },
    /// Deliver the record, then call `delivered` or `not_delivered`.
    Deliver {
        /// The id of the event.
        id: InvocationId,
        /// The event's facts.
        facts: EventFacts,
        /// The destination.
        to: Destination,
    },
    /// The record cannot be delivered. Make it a dead letter, then call `buried`.
    GiveUp {
        /// The id of the event.
        id: InvocationId,
        /// The event's facts.
        facts: EventFacts,
        /// The destination's reason.
        reason: String,
        /// The destination that did not accept it.
        to: Destination,
    },
}
