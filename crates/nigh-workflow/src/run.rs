//! An execution: a state machine of threads, of which each is in one state of one scope. Pure.
//!
//! The execution itself is a thread; a `Parallel` has one more for each branch, a `Map` for each iteration. `apply` takes
//! an event and gives what is to be done. Time comes with events, chance from the execution's name: whoever goes through
//! the same events finds the same commands, the same request ids and the same end. What is due fires before the event
//! that comes at or after its time: an answer that comes after its task's time is late however they raced.

mod ahead;
mod children;
mod data;
mod thread;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use nigh_terms::{InvocationId, Timestamp, Token};
use serde_json::{Value, json};

use self::thread::{Thread, ThreadActivity, ThreadId};
use super::chance::{Chance, bytes_of};
use super::definition::{Definition, Kind, Resource, Scope, StateName};
use super::error_names;
use super::event::{Command, Event, ExecutionEvent, Facts, Outcome, TaskEnd, TaskId, TaskRun};
use super::history::{HISTORY_MAX, HistoryCollector, HistoryEvent};
use super::retry;

/// The most that may pass from state to state: bytes of JSON.
pub const DATA_BYTES_MAX: usize = 1 << 20;

/// The execution's own thread.
const ROOT: ThreadId = ThreadId(0);

/// An error on its way to whoever retries or catches it.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    error: String,
    cause: String,
    /// Another name that rules may have for it.
    also: Option<&'static str>,
}

impl Failure {
    fn new(error: &str, cause: impl Into<String>) -> Self {
        Self { error: error.to_owned(), cause: cause.into(), also: None }
    }
}

/// How a state went on.
type Step = Result<(), Failure>;

/// See the module.
pub struct Run {
    definition: Arc<Definition>,
    facts: Facts,
    input: Arc<Value>,
    threads: BTreeMap<ThreadId, Thread>,
    threads_made: u64,
    /// Tasks that have begun and not ended, with their threads.
    tasks: BTreeMap<TaskId, (ThreadId, TaskRun)>,
    tasks_made: u64,
    timers: BTreeSet<(Timestamp, ThreadId)>,
    deadline: Option<Timestamp>,
    outcome: Option<Outcome>,
    /// What all its tasks had seen.
    seen: Token,
    chance: Chance,
    showing: HistoryCollector,
    ready: VecDeque<ThreadId>,
    commands: Vec<Command>,
    now: Timestamp,
}

impl Run {
    /// An execution that begins, and what is to be done first. `seen`: what its caller had seen. `shows`: somebody may
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

    /// Something has happened: what is to be done now.
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

    /// When `Time` is to be applied if nothing happens before.
    #[must_use]
    pub fn wake_at(&self) -> Option<Timestamp> {
        let first = self.timers.first().map(|(at, _)| *at);
        first.into_iter().chain(self.deadline).min().filter(|_| self.outcome.is_none())
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// The tasks that have begun and not ended, in the order of their beginning.
    pub fn outstanding(&self) -> impl Iterator<Item = &TaskRun> {
        self.tasks.values().map(|(_, task)| task)
    }

    /// What all its tasks so far, and its caller, had seen.
    #[must_use]
    pub const fn seen(&self) -> &Token {
        &self.seen
    }

    /// What never changes.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Its shown events so far, oldest first; none if nobody was to ask.
    #[must_use]
    pub fn shown(&self) -> &[HistoryEvent] {
        self.showing.all()
    }

    /// The states in which it is now, by the order in which its threads began.
    pub fn at(&self) -> impl Iterator<Item = &str> {
        self.threads.values().map(|thread| &*thread.state.name)
    }

    /// Goes on with all threads that can.
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

    /// Lets what is due happen, in the order of time.
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
        // One that nobody waits for any more.
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

    /// What becomes of a state that failed: it is tried again, or caught, or its scope fails.
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

    /// The scope of this thread has failed.
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

    /// The state of this thread is done with `output`: on to `next`, or to the end of its scope.
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

    /// The execution is over.
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

    fn begin_thread(
        &mut self,
        parent: Option<(ThreadId, usize)>,
        scope: &Arc<Scope>,
        input: Arc<Value>,
        item: Option<Arc<super::context::MapItem>>,
        token: Token,
        shown: u64,
    ) {
        // What `read` makes always has the state that it starts at.
        let Some(state) = scope.states.get(&scope.start).cloned() else { return };
        let id = ThreadId(self.threads_made);
        self.threads_made += 1;
        let thread = Thread::new(parent, Arc::clone(scope), state, input, item, token, shown, self.now);
        self.threads.insert(id, thread);
        self.entered(id);
    }

    /// Takes a thread away, with all below it.
    fn remove_thread(&mut self, id: ThreadId) -> Option<Thread> {
        self.take_children(id);
        let thread = self.threads.remove(&id)?;
        if let Some(at) = thread.timer {
            self.timers.remove(&(at, id));
        }
        if let ThreadActivity::Task { task } = thread.doing
            && self.tasks.remove(&task).is_some()
        {
            self.commands.push(Command::Forget(task));
        }
        Some(thread)
    }

    fn set_timer(&mut self, id: ThreadId, at: Timestamp) {
        self.clear_timer(id);
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.timer = Some(at);
            self.timers.insert((at, id));
        }
    }

