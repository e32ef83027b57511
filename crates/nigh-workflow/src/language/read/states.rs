//! Parses the fields of each type of state. Pure.

use std::sync::Arc;
use std::time::Duration;

use nigh_functions::function_arn::parse_function_reference;
use serde_json::Value;

use super::choices;
use super::fields::{Fields, PathField};
use super::{Names, SECONDS_MAX, scope};
use crate::language::definition::{
    Catcher, Count, Kind, Map, Resource, Retrier, Scope, Seconds, State, StateName, Task, WaitUntil, Words,
};
use crate::language::error_names;
use crate::language::path::Path;
use crate::language::problems::code;
use crate::language::template::{Expression, FieldOf, Template};
use crate::language::timestamp;

/// The integration whose parameters name the function.
const INVOKE: &str = "arn:aws:states:::lambda:invoke";
/// The parameters of `INVOKE`.
const INVOKE_PARAMETERS: [&str; 6] =
    ["FunctionName", "Payload", "InvocationType", "ClientContext", "Qualifier", "LogType"];

/// The path `$`: the whole value.
fn whole() -> Option<Path> {
    Path::parse("$").ok()
}

fn or_whole(field: PathField) -> Option<Path> {
    match field {
        PathField::Absent => whole(),
        PathField::Null => None,
        PathField::Path(path) => Some(path),
    }
}

/// Parses a state of the type `kind`.
pub(crate) fn read(name: &str, kind: &str, fields: &Fields<'_>, names: &mut Names, depth: usize) -> Option<State> {
    let has_result = matches!(kind, "Task" | "Parallel" | "Map");
    let has_parameters = has_result || kind == "Pass";
    let is_fail = kind == "Fail";
    let mut state = State {
        name: name.into(),
        input_path: if is_fail { whole() } else { or_whole(fields.path("InputPath")) },
        output_path: if is_fail { whole() } else { or_whole(fields.path("OutputPath")) },
        parameters: has_parameters.then(|| fields.template("Parameters")).flatten(),
        result_selector: has_result.then(|| fields.template("ResultSelector")).flatten(),
        result_path: if has_parameters { or_whole(fields.result_path("ResultPath")) } else { whole() },
        retry: if has_result { retry(fields) } else { Vec::new() },
        catch: if has_result { catch(fields) } else { Vec::new() },
        next: None,
        kind: Kind::Succeed,
    };
    let leads_on = !matches!(kind, "Choice" | "Succeed" | "Fail");
    if leads_on {
        state.next = next(fields);
    }
    state.kind = match kind {
        "Task" => Kind::Task(task(fields, state.parameters.as_ref())?),
        "Pass" => Kind::Pass(fields.raw("Result").cloned()),
        "Choice" => choices::choice(fields)?,
        "Wait" => Kind::Wait(wait(fields)?),
        "Parallel" => Kind::Parallel(branches(fields, names, depth)?),
        "Map" => Kind::Map(map(fields, &mut state.parameters, names, depth)?),
        "Succeed" => Kind::Succeed,
        "Fail" => Kind::Fail { error: words(fields, "Error", "ErrorPath"), cause: words(fields, "Cause", "CausePath") },
        other => {
            let types = "Task, Pass, Choice, Wait, Parallel, Map, Succeed or Fail";
            fields.problem("Type", code::SCHEMA, format!("{other:?} is none of {types}"));
            return None;
        }
    };
    Some(state)
}

fn next(fields: &Fields<'_>) -> Option<StateName> {
    fields.only_one_of(&["Next", "End"]);
    let next = fields.text("Next").map(StateName::from);
    let ends = fields.flag("End");
    if next.is_none() && ends != Some(true) && !fields.has("Next") {
        fields.problem("Next", code::SCHEMA, "neither Next nor \"End\": true says what follows");
    }
    next
}

