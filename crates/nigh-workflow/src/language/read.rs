//! Makes a state machine from a text, or names every problem of the text with its place. Pure.
//!
//! The language is the Amazon States Language, version 1.0, with JSONPath. Any other construct is refused by name,
//! never ignored.

mod choices;
mod fields;
mod states;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use self::fields::Fields;
use super::definition::{Definition, Kind, Scope, State, StateName};
use super::problems::{Problem, Problems, code};

/// The most bytes of a definition (Step Functions quotas: 1 MiB).
const DEFINITION_BYTES_MAX: usize = 1 << 20;
/// The most characters of a state's name.
const NAME_MAX: usize = 80;
/// The most states of one machine.
const STATES_MAX: usize = 10_000;
/// The most levels of nested branches.
const DEPTH_MAX: usize = 16;
/// The most seconds of any duration: three years.
pub(crate) const SECONDS_MAX: u64 = 99_999_999;

/// Parses the state machine in `text`.
///
/// # Errors
/// All problems of the text, up to a limit.
pub fn read(text: &str) -> Result<Definition, Vec<Problem>> {
    let whole = |code, message: String| vec![Problem { path: "the definition".to_owned(), code, message }];
    if text.len() > DEFINITION_BYTES_MAX {
        return Err(whole(code::SCHEMA, format!("it is longer than {DEFINITION_BYTES_MAX} bytes")));
    }
    let value: Value =
        serde_json::from_str(text).map_err(|error| whole("INVALID_JSON_DESCRIPTION", error.to_string()))?;
    let problems = Problems::default();
    let definition = machine(&value, &problems);
    let problems = problems.into_all();
    match definition {
        Some(definition) if problems.is_empty() => Ok(definition),
        _ => Err(problems),
    }
}

fn machine(value: &Value, problems: &Problems) -> Option<Definition> {
    let fields = Fields::of(value, "", problems)?;
    fields.text("Comment");
    if fields.text("Version").is_some_and(|version| version != "1.0") {
        fields.problem("Version", code::SCHEMA, "it must be \"1.0\"");
    }
    let timeout = fields.whole("TimeoutSeconds", 1..=SECONDS_MAX).map(Duration::from_secs);
    query_language(&fields);
    let mut names = Names::default();
    let top = states(&fields, &mut names, 0);
    fields.finish();
    Some(Definition { top: Arc::new(top?), timeout })
}

/// Reports a query language other than JSONPath.
pub(crate) fn query_language(fields: &Fields<'_>) {
    if fields.has("QueryLanguage") && fields.text("QueryLanguage").is_some_and(|language| language != "JSONPath") {
        fields.problem("QueryLanguage", code::SCHEMA, "JSONata is not supported: use JSONPath");
    }
}

/// The names of all states so far.
#[derive(Default)]
pub(crate) struct Names(BTreeSet<String>);

/// Parses the scope at `at`: a branch, or the processor of items.
pub(crate) fn scope(
    value: &Value,
    at: &str,
    problems: &Problems,
    names: &mut Names,
    depth: usize,
) -> Option<Arc<Scope>> {
    let fields = Fields::of(value, at, problems)?;
    fields.text("Comment");
    query_language(&fields);
    if let Some(config) = fields.raw("ProcessorConfig") {
        let place = fields.place("ProcessorConfig");
        if let Some(config) = Fields::of(config, &place, problems) {
            if config.text("Mode").is_some_and(|mode| mode != "INLINE") {
                config.problem("Mode", code::SCHEMA, "distributed maps are not supported: use INLINE");
            }
            config.raw("ExecutionType");
            config.finish();
        }
    }
    let scope = states(&fields, names, depth);
    fields.finish();
    scope.map(Arc::new)
}

