//! A part of the run: a cluster of its own, clients, some faults, and what their history is judged to be.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use nigh_check::history::{History, Operation};
use nigh_terms::ShardId;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::NODES;
use super::clients::{BUCKET, Client, OBJECTS, PATIENCE, key, look};
use super::failed_invocations::{FailureCount, FailuresByCause};
use super::invokers::{Ends, Invoker, deploy};
use super::judgement::{Checkers, MutationOutcome, UndecidedObject, judged};
use super::long_lived::{SHARDS, long_lived_key, write_long};
use super::plan::{Blow, Turn, Wiring, plan};
use super::record::{Record, Recorded};
use super::sharers::{PutWithSharersDead, measure};
use super::world::World;
use crate::LabError;
use crate::experiment::client_calls::Caller;
use crate::instrument::parallel::joined;
use crate::instrument::report::name_of;

const CLIENTS: usize = 6;
const INVOKERS: usize = 3;
const BEFORE: Duration = Duration::from_secs(2);
/// How long a cluster without faults may take to be whole again.
const RECOVERED_WITHIN: Duration = Duration::from_secs(120);
/// How long it may take then until all objects are read at all nodes.
const READ_WITHIN: Duration = Duration::from_secs(180);
/// How long a generation of objects is read back after its fault; what does not answer by then is read at the end alone.
const READ_BACK_WITHIN: Duration = Duration::from_secs(10);
/// How long one of these answers is waited for.
const READ_BACK_PATIENCE: Duration = Duration::from_secs(2);
/// How long clients use a generation before its fault, at least.
const FRESH: Duration = Duration::from_millis(700);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Broken promises that the report tells in full.
pub(super) const DETAILS_MAX: usize = 20;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Totals {
    pub(super) kinds: BTreeMap<String, u64>,
    pub(super) seconds: f64,
    pub(super) operations: u64,
    /// Operations without an answer.
    pub(super) unknown: u64,
    /// Of these, writes that somebody found: they were done;
    pub(super) unknown_found: u64,
    /// and writes that nobody found.
    pub(super) unknown_not_found: u64,
    /// Writes that were refused by an answer which says that they were not done. They are no operations.
    pub(super) refused: u64,
    /// Writes that were not sent, because there was no connection. Nor are they.
    pub(super) not_sent: u64,
    /// Operations that are entries of listings.
    pub(super) listed_entries: u64,
    /// Operations that read an object back after a fault.
    pub(super) read_back: u64,
    /// Operations within invocations.
    pub(super) by_invocations: u64,
    /// Invocations that their first attempt answered.
    pub(super) invocations: u64,
    /// Invocations whose first attempt failed,
    pub(super) invocations_failed: u64,
    /// and those of them that no retry answered either: what a client with Lambda's two retries sees.
    pub(super) invocations_failed_with_retries: u64,
    pub(super) failed_by_cause: FailuresByCause,
    /// Calls of functions by functions.
    pub(super) nested_calls: u64,
    /// Reads after the faults that miss an acknowledged write.
    pub(super) lost: u64,
    /// Reads that are older than what they had to show, and objects whose operations no order explains.
    pub(super) stale: u64,
    /// Objects that are of no one write.
    pub(super) mixed: u64,
    /// Clusters or objects that were not whole again in time.
    pub(super) not_recovered: u64,
    /// Nodes whose life as a member was over, and which were started again.
    pub(super) ended_by_itself: u64,
    pub(super) mutations: Vec<MutationOutcome>,
    pub(super) put_with_sharers_dead: Option<PutWithSharersDead>,
    /// The first of the objects that a checker could not decide.
    pub(super) undecided: Vec<UndecidedObject>,
    pub(super) violations: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PartOutcome {
    pub(super) totals: Totals,
    pub(super) recovery_s: Vec<f64>,
    pub(super) checkers: Checkers,
}

impl PartOutcome {
    pub(super) fn add(&mut self, other: Self) {
        let (sum, more) = (&mut self.totals, other.totals);
        for (kind, count) in more.kinds {
            *sum.kinds.entry(kind).or_default() += count;
        }
        sum.seconds += more.seconds;
        sum.operations += more.operations;
        sum.unknown += more.unknown;
        sum.unknown_found += more.unknown_found;
        sum.unknown_not_found += more.unknown_not_found;
        sum.refused += more.refused;
        sum.not_sent += more.not_sent;
        sum.listed_entries += more.listed_entries;
        sum.read_back += more.read_back;
        sum.by_invocations += more.by_invocations;
        sum.invocations += more.invocations;
        sum.invocations_failed += more.invocations_failed;
        sum.invocations_failed_with_retries += more.invocations_failed_with_retries;
        sum.failed_by_cause.add(more.failed_by_cause);
        sum.nested_calls += more.nested_calls;
        sum.lost += more.lost;
        sum.stale += more.stale;
        sum.mixed += more.mixed;
        sum.not_recovered += more.not_recovered;
        sum.ended_by_itself += more.ended_by_itself;
        for mutation in more.mutations {
            match sum.mutations.iter_mut().find(|known| known.kind == mutation.kind) {
                // A mutation counts as refused if every part refused it.
                Some(known) => {
                    known.ours &= mutation.ours;
                    known.porcupine &= mutation.porcupine;
                }
                None => sum.mutations.push(mutation),
            }
        }
        sum.put_with_sharers_dead = sum.put_with_sharers_dead.or(more.put_with_sharers_dead);
        sum.undecided.extend(more.undecided);
        sum.undecided.truncate(DETAILS_MAX);
        sum.violations.extend(more.violations);
        sum.violations.truncate(DETAILS_MAX);
        self.recovery_s.extend(other.recovery_s);
        self.checkers.add(other.checkers);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PartParameters {
    pub(super) part: u32,
    pub(super) faults: usize,
    pub(super) seed: u64,
    pub(super) has_netem: bool,
}

/// Measures a put whose sharers are all stopped, on a cluster of its own.
pub(super) fn play_sharers(folder: &Path, handle: &Handle) -> Result<PartOutcome, LabError> {
    let begun = Instant::now();
    let mut world = World::start(folder, Wiring::Direct, handle)?;
    await_whole(&mut world);
    make_bucket(&world)?;
    let measured = measure(&mut world);
    world.end();
    let (seconds, put_with_sharers_dead) = (begun.elapsed().as_secs_f64(), Some(measured?));
    let totals = Totals { seconds, put_with_sharers_dead, ..Totals::default() };
    Ok(PartOutcome { totals, ..PartOutcome::default() })
}

/// Plays a part: its outcome, and the history that it was judged by. `told` hears of each blow, how many faults that was,
/// and may end it all.
pub(super) fn play(
    folder: &Path,
    parameters: PartParameters,
    handle: &Handle,
    told: impl Fn(usize) -> Result<(), LabError>,
) -> Result<(PartOutcome, History), LabError> {
    let begun = Instant::now();
    let PartParameters { part, faults, seed, has_netem } = parameters;
    let wiring = if part.is_multiple_of(2) { Wiring::Direct } else { Wiring::Relayed };
    let seed = seed.wrapping_add(u64::from(part) << 32);
    let possible = |kind| has_netem || kind != super::plan::Kind::BadPackets;
    let blows = plan(seed, faults, usize::from(NODES), wiring, possible);
    let mut world = World::start(folder, wiring, handle)?;
    await_whole(&mut world);
    make_bucket(&world)?;
    deploy(folder, &world.doors)?;
    let (record, ends) = (Record::default(), Ends::default());
    let stop = AtomicBool::new(false);
    let doors = world.doors.clone();
    let places = (0..SHARDS).flat_map(|shard| (0..usize::from(NODES)).map(move |door| (shard, door)));
    let long_lived: Vec<(usize, String)> = places
        .filter_map(|(shard, door)| Some((door, long_lived_key(&doors.namespace, part, door, ShardId(shard))?)))
        .collect();
    let long_lived_keys: Vec<String> = long_lived.iter().map(|(_, key)| key.clone()).collect();
    let mut outcome = PartOutcome::default();
    let mut struck = Ok(());
    let ended = std::thread::scope(|scope| {
        let (doors, record, ends, stop, keys) = (&doors, &record, &ends, &stop, long_lived_keys.as_slice());
        let mut threads = Vec::new();
        for number in 0..CLIENTS {
            let mut client = Client::new(doors, (record, keys), part, number, seed);
            threads.push(scope.spawn(move || client.live(stop)));
        }
        for number in 0..INVOKERS {
            let mut invoker = Invoker::new(doors, (record, ends), part, number, seed);
            threads.push(scope.spawn(move || invoker.live(stop)));
        }
        for (door, key) in &long_lived {
            let door = &doors.s3[*door];
            threads.push(scope.spawn(move || write_long(door, record, key, stop)));
        }
        world.wait(BEFORE);
        for blow in &blows {
            let blow = strike(&mut world, blow, &mut outcome.totals.kinds);
            struck = blow.and_then(&told).and_then(|()| next_generation(&mut world, record, part));
            if struck.is_err() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        joined(threads)
    });
    struck?;
    ended?;
    if let Some(took) = await_whole(&mut world) {
        outcome.recovery_s.push(took.as_secs_f64());
        // Once more every object of every generation: what was under way when it was read back has ended now.
        let generations = (0..=record.generation()).flat_map(|generation| keys(part, generation));
        let (all, until) = (generations.chain(long_lived_keys), Instant::now() + READ_WITHIN);
        for (key, door) in look_at_all(&mut world, &record, all, PATIENCE, until)? {
            outcome.totals.not_recovered += 1;
            let what = format!("{key} cannot be read at node {} after the faults", door + 1);
            outcome.totals.violations.push(what);
        }
    } else {
        // Nor could its objects be read: each would be waited for.
        outcome.totals.not_recovered += 1;
        outcome.totals.violations.push(format!(
            "part {part}: the cluster is not whole {} s after the last fault",
            RECOVERED_WITHIN.as_secs()
        ));
    }
    outcome.totals.ended_by_itself = world.ended_by_itself;
    world.end();
    outcome.totals.invocations = ends.answered.into_inner();
    outcome.totals.nested_calls = ends.nested.into_inner();
    let by_cause = ends.failed.into_inner();
    let FailureCount { failed, answered_on_retry } = by_cause.sum();
    outcome.totals.invocations_failed = failed;
    outcome.totals.invocations_failed_with_retries = failed - answered_on_retry;
    outcome.totals.failed_by_cause = by_cause;
    let Recorded { history, listed, refused, not_sent, mixed, first_mixed } = record.take();
    (outcome.totals.listed_entries, outcome.totals.mixed) = (listed, mixed);
    (outcome.totals.refused, outcome.totals.not_sent) = (refused, not_sent);
    outcome.totals.violations.extend(first_mixed.map(|what| format!("part {part}: {what}")));
    judged(&history, part, &mut outcome)?;
    outcome.totals.seconds = begun.elapsed().as_secs_f64();
    Ok((outcome, history))
}

fn keys(part: u32, generation: u32) -> impl Iterator<Item = String> {
    (0..OBJECTS).map(move |object| key(part, generation, object))
}

/// Has clients go on with the next generation of objects, and reads the last one back at all doors.
fn next_generation(world: &mut World, record: &Record, part: u32) -> Result<(), LabError> {
    let begun = Instant::now();
    let over = record.next_generation();
    // Who does not answer by then is still read at the end of the part.
    look_at_all(world, record, keys(part, over), READ_BACK_PATIENCE, begun + READ_BACK_WITHIN)?;
    world.wait(FRESH.saturating_sub(begun.elapsed()));
    Ok(())
}

/// One blow: each of its faults begins and ends at its time. So many they were.
fn strike(world: &mut World, blow: &Blow, kinds: &mut BTreeMap<String, u64>) -> Result<usize, LabError> {
    let begun = Instant::now();
    for (at, turn, strike) in blow.turns() {
        world.wait(at.saturating_sub(begun.elapsed()));
        match turn {
            Turn::Begin => {
                world.strike(&strike)?;
                *kinds.entry(name_of(&strike.kind)).or_default() += 1;
            }
            Turn::End => world.heal(&strike)?,
        }
    }
    world.wait(blow.quiet);
    Ok(blow.strikes.len())
}

/// Waits until every node knows every other and every shard is served: how long that took.
fn await_whole(world: &mut World) -> Option<Duration> {
    let begun = Instant::now();
    while begun.elapsed() < RECOVERED_WITHIN {
        if world.recovered(usize::from(SHARDS)) {
            return Some(begun.elapsed());
        }
        world.wait(LOOK_EVERY);
    }
    None
}

fn make_bucket(world: &World) -> Result<(), LabError> {
    let mut caller = Caller::within(&world.doors.s3[0], PATIENCE);
    caller.call(&Method::PUT, &format!("/{BUCKET}"), &[], b"")?.expect_done("make the bucket")
}

/// Reads these objects at every node, each until it answers, all up to `until`: those that did not answer, with the node.
fn look_at_all(
    world: &mut World,
    record: &Record,
    keys: impl Iterator<Item = String>,
    patience: Duration,
    until: Instant,
) -> Result<Vec<(String, usize)>, LabError> {
    let doors = world.doors.clone();
    let (mut callers, mut unread) = (doors.callers(patience), Vec::new());
    for key in keys {
        for (door, caller) in callers.iter_mut().enumerate() {
            let mut is_read = false;
            while !is_read && Instant::now() < until {
                match look(caller, record, &key)? {
                    Some((operation, _)) => {
                        record.add(Operation { is_last: true, ..operation });
                        is_read = true;
                    }
                    None => world.wait(LOOK_EVERY),
                }
            }
            if !is_read {
                unread.push((key.clone(), door));
            }
        }
    }
    Ok(unread)
}
