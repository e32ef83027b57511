//! A state machine, parsed by `read`. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use nigh_terms::{FunctionName, Timestamp};
use serde_json::Value;

use super::choice::Rule;
use super::path::Path;
use super::template::{Expression, Template};

/// The name of a state.
pub(crate) type StateName = Arc<str>;

/// A state machine.
#[derive(Clone, Debug)]
pub struct Definition {
    pub(crate) top: Arc<Scope>,
    /// How long an execution may run; none: no limit.
    pub(crate) timeout: Option<Duration>,
}

impl Definition {
    /// The functions that the definition names.
    #[must_use]
    pub fn functions(&self) -> BTreeSet<FunctionName> {
        let mut functions = BTreeSet::new();
        self.top.functions(&mut functions);
        functions
    }
}

/// A set of states that refer to each other: the whole machine, a branch, or the processor of a map.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) start: StateName,
    pub(crate) states: BTreeMap<StateName, Arc<State>>,
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
pub(crate) struct State {
    pub(crate) name: StateName,
    /// The path of the effective input; none: the input is discarded.
    pub(crate) input_path: Option<Path>,
    pub(crate) output_path: Option<Path>,
    pub(crate) parameters: Option<Template>,
    pub(crate) result_selector: Option<Template>,
    /// The path at which the result is put; none: the result is discarded.
    pub(crate) result_path: Option<Path>,
    pub(crate) retry: Vec<Retrier>,
    pub(crate) catch: Vec<Catcher>,
    /// The next state; none: the scope ends here.
    pub(crate) next: Option<StateName>,
    pub(crate) kind: Kind,
}

/// One rule of `Retry`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Retrier {
    pub(crate) errors: Vec<String>,
    pub(crate) interval: Duration,
    pub(crate) attempts_max: u32,
    pub(crate) rate: f64,
    pub(crate) wait_max: Option<Duration>,
    /// True if the wait is a random part of the computed one.
    pub(crate) full_jitter: bool,
}

/// One rule of `Catch`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Catcher {
    pub(crate) errors: Vec<String>,
    pub(crate) result_path: Option<Path>,
    pub(crate) next: StateName,
}

/// The type of a state, with its fields.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
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
    /// The value of `Type`.
    pub(crate) const fn name(&self) -> &'static str {
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

/// How a task names its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// By the function's ARN: the state's input is its payload, its answer the result.
    Function,
    /// `arn:aws:states:::lambda:invoke`: the parameters name the function, and how it is invoked.
    Invoke,
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) resource: Resource,
    /// The resource, as written.
    pub(crate) arn: String,
    /// The function; none if only the input names it.
    pub(crate) function: Option<FunctionName>,
    pub(crate) timeout: Option<Seconds>,
}

#[derive(Clone, Debug)]
pub(crate) enum Seconds {
    Fixed(u64),
    Path(Path),
}

#[derive(Clone, Debug)]
pub(crate) enum WaitUntil {
    Seconds(u64),
    SecondsPath(Path),
    Timestamp(Timestamp),
    TimestampPath(Path),
}

/// A text of a `Fail` state.
#[derive(Clone, Debug)]
pub(crate) enum Words {
    None,
    Fixed(String),
    /// The value of a path, or of a call of an intrinsic function.
    Looked(Expression),
}

#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) processor: Arc<Scope>,
    pub(crate) items: Option<Path>,
    /// The input of each iteration; none: the item.
    pub(crate) selector: Option<Template>,
    /// The most concurrent iterations; zero: no limit of its own.
    pub(crate) concurrency: Count,
    pub(crate) tolerated_count: Option<Count>,
    pub(crate) tolerated_percent: Option<Count>,
}

#[derive(Clone, Debug)]
pub(crate) enum Count {
    Fixed(u64),
    Path(Path),
}
