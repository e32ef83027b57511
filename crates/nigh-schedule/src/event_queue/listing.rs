//! The queue's events and dead letters, for people. Pure.

use std::time::Duration;

use nigh_terms::{InvocationId, Namespace};

use super::EventQueue;
use super::command::{ClockReading, EventFacts};
use super::dead_letters::DeadLetter;
use super::event::Stage;

/// An unfinished event, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEvent {
    /// The id of the event.
    pub id: InvocationId,
    /// The event's facts.
    pub facts: EventFacts,
    /// Number of attempts.
    pub attempts: u32,
    /// `waiting`, `running` or `delivering`.
    pub state: &'static str,
    /// The time until its next attempt.
    pub due_in: Duration,
}

impl EventQueue {
    /// A dead letter of `namespace`.
    #[must_use]
    pub fn dead_letter(&self, namespace: &Namespace, id: InvocationId) -> Option<&DeadLetter> {
        self.dead.get(namespace, id)
    }

    /// The dead letters of `namespace`, newest first.
    #[must_use]
    pub fn dead_letters(&self, namespace: &Namespace) -> Vec<&DeadLetter> {
        self.dead.of(namespace)
    }

    /// The unfinished events of `namespace`, oldest first.
    #[must_use]
    pub fn pending(&self, namespace: &Namespace, now: ClockReading) -> Vec<PendingEvent> {
        let own = self.events.iter().filter(|(_, event)| event.facts.namespace == *namespace);
        let mut pending: Vec<PendingEvent> = own
            .map(|(id, event)| PendingEvent {
                id: *id,
                facts: event.facts.clone(),
                attempts: event.attempts,
                state: match event.stage {
                    Stage::Storing | Stage::Waiting => "waiting",
                    Stage::Running | Stage::Finishing => "running",
                    Stage::ToDeliver(_) | Stage::Delivering(_) => "delivering",
                },
                due_in: event.due.since(now.monotonic),
            })
            .collect();
        pending.sort_by_key(|one| one.id);
        pending
    }

    /// The numbers of unfinished events and of dead letters, over all namespaces.
    #[must_use]
    pub fn totals(&self) -> (usize, usize) {
        (self.events.len(), self.dead.len())
    }
}
