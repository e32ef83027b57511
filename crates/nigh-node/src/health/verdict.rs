//! What a probe is answered, from what is known of the node. Pure.
//!
//! | state | live | ready | `reads=1` | `writes=1` |
//! |---|---|---|---|---|
//! | a runtime or thread does not answer | 503 | 503 | 503 | 503 |
//! | starting, draining, membership ended | 200 | 503 | 503 | 503 |
//! | the NATS servers confirm no write: without them no home knows that it is still the home | 200 | 503 | 503 | 503 |
//! | an operator has cordoned or drained the node | 200 | 503 | 200 | 200 |
//! | the journal has failed | 200 | 503 | 200 | 503 |
//! | the journal is full | 200 | 200 | 200 | 503 |
//! | the store does not take writes; a shard has no home | 200 | 200 | 200 | 200 |
//!
//! The last two are told as `degraded`.

use std::collections::BTreeMap;

use nigh_terms::Timestamp;
use serde::{Deserialize, Serialize};

/// What a probe asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Can it do work at all?
    Live,
    /// Should it be given new work?
    Ready,
    /// Should it be given reads?
    Reads,
    /// Should it be given writes?
    Writes,
}

/// How far a node has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It does this before it is ready.
    Starting(String),
    /// It works.
    Running,
    /// It ends, and waits for this first.
    Draining(String),
}

/// What is known of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    pub(crate) phase: Phase,
    /// The runtimes and threads that do not answer.
    pub(crate) stalled: Vec<String>,
    /// Its membership in the cluster has ended.
    pub(crate) is_expelled: bool,
    /// Why the NATS servers confirm no write.
    pub(crate) servers: Option<String>,
    /// Why the node gets no new work, though its doors hand all on.
    pub(crate) cordoned: Option<String>,
    /// Why the journal takes no write until the node restarts.
    pub(crate) journal_failed: Option<String>,
    /// Why a write would find no room.
    pub(crate) full: Option<String>,
    /// Why the store does not take writes.
    pub(crate) store: Option<String>,
    /// The number of shards without a living home, and of all shards; None if the node is alone.
    pub(crate) homeless: Option<(usize, usize)>,
}

impl NodeFacts {
    /// A node in this phase, of which nothing is wrong.
    pub(crate) const fn of(phase: Phase) -> Self {
        Self {
            phase,
            stalled: Vec::new(),
            is_expelled: false,
            servers: None,
            cordoned: None,
            journal_failed: None,
            full: None,
            store: None,
            homeless: None,
        }
    }
}

/// The probes that a fault fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fails {
    pub(super) live: bool,
    pub(super) ready: bool,
    pub(super) reads: bool,
    pub(super) writes: bool,
}

impl Fails {
    const ALL: Self = Self { live: true, ..Self::WORK };
    const WORK: Self = Self { live: false, ready: true, reads: true, writes: true };
    const CHANGES: Self = Self { reads: false, ..Self::WORK };
    const WRITES_ALONE: Self = Self { ready: false, ..Self::CHANGES };
    const NEW_WORK: Self = Self { reads: false, writes: false, ..Self::WORK };
    const NOTHING: Self = Self { writes: false, ..Self::WRITES_ALONE };

    const fn fails(self, probe: Probe) -> bool {
        match probe {
            Probe::Live => self.live,
            Probe::Ready => self.ready,
            Probe::Reads => self.reads,
            Probe::Writes => self.writes,
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) name: &'static str,
    /// What is wrong; none if nothing is.
    pub(super) why: Option<String>,
    /// The status of an answer that this finding decides.
    status: &'static str,
    fails: Fails,
}

impl Finding {
    fn new(name: &'static str, why: Option<String>, status: &'static str, fails: Fails) -> Self {
        Self { name, why, status, fails }
    }

