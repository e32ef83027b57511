//! The history events of an execution. Pure.

use serde_json::{Value, json};

use super::Run;
use super::thread::ThreadId;
use crate::language::definition::{Kind, Resource};

impl Run {
    /// Adds the event that a state was entered or left.
    pub(super) fn show_state(&mut self, id: ThreadId, what: &str, data: &Value) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let (state, leaves) = (&thread.state, what == "Exited");
        // A `Fail` state is never left.
        let (kind, name) = (state.kind.name(), &state.name);
        thread.shown = self.showing.show(
            thread.shown,
            self.now,
            || format!("{kind}State{what}"),
            || {
                let (member, field) =
                    if leaves { ("stateExitedEventDetails", "output") } else { ("stateEnteredEventDetails", "input") };
                Some((member, json!({ "name": name, field: data.to_string() })))
            },
        );
    }

    /// Adds an event of a task, with the names for its kind of resource.
    pub(super) fn show_task(&mut self, id: ThreadId, what: &'static str, details: impl FnOnce(&str) -> Value) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let Kind::Task(task) = &thread.state.kind else { return };
        let integration = task.resource == Resource::Invoke;
        thread.shown = self.showing.show(
            thread.shown,
            self.now,
            || format!("{}{what}", if integration { "Task" } else { "LambdaFunction" }),
            || {
                let mut details = details(&task.arn);
                if integration {
                    details["resourceType"] = "lambda".into();
                    details["resource"] = "invoke".into();
                }
                let member = match (integration, what) {
                    (true, "Scheduled") => "taskScheduledEventDetails",
                    (true, "Started") => "taskStartedEventDetails",
                    (true, "Succeeded") => "taskSucceededEventDetails",
                    (true, "TimedOut") => "taskTimedOutEventDetails",
                    (true, _) => "taskFailedEventDetails",
                    (false, "Scheduled") => "lambdaFunctionScheduledEventDetails",
                    // This event has no details.
                    (false, "Started") => return None,
                    (false, "Succeeded") => "lambdaFunctionSucceededEventDetails",
                    (false, "TimedOut") => "lambdaFunctionTimedOutEventDetails",
                    (false, _) => "lambdaFunctionFailedEventDetails",
                };
                Some((member, details))
            },
        );
    }
}
