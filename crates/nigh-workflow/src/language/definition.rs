//! A state machine as it is run: what `read` made of a text. Pure.

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
    /// How long an execution may run.
    pub(crate) timeout: Option<Duration>,
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
    /// None: the input is thrown away.
    pub(crate) input_path: Option<Path>,
    pub(crate) output_path: Option<Path>,
    pub(crate) parameters: Option<Template>,
    pub(crate) result_selector: Option<Template>,
    /// None: the result is thrown away.
    pub(crate) result_path: Option<Path>,
    pub(crate) retry: Vec<Retrier>,
    pub(crate) catch: Vec<Catcher>,
    /// None: the scope ends here.
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
    /// The wait is anything up to what it would be.
    pub(crate) full_jitter: bool,
}

/// One rule of `Catch`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Catcher {
    pub(crate) errors: Vec<String>,
    pub(crate) result_path: Option<Path>,
    pub(crate) next: StateName,
}

/// What a state does.
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
    /// Its `Type`.
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

/// How a function is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// By its ARN: the state's input is its payload, its answer the result.
    Function,
    /// `arn:aws:states:::lambda:invoke`: the parameters say what is invoked and how.
    Invoke,
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) resource: Resource,
    /// The resource, as it was written.
    pub(crate) arn: String,
    /// None: it is only known from the input.
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
    /// A path, or a call of an intrinsic function.
    Looked(Expression),
}

#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) processor: Arc<Scope>,
    pub(crate) items: Option<Path>,
    /// What each iteration gets; none: the item.
    pub(crate) selector: Option<Template>,
    /// Zero: as many as may be.
    pub(crate) concurrency: Count,
    pub(crate) tolerated_count: Option<Count>,
    pub(crate) tolerated_percent: Option<Count>,
}

#[derive(Clone, Debug)]
pub(crate) enum Count {
    Fixed(u64),
    Path(Path),
}
