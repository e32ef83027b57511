//! The queue of asynchronous invocations: which event runs when, how often, and what becomes of it. Pure.
//!
//! Time and ends come in, commands go out; whoever holds the queue does them and tells how they went. The rules are
//! Lambda's (developer guide, "How Lambda handles errors and retries with asynchronous invocation"): an error of the
//! function is retried after one wait and then after two, as often as its configuration says; a throttle or a fault of
//! the node is retried with a wait that doubles, until the event is too old. Waits are counted on the monotonic clock.
//! The age of an event is the date's only across restarts: within a life it grows with the monotonic clock, so that a
//! jump of the date lets nothing expire.
//!
//! A namespace's events run in turn with other namespaces', and a function's with other functions', so that one with a
//! full line holds nobody else up. What failed for good and has no destination lies in a list that is bounded: the
//! oldest goes first. This module never reads a payload, never touches a disk and keeps no time itself.

mod command;
mod dead_letters;
mod limits;
mod line;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use nigh_functions::event_config::{Destination, EventPolicy};
use nigh_terms::{ByteSize, FunctionName, InvocationId, Monotonic, Namespace};

pub use self::command::{ClockReading, Command, Condition, EventFacts, Fate, RunEnd};
use self::dead_letters::DeadLetters;
pub use self::dead_letters::{DeadLetter, RemainingWork};
pub use self::limits::{QueueFull, QueueLimits};
use self::line::Line;

/// Deliveries of one record that may fail before it is a dead letter.
const DELIVERIES_MAX: u32 = 5;

/// What an event does now.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// It is on its way to the disk.
    Storing,
    /// It waits for its function.
    Waiting,
    /// It runs.
    Running,
    /// Its end is on its way to the disk.
    Finishing,
    /// Its record waits to be delivered.
    ToDeliver(Destination),
    /// Its record is being delivered.
    Delivering(Destination),
}

struct Event {
    facts: EventFacts,
    /// When it came into this life of the queue, and how old it was then.
    since: Monotonic,
    age_then: Duration,
    attempts: u32,
    /// Throttles and faults since the last attempt; in the stages of delivery, failed deliveries.
    throttles: u32,
    due: Monotonic,
    stage: Stage,
}

impl Event {
    fn age(&self, now: ClockReading) -> Duration {
        self.age_then + now.monotonic.since(self.since)
    }
}

/// What of one namespace is not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    events: usize,
    bytes: ByteSize,
    running: usize,
}

/// An event that is not done, as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEvent {
    /// The event.
    pub id: InvocationId,
    /// What it is.
    pub facts: EventFacts,
    /// How often it was tried.
    pub attempts: u32,
    /// `waiting`, `running` or `delivering`.
    pub state: &'static str,
    /// How long until it is tried next.
    pub due_in: Duration,
}

type FunctionKey = (Namespace, FunctionName);

/// The queue.
pub struct EventQueue {
    limits: QueueLimits,
    events: HashMap<InvocationId, Event>,
    lines: BTreeMap<FunctionKey, Line>,
    /// Records to deliver, by when.
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

    /// Takes a new event, which is to be stored: `stored` or `not_stored`.
    ///
    /// # Errors
    /// If the namespace has as many as it may.
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

    /// An event that is durable now: it may run.
    pub fn stored(&mut self, id: InvocationId, now: ClockReading) {
        self.wait_in_line(id, now.monotonic);
    }

    /// An event that could not be stored: it was never promised.
    pub fn not_stored(&mut self, id: InvocationId) {
        self.remove(id);
    }

    /// An event that an earlier life of the node promised; it has begun `attempts` times. It is not refused: it was
    /// admitted once.
    pub fn restore(&mut self, id: InvocationId, facts: EventFacts, attempts: u32, now: ClockReading) {
        let age = Duration::from_millis(now.wall.millis().saturating_sub(facts.accepted.millis()));
        self.enter(id, facts, age, attempts, now);
        self.wait_in_line(id, now.monotonic);
    }

    /// A record that an earlier life of the node was to deliver.
    pub fn restore_delivery(&mut self, id: InvocationId, facts: EventFacts, to: Destination, now: ClockReading) {
        self.enter(id, facts, Duration::ZERO, 0, now);
        self.to_deliver(id, to, now);
    }

    /// A dead letter that an earlier life of the node left.
    pub fn restore_dead(&mut self, letter: DeadLetter) -> Vec<InvocationId> {
        self.dead.add(letter)
    }

