//! The data of a state: from input to effective input, from result to output. Pure.

use std::sync::Arc;

use nigh_functions::function_arn::parse_function_reference;
use nigh_terms::Timestamp;
use serde_json::{Value, json};

use super::thread::{ThreadActivity, ThreadId};
use super::{DATA_BYTES_MAX, Failure, Run, Step, after};
use crate::event::{Command, TaskId, TaskRun};
use crate::language::chance::Chance;
use crate::language::context::Context;
use crate::language::definition::{Kind, Resource, Seconds, State, Task, WaitUntil, Words};
use crate::language::error_names;
use crate::language::path::{NotFound, Path};
use crate::language::read::SECONDS_MAX;
use crate::language::template::{Sight, Template, ValueError};
use crate::language::timestamp;

impl From<NotFound> for Failure {
    fn from(error: NotFound) -> Self {
        Self::new(error_names::RUNTIME, error.to_string())
    }
}

impl From<ValueError> for Failure {
    fn from(error: ValueError) -> Self {
        Self::new(error.name(), error.to_string())
    }
}

/// The value at `path`; an empty object if the path is null.
pub(super) fn by_path(path: Option<&Path>, sight: &Sight<'_>) -> Result<Value, NotFound> {
    path.map_or_else(|| Ok(json!({})), |path| sight.find(path))
}

pub(super) fn effective(state: &State, input: &Value, context: &Context<'_>) -> Result<Value, NotFound> {
    by_path(state.input_path.as_ref(), &Sight { input, context })
}

pub(super) fn filled(
    template: Option<&Template>,
    input: Value,
    context: &Context<'_>,
    chance: &mut Chance,
) -> Result<Value, ValueError> {
    match template {
        Some(template) => template.value(&Sight { input: &input, context }, chance),
        None => Ok(input),
    }
}

