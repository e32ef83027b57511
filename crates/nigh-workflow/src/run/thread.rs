//! A thread of an execution: which state it is in, and what it waits for there. Pure.

use std::sync::Arc;

use nigh_terms::{Timestamp, Token};
use serde_json::Value;

use super::super::context::{Context, MapItem};
use super::super::definition::{Scope, State};
use super::super::event::{Facts, TaskId};
use super::children::Children;

/// Names a thread within its execution: dense, in the order of their beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ThreadId(pub(super) u64);

/// What a thread does in its state.
pub(super) enum ThreadActivity {
    /// It is about to do what the state says, for the first time or again.
    Trying,
    /// A function runs.
    Task { task: TaskId },
    /// It waits, as a `Wait` says; then this comes out.
    Waiting { output: Value },
    /// It waits until it is tried again.
    BackingOff,
    /// Threads below it run.
    Children(Children),
}

pub(super) struct Thread {
    /// The thread whose child it is, and which one.
    pub(super) parent: Option<(ThreadId, usize)>,
    pub(super) scope: Arc<Scope>,
    pub(super) state: Arc<State>,
    /// The state's input, before any path.
    pub(super) input: Arc<Value>,
    pub(super) entered: Timestamp,
    /// How often each rule of the state's `Retry` was used.
    pub(super) tries: Vec<u32>,
    /// Within a map: the item of the innermost.
    pub(super) item: Option<Arc<MapItem>>,
    /// What those before it had seen.
    pub(super) token: Token,
    pub(super) doing: ThreadActivity,
    pub(super) timer: Option<Timestamp>,
    /// The last event that was shown of it.
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

    /// Goes over to another state.
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