    /// All that is to be done now. `policy` says what holds for a function's events; none, that there is no such
    /// function.
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
            commands.push(Command::Run { id, facts: event.facts.clone(), attempt: event.attempts });
            self.loads.entry(which.0.clone()).or_default().running += 1;
            // Who stands first now may not be worth a try.
            let policy = policies.get(&which).and_then(Option::as_ref);
            commands.extend(self.conclude_hopeless(&which, policy, now));
        }
        commands
    }

    /// When `next` is to be asked again if nothing happens before.
    #[must_use]
    pub fn wake_at(&self, now: Monotonic) -> Option<Monotonic> {
        // Who is due already and has not run waits for another to end.
        let lines = self.lines.values().chain([&self.deliveries]);
        lines.filter_map(|line| line.first_due_after(now)).min()
    }

    /// An attempt has ended so. If the event is done, what is to be done about it.
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
        // Looked at again when it is too old, if that is before its turn.
        let left = policy.map_or(Duration::ZERO, |policy| policy.age_max.saturating_sub(event.age(now)));
        self.wait_in_line(id, now.monotonic.after(wait.min(left)));
        None
    }

    /// An event that is done is gone from the disk.
    pub fn forgotten(&mut self, id: InvocationId) {
        self.remove(id);
    }

    /// An event is done, and its record, on the disk now, is to go there.
    pub fn to_deliver(&mut self, id: InvocationId, to: Destination, now: ClockReading) {
        if let Some(event) = self.events.get_mut(&id) {
            event.stage = Stage::ToDeliver(to);
            event.throttles = 0;
            event.due = now.monotonic;
            self.deliveries.join(now.monotonic, id);
        }
    }

    /// A record has arrived.
    pub fn delivered(&mut self, id: InvocationId) {
        self.remove(id);
    }

    /// A record was not taken. It is tried again, after a wait that doubles, and then given up.
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

    /// A done event is a dead letter now, on the disk. Those that have to go for it come out, to be removed there.
    #[must_use]
    pub fn buried(&mut self, letter: DeadLetter) -> Vec<InvocationId> {
        self.remove(letter.id);
        self.dead.add(letter)
    }

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

    /// Takes a dead letter back into the queue, as if it were accepted now: its event is to be tried from the beginning,
    /// or its record to be delivered. To be stored before: `stored` or `to_deliver` follows. If it cannot be, `restore_dead`.
    ///
    /// # Errors
    /// If the namespace has as many events as it may.
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

    /// Takes out an event of `namespace` that neither runs nor is on its way to or from the disk: a waiting one or a
    /// dead letter. It is to be removed from the disk. False if there is none.
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

    /// The events of `namespace` that are not done, oldest first.
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

    /// How many are not done, and how many are dead letters, of all namespaces.
    #[must_use]
    pub fn totals(&self) -> (usize, usize) {
        (self.events.len(), self.dead.len())
    }

    fn enter(&mut self, id: InvocationId, facts: EventFacts, age_then: Duration, attempts: u32, now: ClockReading) {
        let load = self.loads.entry(facts.namespace.clone()).or_default();
        load.events += 1;
        load.bytes += facts.bytes;
        let (since, due) = (now.monotonic, now.monotonic);
        self.events.insert(id, Event { facts, since, age_then, attempts, throttles: 0, due, stage: Stage::Storing });
    }

    fn wait_in_line(&mut self, id: InvocationId, due: Monotonic) {
        if let Some(event) = self.events.get_mut(&id) {
            event.stage = Stage::Waiting;
            event.due = due;
            let which = (event.facts.namespace.clone(), event.facts.function.clone());
            self.lines.entry(which).or_default().join(due, id);
        }
    }

    /// Nothing if it does not run.
    fn stop_running(&mut self, id: InvocationId) -> Option<()> {
        let event = self.events.get(&id).filter(|event| event.stage == Stage::Running)?;
        let which = (event.facts.namespace.clone(), event.facts.function.clone());
        if let Some(line) = self.lines.get_mut(&which) {
            line.running = line.running.saturating_sub(1);
            if line.is_empty() {
                self.lines.remove(&which);
            }
        }
        if let Some(load) = self.loads.get_mut(&which.0) {
            load.running = load.running.saturating_sub(1);
        }
        self.running = self.running.saturating_sub(1);
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
        if let Some(load) = self.loads.get_mut(&which.0) {
            load.events = load.events.saturating_sub(1);
            load.bytes = load.bytes.saturating_sub(event.facts.bytes);
            if *load == Load::default() {
                self.loads.remove(&which.0);
            }
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

    /// Takes those out of the front of a line that are not to be tried again.
    fn conclude_hopeless(
        &mut self,
        which: &FunctionKey,
        policy: Option<&EventPolicy>,
        now: ClockReading,
    ) -> Vec<Command> {
        let mut hopeless = Vec::new();
        if let Some(line) = self.lines.get_mut(which) {
            let events = &self.events;
            while let Some(taken) = line.take_due_if(now.monotonic, |id| why_hopeless(events.get(id)?, policy, now)) {
                hopeless.push(taken);
            }
            if line.is_empty() {
                self.lines.remove(which);
            }
        }
        hopeless.into_iter().filter_map(|(id, condition)| self.finish(id, condition, policy)).collect()
    }

    /// Whose first event runs next: of the namespace that runs least, of the function that runs least, the oldest.
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

/// Why an event is not to be tried again, if it is not.
fn why_hopeless(event: &Event, policy: Option<&EventPolicy>, now: ClockReading) -> Option<Condition> {
    match policy {
        None => Some(Condition::FunctionDeleted),
        Some(policy) if policy.reserved == Some(0) => Some(Condition::ZeroReservedConcurrency),
        // After a restart: the last attempt that it had was cut off.
        Some(policy) if event.attempts > policy.retries_max => Some(Condition::RetriesExhausted),
        Some(policy) if event.age(now) >= policy.age_max => Some(Condition::EventAgeExceeded),
        Some(_) => None,
    }
}
