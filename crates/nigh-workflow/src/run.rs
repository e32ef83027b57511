//! An execution: a state machine of threads, each in one state of one scope. Pure.
//!
//! The execution itself is a thread; a `Parallel` has one more for each branch, a `Map` for each iteration. `apply`
//! takes an event and returns commands. Time comes with events, randomness from the execution's id: a replay of the
//! same events gives the same commands, the same request ids and the same end. A timer fires before an event at or
//! after its time: an answer after its task's timeout is late, even if it arrived first.

mod ahead;
mod children;
mod data;
mod shown;
mod thread;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use nigh_terms::{InvocationId, Timestamp, Token};
use serde_json::{Value, json};

use self::thread::{Thread, ThreadActivity, ThreadId};
use crate::event::{Command, Event, ExecutionEvent, Facts, Outcome, TaskEnd, TaskId, TaskRun};
use crate::history::{HISTORY_MAX, HistoryCollector, HistoryEvent};
use crate::language::chance::{Chance, bytes_of};
use crate::language::definition::{Definition, Kind, Resource, StateName};
use crate::language::error_names;
use crate::language::retry;

/// The most bytes of JSON that pass from state to state.
pub const DATA_BYTES_MAX: usize = 1 << 20;

/// The execution's own thread.
const ROOT: ThreadId = ThreadId(0);

/// An error on its way to a rule that retries or catches it.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    error: String,
    cause: String,
    /// A second name by which rules may match it.
    also: Option<&'static str>,
}

impl Failure {
    fn new(error: &str, cause: impl Into<String>) -> Self {
        Self { error: error.to_owned(), cause: cause.into(), also: None }
    }
}

/// The result of a step of a state.
type Step = Result<(), Failure>;

/// An execution.
pub struct Run {
    definition: Arc<Definition>,
    facts: Facts,
    input: Arc<Value>,
    threads: BTreeMap<ThreadId, Thread>,
    threads_made: u64,
    /// Running tasks with their threads.
    tasks: BTreeMap<TaskId, (ThreadId, TaskRun)>,
    tasks_made: u64,
    timers: BTreeSet<(Timestamp, ThreadId)>,
    deadline: Option<Timestamp>,
    outcome: Option<Outcome>,
    /// The token of what its caller and all its tasks had seen.
    seen: Token,
    chance: Chance,
    showing: HistoryCollector,
    ready: VecDeque<ThreadId>,
    commands: Vec<Command>,
    now: Timestamp,
}

impl Run {
    /// Starts an execution. Returns it and its first commands. `seen`: what its caller had seen. `shows`: somebody may
    /// ask for its history.
    #[must_use]
    pub fn start(
        definition: Arc<Definition>,
        facts: Facts,
        input: Value,
        seen: Token,
        shows: bool,
    ) -> (Self, Vec<Command>) {
        let now = facts.started;
        let mut run = Self {
            deadline: definition.timeout.map(|timeout| after(now, timeout)),
            chance: Chance::new(facts.id),
            definition,
            facts,
            input: Arc::new(input),
            threads: BTreeMap::new(),
            threads_made: 0,
            tasks: BTreeMap::new(),
            tasks_made: 0,
            timers: BTreeSet::new(),
            outcome: None,
            seen: seen.clone(),
            showing: HistoryCollector::new(shows),
            ready: VecDeque::new(),
            commands: Vec::new(),
            now,
        };
        let (input, role) = (Arc::clone(&run.input), run.facts.role.clone());
        let first = run.showing.show(
            0,
            now,
            || "ExecutionStarted".to_owned(),
            || Some(("executionStartedEventDetails", json!({ "input": input.to_string(), "roleArn": role }))),
        );
        let top = Arc::clone(&run.definition.top);
        run.begin_thread(None, &top, input, None, seen, first);
        run.go_on();
        let commands = std::mem::take(&mut run.commands);
        (run, commands)
    }

    /// Applies an event. Returns the commands that follow.
    pub fn apply(&mut self, event: &Event) -> Vec<Command> {
        if self.outcome.is_some() {
            return Vec::new();
        }
        self.now = event.at.max(self.now);
        if self.deadline.is_some_and(|deadline| deadline <= self.now) {
            self.finish(Outcome::TimedOut);
            return std::mem::take(&mut self.commands);
        }
        self.fire();
        self.go_on();
        if self.outcome.is_none() {
            match &event.what {
                ExecutionEvent::Time => {}
                ExecutionEvent::Stopped { error, cause } => {
                    self.finish(Outcome::Aborted { error: error.clone(), cause: cause.clone() });
                }
                ExecutionEvent::Ended { task, end, token } => self.task_ended(*task, end, token),
            }
            self.go_on();
        }
        std::mem::take(&mut self.commands)
    }

