//! The measured windows: honest clients alone, and beside slow ones; and slow clients that are watched until they end.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::honest::{self, HonestOutcome};
use super::kind::{Door, SlowKind};
use super::stage::Stage;
use super::swarm::{SlowEnds, Swarm, SwarmOutcome};
use crate::LabError;
use crate::instrument::cpu_time;
use crate::instrument::error::Tried;
use crate::instrument::process_status::{descriptors_of, memory_of};

/// Calls before the first window: sandboxes are made, and caches filled.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long it may take until all slow clients are slow.
const BEGIN_WITHIN: Duration = Duration::from_secs(60);
/// From then on, the node has so long to settle. After the end of the slow clients, it has half of it.
const SETTLE: Duration = Duration::from_secs(1);
/// Clients that come only once are watched so long: twice the longest pause that a door allows.
pub(super) const WATCHED: Duration = Duration::from_secs(60);

/// What the node's process used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct NodeUse {
    /// Processors that it kept busy, on average; without its sandboxes.
    pub(super) processors: f64,
    pub(super) memory_bytes: u64,
    pub(super) descriptors: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WindowOutcome {
    pub(super) honest: Vec<HonestOutcome>,
    pub(super) node: NodeUse,
}

/// A window without slow clients and one with them, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PairOutcome {
    pub(super) door: Door,
    pub(super) kind: SlowKind,
    pub(super) quiet: WindowOutcome,
    pub(super) slow: WindowOutcome,
    pub(super) ends: SlowEnds,
    /// Processors that the slow clients' thread kept busy.
    pub(super) slow_processors: f64,
    /// All slow clients were slow when the window began.
    pub(super) all_begun: bool,
}

/// Slow clients that came only once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WatchedClients {
    pub(super) door: Door,
    pub(super) kind: SlowKind,
    pub(super) clients: usize,
    pub(super) ends: SlowEnds,
}

/// Plays windows on a node.
pub(super) struct Player<'a> {
    pub(super) stage: &'a Stage,
    pub(super) handle: &'a Handle,
    pub(super) clients: usize,
    /// Of a window.
    pub(super) length: Duration,
}

impl Player<'_> {
    /// Lets the honest clients of `door` call, and fails if one of their calls does.
    pub(super) fn warm_up(&self, door: Door) -> Result<(), LabError> {
        let requests = self.handle.block_on(self.stage.honest(door))?;
        let outcomes = honest::play(&requests, WARM_UP)?;
        match outcomes.into_iter().find_map(|outcome| outcome.first_failure) {
            Some(reason) => Err(LabError::Request { what: "a call without any slow client".to_owned(), reason }),
            None => Ok(()),
        }
    }

    pub(super) fn pair(&self, door: Door, kind: SlowKind, quiet_first: bool) -> Result<PairOutcome, LabError> {
        let quiet = || self.window(door);
        let before = quiet_first.then(quiet).transpose()?;
        let (slow, outcome, all_begun) = self.slow_window(door, kind)?;
        std::thread::sleep(SETTLE / 2);
        let quiet = before.map_or_else(quiet, Ok)?;
        let SwarmOutcome { ends, processors } = outcome;
        let ends = ends.into_iter().next().unwrap_or_default();
        Ok(PairOutcome { door, kind, quiet, slow, ends, slow_processors: processors, all_begun })
    }

    fn slow_window(&self, door: Door, kind: SlowKind) -> Result<(WindowOutcome, SwarmOutcome, bool), LabError> {
        let plan = self.handle.block_on(self.stage.slow(door, kind, self.clients))?;
        let swarm = Swarm::start(vec![plan], true)?;
        let all_begun = swarm.begins(BEGIN_WITHIN);
        std::thread::sleep(SETTLE);
        let window = self.window(door)?;
        Ok((window, swarm.finish()?, all_begun))
    }

    fn window(&self, door: Door) -> Result<WindowOutcome, LabError> {
        let requests = self.handle.block_on(self.stage.honest(door))?;
        let pid = self.stage.node.pid();
        let cpu = || cpu_time::of_process_and_ended_threads(pid).of_node();
        let (began, before) = (Instant::now(), cpu()?);
        let honest = honest::play(&requests, self.length)?;
        let (passed, ran) = (began.elapsed(), cpu()?.saturating_sub(before));
        let (memory_bytes, descriptors) = (memory_of(pid, "VmRSS")?, descriptors_of(pid)?);
        let processors = ran.as_secs_f64() / passed.as_secs_f64();
        Ok(WindowOutcome { honest, node: NodeUse { processors, memory_bytes, descriptors } })
    }

    /// Lets slow clients of all `cells` come once, all at the same time and so few that each finds a place, and watches them
    /// until all have ended.
    pub(super) fn watch(&self, cells: &[(Door, SlowKind)]) -> Result<Vec<WatchedClients>, LabError> {
        let mut plans = Vec::new();
        for &(door, kind) in cells {
            let clients = share_of_places(self.clients, door, cells);
            plans.push(self.handle.block_on(self.stage.slow(door, kind, clients))?);
        }
        let counts: Vec<usize> = plans.iter().map(|plan| plan.clients).collect();
        let swarm = Swarm::start(plans, false)?;
        swarm.ends(WATCHED);
        let ends = swarm.finish()?.ends;
        let watched = cells.iter().zip(counts).zip(ends);
        Ok(watched.map(|((&(door, kind), clients), ends)| WatchedClients { door, kind, clients, ends }).collect())
    }
}

/// How many of `clients` each cell has whose door takes its connections from the listener of `door`.
fn share_of_places(clients: usize, door: Door, cells: &[(Door, SlowKind)]) -> usize {
    let sharing = cells.iter().filter(|(other, _)| other.shares_places_with(door)).count();
    (clients / sharing.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watched_clients_of_a_listener_are_together_as_many_as_the_slow_ones_of_a_window() {
        let cells: Vec<_> = Door::ALL.into_iter().flat_map(|door| SlowKind::ALL.map(|kind| (door, kind))).collect();
        assert_eq!(share_of_places(1024, Door::S3, &cells), 170);
        assert_eq!(share_of_places(1024, Door::Openwhisk, &cells), 56);
        assert_eq!(share_of_places(2, Door::Lambda, &cells), 1);
        assert_eq!(share_of_places(64, Door::S3, &[]), 64);
    }
}