fn task(fields: &Fields<'_>, parameters: Option<&Template>) -> Option<Task> {
    let timeout = seconds(fields, "TimeoutSeconds", "TimeoutSecondsPath");
    let Some(arn) = fields.text("Resource") else {
        if !fields.has("Resource") {
            fields.missing("Resource");
        }
        return None;
    };
    let named = |field: &str, text: &str| match parse_function_reference(text) {
        Ok(function) => Some(function),
        Err(error) => {
            fields.problem(field, code::SCHEMA, error.to_string());
            None
        }
    };
    if arn != INVOKE {
        if arn.starts_with("arn:aws:states:") {
            let why = format!("{arn:?} is not supported; a function's ARN is, and {INVOKE}");
            fields.problem("Resource", code::SCHEMA, why);
            return None;
        }
        let function = Some(named("Resource", arn)?);
        return Some(Task { resource: Resource::Function, arn: arn.to_owned(), function, timeout });
    }
    let names: Vec<String> = match fields.raw("Parameters") {
        Some(Value::Object(given)) => given.keys().cloned().collect(),
        _ => Vec::new(),
    };
    for name in names.iter().filter(|name| !INVOKE_PARAMETERS.contains(&name.strip_suffix(".$").unwrap_or(name))) {
        fields.problem(&format!("Parameters.{name}"), code::SCHEMA, "lambda:invoke has no such parameter");
    }
    let function = match parameters.and_then(|parameters| parameters.field("FunctionName")) {
        Some(FieldOf::Literal(Value::String(text))) => Some(named("Parameters.FunctionName", text)?),
        Some(FieldOf::LookedUp) => None,
        _ => {
            fields.problem("Parameters.FunctionName", code::SCHEMA, "lambda:invoke needs the name of a function");
            return None;
        }
    };
    Some(Task { resource: Resource::Invoke, arn: arn.to_owned(), function, timeout })
}

fn seconds(fields: &Fields<'_>, fixed: &'static str, path: &'static str) -> Option<Seconds> {
    fields.only_one_of(&[fixed, path]);
    let fixed = fields.whole(fixed, 1..=SECONDS_MAX).map(Seconds::Fixed);
    fixed.or(fields.one_path(path).map(Seconds::Path))
}

fn wait(fields: &Fields<'_>) -> Option<WaitUntil> {
    let names = ["Seconds", "SecondsPath", "Timestamp", "TimestampPath"];
    fields.only_one_of(&names);
    if !names.iter().any(|name| fields.has(name)) {
        fields.problem("Seconds", code::SCHEMA, "one of Seconds, SecondsPath, Timestamp and TimestampPath is needed");
    }
    let at = fields.text("Timestamp").and_then(|text| {
        let date = timestamp::parse(text);
        if date.is_none() {
            fields.problem("Timestamp", code::SCHEMA, "it is no date like 2026-01-31T12:00:00Z");
        }
        date
    });
    let seconds = fields.whole("Seconds", 0..=SECONDS_MAX).map(WaitUntil::Seconds);
    seconds
        .or(fields.one_path("SecondsPath").map(WaitUntil::SecondsPath))
        .or(at.map(WaitUntil::Timestamp))
        .or(fields.one_path("TimestampPath").map(WaitUntil::TimestampPath))
}

fn words(fields: &Fields<'_>, fixed: &'static str, path: &'static str) -> Words {
    fields.only_one_of(&[fixed, path]);
    if let Some(text) = fields.text(fixed) {
        return Words::Fixed(text.to_owned());
    }
    match fields.text(path).map(Expression::parse) {
        None => Words::None,
        Some(Ok(expression)) => Words::Looked(expression),
        Some(Err(error)) => {
            fields.problem(path, code::PATH, error.to_string());
            Words::None
        }
    }
}

fn branches(fields: &Fields<'_>, names: &mut Names, depth: usize) -> Option<Vec<Arc<Scope>>> {
    let Some(all) = fields.array("Branches") else {
        if !fields.has("Branches") {
            fields.missing("Branches");
        }
        return None;
    };
    if all.is_empty() {
        fields.problem("Branches", code::SCHEMA, "it is empty");
    }
    let read = |(index, branch)| {
        scope(branch, &format!("{}[{index}]", fields.place("Branches")), fields.problems, names, depth + 1)
    };
    let branches: Vec<_> = all.iter().enumerate().map(read).collect();
    branches.into_iter().collect()
}

fn map(fields: &Fields<'_>, parameters: &mut Option<Template>, names: &mut Names, depth: usize) -> Option<Map> {
    // `Iterator` is the older name of `ItemProcessor`.
    fields.only_one_of(&["ItemProcessor", "Iterator"]);
    fields.only_one_of(&["ItemSelector", "Parameters"]);
    let field = if fields.has("Iterator") { "Iterator" } else { "ItemProcessor" };
    let selector = fields.template("ItemSelector").or(parameters.take());
    let items = match fields.path("ItemsPath") {
        PathField::Path(path) => Some(path),
        _ => None,
    };
    let concurrency = count(fields, "MaxConcurrency", "MaxConcurrencyPath").unwrap_or(Count::Fixed(0));
    let tolerated_count = count(fields, "ToleratedFailureCount", "ToleratedFailureCountPath");
    let tolerated_percent = count(fields, "ToleratedFailurePercentage", "ToleratedFailurePercentagePath");
    if let Some(Count::Fixed(percent @ 101..)) = tolerated_percent {
        fields.problem("ToleratedFailurePercentage", code::SCHEMA, format!("it is {percent}; 100 is the most"));
    }
    let Some(processor) = fields.raw(field) else {
        fields.missing(field);
        return None;
    };
    let processor = scope(processor, &fields.place(field), fields.problems, names, depth + 1)?;
    Some(Map { processor, items, selector, concurrency, tolerated_count, tolerated_percent })
}

