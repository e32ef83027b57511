//! An event in the queue: its stage, and whether it is tried again. Pure.

use std::time::Duration;

use nigh_functions::event_config::{Destination, EventPolicy};
use nigh_terms::Monotonic;

use super::command::{ClockReading, Condition, EventFacts};

/// The stage of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The event is being stored.
    Storing,
    /// The event waits for its function.
    Waiting,
    /// The event runs.
    Running,
    /// The event's end is being stored.
    Finishing,
    /// The event's record waits to be delivered.
    ToDeliver(Destination),
    /// The event's record is being delivered.
    Delivering(Destination),
}

/// An event that is not done.
pub(super) struct Event {
    pub(super) facts: EventFacts,
    /// When it entered this queue, and its age at that time.
    pub(super) since: Monotonic,
    pub(super) age_then: Duration,
    pub(super) attempts: u32,
    /// Throttles and faults since the last attempt; in the delivery stages, failed deliveries.
    pub(super) throttles: u32,
    pub(super) due: Monotonic,
    pub(super) stage: Stage,
}

impl Event {
    pub(super) fn age(&self, now: ClockReading) -> Duration {
        self.age_then + now.monotonic.since(self.since)
    }

    /// Why it must not be tried again; None if it may.
    pub(super) fn why_hopeless(&self, policy: Option<&EventPolicy>, now: ClockReading) -> Option<Condition> {
        match policy {
            None => Some(Condition::FunctionDeleted),
            Some(policy) if policy.reserved == Some(0) => Some(Condition::ZeroReservedConcurrency),
            // After a restart this means that the node died during the last attempt.
            Some(policy) if self.attempts > policy.retries_max => Some(Condition::RetriesExhausted),
            Some(policy) if self.age(now) >= policy.age_max => Some(Condition::EventAgeExceeded),
            Some(_) => None,
        }
    }
}
