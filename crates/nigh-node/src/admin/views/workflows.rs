//! State machines, their executions, and the history of one.

use nigh_terms::Namespace;
use nigh_workflow::arn::WorkflowName;
use nigh_workflow::executions::{ExecutionError, ExecutionSummary, Executions};
use nigh_workflow::owned::ExecutionsLocation;
use serde_json::{Value, json};

use super::super::AdminSource;
use super::super::refusal::Refusal;
use super::ROWS_MAX;

/// Executions of one machine in its view, the newest.
const EXECUTIONS_MAX: usize = 50;
/// History events of one execution in its view, the newest.
const HISTORY_MAX: usize = 1000;

/// The state machines of `namespace` behind `after`, by name.
pub(super) fn machines<N: AdminSource>(node: &N, namespace: &Namespace, after: Option<&WorkflowName>) -> Value {
    let (machines, more) = node.workflows().machines.list(namespace, after, ROWS_MAX);
    let next = machines.last().filter(|_| more).map(|last| last.name.to_string());
    let rows = machines.iter().map(|machine| {
        let row = json!({
            "kind": machine.kind.name(),
            "created": machine.created,
            "updated": machine.updated,
        });
        (machine.name.to_string(), row)
    });
    json!({ "namespace": namespace, "machines": rows.collect::<serde_json::Map<_, _>>(), "next": next })
}

/// The executions of `namespace`, which in a cluster one node runs.
async fn led<N: AdminSource>(node: &N, namespace: &Namespace) -> Result<Executions, Refusal> {
    let Some(owned) = node.workflows().owned else { return Ok(node.workflows().executions.clone()) };
    match owned.at(namespace).await.map_err(Refusal::unavailable)? {
        ExecutionsLocation::Here(executions) => Ok(executions),
        ExecutionsLocation::There(owner) => Err(Refusal::elsewhere(format!(
            "node {} runs the workflows of namespace {namespace}: open its page, or ask its admin API",
            owner.node
        ))),
    }
}

fn listed(execution: &ExecutionSummary) -> Value {
    json!({
        "status": execution.status,
        "started": execution.started,
        "stopped": execution.stopped,
        "error": execution.error,
        "cause": execution.cause,
    })
}

fn rejected(error: ExecutionError) -> Refusal {
    match error {
        ExecutionError::NotFound(_) => Refusal::not_found(error.to_string()),
        other => Refusal::unavailable(other),
    }
}

fn no_machine(name: &WorkflowName) -> Refusal {
    Refusal::not_found(format!("there is no state machine {name}"))
}

/// One machine with its last executions.
pub(super) async fn executions<N: AdminSource>(
    node: &N,
    namespace: &Namespace,
    name: &WorkflowName,
) -> Result<Value, Refusal> {
    let machine = node.workflows().machines.get(namespace, name).ok_or_else(|| no_machine(name))?;
    let executions = Box::pin(led(node, namespace)).await?;
    let (found, more) = executions.list(namespace, name, None, None, EXECUTIONS_MAX);
    let rows = found.iter().map(|one| (one.name.to_string(), listed(one)));
    Ok(json!({
        "namespace": namespace,
        "name": name,
        "kind": machine.kind.name(),
        "definition": &*machine.text,
        "executions": rows.collect::<serde_json::Map<_, _>>(),
        "more": more.is_some(),
    }))
}

/// One execution with its history.
pub(super) async fn execution<N: AdminSource>(
    node: &N,
    namespace: &Namespace,
    machine: &WorkflowName,
    name: &WorkflowName,
) -> Result<Value, Refusal> {
    let executions = Box::pin(led(node, namespace)).await?;
    let found = executions.describe(namespace, machine, name).await.map_err(rejected)?;
    let history = executions.history(namespace, machine, name).await.map_err(rejected)?;
    let omitted = history.len().saturating_sub(HISTORY_MAX);
    let events = history.iter().skip(omitted).map(|event| (event.id.to_string(), event.value(false)));
    let mut page = listed(&found.listed);
    page["namespace"] = json!(namespace);
    page["workflow"] = json!(machine);
    page["name"] = json!(name);
    page["definition"] = json!(found.definition);
    page["input"] = json!(short(&found.input));
    page["output"] = json!(found.output.as_ref().map(short));
    page["history_omitted"] = json!(omitted);
    page["history"] = Value::Object(events.collect());
    Ok(page)
}

/// A document as text, cut after 16 KiB.
fn short(document: &Value) -> String {
    const BYTES_MAX: usize = 16 << 10;
    let mut text = document.to_string();
    if text.len() > BYTES_MAX {
        text.truncate(text.floor_char_boundary(BYTES_MAX));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_document_is_cut_between_characters() {
        assert_eq!(short(&json!({"a": 1})), r#"{"a":1}"#);
        let long = short(&Value::String("ü".repeat(20_000)));
        assert!(long.ends_with("ü…") && long.len() < (16 << 10) + 4, "{}", long.len());
    }
}
