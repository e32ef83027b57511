//! `nigh workflow watch`: the events of an execution as they happen.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::failed_state::FailedState;
use super::{Door, PAGE, in_colour, text};
use crate::error::CliError;
use crate::failure;
use crate::output;
use crate::printable;

/// How often a watched execution is asked for new events.
const WATCH_EVERY: Duration = Duration::from_millis(300);

/// Prints each event; the exit code says whether the execution succeeded.
pub(super) async fn watch(door: &Door, arn: &str, as_json: bool) -> Result<ExitCode, CliError> {
    let (mut seen, mut progress) = (0, Progress::default());
    loop {
        // The status is asked for first: if the execution has ended, the history after it is complete.
        let described = door.call("DescribeExecution", &json!({ "executionArn": arn })).await?;
        for event in events(door, arn, seen).await? {
            seen += 1;
            if as_json {
                output::bytes(format!("{event}\n").as_bytes())?;
            } else {
                progress.show(&event)?;
            }
        }
        if described["status"] != "RUNNING" {
            return end(&described, &progress.failed, as_json);
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

/// The events of an execution after the first `seen`.
async fn events(door: &Door, arn: &str, seen: usize) -> Result<Vec<Value>, CliError> {
    let mut events = Vec::new();
    loop {
        let next = (seen + events.len()).to_string();
        let body = json!({
            "executionArn": arn, "maxResults": PAGE, "includeExecutionData": false, "nextToken": next,
        });
        let mut page = door.call("GetExecutionHistory", &body).await?;
        if let Some(Value::Array(found)) = page.get_mut("events").map(Value::take) {
            events.extend(found);
        }
        if page.get("nextToken").is_none() {
            return Ok(events);
        }
    }
}

/// The state in which an execution that has ended with `error` failed; none if its history does not say it.
pub(super) async fn failed_in(door: &Door, arn: &str, error: &str) -> Option<String> {
    // An express machine has no history.
    let events = events(door, arn, 0).await.ok()?;
    let mut failed = FailedState::default();
    for event in &events {
        failed.take(event);
    }
    failed.name(error)
}

fn end(execution: &Value, failed: &FailedState, as_json: bool) -> Result<ExitCode, CliError> {
    let succeeded = execution["status"] == "SUCCEEDED";
    if as_json {
        output::bytes(format!("{execution}\n").as_bytes())?;
    } else {
        let status = text(execution, "status");
        match (succeeded, execution["error"].as_str()) {
            (true, _) => output::remark(format_args!("nigh: {}", in_colour(&status))),
            (false, error) => {
                let (error, cause) = (error.unwrap_or_default(), execution["cause"].as_str().unwrap_or_default());
                let state = failed.name(error).map(|state| format!(" in the state {state}")).unwrap_or_default();
                let words = failure_words(error, cause);
                let mut lines = words.lines().map(|line| printable::shown(&std::io::stderr(), line));
                let first = lines.next().unwrap_or_default();
                output::remark(format_args!("nigh: {}{state}: {first}", in_colour(&status)));
                lines.for_each(output::remark);
            }
        }
        if let Some(out) = execution["output"].as_str() {
            output::line(printable::shown(&std::io::stdout(), out))?;
        }
    }
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Why an execution failed. The cause of a function's failure is the error object of the invocation.
fn failure_words(error: &str, cause: &str) -> String {
    match serde_json::from_str::<Value>(cause) {
        Ok(object) if object["errorType"].is_string() => {
            failure::shown_without_record(&object, "", failure::width(), false)
        }
        _ if cause.is_empty() => error.to_owned(),
        _ => format!("{error}: {cause}"),
    }
}

/// What the events so far say of a watched execution.
#[derive(Default)]
struct Progress {
    failed: FailedState,
    began: Option<f64>,
    /// When each state was entered last.
    entered: HashMap<String, f64>,
    /// Iterations of the running map: done, and all.
    iterations: (u64, u64),
}

impl Progress {
    fn show(&mut self, event: &Value) -> Result<(), CliError> {
        let (kind, at) = (event["type"].as_str().unwrap_or_default(), event["timestamp"].as_f64().unwrap_or_default());
        let began = *self.began.get_or_insert(at);
        let state = self.failed.take(event).map(|state| format!("{state}: ")).unwrap_or_default();
        let detail = |member: &str, field: &str| event[member][field].as_str().unwrap_or_default().to_owned();
        let words = match kind {
            _ if kind.ends_with("StateEntered") => {
                let name = detail("stateEnteredEventDetails", "name");
                let words = format!("{name}: {}", kind.trim_end_matches("StateEntered").to_lowercase());
                self.entered.insert(name, at);
                words
            }
            _ if kind.ends_with("StateExited") => {
                let name = detail("stateExitedEventDetails", "name");
                let took = self.entered.get(&name).map_or(0.0, |entered| at - entered);
                format!("{name}: done in {}", output::duration((took.max(0.0) * 1e6) as u64))
            }
            "MapStateStarted" => {
                self.iterations = (0, event["mapStateStartedEventDetails"]["length"].as_u64().unwrap_or_default());
                format!("{} iterations", self.iterations.1)
            }
            "MapIterationSucceeded" | "MapIterationFailed" => {
                self.iterations.0 += 1;
                // Only a terminal gets a line for each iteration.
                if std::io::stderr().is_terminal() || self.iterations.0 == self.iterations.1 {
                    output::remark(format_args!("  {} of {} iterations", self.iterations.0, self.iterations.1));
                }
                return Ok(());
            }
            "LambdaFunctionFailed" => format!("{state}failed: {}", detail("lambdaFunctionFailedEventDetails", "error")),
            "TaskFailed" => format!("{state}failed: {}", detail("taskFailedEventDetails", "error")),
            "LambdaFunctionTimedOut" | "TaskTimedOut" => format!("{state}timed out"),
            _ => return Ok(()),
        };
        output::line(format_args!(
            "{:>9} {}",
            output::duration(((at - began).max(0.0) * 1e6) as u64),
            printable::shown(&std::io::stdout(), &words)
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_functions_failure_is_told_as_when_it_is_invoked_and_another_as_it_was_sent() {
        let object = json!({
            "errorType": "KeyError", "errorMessage": "'n'",
            "stackTrace": ["  File \"/var/task/app.py\", line 3, in handler\n    return event[\"n\"]\n"],
        });
        let words = failure_words("KeyError", &object.to_string());
        assert_eq!(words, "app.py:3: KeyError: 'n'\n  app.py:3 in handler  return event[\"n\"]");
        assert_eq!(failure_words("States.Timeout", ""), "States.Timeout");
        assert_eq!(failure_words("Mine", "because"), "Mine: because");
    }
}
