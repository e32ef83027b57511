//! What the answers about a node's health are decided from, from the first moment of its start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use nigh_terms::{Clock, SystemClock};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::life::Pulses;
use super::removal::{self, ClusterFacts};
use super::verdict::{self, HealthAnswer, NodeFacts, Phase, Probe, SinceBook};

/// A node that has started.
pub(crate) trait HealthSource: Send + Sync {
    /// What is known of it now.
    fn facts(&self) -> NodeFacts;
    /// What it knows of its cluster; none if it is alone.
    fn cluster(&self) -> Option<ClusterFacts>;
    /// Its metrics, as Prometheus text.
    fn metrics(&self) -> String;
}

/// The health of a node.
pub(crate) struct HealthBoard {
    node: String,
    clock: Arc<SystemClock>,
    /// What the node does before it has started.
    step: Mutex<&'static str>,
    source: OnceLock<Weak<dyn HealthSource>>,
    /// The node has been ready to serve all shards: what is missing later is no start.
    is_caught_up: AtomicBool,
    pulses: Mutex<Pulses>,
    stalled: Mutex<Vec<String>>,
    since: Mutex<SinceBook>,
    cluster_since: Mutex<SinceBook>,
}

impl HealthBoard {
    /// The board of the node with this name, which starts.
    pub(crate) fn new(node: &str, clock: Arc<SystemClock>) -> Self {
        Self {
            node: node.to_owned(),
            clock,
            step: Mutex::new("begins"),
            source: OnceLock::new(),
            is_caught_up: AtomicBool::new(false),
            pulses: Mutex::default(),
            stalled: Mutex::default(),
            since: Mutex::default(),
            cluster_since: Mutex::default(),
        }
    }

    /// The node begins this step of its start: `opens the journal`.
    pub(crate) fn starts(&self, step: &'static str) {
        *self.step.lock() = step;
    }

    /// The node has started.
    pub(crate) fn started(&self, source: &Arc<dyn HealthSource>) {
        // A node starts once.
        let _ = self.source.set(Arc::downgrade(source));
    }

    /// From now on `runtime` must run tasks.
    pub(crate) fn watch(&self, name: String, runtime: Handle) {
        self.pulses.lock().watch(name, runtime);
    }

    /// Looks whether the runtimes run tasks. To be called every second or so.
    pub(super) fn look(&self, now: Instant) {
        let stalled = self.pulses.lock().stalled(now);
        *self.stalled.lock() = stalled;
    }

    fn source(&self) -> Option<Arc<dyn HealthSource>> {
        self.source.get()?.upgrade()
    }

    /// What is known of the node.
    pub(super) fn facts(&self) -> NodeFacts {
        let mut facts = match (self.source(), self.source.get()) {
            (Some(source), _) => source.facts(),
            (None, Some(_)) => NodeFacts::of(Phase::Draining("it has ended".to_owned())),
            (None, None) => NodeFacts::of(Phase::Starting(format!("the node starts: it {}", self.step.lock()))),
        };
        if facts.phase == Phase::Running && !self.is_caught_up.load(Ordering::Relaxed) {
            match facts.homeless {
                Some((homeless, shards)) if homeless > 0 => {
                    let served = shards - homeless.min(shards);
                    facts.phase = Phase::Starting(format!("the homes of {served} of {shards} shards have caught up"));
                }
                _ => self.is_caught_up.store(true, Ordering::Relaxed),
            }
        }
        facts.stalled.extend(self.stalled.lock().iter().map(|name| format!("the runtime {name}")));
        facts
    }

    /// Whether a probe of the node passes, and its answer.
    pub(super) fn answer(&self, probe: Probe, facts: &NodeFacts) -> (bool, HealthAnswer) {
        verdict::answer(probe, verdict::findings(facts, probe), &mut self.since.lock(), self.clock.wall())
    }

    /// Whether the cluster works, without the member `without` if one is named; None if there is no such member.
    pub(super) fn cluster(&self, without: Option<&str>) -> Option<(bool, HealthAnswer)> {
        let cluster = self.source().and_then(|source| source.cluster());
        let found = match without {
            None => removal::now(cluster.as_ref()),
            Some(node) => removal::without(node, &self.node, cluster.as_ref())?,
        };
        Some(verdict::answer(Probe::Ready, found, &mut self.cluster_since.lock(), self.clock.wall()))
    }

    /// The metrics; none before the node has started and when it has ended.
    pub(super) fn metrics(&self) -> Option<String> {
        self.source().map(|source| source.metrics())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Mutex<NodeFacts>);

    impl HealthSource for Fixed {
        fn facts(&self) -> NodeFacts {
            self.0.lock().clone()
        }

        fn cluster(&self) -> Option<ClusterFacts> {
            None
        }

        fn metrics(&self) -> String {
            "nigh_test 1\n".to_owned()
        }
    }

    fn ready(board: &HealthBoard) -> (bool, String, Option<String>) {
        let (passes, answer) = board.answer(Probe::Ready, &board.facts());
        let why = answer.checks.into_iter().find_map(|check| check.why);
        (passes, answer.status, why)
    }

    #[test]
    fn a_start_is_told_step_by_step_and_then_by_the_shards_that_have_caught_up() {
        let board = HealthBoard::new("a", Arc::new(SystemClock::new()));
        board.starts("opens the journal");
        let (passes, status, why) = ready(&board);
        assert_eq!((passes, status.as_str()), (false, "starting"));
        assert_eq!(why.as_deref(), Some("the node starts: it opens the journal"));
        assert!(board.metrics().is_none());

        let node = Arc::new(Fixed(Mutex::new(NodeFacts { homeless: Some((6, 8)), ..NodeFacts::of(Phase::Running) })));
        board.started(&(Arc::clone(&node) as Arc<dyn HealthSource>));
        let why = ready(&board).2;
        assert_eq!(why.as_deref(), Some("the homes of 2 of 8 shards have caught up"));
        node.0.lock().homeless = Some((0, 8));
        assert!(ready(&board).0);
        // A shard without a home later is no start.
        node.0.lock().homeless = Some((1, 8));
        assert_eq!((ready(&board).0, ready(&board).1.as_str()), (true, "degraded"));
        assert!(board.metrics().is_some_and(|text| text.contains("nigh_test")));
        drop(node);
        assert_eq!(ready(&board).1, "draining");
    }
}
