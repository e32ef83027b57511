//! State machines, their executions, and the history of one. In a cluster one process runs the executions of a namespace; any
//! other asks it.

use std::collections::BTreeMap;
use std::time::Duration;

use nigh_terms::Namespace;
use nigh_workflow::arn::WorkflowName;
use nigh_workflow::owned::{ExecutionsLocation, OwnedExecutions};
use serde_json::{Map, Value, json};

use super::super::AdminSource;
use super::super::refusal::Refusal;
use super::ROWS_MAX;
use crate::cluster::members::{MemberAnswer, MemberQuestion, OTHER_ANSWER};
use crate::shown_executions::{ExecutionsAnswer, ExecutionsQuestion};

/// How long it may take to find out which process runs the executions of a namespace.
const FOUND_WITHIN: Duration = Duration::from_secs(2);
/// How many processes are asked one after the other: the first may have just handed the namespace over.
const ASKED_MAX: usize = 2;

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
    json!({ "namespace": namespace, "machines": rows.collect::<Map<_, _>>(), "next": next })
}

/// What the process answers that runs the executions.
enum Asked {
    Shown(Map<String, Value>),
    /// This node runs them and did not answer, for this reason.
    Unanswered(String, String),
}

impl Asked {
    fn of(answer: ExecutionsAnswer) -> Result<Self, Refusal> {
        match answer {
            ExecutionsAnswer::Shown(shown) => Ok(Self::Shown(shown)),
            ExecutionsAnswer::NotFound(words) => Err(Refusal::not_found(words)),
            ExecutionsAnswer::NotOwner => Err(Refusal::unavailable("this node does not run the executions any more")),
        }
    }
}

/// The process that runs the executions of `namespace`.
async fn found(owned: &OwnedExecutions, namespace: &Namespace) -> Result<ExecutionsLocation, Refusal> {
    let (owned, of) = (owned.clone(), namespace.clone());
    // If this process has to take them, it goes on when nobody waits for that any more.
    let found = tokio::spawn(async move { owned.at(&of).await });
    match tokio::time::timeout(FOUND_WITHIN, found).await {
        Ok(Ok(found)) => found.map_err(Refusal::unavailable),
        Ok(Err(error)) => Err(Refusal::internal(error)),
        Err(_) => Err(Refusal::unavailable(format!(
            "it is not known yet which node runs the workflows of namespace {namespace}; ask again"
        ))),
    }
}

/// Asks whoever runs the executions. Takes a few seconds at most.
async fn ask<N: AdminSource>(node: &N, question: ExecutionsQuestion) -> Result<Asked, Refusal> {
    let workflows = node.workflows();
    let (Some(owned), Some(cluster)) = (workflows.owned, node.cluster()) else {
        return Asked::of(question.answer(workflows.executions).await.map_err(Refusal::unavailable)?);
    };
    let mut asked = 0;
    loop {
        let owner = match found(owned, &question.namespace).await? {
            ExecutionsLocation::Here(executions) => {
                return Asked::of(question.answer(&executions).await.map_err(Refusal::unavailable)?);
            }
            ExecutionsLocation::There(owner) => owner,
        };
        let why = match cluster.ask_member(&owner, &MemberQuestion::Executions(question.clone())).await {
            Ok(MemberAnswer::Executions(ExecutionsAnswer::NotOwner)) => None,
            Ok(MemberAnswer::Executions(answer)) => return Asked::of(answer),
            Ok(_) => Some(OTHER_ANSWER.to_owned()),
            Err(why) => Some(why),
        };
        owned.not_there(&question.namespace);
        asked += 1;
        match why {
            None if asked < ASKED_MAX => {}
            why => {
                let why = why.unwrap_or_else(|| "it does not run them any more".to_owned());
                return Ok(Asked::Unanswered(owner.node.0, why));
            }
        }
    }
}

/// One machine with its last executions. If the node that runs them does not answer, it is named.
pub(super) async fn executions<N: AdminSource>(
    node: &N,
    namespace: &Namespace,
    name: &WorkflowName,
) -> Result<Value, Refusal> {
    let machine = node.workflows().machines.get(namespace, name);
    let machine = machine.ok_or_else(|| Refusal::not_found(format!("there is no state machine {name}")))?;
    let question = ExecutionsQuestion { namespace: namespace.clone(), workflow: name.clone(), execution: None };
    let (mut page, unanswered) = match Box::pin(ask(node, question)).await? {
        Asked::Shown(shown) => (shown, BTreeMap::new()),
        Asked::Unanswered(silent, why) => {
            let nothing = [("executions".to_owned(), json!({})), ("more".to_owned(), json!(false))];
            (Map::from_iter(nothing), BTreeMap::from([(silent, why)]))
        }
    };
    page.extend([
        ("namespace".to_owned(), json!(namespace)),
        ("name".to_owned(), json!(name)),
        ("kind".to_owned(), json!(machine.kind.name())),
        ("definition".to_owned(), json!(&*machine.text)),
        ("unanswered".to_owned(), json!(unanswered)),
    ]);
    Ok(Value::Object(page))
}

/// One execution with its history.
pub(super) async fn execution<N: AdminSource>(
    node: &N,
    namespace: &Namespace,
    machine: &WorkflowName,
    name: &WorkflowName,
) -> Result<Value, Refusal> {
    let (workflow, execution) = (machine.clone(), Some(name.clone()));
    let question = ExecutionsQuestion { namespace: namespace.clone(), workflow, execution };
    match Box::pin(ask(node, question)).await? {
        Asked::Shown(shown) => Ok(Value::Object(shown)),
        Asked::Unanswered(silent, why) => Err(Refusal::unavailable(format!(
            "node {silent} runs the workflows of namespace {namespace} and does not answer: {why}"
        ))),
    }
}