    /// When to apply `Time` if nothing happens before.
    #[must_use]
    pub fn wake_at(&self) -> Option<Timestamp> {
        let first = self.timers.first().map(|(at, _)| *at);
        first.into_iter().chain(self.deadline).min().filter(|_| self.outcome.is_none())
    }

    /// The execution's outcome. None while it runs.
    #[must_use]
    pub const fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// The running tasks, in the order in which they began.
    pub fn outstanding(&self) -> impl Iterator<Item = &TaskRun> {
        self.tasks.values().map(|(_, task)| task)
    }

    /// The token of what its caller and all its tasks so far had seen.
    #[must_use]
    pub const fn seen(&self) -> &Token {
        &self.seen
    }

    /// The facts that never change.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The execution's history so far, oldest first; empty unless `shows`.
    #[must_use]
    pub fn shown(&self) -> &[HistoryEvent] {
        self.showing.all()
    }

    /// The current states of its threads, in the order in which the threads began.
    pub fn at(&self) -> impl Iterator<Item = &str> {
        self.threads.values().map(|thread| &*thread.state.name)
    }

    /// Advances all threads that can.
    fn go_on(&mut self) {
        while let Some(id) = self.ready.pop_front() {
            if self.outcome.is_some() {
                self.ready.clear();
                return;
            }
            if self.showing.is_full() {
                let cause = format!("the execution has come to {HISTORY_MAX} events of its history");
                self.finish(Outcome::Failed { error: Some(error_names::RUNTIME.to_owned()), cause: Some(cause) });
                return;
            }
            if self.threads.contains_key(&id) {
                let step = self.work(id);
                self.stepped(id, step);
            }
        }
    }

    fn stepped(&mut self, id: ThreadId, step: Step) {
        if let Err(failure) = step {
            self.fail_state(id, failure);
        }
    }

    /// Fires the timers that are due, in the order of time.
    fn fire(&mut self) {
        while let Some((at, id)) = self.timers.first().copied()
            && at <= self.now
        {
            self.timers.pop_first();
            let Some(thread) = self.threads.get_mut(&id) else { continue };
            thread.timer = None;
            match &thread.doing {
                ThreadActivity::Task { task } => {
                    let task = *task;
                    self.tasks.remove(&task);
                    self.commands.push(Command::Forget(task));
                    self.show_task(id, "TimedOut", |_| json!({ "error": error_names::TIMEOUT }));
                    self.fail_state(id, Failure::new(error_names::TIMEOUT, ""));
                }
                ThreadActivity::Waiting { output } => {
                    let output = output.clone();
                    let step = self.leave(id, output);
                    self.stepped(id, step);
                }
                ThreadActivity::BackingOff => {
                    thread.doing = ThreadActivity::Trying;
                    self.ready.push_back(id);
                }
                ThreadActivity::Trying | ThreadActivity::Children(_) => {}
            }
        }
    }

