//! The stored form of an execution: a head, its beginning, its events, and its outcome. Pure.
//!
//! ```text
//! head               JSON: format, namespace, machine, name, role, started, input's SHA-256, bytes, end
//! event 0            JSON: definition, input, token, scratch, trace
//! event 1, 2, ...    JSON: each an `Event`
//! event 2^64 - 1     JSON: the `Outcome`
//! ```
//!
//! A head of a newer format is refused: start the newer Nigh that wrote it.

use bytes::Bytes;
use nigh_engine::{HistoryChange, HistoryId};
use nigh_terms::Hex;
use nigh_terms::{InvocationId, Namespace, Timestamp, Token};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::arn::WorkflowName;
use crate::event::{Event, Outcome, TaskId};
use crate::scratch::ScratchFolder;

/// The format version that this build writes.
const FORMAT: u32 = 1;
/// The place of an execution's beginning.
const BEGINNING: u64 = 0;
/// The place of its outcome.
const OUTCOME: u64 = u64::MAX;

/// Why a stored execution cannot be read.
#[derive(Debug, Error)]
#[error("execution {id}: {why}; start the nigh that wrote it, or restore a backup")]
pub struct ExecutionRowError {
    id: InvocationId,
    why: String,
}

fn unreadable(id: HistoryId, why: impl ToString) -> ExecutionRowError {
    ExecutionRowError { id: InvocationId::of_bytes(id), why: why.to_string() }
}

/// The end of an execution, without its output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) status: String,
    pub(super) stopped: Timestamp,
    pub(super) error: Option<String>,
    pub(super) cause: Option<String>,
}

impl End {
    pub(super) fn of(outcome: &Outcome, stopped: Timestamp) -> Self {
        let (error, cause) = match outcome {
            Outcome::Succeeded { .. } | Outcome::TimedOut => (None, None),
            Outcome::Failed { error, cause } | Outcome::Aborted { error, cause } => (error.clone(), cause.clone()),
        };
        Self { status: outcome.status().to_owned(), stopped, error, cause }
    }
}

/// The facts of an execution that are known without reading its events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    format: u32,
    pub(super) namespace: Namespace,
    pub(super) machine: WorkflowName,
    pub(super) name: WorkflowName,
    pub(super) role: String,
    pub(super) started: Timestamp,
    pub(super) input_sha256: String,
    /// The bytes of everything stored for it.
    pub(super) bytes: u64,
    pub(super) end: Option<End>,
    /// What the process that drove it last left unbegun. Programs that do not know the field ask the nodes for these tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unbegun: Option<Unbegun>,
}

/// Tasks that were not begun when the process that drove the execution left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Unbegun {
    /// How many events the execution had. With more events this says nothing any more.
    pub(super) events: u64,
    pub(super) tasks: Vec<TaskId>,
}

/// The field that every version of the head has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// The beginning of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Beginning {
    /// The definition of its state machine at that time.
    pub(super) definition: String,
    pub(super) input: Value,
    pub(super) token: Token,
    pub(super) scratch: Vec<ScratchFolder>,
    /// The span of the execution, as `ExecutionTrace` writes it; none if its start belongs to no trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<String>,
}

/// The digest by which a repeated start is recognised.
pub(super) fn digest(input: &Value) -> String {
    Hex(&Sha256::digest(input.to_string())).to_string()
}

impl Head {
    pub(super) fn new(
        namespace: Namespace,
        machine: WorkflowName,
        name: WorkflowName,
        role: String,
        started: Timestamp,
        input_sha256: String,
    ) -> Self {
        Self {
            format: FORMAT,
            namespace,
            machine,
            name,
            role,
            started,
            input_sha256,
            bytes: 0,
            end: None,
            unbegun: None,
        }
    }

    pub(super) fn decode(id: HistoryId, stored: &[u8]) -> Result<Self, ExecutionRowError> {
        let Format { format } = serde_json::from_slice(stored).map_err(|error| unreadable(id, error))?;
        if format > FORMAT {
            return Err(unreadable(id, format!("its format is {format}, and this build reads up to {FORMAT}")));
        }
        serde_json::from_slice(stored).map_err(|error| unreadable(id, error))
    }

    pub(super) fn change(&self, id: HistoryId) -> Result<HistoryChange, ExecutionRowError> {
        Ok(HistoryChange::SetHead { id, head: encoded(id, self)? })
    }
}

fn encoded(id: HistoryId, what: &impl Serialize) -> Result<Bytes, ExecutionRowError> {
    serde_json::to_vec(what).map(Bytes::from).map_err(|error| unreadable(id, error))
}

/// Encodes the beginning.
pub(super) fn begin(id: HistoryId, beginning: &Beginning) -> Result<HistoryChange, ExecutionRowError> {
    Ok(HistoryChange::Add { id, place: BEGINNING, event: encoded(id, beginning)? })
}

