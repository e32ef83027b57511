//! An event as the outbox keeps it: a head, which changes as it goes on, and a body, which does not. Pure.
//!
//! ```text
//! head   JSON: format, namespace, function, bytes, accepted, attempts, stage
//! body   JSON: client_context, token, wrote, trace; a line feed; the payload, or the record that is to be delivered
//! ```
//!
//! Format 2 has the stage `proposed`, which older builds do not know; all else is written in format 1. A head of a newer
//! format is refused: start the Nigh that wrote it.

use bytes::Bytes;
use nigh_engine::{OutboxChange, OutboxId};
use nigh_functions::event_config::Destination;
use nigh_schedule::event_queue::{DeadLetter, EventFacts, RemainingWork};
use nigh_terms::{ByteSize, FunctionName, InvocationId, Namespace, Timestamp, Token};
use nigh_trace::SpanContext;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::proposals::ScheduledRun;
use crate::invocation::TriggerObject;

/// The newest form of a head that this build reads.
const FORMAT: u32 = 2;

/// Why a row cannot be read.
#[derive(Debug, Error)]
#[error("event {id}: {why}; start the nigh that wrote it, or restore a backup")]
pub struct EventRowError {
    id: InvocationId,
    why: String,
}

/// What is left to do for an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Stage {
    /// It is to be run.
    ToRun,
    /// It is to be run if this node has the scheduled run, as the registry says.
    Proposed(ScheduledRun),
    /// Its record is to be delivered.
    ToDeliver { to: Destination },
    /// It is a dead letter.
    Dead {
        reason: String,
        died: Timestamp,
        /// Where its record should have gone, if the record is left.
        undelivered: Option<Destination>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    format: u32,
    namespace: Namespace,
    function: FunctionName,
    bytes: ByteSize,
    accepted: Timestamp,
    pub(crate) attempts: u32,
    pub(crate) stage: Stage,
}

/// What every format of the head has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

impl Head {
    pub(crate) fn new(facts: &EventFacts, attempts: u32, stage: Stage) -> Self {
        let EventFacts { namespace, function, bytes, accepted } = facts.clone();
        let format = if matches!(stage, Stage::Proposed(_)) { FORMAT } else { 1 };
        Self { format, namespace, function, bytes, accepted, attempts, stage }
    }

    pub(crate) fn of_letter(letter: &DeadLetter) -> Self {
        let undelivered = match &letter.remains {
            RemainingWork::Event => None,
            RemainingWork::Record(to) => Some(to.clone()),
        };
        let stage = Stage::Dead { reason: letter.reason.clone(), died: letter.died, undelivered };
        Self::new(&letter.facts, letter.attempts, stage)
    }

    pub(crate) fn facts(&self) -> EventFacts {
        EventFacts {
            namespace: self.namespace.clone(),
            function: self.function.clone(),
            bytes: self.bytes,
            accepted: self.accepted,
        }
    }

    pub(crate) fn decode(id: InvocationId, stored: &[u8]) -> Result<Self, EventRowError> {
        let unreadable = |why: String| EventRowError { id, why };
        let Format { format } = serde_json::from_slice(stored).map_err(|error| unreadable(error.to_string()))?;
        if format > FORMAT {
            return Err(unreadable(format!("its format is {format}, and this build reads up to {FORMAT}")));
        }
        serde_json::from_slice(stored).map_err(|error| unreadable(error.to_string()))
    }

    fn encode(&self, id: InvocationId) -> Result<Vec<u8>, EventRowError> {
        serde_json::to_vec(self).map_err(|error| EventRowError { id, why: error.to_string() })
    }

    /// Writes this head; the body stays.
    pub(crate) fn change(&self, id: InvocationId) -> Result<OutboxChange, EventRowError> {
        Ok(OutboxChange::SetHead { id: place(id), head: self.encode(id)? })
    }

    /// Writes the whole row.
    pub(crate) fn put(&self, id: InvocationId, body: &Body) -> Result<OutboxChange, EventRowError> {
        Ok(OutboxChange::Put { id: place(id), head: self.encode(id)?, body: body.encode(id)? })
    }
}

/// Where an event's row is.
pub(crate) const fn place(id: InvocationId) -> OutboxId {
    *id.as_bytes()
}