    fn task_ended(&mut self, task: TaskId, end: &TaskEnd, token: &Token) {
        // Nobody waits for the task any more.
        let Some((id, run)) = self.tasks.remove(&task) else { return };
        self.seen.join(token);
        self.clear_timer(id);
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.token.join(token);
        }
        match end {
            TaskEnd::Answered(answer) => {
                self.show_task(id, "Succeeded", |_| json!({ "output": answer.to_string() }));
                let step = self.task_answered(id, &run, answer);
                self.stepped(id, step);
            }
            TaskEnd::Failed { error, cause } => {
                self.show_task(id, "Failed", |_| json!({ "error": error, "cause": cause }));
                self.fail_state(id, Failure::new(error, cause.as_str()));
            }
        }
    }

    fn task_answered(&mut self, id: ThreadId, run: &TaskRun, answer: &Value) -> Step {
        let Some(thread) = self.threads.get(&id) else { return Ok(()) };
        let is_integration = matches!(&thread.state.kind, Kind::Task(task) if task.resource == Resource::Invoke);
        let result = if is_integration {
            let (payload, status) = if run.later { (&Value::Null, 202) } else { (answer, 200) };
            json!({ "ExecutedVersion": nigh_functions::function_arn::LATEST, "Payload": payload, "StatusCode": status })
        } else {
            answer.clone()
        };
        self.result(id, result)
    }

    /// Handles a failed state: it is tried again, or its error is caught, or its scope fails.
    fn fail_state(&mut self, id: ThreadId, failure: Failure) {
        self.take_children(id);
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let state = Arc::clone(&thread.state);
        let rule = retry::retrier(&state.retry, &failure.error)
            .or_else(|| failure.also.and_then(|also| retry::retrier(&state.retry, also)));
        if let Some(rule) = rule
            && let Some(retrier) = state.retry.get(rule)
            && let Some(tries) = thread.tries.get_mut(rule)
            && let Some(wait) = retrier.wait(*tries, || self.chance.fraction())
        {
            *tries += 1;
            thread.doing = ThreadActivity::BackingOff;
            self.set_timer(id, after(self.now, wait));
            return;
        }
        let catcher = retry::catcher(&state.catch, &failure.error)
            .or_else(|| failure.also.and_then(|also| retry::catcher(&state.catch, also)));
        if let Some(catcher) = catcher {
            let told = json!({ "Error": failure.error, "Cause": failure.cause });
            let input = Value::clone(&thread.input);
            let output = match &catcher.result_path {
                Some(path) => path.set(input, told),
                None => Ok(input),
            };
            match output {
                Ok(output) => return self.move_on(id, output, Some(&catcher.next)),
                Err(error) => return self.fail_scope(id, &Failure::new(error_names::RESULT_PATH, error.to_string())),
            }
        }
        self.fail_scope(id, &failure);
    }

    /// Handles a failed scope of this thread.
    fn fail_scope(&mut self, id: ThreadId, failure: &Failure) {
        let Some(thread) = self.threads.get(&id) else { return };
        match thread.parent {
            Some((parent, index)) => self.child_failed(parent, id, index, failure),
            None => {
                let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
                self.finish(Outcome::Failed { error: given(&failure.error), cause: given(&failure.cause) });
            }
        }
    }

    /// The state of this thread has ended with `output`: continues at `next`, or ends its scope.
    fn move_on(&mut self, id: ThreadId, output: Value, next: Option<&StateName>) {
        self.show_state(id, "Exited", &output);
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let Some(next) = next else { return self.end_scope(id, output) };
        let Some(state) = thread.scope.states.get(next).cloned() else {
            let why = format!("there is no state {next:?}");
            return self.fail_scope(id, &Failure::new(error_names::RUNTIME, why));
        };
        thread.enter(state, Arc::new(output), self.now);
        self.entered(id);
    }

    fn entered(&mut self, id: ThreadId) {
        let Some(thread) = self.threads.get(&id) else { return };
        let input = Arc::clone(&thread.input);
        self.show_state(id, "Entered", &input);
        self.ready.push_back(id);
    }

    fn end_scope(&mut self, id: ThreadId, output: Value) {
        let Some(thread) = self.threads.get(&id) else { return };
        match thread.parent {
            Some((parent, index)) => self.child_ended(parent, id, index, output),
            None => self.finish(Outcome::Succeeded { output }),
        }
    }

    /// Ends the execution.
    fn finish(&mut self, outcome: Outcome) {
        let last = self.threads.get(&ROOT).map_or(0, |thread| thread.shown);
        self.commands.extend(self.tasks.keys().map(|task| Command::Forget(*task)));
        self.tasks.clear();
        self.threads.clear();
        self.timers.clear();
        self.ready.clear();
        let (kind, member, details) = match &outcome {
            Outcome::Succeeded { output } => {
                ("ExecutionSucceeded", "executionSucceededEventDetails", json!({ "output": output.to_string() }))
            }
            Outcome::Failed { error, cause } => {
                ("ExecutionFailed", "executionFailedEventDetails", json!({ "error": error, "cause": cause }))
            }
            Outcome::TimedOut => ("ExecutionTimedOut", "executionTimedOutEventDetails", json!({})),
            Outcome::Aborted { error, cause } => {
                ("ExecutionAborted", "executionAbortedEventDetails", json!({ "error": error, "cause": cause }))
            }
        };
        self.showing.show(last, self.now, || kind.to_owned(), || Some((member, details)));
        self.commands.push(Command::Finish(outcome.clone()));
        self.outcome = Some(outcome);
    }

    /// The request id of a task: it sorts by the time when the task began, and a replay gives the same.
    fn invocation(&self, task: TaskId) -> InvocationId {
        let mut bytes = bytes_of(self.facts.id, u64::MAX - task.0);
        bytes[..6].copy_from_slice(&self.now.millis().to_be_bytes()[2..]);
        bytes[6] = 0x70 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        InvocationId::of_bytes(bytes)
    }
}

fn after(at: Timestamp, wait: std::time::Duration) -> Timestamp {
    // Rounded up: a timer never fires early.
    Timestamp(at.0.saturating_add(wait.as_micros().div_ceil(1000) as u64))
}
