//! A state machine as it is run: what `read` made of a text. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use nigh_terms::{FunctionName, Timestamp};
use serde_json::Value;

use super::choice::Rule;
use super::path::Path;
use super::retry::{Catcher, Retrier};
use super::template::Template;

/// The name of a state.
pub(super) type StateName = Arc<str>;

/// A state machine.
#[derive(Clone, Debug)]
pub struct Definition {
    pub(super) top: Arc<Scope>,
    /// How long an execution may run.
    pub(super) timeout: Option<Duration>,
}

impl Definition {
    /// The functions that it names.
    #[must_use]
    pub fn functions(&self) -> BTreeSet<FunctionName> {
        let mut functions = BTreeSet::new();
        self.top.functions(&mut functions);
        functions
    }
}

/// States that lead to each other: the whole machine, a branch, or what is done with each item.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) start: StateName,
    pub(super) states: BTreeMap<StateName, Arc<State>>,
}

impl Scope {
    fn functions(&self, found: &mut BTreeSet<FunctionName>) {
        for state in self.states.values() {
            match &state.kind {
                Kind::Task(task) => found.extend(task.function.clone()),
                Kind::Parallel(branches) => branches.iter().for_each(|branch| branch.functions(found)),
                Kind::Map(map) => map.processor.functions(found),
                _ => {}
            }
        }
    }
}

/// A state.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) name: StateName,
    /// None: the input is thrown away.
    pub(super) input_path: Option<Path>,
    pub(super) output_path: Option<Path>,
    pub(super) parameters: Option<Template>,
    pub(super) result_selector: Option<Template>,
    /// None: the result is thrown away.
    pub(super) result_path: Option<Path>,
    pub(super) retry: Vec<Retrier>,
    pub(super) catch: Vec<Catcher>,
    /// None: the scope ends here.
    pub(super) next: Option<StateName>,
    pub(super) kind: Kind,
}

/// What a state does.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Task(Task),
    Pass(Option<Value>),
    Choice { rules: Vec<(Rule, StateName)>, default: Option<StateName> },
    Wait(WaitUntil),
    Parallel(Vec<Arc<Scope>>),
    Map(Map),
    Succeed,
    Fail { error: Words, cause: Words },
}

impl Kind {
    /// Its `Type`.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Task(_) => "Task",
            Self::Pass(_) => "Pass",
            Self::Choice { .. } => "Choice",
            Self::Wait(_) => "Wait",
            Self::Parallel(_) => "Parallel",
            Self::Map(_) => "Map",
            Self::Succeed => "Succeed",
            Self::Fail { .. } => "Fail",
        }
    }
}

/// How a function is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// By its ARN: the state's input is its payload, its answer the result.
    Function,
    /// `arn:aws:states:::lambda:invoke`: the parameters say what is invoked and how.
    Invoke,
}

#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) resource: Resource,
    /// The resource, as it was written.
    pub(super) arn: String,
    /// None: it is only known from the input.
    pub(super) function: Option<FunctionName>,
    pub(super) timeout: Option<Seconds>,
}

#[derive(Clone, Debug)]
pub(super) enum Seconds {
    Fixed(u64),
    Path(Path),
}

#[derive(Clone, Debug)]
pub(super) enum WaitUntil {
    Seconds(u64),
    SecondsPath(Path),
    Timestamp(Timestamp),
    TimestampPath(Path),
}

/// A text of a `Fail` state.
#[derive(Clone, Debug)]
pub(super) enum Words {
    None,
    Fixed(String),
    /// A path, or a call of an intrinsic function.
    Looked(super::template::Expression),
}

#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) processor: Arc<Scope>,
    pub(super) items: Option<Path>,
    /// What each iteration gets; none: the item.
    pub(super) selector: Option<Template>,
    /// Zero: as many as may be.
    pub(super) concurrency: Count,
    pub(super) tolerated_count: Option<Count>,
    pub(super) tolerated_percent: Option<Count>,
}

#[derive(Clone, Debug)]
pub(super) enum Count {
    Fixed(u64),
    Path(Path),
}
