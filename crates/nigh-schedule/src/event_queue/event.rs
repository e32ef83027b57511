//! An event in the queue: how far it is, and whether it is tried again. Pure.

use std::time::Duration;

use nigh_functions::event_config::{Destination, EventPolicy};
use nigh_terms::Monotonic;

use super::command::{ClockReading, Condition, EventFacts};

/// The stage of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is being stored.
    Storing,
    /// It waits for its function.
    Waiting,
    /// It runs.
    Running,
    /// Its end is being stored.
    Finishing,
    /// Its record waits to be delivered.
    ToDeliver(Destination),
    /// Its record is being delivered.
    Delivering(Destination),
}

/// An event that is not done.
pub(super) struct Event {
    pub(super) facts: EventFacts,
    /// When it came into this queue, and how old it was then.
    pub(super) since: Monotonic,
    pub(super) age_then: Duration,
    pub(super) attempts: u32,
    /// Throttles and faults since the last attempt; in the stages of delivery, failed deliveries.
    pub(super) throttles: u32,
    pub(super) due: Monotonic,
    pub(super) stage: Stage,
}

impl Event {
    pub(super) fn age(&self, now: ClockReading) -> Duration {
        self.age_then + now.monotonic.since(self.since)
    }

    /// Why it is not tried again, if it is not.
    pub(super) fn why_hopeless(&self, policy: Option<&EventPolicy>, now: ClockReading) -> Option<Condition> {
        match policy {
            None => Some(Condition::FunctionDeleted),
            Some(policy) if policy.reserved == Some(0) => Some(Condition::ZeroReservedConcurrency),
            // After a restart: the node died during its last attempt.
            Some(policy) if self.attempts > policy.retries_max => Some(Condition::RetriesExhausted),
            Some(policy) if self.age(now) >= policy.age_max => Some(Condition::EventAgeExceeded),
            Some(_) => None,
        }
    }
}
