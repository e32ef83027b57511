//! The queue of asynchronous invocations: which event runs when, how often, and what happens to it afterwards. Pure.
//!
//! Time and ends come in, commands go out; the shell carries them out and reports the results. The rules are Lambda's
//! (developer guide, "How Lambda handles errors and retries with asynchronous invocation"): after an error of the
//! function, an event is retried after one wait, then after two, as often as its configuration says; after a throttle
//! or a fault of the node, it is retried after a wait that doubles, until the event is too old. Waits use the monotonic
//! clock. The age of an event is taken from the date only at a restart, and then grows with the monotonic clock, so a
//! jump of the date expires nothing.
//!
//! Namespaces take turns to run events, and so do the functions of a namespace, so a long line delays no other. An
//! event that failed for good and has no destination becomes a dead letter; the list is bounded, and the oldest goes
//! first. This module never reads a payload, never touches a disk and has no clock.

mod command;
mod dead_letters;
mod delivery;
mod event;
mod limits;
mod line;
mod listing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use nigh_functions::event_config::EventPolicy;
use nigh_terms::{ByteSize, FunctionName, InvocationId, Monotonic, Namespace, invariant};

pub use self::command::{ClockReading, Command, Condition, EventFacts, Fate, RunEnd};
use self::dead_letters::DeadLetters;
pub use self::dead_letters::{DeadLetter, RemainingWork};
use self::event::{Event, Stage};
pub use self::limits::{QueueFull, QueueLimits};
use self::line::Line;
pub use self::listing::PendingEvent;

/// The unfinished events of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    events: usize,
    bytes: ByteSize,
    running: usize,
}

type FunctionKey = (Namespace, FunctionName);

/// The queue.
pub struct EventQueue {
    limits: QueueLimits,
    events: HashMap<InvocationId, Event>,
    lines: BTreeMap<FunctionKey, Line>,
    /// Records to deliver, by the time when they are due.
    deliveries: Line,
    loads: BTreeMap<Namespace, Load>,
    running: usize,
    dead: DeadLetters,
}