fn count(fields: &Fields<'_>, fixed: &'static str, path: &'static str) -> Option<Count> {
    fields.only_one_of(&[fixed, path]);
    fields.whole(fixed, 0..=u64::from(u32::MAX)).map(Count::Fixed).or(fields.one_path(path).map(Count::Path))
}

fn errors(rule: &Fields<'_>) -> Vec<String> {
    let Some(names) = rule.array("ErrorEquals") else {
        if !rule.has("ErrorEquals") {
            rule.missing("ErrorEquals");
        }
        return Vec::new();
    };
    if names.is_empty() {
        rule.problem("ErrorEquals", code::SCHEMA, "it is empty");
    }
    let texts: Vec<String> = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if texts.len() != names.len() {
        rule.problem("ErrorEquals", code::SCHEMA, "it has something that is no string");
    }
    if texts.len() > 1 && texts.iter().any(|name| name == error_names::ALL) {
        rule.problem("ErrorEquals", code::SCHEMA, "States.ALL stands alone");
    }
    texts
}

/// The rules in `name`, each with its fields. Reports a rule that names all errors and is not the last.
fn rules<'a>(fields: &Fields<'a>, name: &'static str) -> Vec<Fields<'a>> {
    let Some(all) = fields.array(name) else { return Vec::new() };
    let at = |index| format!("{}[{index}]", fields.place(name));
    let rules = all.iter().enumerate().filter_map(|(index, rule)| Fields::of(rule, &at(index), fields.problems));
    let rules: Vec<Fields<'a>> = rules.collect();
    for (index, rule) in all.iter().enumerate().take(all.len().saturating_sub(1)) {
        let named = rule.get("ErrorEquals").and_then(Value::as_array);
        if named.is_some_and(|named| named.iter().any(|name| name == error_names::ALL)) {
            fields.problem(&format!("{name}[{index}].ErrorEquals"), code::SCHEMA, "States.ALL is for the last rule");
        }
    }
    rules
}

fn retry(fields: &Fields<'_>) -> Vec<Retrier> {
    let read = |rule: Fields<'_>| {
        rule.text("Comment");
        let rate = rule.number("BackoffRate").unwrap_or(2.0);
        if !(1.0..=1e9).contains(&rate) {
            rule.problem("BackoffRate", code::SCHEMA, format!("it is {rate}; it must be at least 1"));
        }
        let jitter = rule.text("JitterStrategy").unwrap_or("NONE");
        if !matches!(jitter, "NONE" | "FULL") {
            rule.problem("JitterStrategy", code::SCHEMA, format!("{jitter:?} is neither NONE nor FULL"));
        }
        let retrier = Retrier {
            errors: errors(&rule),
            interval: Duration::from_secs(rule.whole("IntervalSeconds", 1..=SECONDS_MAX).unwrap_or(1)),
            attempts_max: rule.whole("MaxAttempts", 0..=SECONDS_MAX).unwrap_or(3) as u32,
            rate,
            wait_max: rule.whole("MaxDelaySeconds", 1..=31_622_400).map(Duration::from_secs),
            full_jitter: jitter == "FULL",
        };
        rule.finish();
        retrier
    };
    rules(fields, "Retry").into_iter().map(read).collect()
}

fn catch(fields: &Fields<'_>) -> Vec<Catcher> {
    let read = |rule: Fields<'_>| {
        rule.text("Comment");
        if !rule.has("Next") {
            rule.missing("Next");
        }
        let errors = errors(&rule);
        let result_path = or_whole(rule.result_path("ResultPath"));
        let catcher = rule.text("Next").map(|next| Catcher { errors, result_path, next: next.into() });
        rule.finish();
        catcher
    };
    rules(fields, "Catch").into_iter().filter_map(read).collect()
}
