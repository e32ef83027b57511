//! The records of done events that a destination must receive. Pure.

use std::time::Duration;

use nigh_functions::event_config::Destination;
use nigh_terms::InvocationId;

use super::EventQueue;
use super::command::{ClockReading, Command, EventFacts};
use super::event::Stage;

/// The failed deliveries after which a record becomes a dead letter.
const DELIVERIES_MAX: u32 = 5;

impl EventQueue {
    /// Restores a record that must still be delivered after a restart.
    pub fn restore_delivery(&mut self, id: InvocationId, facts: EventFacts, to: Destination, now: ClockReading) {
        self.enter(id, facts, Duration::ZERO, 0, now);
        self.to_deliver(id, to, now);
    }

    /// An event is done, and its record, which is on the disk now, must be delivered to `to`.
    pub fn to_deliver(&mut self, id: InvocationId, to: Destination, now: ClockReading) {
        if let Some(event) = self.events.get_mut(&id) {
            event.stage = Stage::ToDeliver(to);
            event.throttles = 0;
            event.due = now.monotonic;
            self.deliveries.join(now.monotonic, id);
        }
    }

    /// The record was delivered.
    pub fn delivered(&mut self, id: InvocationId) {
        self.remove(id);
    }

    /// The destination did not accept the record. The delivery is retried after a wait that doubles. Returns the
    /// command that gives it up, after the last try.
    pub fn not_delivered(&mut self, id: InvocationId, reason: &str, now: ClockReading) -> Option<Command> {
        let limits = self.limits;
        let event = self.events.get_mut(&id)?;
        let Stage::Delivering(to) = &event.stage else { return None };
        let to = to.clone();
        event.throttles += 1;
        if event.throttles >= DELIVERIES_MAX {
            event.stage = Stage::Finishing;
            return Some(Command::GiveUp { id, facts: event.facts.clone(), reason: reason.to_owned(), to });
        }
        event.stage = Stage::ToDeliver(to);
        event.due = now.monotonic.after(limits.after_throttles(event.throttles));
        self.deliveries.join(event.due, id);
        None
    }
}
