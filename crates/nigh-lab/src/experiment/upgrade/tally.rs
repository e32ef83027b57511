//! What came of the requests of a plan, and what was read back at its end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::LabError;

/// Failures whose reasons a report shows.
const SHOWN_MAX: usize = 20;

/// A request, as a client has written it down.
#[derive(Debug, Deserialize)]
pub(super) struct SentRequest {
    kind: String,
    name: String,
    /// Why it failed; none if it did not.
    why: Option<String>,
    /// From when it was due to its answer.
    ms: f64,
}

/// What was read back.
#[derive(Debug, Deserialize)]
pub(super) struct Verification {
    acknowledged: u64,
    lost: Vec<String>,
    events: u64,
    events_undone: Vec<String>,
    executions: u64,
    executions_undone: Vec<String>,
}

/// Requests of one kind by one kind of client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) requests: u64,
    pub(super) failed: u64,
    pub(super) max_ms: f64,
}

/// What came of some plans.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) seconds: f64,
    pub(super) steps: u64,
    pub(super) requests: u64,
    pub(super) failed: u64,
    /// Objects whose writes were acknowledged,
    pub(super) acknowledged: u64,
    /// and those of them that cannot be read back as they were written.
    pub(super) lost: u64,
    pub(super) events: u64,
    pub(super) events_undone: u64,
    pub(super) executions: u64,
    pub(super) executions_undone: u64,
    /// By client and kind of request.
    pub(super) by_kind: BTreeMap<String, Counted>,
    /// The first failures, with their reasons.
    pub(super) failures: Vec<String>,
    /// What must not be, beside failed requests and losses.
    pub(super) violations: Vec<String>,
}

/// The requests in a client's file.
pub(super) fn read(text: &str) -> Result<Vec<SentRequest>, LabError> {
    let request = |line: &str| {
        serde_json::from_str(line).map_err(|error| LabError::Node(format!("a client wrote {line:?}: {error}")))
    };
    text.lines().map(request).collect()
}

impl Outcome {
    /// Counts the requests of `client`.
    pub(super) fn count(&mut self, client: &str, requests: Vec<SentRequest>) {
        for SentRequest { kind, name, why, ms } in requests {
            let of_kind = self.by_kind.entry(format!("{client} {kind}")).or_default();
            of_kind.requests += 1;
            of_kind.max_ms = of_kind.max_ms.max(ms);
            self.requests += 1;
            let Some(why) = why else { continue };
            of_kind.failed += 1;
            self.failed += 1;
            self.show(format!("{client} {kind} {name}: {why}"));
        }
    }

    fn show(&mut self, failure: String) {
        if self.failures.len() < SHOWN_MAX {
            self.failures.push(failure);
        }
    }

    /// Adds what was read back.
    pub(super) fn verified(&mut self, verification: Verification) {
        let Verification { acknowledged, lost, events, events_undone, executions, executions_undone } = verification;
        let missing = [("lost", &lost), ("event not done", &events_undone), ("execution not done", &executions_undone)];
        for (what, names) in missing {
            names.iter().for_each(|name| self.show(format!("{what}: {name}")));
        }
        self.acknowledged += acknowledged;
        self.lost += lost.len() as u64;
        self.events += events;
        self.events_undone += events_undone.len() as u64;
        self.executions += executions;
        self.executions_undone += executions_undone.len() as u64;
    }

    /// Adds another plan's outcome.
    pub(super) fn add(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.steps += other.steps;
        self.requests += other.requests;
        self.failed += other.failed;
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.events += other.events;
        self.events_undone += other.events_undone;
        self.executions += other.executions;
        self.executions_undone += other.executions_undone;
        for (kind, Counted { requests, failed, max_ms }) in other.by_kind {
            let known = self.by_kind.entry(kind).or_default();
            known.requests += requests;
            known.failed += failed;
            known.max_ms = known.max_ms.max(max_ms);
        }
        other.failures.into_iter().for_each(|failure| self.show(failure));
        self.violations.extend(other.violations);
    }

    /// An error if a request failed, something was lost, or something must not be.
    pub(super) fn verdict(&self) -> Result<(), LabError> {
        let Self { failed, lost, events_undone, executions_undone, violations, .. } = self;
        if *failed + *lost + *events_undone + *executions_undone == 0 && violations.is_empty() {
            return Ok(());
        }
        Err(LabError::Found(format!(
            "{failed} requests failed, {lost} acknowledged objects are lost, {events_undone} events and \
             {executions_undone} executions are not done, and {} other things must not be",
            violations.len()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = concat!(
        r#"{"kind": "put", "name": "a", "why": null, "at": 1.5, "ms": 3.0}"#,
        "\n",
        r#"{"kind": "put", "name": "b", "why": "ReadTimeoutError: slow", "at": 1.6, "ms": 900.5}"#,
        "\n"
    );

    fn verification() -> Verification {
        serde_json::from_str(
            r#"{"acknowledged": 1, "lost": ["a"], "events": 2, "events_undone": [], "executions": 0,
                "executions_undone": ["x"]}"#,
        )
        .unwrap()
    }

    #[test]
    fn every_answer_counts_and_the_first_failures_are_shown() {
        let mut outcome = Outcome::default();
        outcome.count("ready", read(LINES).unwrap());
        assert_eq!((outcome.requests, outcome.failed), (2, 1));
        assert_eq!(outcome.by_kind["ready put"], Counted { requests: 2, failed: 1, max_ms: 900.5 });
        assert_eq!(outcome.failures, ["ready put b: ReadTimeoutError: slow"]);
        assert!(read("half a li").is_err());
    }

    #[test]
    fn outcomes_add_up_and_any_loss_is_found() {
        let mut outcome = Outcome::default();
        assert!(outcome.verdict().is_ok());
        outcome.verified(verification());
        let mut both = outcome.clone();
        both.add(outcome);
        assert_eq!((both.acknowledged, both.lost, both.events, both.executions_undone), (2, 2, 4, 2));
        assert!(both.verdict().unwrap_err().to_string().contains("2 acknowledged objects are lost"));
        let violated = Outcome { violations: vec!["it joined".to_owned()], ..Outcome::default() };
        assert!(violated.verdict().is_err());
    }
}