    /// A finding of a question about the cluster, which it fails.
    pub(super) fn of_cluster(name: &'static str, why: Option<String>) -> Self {
        Self::new(name, why, "unavailable", Fails::ALL)
    }
}

/// What was looked at for a probe.
pub(super) fn findings(facts: &NodeFacts, probe: Probe) -> Vec<Finding> {
    let stalled = (!facts.stalled.is_empty())
        .then(|| format!("no answer from {}; only a restart of the node helps", facts.stalled.join(", ")));
    let threads = Finding::new("threads", stalled, "stalled", Fails::ALL);
    if probe == Probe::Live {
        return vec![threads];
    }
    // A node that the cluster has expelled drains because of that.
    let draining_status = if facts.is_expelled { EXPELLED } else { "draining" };
    let (starting, draining) = match &facts.phase {
        Phase::Starting(step) => (Some(step.clone()), None),
        Phase::Running => (None, None),
        Phase::Draining(awaited) => (None, Some(awaited.clone())),
    };
    let expelled = facts.is_expelled.then(|| {
        "the cluster has ended this node's membership: it drains and ends, and must be started again".to_owned()
    });
    let (journal, status, fails) = match (&facts.journal_failed, &facts.full) {
        (Some(why), _) => (Some(why.clone()), "journal_failed", Fails::CHANGES),
        (None, full) => (full.clone(), "journal_full", Fails::WRITES_ALONE),
    };
    let mut found = vec![
        threads,
        Finding::new("start", starting, "starting", Fails::WORK),
        Finding::new("drain", draining, draining_status, Fails::WORK),
        Finding::new("journal", journal, status, fails),
        Finding::new("store", facts.store.clone(), DEGRADED, Fails::NOTHING),
    ];
    if let Some((homeless, shards)) = facts.homeless {
        let why = (homeless > 0).then(|| format!("{homeless} of {shards} shards have no living home"));
        found.push(Finding::new("membership", expelled, EXPELLED, Fails::WORK));
        found.push(Finding::new("servers", facts.servers.clone(), "cut_off", Fails::WORK));
        found.push(Finding::new("cordon", facts.cordoned.clone(), "cordoned", Fails::NEW_WORK));
        found.push(Finding::new("shards", why, DEGRADED, Fails::NOTHING));
    }
    found
}

const DEGRADED: &str = "degraded";
const EXPELLED: &str = "expelled";
const OK: &str = "ok";

/// One check of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckAnswer {
    /// What was looked at.
    pub name: String,
    /// False if something is wrong.
    pub ok: bool,
    /// What is wrong, and what to do if this node cannot mend it.
    pub why: Option<String>,
    /// Since when it is so, RFC 3339.
    pub since: String,
}

/// The answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthAnswer {
    /// `ok`, `degraded`, or what makes the probe fail.
    pub status: String,
    /// What was looked at.
    pub checks: Vec<CheckAnswer>,
}

/// Whether the probe passes, and its answer.
pub(super) fn answer(probe: Probe, found: Vec<Finding>, since: &mut SinceBook, now: Timestamp) -> (bool, HealthAnswer) {
    let wrong = || found.iter().filter(|one| one.why.is_some());
    let fault = wrong().find(|one| one.fails.fails(probe));
    let status = fault.map_or(if wrong().next().is_some() { DEGRADED } else { OK }, |fault| fault.status);
    let (passes, status) = (fault.is_none(), status.to_owned());
    let checks = found.into_iter().map(|Finding { name, why, .. }| {
        let ok = why.is_none();
        CheckAnswer { name: name.to_owned(), ok, why, since: since.since(name, ok, now).rfc3339() }
    });
    let checks = checks.collect();
    (passes, HealthAnswer { status, checks })
}