    fn clear_timer(&mut self, id: ThreadId) {
        if let Some(at) = self.threads.get_mut(&id).and_then(|thread| thread.timer.take()) {
            self.timers.remove(&(at, id));
        }
    }

    /// The request id of a task: it sorts by the time of its beginning, as all do, and is always the same.
    fn invocation(&self, task: TaskId) -> InvocationId {
        let mut bytes = bytes_of(self.facts.id, u64::MAX - task.0);
        bytes[..6].copy_from_slice(&self.now.millis().to_be_bytes()[2..]);
        bytes[6] = 0x70 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        InvocationId::of_bytes(bytes)
    }

    /// Shows that a state was entered or left.
    fn show_state(&mut self, id: ThreadId, what: &str, data: &Value) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let (state, leaves) = (&thread.state, what == "Exited");
        // A `Fail` is never left.
        let (kind, name) = (state.kind.name(), &state.name);
        thread.shown = self.showing.show(
            thread.shown,
            self.now,
            || format!("{kind}State{what}"),
            || {
                let (member, field) =
                    if leaves { ("stateExitedEventDetails", "output") } else { ("stateEnteredEventDetails", "input") };
                Some((member, json!({ "name": name, field: data.to_string() })))
            },
        );
    }

    /// Shows what becomes of a task, in the words of how it was asked for.
    fn show_task(&mut self, id: ThreadId, what: &'static str, details: impl FnOnce(&str) -> Value) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let Kind::Task(task) = &thread.state.kind else { return };
        let integration = task.resource == Resource::Invoke;
        thread.shown = self.showing.show(
            thread.shown,
            self.now,
            || format!("{}{what}", if integration { "Task" } else { "LambdaFunction" }),
            || {
                let mut details = details(&task.arn);
                if integration {
                    details["resourceType"] = "lambda".into();
                    details["resource"] = "invoke".into();
                }
                let member = match (integration, what) {
                    (true, "Scheduled") => "taskScheduledEventDetails",
                    (true, "Started") => "taskStartedEventDetails",
                    (true, "Succeeded") => "taskSucceededEventDetails",
                    (true, "TimedOut") => "taskTimedOutEventDetails",
                    (true, _) => "taskFailedEventDetails",
                    (false, "Scheduled") => "lambdaFunctionScheduledEventDetails",
                    // It has no details.
                    (false, "Started") => return None,
                    (false, "Succeeded") => "lambdaFunctionSucceededEventDetails",
                    (false, "TimedOut") => "lambdaFunctionTimedOutEventDetails",
                    (false, _) => "lambdaFunctionFailedEventDetails",
                };
                Some((member, details))
            },
        );
    }
}

fn after(at: Timestamp, wait: std::time::Duration) -> Timestamp {
    // Rounded up: what is due is never early.
    Timestamp(at.0.saturating_add(wait.as_micros().div_ceil(1000) as u64))
}
