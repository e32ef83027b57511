//! The executions of a workflow, and one with its history, as the page shows them. The process that runs them makes the document;
//! in a cluster every other node asks that process for it. A document has a limit, so that it fits into one answer.

use nigh_terms::Namespace;
use nigh_workflow::arn::WorkflowName;
use nigh_workflow::executions::{ExecutionError, ExecutionSummary, Executions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Executions of one workflow, the newest.
const EXECUTIONS_MAX: usize = 50;
/// History events of one execution, the newest, and how long they are together.
const HISTORY_MAX: usize = 1000;
const HISTORY_BYTES_MAX: usize = 1 << 20;
/// A longer text is cut.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Which executions are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExecutionsQuestion {
    pub(crate) namespace: Namespace,
    pub(crate) workflow: WorkflowName,
    /// One execution; none for the newest of the workflow.
    pub(crate) execution: Option<WorkflowName>,
}

/// What a process answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExecutionsAnswer {
    /// The document.
    Shown(Map<String, Value>),
    /// There is no such execution; in words.
    NotFound(String),
    /// Another process runs the executions of the namespace.
    NotOwner,
}

impl ExecutionsQuestion {
    /// What the process answers that runs `executions`.
    pub(crate) async fn answer(&self, executions: &Executions) -> Result<ExecutionsAnswer, ExecutionError> {
        let shown = match &self.execution {
            None => Ok(self.listed(executions)),
            Some(name) => self.described(executions, name).await,
        };
        match shown {
            Ok(shown) => Ok(ExecutionsAnswer::Shown(shown)),
            Err(error @ ExecutionError::NotFound(_)) => Ok(ExecutionsAnswer::NotFound(error.to_string())),
            Err(error) => Err(error),
        }
    }

    fn listed(&self, executions: &Executions) -> Map<String, Value> {
        let (found, more) = executions.list(&self.namespace, &self.workflow, None, None, EXECUTIONS_MAX);
        let rows = found.iter().map(|one| (one.name.to_string(), Value::Object(row(one))));
        Map::from_iter([
            ("executions".to_owned(), Value::Object(rows.collect())),
            ("more".to_owned(), json!(more.is_some())),
        ])
    }

    async fn described(
        &self,
        executions: &Executions,
        name: &WorkflowName,
    ) -> Result<Map<String, Value>, ExecutionError> {
        let found = executions.describe(&self.namespace, &self.workflow, name).await?;
        let history = executions.history(&self.namespace, &self.workflow, name).await?;
        let events = newest(history.iter().map(|event| (event.id, event.value(false))).collect());
        let mut page = row(&found.listed);
        page.extend([
            ("namespace".to_owned(), json!(self.namespace)),
            ("workflow".to_owned(), json!(self.workflow)),
            ("name".to_owned(), json!(name)),
            ("definition".to_owned(), json!(found.definition)),
            ("input".to_owned(), json!(short(found.input.to_string()))),
            ("output".to_owned(), json!(found.output.map(|output| short(output.to_string())))),
            ("history_omitted".to_owned(), json!(history.len() - events.len())),
            ("history".to_owned(), Value::Object(events)),
        ]);
        Ok(page)
    }
}

fn row(execution: &ExecutionSummary) -> Map<String, Value> {
    Map::from_iter([
        ("status".to_owned(), json!(execution.status)),
        ("started".to_owned(), json!(execution.started)),
        ("stopped".to_owned(), json!(execution.stopped)),
        ("error".to_owned(), json!(execution.error)),
        ("cause".to_owned(), json!(execution.cause.clone().map(short))),
    ])
}

/// The newest of these events, which are in order, by their numbers: as many as the limits allow, and one at least.
fn newest(events: Vec<(u64, Value)>) -> Map<String, Value> {
    let (mut shown, mut bytes) = (Map::new(), 0);
    for (id, event) in events.into_iter().rev().take(HISTORY_MAX) {
        bytes += event.to_string().len();
        if bytes > HISTORY_BYTES_MAX && !shown.is_empty() {
            break;
        }
        shown.insert(id.to_string(), event);
    }
    shown
}

/// The text, cut if it is too long.
fn short(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(short("short".to_owned()), "short");
        let long = short("ü".repeat(20_000));
        assert!(long.ends_with("ü…") && long.len() < TEXT_BYTES_MAX + 4, "{}", long.len());
    }

    #[test]
    fn of_a_long_history_the_newest_events_are_shown() {
        let events = |count: u64, bytes: usize| (1..=count).map(|id| (id, json!("x".repeat(bytes)))).collect();
        let ids = |shown: Map<String, Value>| {
            let mut ids: Vec<u64> = shown.keys().map(|id| id.parse().unwrap()).collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!(ids(newest(events(3, 10))), [1, 2, 3]);
        assert_eq!(ids(newest(events(1200, 10))), (201..=1200).collect::<Vec<_>>());
        assert_eq!(ids(newest(events(5, 400 << 10))), [4, 5]);
        assert_eq!(ids(newest(events(2, 2 << 20))), [2]);
    }
}