/// Encodes an event with the number `place`, from 1.
pub(super) fn add(id: HistoryId, place: u64, event: &Event) -> Result<HistoryChange, ExecutionRowError> {
    Ok(HistoryChange::Add { id, place, event: encoded(id, event)? })
}

/// Encodes the outcome.
pub(super) fn end(id: HistoryId, outcome: &Outcome) -> Result<HistoryChange, ExecutionRowError> {
    Ok(HistoryChange::Add { id, place: OUTCOME, event: encoded(id, outcome)? })
}

/// The bytes that a change adds.
pub(super) fn bytes_of(change: &HistoryChange) -> u64 {
    match change {
        HistoryChange::Add { event, .. } => event.len() as u64,
        HistoryChange::SetHead { .. } | HistoryChange::Remove { .. } => 0,
    }
}

/// Decodes the outcome; none if it is not stored.
pub(super) fn decode_outcome(id: HistoryId, stored: Option<Vec<u8>>) -> Result<Option<Outcome>, ExecutionRowError> {
    let wrong = |error: serde_json::Error| unreadable(id, format!("its outcome: {error}"));
    stored.map(|stored| serde_json::from_slice(&stored).map_err(wrong)).transpose()
}

/// Everything stored for an execution.
#[derive(Debug)]
pub(super) struct KeptRun {
    pub(super) beginning: Beginning,
    pub(super) events: Vec<Event>,
    pub(super) bytes: u64,
}

/// Decodes the events of an execution.
pub(super) fn decode(id: HistoryId, stored: &[(u64, Vec<u8>)]) -> Result<KeptRun, ExecutionRowError> {
    let bytes = stored.iter().map(|(_, event)| event.len() as u64).sum();
    let (mut beginning, mut events) = (None, Vec::new());
    for (place, event) in stored {
        let wrong = |error: serde_json::Error| unreadable(id, format!("event {place}: {error}"));
        match *place {
            BEGINNING => beginning = Some(serde_json::from_slice(event).map_err(wrong)?),
            OUTCOME => {}
            place if place == events.len() as u64 + 1 => events.push(serde_json::from_slice(event).map_err(wrong)?),
            place => return Err(unreadable(id, format!("event {place} stands behind event {}", events.len()))),
        }
    }
    let beginning = beginning.ok_or_else(|| unreadable(id, "it has no beginning"))?;
    Ok(KeptRun { beginning, events, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{ExecutionEvent, TaskEnd};
    use serde_json::json;

    #[test]
    fn an_execution_is_read_as_it_was_written_and_one_of_a_newer_format_is_refused() {
        let id = *InvocationId::now().as_bytes();
        let name = |text: &str| WorkflowName::new(text).unwrap();
        let namespace = Namespace::new("tenant").unwrap();
        let outcome = Outcome::Failed { error: Some("E".to_owned()), cause: None };
        let head = Head {
            end: Some(End::of(&outcome, Timestamp(9))),
            ..Head::new(namespace, name("m"), name("n"), "role".to_owned(), Timestamp(5), digest(&json!({})))
        };
        let HistoryChange::SetHead { head: stored, .. } = head.change(id).unwrap() else { panic!("no head") };
        assert_eq!(Head::decode(id, &stored).unwrap(), head);
        let error = Head::decode(id, br#"{"format":2,"more":1}"#).unwrap_err().to_string();
        assert!(error.contains("reads up to 1"), "{error}");

        let beginning = Beginning {
            definition: "{}".to_owned(),
            input: json!([1]),
            token: Token::empty(),
            scratch: Vec::new(),
            trace: None,
        };
        let event = Event {
            at: Timestamp(6),
            what: ExecutionEvent::Ended {
                task: TaskId(1),
                end: TaskEnd::Answered(json!({"a": 1})),
                token: Token::empty(),
            },
        };
        let changes = [begin(id, &beginning).unwrap(), add(id, 1, &event).unwrap(), end(id, &outcome).unwrap()];
        let mut stored: Vec<(u64, Vec<u8>)> = changes
            .iter()
            .map(|change| match change {
                HistoryChange::Add { place, event, .. } => (*place, event.to_vec()),
                _ => panic!("no event"),
            })
            .collect();
        let read = decode(id, &stored).unwrap();
        assert_eq!((read.beginning, read.events), (beginning, vec![event]));
        assert_eq!(decode_outcome(id, stored.pop().map(|(_, event)| event)).unwrap(), Some(outcome));
        assert_eq!(read.bytes, changes.iter().map(bytes_of).sum::<u64>());
        stored.remove(0);
        assert!(decode(id, &stored).unwrap_err().to_string().contains("no beginning"));
        stored[0].0 = 7;
        assert!(decode(id, &stored).is_err(), "an event is missing");
    }
}
