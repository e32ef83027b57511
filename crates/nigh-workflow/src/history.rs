//! The history of an execution for `GetExecutionHistory`. Pure.
//!
//! These events are made while the stored events are applied, and are not stored themselves: a replay makes them again.

use nigh_terms::Timestamp;
use serde_json::{Value, json};

/// The most history events of one execution; beyond it the execution fails (Step Functions quotas).
pub const HISTORY_MAX: u64 = 25_000;

/// An event of the history.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryEvent {
    /// The event's number, from 1.
    pub id: u64,
    /// The event that it follows; 0 for none.
    pub previous: u64,
    /// When it happened.
    pub at: Timestamp,
    /// The event's type, as AWS names it.
    pub kind: String,
    /// The name of its details' member, and the details; none if it has none.
    pub details: Option<(&'static str, Value)>,
}

impl HistoryEvent {
    /// The event in the API's form; without inputs and outputs, unless `data`.
    #[must_use]
    pub fn value(&self, data: bool) -> Value {
        let mut value = json!({
            "timestamp": self.at.millis() as f64 / 1000.0,
            "type": self.kind,
            "id": self.id,
            "previousEventId": self.previous,
        });
        if let Some((name, details)) = &self.details {
            let mut details = details.clone();
            if let Some(fields) = details.as_object_mut() {
                for name in ["input", "output", "parameters"] {
                    if !data {
                        fields.remove(name);
                    } else if fields.contains_key(name) && name != "parameters" {
                        fields.insert(format!("{name}Details"), json!({ "truncated": false }));
                    }
                }
            }
            value[*name] = details;
        }
        value
    }
}

/// Counts history events, and stores them if somebody may ask for them.
#[derive(Debug)]
pub(super) struct HistoryCollector {
    count: u64,
    kept: Option<Vec<HistoryEvent>>,
}

impl HistoryCollector {
    pub(super) fn new(keeps: bool) -> Self {
        Self { count: 0, kept: keeps.then(Vec::new) }
    }

    /// Adds an event that follows `previous`. Returns its number.
    pub(super) fn show(
        &mut self,
        previous: u64,
        at: Timestamp,
        kind: impl FnOnce() -> String,
        details: impl FnOnce() -> Option<(&'static str, Value)>,
    ) -> u64 {
        self.count += 1;
        if let Some(kept) = &mut self.kept {
            kept.push(HistoryEvent { id: self.count, previous, at, kind: kind(), details: details() });
        }
        self.count
    }

    pub(super) const fn is_full(&self) -> bool {
        self.count >= HISTORY_MAX
    }

    pub(super) fn all(&self) -> &[HistoryEvent] {
        self.kept.as_deref().unwrap_or_default()
    }
}