/// The part of an event that does not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) client_context: Option<String>,
    pub(crate) token: Token,
    pub(crate) wrote: Option<TriggerObject>,
    /// The span that caused the event.
    pub(crate) trace: Option<SpanContext>,
    pub(crate) payload: Bytes,
}

#[derive(Serialize, Deserialize)]
struct Context {
    client_context: Option<String>,
    token: Token,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wrote: Option<TriggerObject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

impl Body {
    /// A payload without a context.
    pub(crate) fn of(payload: Bytes) -> Self {
        Self { payload, ..Self::default() }
    }

    fn encode(&self, id: InvocationId) -> Result<Vec<u8>, EventRowError> {
        let context = Context {
            client_context: self.client_context.clone(),
            token: self.token.clone(),
            wrote: self.wrote,
            trace: self.trace.map(|trace| trace.to_string()),
        };
        // JSON on one line: a line feed in a text is written `\n`.
        let mut encoded = serde_json::to_vec(&context).map_err(|error| EventRowError { id, why: error.to_string() })?;
        encoded.push(b'\n');
        encoded.extend_from_slice(&self.payload);
        Ok(encoded)
    }

    pub(crate) fn decode(id: InvocationId, stored: Vec<u8>) -> Result<Self, EventRowError> {
        let unreadable = |why: String| EventRowError { id, why };
        let end = memchr::memchr(b'\n', &stored).ok_or_else(|| unreadable("its body has no context".to_owned()))?;
        let context = serde_json::from_slice(&stored[..end]).map_err(|error| unreadable(error.to_string()))?;
        let Context { client_context, token, wrote, trace } = context;
        // An event whose trace cannot be read runs without one.
        let trace = trace.and_then(|trace| trace.parse().ok());
        Ok(Self { client_context, token, wrote, trace, payload: Bytes::from(stored).slice(end + 1..) })
    }
}

#[cfg(test)]
mod tests {
    use nigh_functions::schedule::ScheduleName;
    use nigh_terms::NodeNumber;

    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written_and_one_of_a_newer_format_is_refused() {
        let id = InvocationId::now();
        let facts = EventFacts {
            namespace: Namespace::new("tenant").unwrap(),
            function: FunctionName::new("f").unwrap(),
            bytes: ByteSize(7),
            accepted: Timestamp(5),
        };
        let body = Body {
            client_context: Some("{\"a\": \"line\\nfeed\"}\n".to_owned()),
            payload: Bytes::from_static(b"{\"a\":\n1}"),
            wrote: Some(TriggerObject { node: NodeNumber(3), bytes: 9 }),
            trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01;timer".parse().ok(),
            ..Body::default()
        };
        let OutboxChange::Put { head, body: stored, .. } = Head::new(&facts, 2, Stage::ToRun).put(id, &body).unwrap()
        else {
            panic!("not a row")
        };
        let read = Head::decode(id, &head).unwrap();
        assert_eq!((read.facts(), read.attempts, read.stage), (facts, 2, Stage::ToRun));
        assert_eq!(Body::decode(id, stored).unwrap(), body);
        let older = Body::decode(id, b"{\"client_context\":null,\"token\":{}}\n1".to_vec());
        assert_eq!(older.unwrap(), Body::of(Bytes::from_static(b"1")), "of a build that knew of no writer");
        let error = Head::decode(id, br#"{"format":3,"more":1}"#).unwrap_err().to_string();
        assert!(error.contains("reads up to 2"), "{error}");
        assert!(Body::decode(id, b"{}".to_vec()).is_err());
    }

    #[test]
    fn a_scheduled_run_has_a_form_that_older_builds_refuse_and_all_else_the_one_they_read() {
        let (id, namespace) = (InvocationId::now(), Namespace::new("tenant").unwrap());
        let function = FunctionName::new("f").unwrap();
        let facts = EventFacts { namespace, function, bytes: ByteSize(1), accepted: Timestamp(5) };
        let run = ScheduledRun { schedule: ScheduleName::new("nightly").unwrap(), due: Timestamp(7) };
        for (stage, format) in [(Stage::Proposed(run), 2), (Stage::ToRun, 1)] {
            let OutboxChange::SetHead { head, .. } = Head::new(&facts, 0, stage.clone()).change(id).unwrap() else {
                panic!("not a head")
            };
            assert_eq!(serde_json::from_slice::<serde_json::Value>(&head).unwrap()["format"], format);
            assert_eq!(Head::decode(id, &head).unwrap().stage, stage);
        }
    }
}