fn states(fields: &Fields<'_>, names: &mut Names, depth: usize) -> Option<Scope> {
    if depth > DEPTH_MAX {
        fields.problem("States", code::SCHEMA, format!("branches are nested deeper than {DEPTH_MAX}"));
        return None;
    }
    let start = fields.text("StartAt");
    if !fields.has("StartAt") {
        fields.missing("StartAt");
    }
    let Some(all) = fields.raw("States") else {
        fields.missing("States");
        return None;
    };
    let Some(all) = all.as_object().filter(|all| !all.is_empty()) else {
        fields.problem("States", code::SCHEMA, "it is no object with states");
        return None;
    };
    let (mut states, mut is_whole) = (BTreeMap::new(), true);
    for (name, value) in all {
        let at = format!("{}.{name}", fields.place("States"));
        if name.is_empty() || name.chars().count() > NAME_MAX {
            fields.problems.add(at.clone(), code::SCHEMA, format!("a state's name has 1 to {NAME_MAX} characters"));
        }
        if !names.0.insert(name.clone()) {
            fields.problems.add(at.clone(), code::DUPLICATE, "there is another state of this name in the machine");
        }
        if names.0.len() > STATES_MAX {
            fields.problems.add(at.clone(), code::SCHEMA, format!("a machine has at most {STATES_MAX} states"));
            return None;
        }
        match state(name, value, &at, fields.problems, names, depth) {
            Some(state) => {
                for (field, target) in targets(&state).into_iter().filter(|(_, target)| !all.contains_key(&**target)) {
                    let why = format!("there is no state {target:?} here");
                    fields.problems.add(format!("{at}.{field}"), code::TARGET, why);
                }
                states.insert(StateName::from(name.as_str()), Arc::new(state));
            }
            None => is_whole = false,
        }
    }
    let start = start?;
    if !all.contains_key(start) {
        fields.problem("StartAt", code::TARGET, format!("there is no state {start:?} here"));
        return None;
    }
    if !is_whole {
        return None;
    }
    let scope = Scope { start: start.into(), states };
    reachable(&scope, fields);
    Some(scope)
}

/// Reports states that no other state leads to.
fn reachable(scope: &Scope, fields: &Fields<'_>) {
    let (mut found, mut next) = (BTreeSet::new(), vec![Arc::clone(&scope.start)]);
    while let Some(name) = next.pop() {
        if let Some(state) = scope.states.get(&name)
            && found.insert(name)
        {
            next.extend(targets(state).into_iter().map(|(_, target)| target));
        }
    }
    for name in scope.states.keys().filter(|name| !found.contains(*name)) {
        fields.problems.add(format!("{}.{name}", fields.place("States")), code::TARGET, "no state leads here");
    }
}

/// The states that `state` leads to, with the field that names each.
fn targets(state: &State) -> Vec<(String, StateName)> {
    let mut targets: Vec<_> = state.next.iter().map(|next| ("Next".to_owned(), Arc::clone(next))).collect();
    let caught = state.catch.iter().enumerate().map(|(n, catch)| (format!("Catch[{n}].Next"), Arc::clone(&catch.next)));
    targets.extend(caught);
    if let Kind::Choice { rules, default } = &state.kind {
        let chosen = rules.iter().enumerate().map(|(n, (_, next))| (format!("Choices[{n}].Next"), Arc::clone(next)));
        targets.extend(chosen);
        targets.extend(default.iter().map(|next| ("Default".to_owned(), Arc::clone(next))));
    }
    targets
}

fn state(name: &str, value: &Value, at: &str, problems: &Problems, names: &mut Names, depth: usize) -> Option<State> {
    let fields = Fields::of(value, at, problems)?;
    fields.text("Comment");
    query_language(&fields);
    let Some(kind) = fields.text("Type") else {
        if !fields.has("Type") {
            fields.missing("Type");
        }
        return None;
    };
    let state = states::read(name, kind, &fields, names, depth)?;
    // An unreadable state is missing here, so its allowed fields are unknown.
    fields.finish();
    Some(state)
}