/// The bytes of `value` as JSON.
pub(super) fn size(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // The writer only counts, so it cannot fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

fn within_limit(value: &Value) -> Step {
    let bytes = size(value);
    if bytes <= DATA_BYTES_MAX {
        return Ok(());
    }
    let cause =
        format!("{bytes} bytes of JSON; at most {DATA_BYTES_MAX} may pass between states: pass larger data as objects");
    Err(Failure::new(error_names::DATA_LIMIT, cause))
}

fn whole(value: &Value, path: &Path) -> Result<u64, Failure> {
    let number = value.as_u64().filter(|number| *number <= SECONDS_MAX);
    number.ok_or_else(|| Failure::new(error_names::RUNTIME, format!("{} is no whole number of seconds", path.text())))
}

impl Run {
    /// Runs the state of a thread.
    pub(super) fn work(&mut self, id: ThreadId) -> Step {
        let Some(thread) = self.threads.get(&id) else { return Ok(()) };
        let (state, whole_input) = (Arc::clone(&thread.state), Arc::clone(&self.input));
        let context = thread.context(&self.facts, &whole_input);
        let input = effective(&state, &thread.input, &context)?;
        match &state.kind {
            Kind::Pass(result) => {
                let input = filled(state.parameters.as_ref(), input, &context, &mut self.chance)?;
                self.result(id, result.clone().unwrap_or(input))
            }
            Kind::Succeed => {
                let output = by_path(state.output_path.as_ref(), &Sight { input: &input, context: &context })?;
                self.move_on(id, output, None);
                Ok(())
            }
            Kind::Fail { error, cause } => {
                let mut words = |words: &Words| match words {
                    Words::None => Ok(String::new()),
                    Words::Fixed(text) => Ok(text.clone()),
                    Words::Looked(expression) => {
                        let found = expression.value(&Sight { input: &input, context: &context }, &mut self.chance)?;
                        let text = found.as_str().map(str::to_owned);
                        text.ok_or_else(|| Failure::new(error_names::RUNTIME, "the error or cause is no string"))
                    }
                };
                let (error, cause) = (words(error)?, words(cause)?);
                self.fail_scope(id, &Failure::new(&error, cause));
                Ok(())
            }
            Kind::Choice { rules, default } => {
                let sight = Sight { input: &input, context: &context };
                let mut next = default.as_ref();
                for (rule, then) in rules {
                    if rule.holds(&sight)? {
                        next = Some(then);
                        break;
                    }
                }
                let Some(next) = next.cloned() else {
                    return Err(Failure::new(error_names::NO_CHOICE, "no rule holds, and there is no default"));
                };
                let output = by_path(state.output_path.as_ref(), &sight)?;
                self.move_on(id, output, Some(&next));
                Ok(())
            }
            Kind::Wait(until) => {
                let sight = Sight { input: &input, context: &context };
                let until = match until {
                    WaitUntil::Seconds(seconds) => after(self.now, std::time::Duration::from_secs(*seconds)),
                    WaitUntil::SecondsPath(path) => {
                        after(self.now, std::time::Duration::from_secs(whole(&sight.find(path)?, path)?))
                    }
                    WaitUntil::Timestamp(at) => *at,
                    WaitUntil::TimestampPath(path) => date(&sight.find(path)?, path)?,
                };
                let output = by_path(state.output_path.as_ref(), &sight)?;
                if until <= self.now {
                    return self.leave(id, output);
                }
                if let Some(thread) = self.threads.get_mut(&id) {
                    thread.doing = ThreadActivity::Waiting { output };
                }
                self.set_timer(id, until);
                Ok(())
            }
            Kind::Task(task) => {
                let timeout = match &task.timeout {
                    None => None,
                    Some(Seconds::Fixed(seconds)) => Some(*seconds),
                    Some(Seconds::Path(path)) => {
                        Some(whole(&Sight { input: &input, context: &context }.find(path)?, path)?)
                    }
                };
                let payload = filled(state.parameters.as_ref(), input, &context, &mut self.chance)?;
                self.begin_task(id, task, payload, timeout)
            }
            Kind::Parallel(branches) => {
                let input = filled(state.parameters.as_ref(), input, &context, &mut self.chance)?;
                self.begin_branches(id, branches, input);
                Ok(())
            }
            Kind::Map(map) => self.begin_map(id, map, input),
        }
    }

    fn begin_task(&mut self, id: ThreadId, task: &Task, payload: Value, timeout: Option<u64>) -> Step {
        let number = TaskId(self.tasks_made + 1);
        let invocation = self.invocation(number);
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        let (token, state) = (thread.token.clone(), thread.state.name.clone());
        let run = match (task.resource, &task.function) {
            (Resource::Function, Some(function)) => TaskRun {
                task: number,
                state,
                invocation,
                function: function.clone(),
                payload,
                client_context: None,
                later: false,
                token,
            },
            _ => by_parameters((number, state), invocation, payload, token)?,
        };
        within_limit(&run.payload)?;
        self.tasks_made += 1;
        thread.doing = ThreadActivity::Task { task: number };
        self.show_task(id, "Scheduled", |arn| json!({ "resource": arn, "input": run.payload.to_string() }));
        self.show_task(id, "Started", |_| json!({}));
        if let Some(seconds) = timeout {
            self.set_timer(id, after(self.now, std::time::Duration::from_secs(seconds)));
        }
        self.tasks.insert(number, (id, run.clone()));
        self.commands.push(Command::Invoke(run));
        Ok(())
    }

    /// Puts the state's result into its input, by the selector and the result path.
    pub(super) fn result(&mut self, id: ThreadId, result: Value) -> Step {
        let Some(thread) = self.threads.get(&id) else { return Ok(()) };
        let (state, whole_input) = (Arc::clone(&thread.state), Arc::clone(&self.input));
        let context = thread.context(&self.facts, &whole_input);
        let result = filled(state.result_selector.as_ref(), result, &context, &mut self.chance)?;
        let input = Value::clone(&thread.input);
        let output = match &state.result_path {
            None => input,
            Some(path) => {
                path.set(input, result).map_err(|error| Failure::new(error_names::RESULT_PATH, error.to_string()))?
            }
        };
        let output = by_path(state.output_path.as_ref(), &Sight { input: &output, context: &context })?;
        self.leave(id, output)
    }

    /// Ends the state with `output`.
    pub(super) fn leave(&mut self, id: ThreadId, output: Value) -> Step {
        within_limit(&output)?;
        let next = self.threads.get(&id).and_then(|thread| thread.state.next.clone());
        self.move_on(id, output, next.as_ref());
        Ok(())
    }
}

fn date(value: &Value, path: &Path) -> Result<Timestamp, Failure> {
    let date = value.as_str().and_then(timestamp::parse);
    date.ok_or_else(|| Failure::new(error_names::RUNTIME, format!("{} is no date", path.text())))
}

/// The invocation in the parameters of `lambda:invoke`.
fn by_parameters(
    (task, state): (TaskId, Arc<str>),
    invocation: nigh_terms::InvocationId,
    parameters: Value,
    token: nigh_terms::Token,
) -> Result<TaskRun, Failure> {
    let wrong = |why: String| Failure::new(error_names::RUNTIME, why);
    let Value::Object(mut parameters) = parameters else {
        return Err(wrong("the parameters of lambda:invoke are no object".to_owned()));
    };
    let name = parameters.get("FunctionName").and_then(Value::as_str).unwrap_or_default();
    let function = parse_function_reference(name).map_err(|error| wrong(error.to_string()))?;
    let later = match parameters.get("InvocationType").and_then(Value::as_str) {
        None | Some("RequestResponse") => false,
        Some("Event") => true,
        Some(other) => return Err(wrong(format!("InvocationType is {other:?}, not RequestResponse or Event"))),
    };
    let client_context = match parameters.remove("ClientContext") {
        None => None,
        Some(Value::String(text)) => Some(text),
        Some(other) => Some(other.to_string()),
    };
    let payload = parameters.remove("Payload").unwrap_or_else(|| json!({}));
    Ok(TaskRun { task, state, invocation, function, payload, client_context, later, token })
}