/// Since when each check is as it is.
#[derive(Debug, Default)]
pub(super) struct SinceBook(BTreeMap<&'static str, (bool, Timestamp)>);

impl SinceBook {
    /// Since when the check `name` has been `ok`, or not.
    fn since(&mut self, name: &'static str, ok: bool, now: Timestamp) -> Timestamp {
        let known = self.0.entry(name).or_insert((ok, now));
        if known.0 != ok {
            *known = (ok, now);
        }
        known.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of each probe, with a `!` where it fails.
    fn said(facts: &NodeFacts) -> [String; 4] {
        [Probe::Live, Probe::Ready, Probe::Reads, Probe::Writes].map(|probe| {
            let (passes, answer) = answer(probe, findings(facts, probe), &mut SinceBook::default(), Timestamp(0));
            format!("{}{}", if passes { "" } else { "!" }, answer.status)
        })
    }

    fn running() -> NodeFacts {
        NodeFacts { homeless: Some((0, 8)), ..NodeFacts::of(Phase::Running) }
    }

    fn why() -> Option<String> {
        Some("why".to_owned())
    }

    #[test]
    fn each_state_of_a_node_has_its_answers() {
        let starting = NodeFacts::of(Phase::Starting("opens the journal".to_owned()));
        assert_eq!(said(&starting), ["ok", "!starting", "!starting", "!starting"]);
        assert_eq!(said(&running()), ["ok"; 4]);
        let draining = NodeFacts { phase: Phase::Draining("waits".to_owned()), ..running() };
        assert_eq!(said(&draining), ["ok", "!draining", "!draining", "!draining"]);
        let expelled = NodeFacts { is_expelled: true, ..running() };
        assert_eq!(said(&expelled), ["ok", "!expelled", "!expelled", "!expelled"]);
        let leaving = NodeFacts { is_expelled: true, ..draining };
        assert_eq!(said(&leaving), ["ok", "!expelled", "!expelled", "!expelled"], "that is why it drains");
        let cut_off = NodeFacts { servers: why(), ..running() };
        assert_eq!(said(&cut_off), ["ok", "!cut_off", "!cut_off", "!cut_off"]);
        let cordoned = NodeFacts { cordoned: why(), ..running() };
        assert_eq!(said(&cordoned), ["ok", "!cordoned", "degraded", "degraded"]);
        let full = NodeFacts { full: why(), ..running() };
        assert_eq!(said(&full), ["ok", "degraded", "degraded", "!journal_full"]);
        let failed = NodeFacts { journal_failed: why(), full: why(), ..running() };
        assert_eq!(said(&failed), ["ok", "!journal_failed", "degraded", "!journal_failed"]);
        let store = NodeFacts { store: why(), ..running() };
        assert_eq!(said(&store), ["ok", "degraded", "degraded", "degraded"]);
        let homeless = NodeFacts { homeless: Some((3, 8)), ..running() };
        assert_eq!(said(&homeless), ["ok", "degraded", "degraded", "degraded"]);
        let stalled = NodeFacts { stalled: vec!["the journal's thread".to_owned()], ..running() };
        assert_eq!(said(&stalled), ["!stalled"; 4]);
    }

    #[test]
    fn what_fails_the_probe_decides_the_status_and_not_what_only_degrades_it() {
        let facts = NodeFacts { store: why(), servers: why(), ..running() };
        assert_eq!(said(&facts)[1], "!cut_off");
    }

    #[test]
    fn a_node_that_is_alone_has_no_checks_of_a_cluster() {
        let names = |facts: &NodeFacts| -> Vec<&str> {
            findings(facts, Probe::Ready).iter().map(|finding| finding.name).collect()
        };
        assert_eq!(names(&NodeFacts::of(Phase::Running)), ["threads", "start", "drain", "journal", "store"]);
        assert!(names(&running()).ends_with(&["membership", "servers", "cordon", "shards"]));
        assert_eq!(findings(&running(), Probe::Live).len(), 1, "nothing outside is asked");
    }

    #[test]
    fn a_check_tells_since_when_it_is_as_it_is() {
        let mut book = SinceBook::default();
        let mut since = |ok, at| book.since("store", ok, Timestamp(at)).0;
        assert_eq!([since(true, 1), since(true, 2), since(false, 3), since(false, 4), since(true, 5)], [1, 1, 3, 3, 5]);
    }
}
