//! What goes into the queue and what comes out of it. Pure.

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

/// What an event is, as far as the queue cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFacts {
    /// The tenant.
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
    /// There was no place to run: nothing of it has run.
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

/// What becomes of an event that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing is left of it.
    Forget,
    /// Its record goes there.
    Deliver(Destination),
    /// It becomes a dead letter.
    Bury,
}

/// What is to be done. Each is answered by a call, named beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Try it: `ended`. The number must be on the disk before a byte runs: it counts also if the node dies meanwhile.
    Run {
        /// The event.
        id: InvocationId,
        /// What it is.
        facts: EventFacts,
        /// Which attempt this is, from 1.
        attempt: u32,
    },
    /// It is done: `forgotten`, `to_deliver` or `buried`, as its fate is.
    Finish {
        /// The event.
        id: InvocationId,
        /// What it is.
        facts: EventFacts,
        /// How often it was tried.
        attempts: u32,
        /// Why it is done.
        condition: Condition,
        /// What becomes of it.
        fate: Fate,
    },
    /// Take its record there: `delivered` or `not_delivered`.
    Deliver {
        /// The event.
        id: InvocationId,
        /// What it is.
        facts: EventFacts,
        /// Where to.
        to: Destination,
    },
    /// Its record cannot be delivered; keep it as a dead letter: `buried`.
    GiveUp {
        /// The event.
        id: InvocationId,
        /// What it is.
        facts: EventFacts,
        /// Why, in the destination's words.
        reason: String,
        /// Where it was to go.
        to: Destination,
    },
}
