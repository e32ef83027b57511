//! A thread of an execution: its state, and what it waits for there. Pure.

use std::sync::Arc;

use nigh_terms::{Timestamp, Token};
use serde_json::Value;

use super::Run;
use super::children::Children;
use crate::event::{Command, Facts, TaskId};
use crate::language::context::{Context, MapItem};
use crate::language::definition::{Scope, State};

/// A thread's number within its execution: dense, in the order in which threads begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ThreadId(pub(super) u64);

/// The activity of a thread in its state.
pub(super) enum ThreadActivity {
    /// The thread is about to run its state, for the first time or again.
    Trying,
    /// A function runs for the thread.
    Task { task: TaskId },
    /// The thread waits in a `Wait` state, which has this output.
    Waiting { output: Value },
    /// The thread waits for its next attempt.
    BackingOff,
    /// The thread's child threads run.
    Children(Children),
}

pub(super) struct Thread {
    /// The thread's parent thread, and its index among the children. None for the execution's own thread.
    pub(super) parent: Option<(ThreadId, usize)>,
    pub(super) scope: Arc<Scope>,
    pub(super) state: Arc<State>,
    /// The state's input, before any path.
    pub(super) input: Arc<Value>,
    pub(super) entered: Timestamp,
    /// Number of uses of each rule of the state's `Retry`.
    pub(super) tries: Vec<u32>,
    /// The item of the innermost map around it; none outside a map.
    pub(super) item: Option<Arc<MapItem>>,
    /// The token of what the tasks before it had seen.
    pub(super) token: Token,
    pub(super) doing: ThreadActivity,
    pub(super) timer: Option<Timestamp>,
    /// The number of its last event in the history.
    pub(super) shown: u64,
}

impl Thread {
    #[expect(clippy::too_many_arguments, reason = "it is all that a thread begins with")]
    pub(super) fn new(
        parent: Option<(ThreadId, usize)>,
        scope: Arc<Scope>,
        state: Arc<State>,
        input: Arc<Value>,
        item: Option<Arc<MapItem>>,
        token: Token,
        shown: u64,
        now: Timestamp,
    ) -> Self {
        let tries = vec![0; state.retry.len()];
        let doing = ThreadActivity::Trying;
        Self { parent, scope, state, input, entered: now, tries, item, token, doing, timer: None, shown }
    }

    /// Enters another state.
    pub(super) fn enter(&mut self, state: Arc<State>, input: Arc<Value>, now: Timestamp) {
        self.tries = vec![0; state.retry.len()];
        self.state = state;
        self.input = input;
        self.entered = now;
        self.doing = ThreadActivity::Trying;
        self.timer = None;
    }

    pub(super) fn context<'a>(&'a self, facts: &'a Facts, input: &'a Value) -> Context<'a> {
        Context {
            facts: Some(facts),
            input,
            state: &self.state.name,
            entered: self.entered,
            retries: self.tries.iter().sum(),
            item: self.item.as_deref(),
        }
    }
}

impl Run {
    pub(super) fn begin_thread(
        &mut self,
        parent: Option<(ThreadId, usize)>,
        scope: &Arc<Scope>,
        input: Arc<Value>,
        item: Option<Arc<MapItem>>,
        token: Token,
        shown: u64,
    ) {
        // A parsed definition always has its start state.
        let Some(state) = scope.states.get(&scope.start).cloned() else { return };
        let id = ThreadId(self.threads_made);
        self.threads_made += 1;
        let thread = Thread::new(parent, Arc::clone(scope), state, input, item, token, shown, self.now);
        self.threads.insert(id, thread);
        self.entered(id);
    }

    /// Removes a thread and all below it.
    pub(super) fn remove_thread(&mut self, id: ThreadId) -> Option<Thread> {
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

    pub(super) fn set_timer(&mut self, id: ThreadId, at: Timestamp) {
        self.clear_timer(id);
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.timer = Some(at);
            self.timers.insert((at, id));
        }
    }

    pub(super) fn clear_timer(&mut self, id: ThreadId) {
        if let Some(at) = self.threads.get_mut(&id).and_then(|thread| thread.timer.take()) {
            self.timers.remove(&(at, id));
        }
    }
}
