//! In which state an execution failed, from the events of its history. Pure.

use std::collections::HashMap;

use serde_json::Value;

/// Follows the history of an execution.
#[derive(Default)]
pub(super) struct FailedState {
    /// The state to which each event belongs: an event belongs to the state of the one that it follows.
    states: HashMap<u64, String>,
    /// The error and the state of the last task that failed.
    last_failure: Option<(String, String)>,
    /// The state at the top of the machine in which the execution ended.
    ended_in: Option<String>,
}

impl FailedState {
    /// Takes the next event. Returns the state to which it belongs, if it belongs to one.
    pub(super) fn take(&mut self, event: &Value) -> Option<&str> {
        let number = |name: &str| event[name].as_u64().unwrap_or_default();
        let kind = event["type"].as_str().unwrap_or_default();
        let state = match event["stateEnteredEventDetails"]["name"].as_str() {
            Some(entered) => entered.to_owned(),
            None => self.states.get(&number("previousEventId"))?.clone(),
        };
        match kind {
            "ExecutionFailed" | "ExecutionTimedOut" | "ExecutionAborted" => self.ended_in = Some(state.clone()),
            _ => {
                if let Some(error) = failure(kind, event) {
                    self.last_failure = Some((error, state.clone()));
                }
            }
        }
        self.states.insert(number("id"), state);
        self.states.get(&number("id")).map(String::as_str)
    }

    /// The state in which an execution that ended with `error` failed; a state within another with that one's name.
    pub(super) fn name(&self, error: &str) -> Option<String> {
        let outer = self.ended_in.as_deref()?;
        match &self.last_failure {
            // A failure that was caught or tried again is not the one that ended the execution.
            Some((of_task, inner)) if of_task == error && inner != outer => Some(format!("{inner} (in {outer})")),
            _ => Some(outer.to_owned()),
        }
    }
}

/// The error of a task, if the event is that it failed.
fn failure(kind: &str, event: &Value) -> Option<String> {
    let member = match kind {
        "LambdaFunctionFailed" => "lambdaFunctionFailedEventDetails",
        "TaskFailed" => "taskFailedEventDetails",
        "LambdaFunctionTimedOut" | "TaskTimedOut" => return Some("States.Timeout".to_owned()),
        _ => return None,
    };
    Some(event[member]["error"].as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entered(id: u64, previous: u64, name: &str) -> Value {
        json!({
            "id": id, "previousEventId": previous, "type": "TaskStateEntered", "stateEnteredEventDetails": { "name": name },
        })
    }

    fn event(id: u64, previous: u64, kind: &str) -> Value {
        json!({ "id": id, "previousEventId": previous, "type": kind })
    }

    fn failed(id: u64, previous: u64, error: &str) -> Value {
        let details = json!({ "error": error });
        json!({
            "id": id, "previousEventId": previous, "type": "LambdaFunctionFailed",
            "lambdaFunctionFailedEventDetails": details,
        })
    }

    #[test]
    fn the_state_is_the_one_of_the_events_before_the_end() {
        let mut followed = FailedState::default();
        assert_eq!(followed.take(&event(1, 0, "ExecutionStarted")), None);
        assert_eq!(followed.take(&entered(2, 1, "First")), Some("First"));
        assert_eq!(followed.take(&failed(3, 2, "Caught")), Some("First"));
        followed.take(&entered(4, 3, "Second"));
        followed.take(&event(5, 4, "LambdaFunctionScheduled"));
        followed.take(&failed(6, 5, "KeyError"));
        assert_eq!(followed.name("KeyError"), None, "it has not ended");
        followed.take(&event(7, 6, "ExecutionFailed"));
        assert_eq!(followed.name("KeyError").as_deref(), Some("Second"));
    }

    #[test]
    fn a_state_within_a_map_is_named_with_the_map() {
        let mut followed = FailedState::default();
        for one in [
            event(1, 0, "ExecutionStarted"),
            entered(2, 1, "Map"),
            event(3, 2, "MapIterationStarted"),
            entered(4, 3, "Each"),
            failed(5, 4, "KeyError"),
            event(6, 2, "ExecutionFailed"),
        ] {
            followed.take(&one);
        }
        assert_eq!(followed.name("KeyError").as_deref(), Some("Each (in Map)"));
        assert_eq!(followed.name("States.Runtime").as_deref(), Some("Map"));
    }
}