impl EventQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            events: HashMap::new(),
            lines: BTreeMap::new(),
            deliveries: Line::default(),
            loads: BTreeMap::new(),
            running: 0,
            dead: DeadLetters::new(limits.dead_max, limits.bytes_max),
        }
    }

    /// Adds a new event. The shell stores it, and then calls `stored` or `not_stored`.
    ///
    /// # Errors
    /// If the namespace has its most events already.
    pub fn admit(&mut self, id: InvocationId, facts: EventFacts, now: ClockReading) -> Result<(), QueueFull> {
        let load = self.loads.get(&facts.namespace).copied().unwrap_or_default();
        if load.events >= self.limits.events_max {
            return Err(QueueFull::Events(load.events));
        }
        if load.bytes + facts.bytes > self.limits.bytes_max {
            return Err(QueueFull::Bytes(load.bytes));
        }
        self.enter(id, facts, Duration::ZERO, 0, now);
        Ok(())
    }

    /// The event is durable now: it may run.
    pub fn stored(&mut self, id: InvocationId, now: ClockReading) {
        self.wait_in_line(id, now.monotonic);
    }

    /// The event could not be stored: it was never acknowledged.
    pub fn not_stored(&mut self, id: InvocationId) {
        self.remove(id);
    }

    /// Restores an event after a restart. It began `attempts` times before. It is never refused, because it was
    /// admitted once.
    pub fn restore(&mut self, id: InvocationId, facts: EventFacts, attempts: u32, now: ClockReading) {
        let age = Duration::from_millis(now.wall.millis().saturating_sub(facts.accepted.millis()));
        self.enter(id, facts, age, attempts, now);
        self.wait_in_line(id, now.monotonic);
    }

    /// Restores an event after a restart of which it is not decided whether it runs: it takes its room until `stored` or
    /// `not_stored`.
    pub fn restore_proposed(&mut self, id: InvocationId, facts: EventFacts, now: ClockReading) {
        self.enter(id, facts, Duration::ZERO, 0, now);
    }

    /// Whether the queue has this event, or it is a dead letter.
    #[must_use]
    pub fn has(&self, namespace: &Namespace, id: InvocationId) -> bool {
        self.events.contains_key(&id) || self.dead.get(namespace, id).is_some()
    }

    /// Restores a dead letter after a restart.
    pub fn restore_dead(&mut self, letter: DeadLetter) -> Vec<InvocationId> {
        self.dead.add(letter)
    }

    /// All commands that are due now. `policy` gives the event policy of a function; None if the function does not
    /// exist.
    pub fn next(
        &mut self,
        now: ClockReading,
        policy: impl Fn(&Namespace, &FunctionName) -> Option<EventPolicy>,
    ) -> Vec<Command> {
        let mut commands = Vec::new();
        while let Some(id) = self.deliveries.take_due(now.monotonic) {
            if let Some(event) = self.events.get_mut(&id)
                && let Stage::ToDeliver(to) = &event.stage
            {
                let to = to.clone();
                event.stage = Stage::Delivering(to.clone());
                commands.push(Command::Deliver { id, facts: event.facts.clone(), to });
            }
        }
        let due: Vec<FunctionKey> =
            self.lines.iter().filter(|(_, line)| line.is_due(now.monotonic)).map(|(which, _)| which.clone()).collect();
        let mut policies: BTreeMap<FunctionKey, Option<EventPolicy>> = BTreeMap::new();
        for which in due {
            let policy = policy(&which.0, &which.1);
            commands.extend(self.conclude_hopeless(&which, policy.as_ref(), now));
            policies.insert(which, policy);
        }
        while let Some(which) = self.whose_turn(now, &policies) {
            let Some(line) = self.lines.get_mut(&which) else { break };
            let Some(id) = line.take_due(now.monotonic) else { break };
            let Some(event) = self.events.get_mut(&id) else { continue };
            line.running += 1;
            event.stage = Stage::Running;
            event.attempts += 1;
            self.running += 1;
            // `whose_turn` gives no turn when the most events run.
            invariant!(self.running <= self.limits.running_max, "{} events run: {:?}", self.running, self.limits);
            commands.push(Command::Run { id, facts: event.facts.clone(), attempt: event.attempts });
            self.loads.entry(which.0.clone()).or_default().running += 1;
            // The next events in line may not be worth a try.
            let policy = policies.get(&which).and_then(Option::as_ref);
            commands.extend(self.conclude_hopeless(&which, policy, now));
        }
        commands
    }

    /// When to call `next` if nothing happens before; None if nothing waits.
    #[must_use]
    pub fn wake_at(&self, now: Monotonic) -> Option<Monotonic> {
        // An event that is due and does not run waits for the end of another.
        let lines = self.lines.values().chain([&self.deliveries]);
        lines.filter_map(|line| line.first_due_after(now)).min()
    }

    /// An attempt has ended. Returns the command that finishes the event, if it is done.
    pub fn ended(
        &mut self,
        id: InvocationId,
        end: RunEnd,
        policy: Option<&EventPolicy>,
        now: ClockReading,
    ) -> Option<Command> {
        self.stop_running(id)?;
        let limits = self.limits;
        let event = self.events.get_mut(&id)?;
        let wait = match end {
            RunEnd::Answered => return self.finish(id, Condition::Success, policy),
            RunEnd::Gone => return self.finish(id, Condition::FunctionDeleted, policy),
            RunEnd::Failed => {
                event.throttles = 0;
                if policy.is_none_or(|policy| event.attempts > policy.retries_max) {
                    return self.finish(id, Condition::RetriesExhausted, policy);
                }
                limits.after_errors(event.attempts)
            }
            RunEnd::Throttled | RunEnd::Fault => {
                event.attempts = event.attempts.saturating_sub(1);
                event.throttles = event.throttles.saturating_add(1);
                limits.after_throttles(event.throttles)
            }
        };
        // If the event will be too old before that, `next` looks at it when it is.
        let left = policy.map_or(Duration::ZERO, |policy| policy.age_max.saturating_sub(event.age(now)));
        self.wait_in_line(id, now.monotonic.after(wait.min(left)));
        None
    }

    /// The row of a done event has been removed.
    pub fn forgotten(&mut self, id: InvocationId) {
        self.remove(id);
    }

    /// A done event is a dead letter on the disk now. Returns the dead letters beyond the limit; the shell removes them
    /// from the disk.
    #[must_use]
    pub fn buried(&mut self, letter: DeadLetter) -> Vec<InvocationId> {
        self.remove(letter.id);
        self.dead.add(letter)
    }

    /// Moves a dead letter back into the queue as if it were accepted now: its event is tried from the beginning, or
    /// its record is delivered. The shell stores that first, and then calls `stored` or `to_deliver`; if it cannot
    /// store it, `restore_dead`.
    ///
    /// # Errors
    /// If the namespace has its most events already.
    pub fn revive(
        &mut self,
        namespace: &Namespace,
        id: InvocationId,
        now: ClockReading,
    ) -> Result<Option<DeadLetter>, QueueFull> {
        let Some(mut letter) = self.dead.get(namespace, id).cloned() else { return Ok(None) };
        letter.facts.accepted = now.wall;
        self.admit(id, letter.facts.clone(), now)?;
        self.dead.take(namespace, id);
        Ok(Some(letter))
    }

    /// Removes a waiting event or a dead letter; the shell then removes it from the disk. False if there is none, or it
    /// runs.
    pub fn drop_event(&mut self, namespace: &Namespace, id: InvocationId) -> bool {
        if self.dead.take(namespace, id).is_some() {
            return true;
        }
        let is_idle = self.events.get(&id).is_some_and(|event| {
            event.facts.namespace == *namespace && matches!(event.stage, Stage::Waiting | Stage::ToDeliver(_))
        });
        if is_idle {
            self.remove(id);
        }
        is_idle
    }

    fn enter(&mut self, id: InvocationId, facts: EventFacts, age_then: Duration, attempts: u32, now: ClockReading) {
        let load = self.loads.entry(facts.namespace.clone()).or_default();
        load.events += 1;
        load.bytes += facts.bytes;
        let (since, due) = (now.monotonic, now.monotonic);
        let event = Event { facts, since, age_then, attempts, throttles: 0, due, stage: Stage::Storing };
        let before = self.events.insert(id, event);
        // Ids are unique, and a dead letter is no event until it is revived: each event counts once in its load.
        invariant!(before.is_none(), "event {id} came twice");
    }

    fn wait_in_line(&mut self, id: InvocationId, due: Monotonic) {
        if let Some(event) = self.events.get_mut(&id) {
            event.stage = Stage::Waiting;
            event.due = due;
            let which = (event.facts.namespace.clone(), event.facts.function.clone());
            self.lines.entry(which).or_default().join(due, id);
        }
    }

    /// Ends the running state of an event. None if it does not run.
    fn stop_running(&mut self, id: InvocationId) -> Option<()> {
        let event = self.events.get(&id).filter(|event| event.stage == Stage::Running)?;
        let which = (event.facts.namespace.clone(), event.facts.function.clone());
        // `next` has counted the event in all three. A line or load with a running event is never removed.
        let (line, load) = (self.lines.get_mut(&which), self.loads.get_mut(&which.0));
        let counts = (line.as_ref().map(|line| line.running), load.as_ref().map(|load| load.running), self.running);
        invariant!(counts.0 > Some(0) && counts.1 > Some(0) && counts.2 > 0, "event {id} ends, and {counts:?} run");
        if let (Some(line), Some(load)) = (line, load) {
            line.running -= 1;
            load.running -= 1;
            self.running -= 1;
            if line.is_empty() {
                self.lines.remove(&which);
            }
        }
        Some(())
    }

    fn remove(&mut self, id: InvocationId) {
        let Some(event) = self.events.remove(&id) else { return };
        let which = (event.facts.namespace, event.facts.function);
        match event.stage {
            Stage::Waiting => {
                if let Some(line) = self.lines.get_mut(&which) {
                    line.leave(event.due, id);
                    if line.is_empty() {
                        self.lines.remove(&which);
                    }
                }
            }
            Stage::ToDeliver(_) => self.deliveries.leave(event.due, id),
            Stage::Storing | Stage::Running | Stage::Finishing | Stage::Delivering(_) => {}
        }
        let load = self.loads.entry(which.0.clone()).or_default();
        // The load is the sum over the namespace's events: `enter` has counted this one.
        invariant!(load.events > 0 && load.bytes >= event.facts.bytes, "event {id} leaves {load:?}");
        load.events -= 1;
        load.bytes = load.bytes.saturating_sub(event.facts.bytes);
        if *load == Load::default() {
            self.loads.remove(&which.0);
        }
    }

    fn finish(&mut self, id: InvocationId, condition: Condition, policy: Option<&EventPolicy>) -> Option<Command> {
        let event = self.events.get_mut(&id)?;
        event.stage = Stage::Finishing;
        let destination = match condition {
            Condition::Success => policy.and_then(|policy| policy.on_success.clone()),
            _ => policy.and_then(|policy| policy.on_failure.clone()),
        };
        let fate = match destination {
            Some(to) => Fate::Deliver(to),
            None if condition == Condition::Success => Fate::Forget,
            None => Fate::Bury,
        };
        Some(Command::Finish { id, facts: event.facts.clone(), attempts: event.attempts, condition, fate })
    }

    /// Takes events that must not be tried again from the front of a line.
    fn conclude_hopeless(
        &mut self,
        which: &FunctionKey,
        policy: Option<&EventPolicy>,
        now: ClockReading,
    ) -> Vec<Command> {
        let mut hopeless = Vec::new();
        if let Some(line) = self.lines.get_mut(which) {
            let events = &self.events;
            while let Some(taken) = line.take_due_if(now.monotonic, |id| events.get(id)?.why_hopeless(policy, now)) {
                hopeless.push(taken);
            }
            if line.is_empty() {
                self.lines.remove(which);
            }
        }
        hopeless.into_iter().filter_map(|(id, condition)| self.finish(id, condition, policy)).collect()
    }

    /// The function whose first event runs next: in the namespace that runs fewest, the function that runs fewest, the
    /// oldest.
    fn whose_turn(
        &self,
        now: ClockReading,
        policies: &BTreeMap<FunctionKey, Option<EventPolicy>>,
    ) -> Option<FunctionKey> {
        if self.running >= self.limits.running_max {
            return None;
        }
        let may_run = policies.iter().filter_map(|(which, policy)| {
            let line = self.lines.get(which).filter(|line| line.is_due(now.monotonic))?;
            let reserved = policy.as_ref().and_then(|policy| policy.reserved);
            reserved.is_none_or(|reserved| line.running < reserved).then_some((which, line))
        });
        let turn = may_run.min_by_key(|(which, line)| {
            (self.loads.get(&which.0).map_or(0, |load| load.running), line.running, line.first_due())
        });
        turn.map(|(which, _)| which.clone())
    }
}
