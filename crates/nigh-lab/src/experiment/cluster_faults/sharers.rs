//! What a put costs while every sharer of its object answers, and while none does.
//!
//! Objects of one home are read at all other nodes, which makes these sharers, and written at the home: in turns with all
//! others alive and with all others stopped, for less than their lease, so that nobody is taken for dead and every sharer
//! is one that the home must still tell. A home that waited for a sharer would show it as the length of the stop.

use std::time::{Duration, Instant};

use http::Method;
use nigh_terms::ShardId;
use serde::{Deserialize, Serialize};

use super::clients::{BUCKET, PATIENCE};
use super::long_lived::shard_of;
use super::world::World;
use crate::LabError;
use crate::experiment::client_calls::CallOutcome;
use crate::instrument::stats::Sample;

const OBJECTS: usize = 12;
const TURNS: usize = 16;
/// The others are stopped for no longer than this: well below their lease.
const STOPPED_MAX: Duration = Duration::from_millis(1500);
/// Between turns: what was told late arrives.
const SETTLE: Duration = Duration::from_millis(1200);
const BODY: &[u8] = &[7; 1024];

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PutWithSharersDead {
    pub(super) alive_p50_ms: f64,
    pub(super) dead_p50_ms: f64,
    pub(super) ratio: f64,
    pub(super) puts: usize,
}

/// Measures it on a whole cluster, whose first node is the home.
pub(super) fn measure(world: &mut World) -> Result<PutWithSharersDead, LabError> {
    let own = world.shards_of(0);
    let keys = keys_of(world, &own);
    let doors = world.doors.clone();
    let mut callers = doors.callers(PATIENCE);
    let (mut alive, mut dead) = (Vec::new(), Vec::new());
    for turn in 0..2 * TURNS {
        // Each kind is first as often as the other.
        let stops = (turn % 4 == 1) || (turn % 4 == 2);
        for key in &keys {
            for caller in &mut callers[1..] {
                expect(caller.call(&Method::GET, key, &[], b"")?, key)?;
            }
        }
        if stops {
            for node in world.cluster.nodes().iter_mut().skip(1) {
                node.process().stop().map_err(|error| LabError::Node(format!("{}: {error}", node.name())))?;
            }
        }
        let begun = Instant::now();
        let mut failed = None;
        for key in &keys {
            let put = Instant::now();
            if let Err(error) = callers[0].call(&Method::PUT, key, &[], BODY).and_then(|answer| expect(answer, key)) {
                failed = Some(error);
                break;
            }
            let took = put.elapsed().as_secs_f64() * 1000.0;
            if stops {
                dead.push(took)
            } else {
                alive.push(took)
            }
            if stops && begun.elapsed() > STOPPED_MAX {
                break;
            }
        }
        if stops {
            for node in world.cluster.nodes().iter_mut().skip(1) {
                node.process().go_on().map_err(|error| LabError::Node(format!("{}: {error}", node.name())))?;
            }
        }
        failed.map_or(Ok(()), Err)?;
        world.wait(SETTLE);
    }
    let puts = alive.len().min(dead.len());
    let (alive_p50_ms, dead_p50_ms) = (Sample::new(alive).median(), Sample::new(dead).median());
    Ok(PutWithSharersDead { alive_p50_ms, dead_p50_ms, ratio: dead_p50_ms / alive_p50_ms, puts })
}

/// Paths of objects whose home serves these shards, each written once.
fn keys_of(world: &World, own: &[ShardId]) -> Vec<String> {
    let is_own = |key: &String| shard_of(&world.doors.namespace, key).is_some_and(|shard| own.contains(&shard));
    let keys = (0..10_000).map(|n| format!("sharers/{n}")).filter(is_own);
    keys.take(OBJECTS).map(|key| format!("/{BUCKET}/{key}")).collect()
}

fn expect(answer: CallOutcome, key: &str) -> Result<(), LabError> {
    match answer {
        // Before the first put there is nothing to read, and who was told so is a sharer too.
        CallOutcome::Done { .. } | CallOutcome::Absent => Ok(()),
        other => Err(LabError::Request { what: key.to_owned(), reason: format!("{other:?}") }),
    }
}
