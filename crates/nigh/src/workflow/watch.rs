//! `nigh workflow watch`: the events of an execution as they happen.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Door, PAGE, in_colour, text};
use crate::error::CliError;
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
        loop {
            let body = json!({
                "executionArn": arn, "maxResults": PAGE, "includeExecutionData": false, "nextToken": seen.to_string(),
            });
            let page = door.call("GetExecutionHistory", &body).await?;
            for event in page["events"].as_array().into_iter().flatten() {
                seen += 1;
                if as_json {
                    output::bytes(format!("{event}\n").as_bytes())?;
                } else {
                    progress.show(event)?;
                }
            }
            if page.get("nextToken").is_none() {
                break;
            }
        }
        if described["status"] != "RUNNING" {
            return end(&described, as_json);
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

fn end(execution: &Value, as_json: bool) -> Result<ExitCode, CliError> {
    let succeeded = execution["status"] == "SUCCEEDED";
    if as_json {
        output::bytes(format!("{execution}\n").as_bytes())?;
    } else {
        let status = text(execution, "status");
        match (succeeded, execution["error"].as_str()) {
            (true, _) => output::remark(format_args!("nigh: {}", in_colour(&status))),
            (false, error) => {
                let (error, cause) = (error.unwrap_or_default(), text(execution, "cause"));
                output::remark(format_args!("nigh: {} {error}: {cause}", in_colour(&status)));
            }
        }
        if let Some(out) = execution["output"].as_str() {
            output::line(printable::shown(&std::io::stdout(), out))?;
        }
    }
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the events so far say of a watched execution.
#[derive(Default)]
struct Progress {
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
            "LambdaFunctionFailed" => format!("failed: {}", detail("lambdaFunctionFailedEventDetails", "error")),
            "TaskFailed" => format!("failed: {}", detail("taskFailedEventDetails", "error")),
            "LambdaFunctionTimedOut" | "TaskTimedOut" => "timed out".to_owned(),
            _ => return Ok(()),
        };
        output::line(format_args!(
            "{:>9} {}",
            output::duration(((at - began).max(0.0) * 1e6) as u64),
            printable::shown(&std::io::stdout(), &words)
        ))
    }
}
