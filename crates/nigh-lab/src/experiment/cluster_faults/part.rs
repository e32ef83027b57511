//! A part of the run: a cluster of its own, clients, some faults, and what their history is judged to be.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use nigh_check::history::{History, Judgement, MissedKind, Mutation, Operation, judge, missed, mutated};
use nigh_terms::ShardId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::NODES;
use super::availability::{FailedHome, Outage, SHARDS, WriteTimes, probe, probe_of};
use super::clients::{BUCKET, Client, OBJECTS, PATIENCE, key, look};
use super::invokers::{Ends, Invoker, deploy};
use super::plan::{Blow, Wiring, plan};
use super::record::{Record, now};
use super::sharers::{PutWithSharersDead, measure};
use super::world::World;
use crate::LabError;
use crate::experiment::client_calls::Caller;
use crate::instrument::parallel::joined;
use crate::instrument::peer::porcupine;
use crate::instrument::report::name_of;

const CLIENTS: usize = 6;
const INVOKERS: usize = 3;
const BEFORE: Duration = Duration::from_secs(2);
/// How long a cluster without faults may take to be whole again.
const RECOVERED_WITHIN: Duration = Duration::from_secs(120);
/// How long one object may be refused then.
const READ_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Broken promises that the report tells in full.
const DETAILS_MAX: usize = 20;

/// How a mutated history was judged: whether it was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MutationOutcome {
    pub(super) kind: String,
    pub(super) ours: bool,
    pub(super) porcupine: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Totals {
    pub(super) kinds: BTreeMap<String, u64>,
    pub(super) seconds: f64,
    pub(super) operations: u64,
    /// Operations of which nobody knows whether they were done.
    pub(super) unknown: u64,
    /// Operations within invocations.
    pub(super) by_invocations: u64,
    pub(super) invocations: u64,
    pub(super) invocations_failed: u64,
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
    pub(super) violations: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PartOutcome {
    pub(super) totals: Totals,
    pub(super) outages: Vec<Outage>,
    pub(super) recovery_s: Vec<f64>,
    pub(super) checkers: Checkers,
}

/// What each checker found.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Checkers {
    ours: OurFindings,
    porcupine: OrderFindings,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct OurFindings {
    #[serde(flatten)]
    order: OrderFindings,
    /// Reads that missed what P1, P4 or P6 has them show, or what was acknowledged.
    missed: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct OrderFindings {
    objects: u64,
    /// Objects whose operations no order explains.
    broken: u64,
    /// Objects with too many orders to tell.
    undecided: u64,
}

impl OrderFindings {
    const fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.broken += other.broken;
        self.undecided += other.undecided;
    }
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
        sum.by_invocations += more.by_invocations;
        sum.invocations += more.invocations;
        sum.invocations_failed += more.invocations_failed;
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
        sum.violations.extend(more.violations);
        sum.violations.truncate(DETAILS_MAX);
        self.outages.extend(other.outages);
        self.recovery_s.extend(other.recovery_s);
        let Checkers { ours, porcupine } = other.checkers;
        self.checkers.ours.order.add(ours.order);
        self.checkers.ours.missed += ours.missed;
        self.checkers.porcupine.add(porcupine);
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

/// Plays a part. `told` hears of each blow, how many faults that was, and may end it all.
pub(super) fn play(
    folder: &Path,
    parameters: PartParameters,
    handle: &Handle,
    told: impl Fn(usize) -> Result<(), LabError>,
) -> Result<PartOutcome, LabError> {
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
    let taken: WriteTimes = (0..SHARDS).map(|_| Mutex::default()).collect();
    let stop = AtomicBool::new(false);
    let doors = world.doors.clone();
    let places = (0..SHARDS).flat_map(|shard| (0..usize::from(NODES)).map(move |door| (shard, door)));
    let probes: Vec<(u16, usize, String)> = places
        .filter_map(|(shard, door)| Some((shard, door, probe_of(&doors.namespace, part, door, ShardId(shard))?)))
        .collect();
    let mut outcome = PartOutcome::default();
    let (mut failed, mut struck) = (Vec::new(), Ok(()));
    let ended = std::thread::scope(|scope| {
        let (doors, record, ends, stop) = (&doors, &record, &ends, &stop);
        let mut threads = Vec::new();
        for number in 0..CLIENTS {
            let mut client = Client::new(doors, record, part, number, seed);
            threads.push(scope.spawn(move || client.live(stop)));
        }
        for number in 0..INVOKERS {
            let mut invoker = Invoker::new(doors, (record, ends), part, number, seed);
            threads.push(scope.spawn(move || invoker.live(stop)));
        }
        for (shard, door, key) in &probes {
            let (door, taken) = (&doors.s3[*door], &taken[usize::from(*shard)]);
            threads.push(scope.spawn(move || probe(door, record, key, taken, stop)));
        }
        world.wait(BEFORE);
        for blow in &blows {
            let blow = strike(&mut world, blow, &mut outcome.totals.kinds, &mut failed);
            struck = blow.and_then(&told);
            if struck.is_err() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        joined(threads)
    });
    struck?;
    ended?;
    match await_whole(&mut world) {
        Some(took) => outcome.recovery_s.push(took.as_secs_f64()),
        None => {
            outcome.totals.not_recovered += 1;
            outcome.totals.violations.push(format!(
                "part {part}: the cluster is not whole {} s after the last fault",
                RECOVERED_WITHIN.as_secs()
            ));
        }
    }
    let keys = (0..OBJECTS).map(|object| key(part, object)).chain(probes.into_iter().map(|(.., key)| key));
    look_at_all(&mut world, &record, keys, &mut outcome)?;
    outcome.totals.ended_by_itself = world.ended_by_itself;
    world.end();
    outcome.outages = failed.iter().map(|failed| Outage::of(failed, &taken)).collect();
    outcome.totals.invocations = ends.answered.into_inner();
    outcome.totals.invocations_failed = ends.failed.into_inner();
    outcome.totals.nested_calls = ends.nested.into_inner();
    let (history, mixed, first_mixed) = record.take();
    outcome.totals.mixed = mixed;
    outcome.totals.violations.extend(first_mixed.map(|what| format!("part {part}: {what}")));
    judged(&history, part, &mut outcome)?;
    outcome.totals.seconds = begun.elapsed().as_secs_f64();
    Ok(outcome)
}

/// One blow: its faults begin one after another, and each is ended when its time is over. So many they were.
fn strike(
    world: &mut World,
    blow: &Blow,
    kinds: &mut BTreeMap<String, u64>,
    failed: &mut Vec<FailedHome>,
) -> Result<usize, LabError> {
    let fails = blow.strikes.len() == 1 && blow.strikes[0].kind.fails_a_home();
    let shards = if fails { world.shards_of(blow.strikes[0].node) } else { Vec::new() };
    let at = now();
    for strike in &blow.strikes {
        world.strike(strike)?;
        *kinds.entry(name_of(&strike.kind)).or_default() += 1;
        world.wait(strike.lasts / 2);
    }
    for strike in &blow.strikes {
        world.wait(strike.lasts / 2);
        world.heal(strike)?;
    }
    world.wait(blow.quiet);
    if !shards.is_empty() {
        failed.push(FailedHome { kind: blow.strikes[0].kind, shards, at, until: now() });
    }
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

/// Reads every object at every node, when all is over.
fn look_at_all(
    world: &mut World,
    record: &Record,
    keys: impl Iterator<Item = String>,
    outcome: &mut PartOutcome,
) -> Result<(), LabError> {
    let doors = world.doors.clone();
    let mut callers = doors.callers(PATIENCE);
    for key in keys {
        for (door, caller) in callers.iter_mut().enumerate() {
            let begun = Instant::now();
            loop {
                if let Some((operation, _)) = look(caller, record, &key)? {
                    record.add(Operation { is_last: true, ..operation });
                    break;
                }
                if begun.elapsed() > READ_WITHIN {
                    outcome.totals.not_recovered += 1;
                    outcome
                        .totals
                        .violations
                        .push(format!("{key} cannot be read at node {} after the faults", door + 1));
                    break;
                }
                world.wait(LOOK_EVERY);
            }
        }
    }
    Ok(())
}

/// Whether our checkers refuse a history: objects that no order explains, objects undecided, and reads that miss.
fn ours(history: &History) -> (Vec<(String, Operation)>, u64, Vec<nigh_check::history::MissedWrite>) {
    let (mut broken, mut undecided) = (Vec::new(), 0);
    for (object, operations) in history.by_object() {
        match judge(&operations) {
            Judgement::Fits => {}
            Judgement::Broken { at } => broken.push((object.to_owned(), operations[at].clone())),
            Judgement::Undecided => undecided += 1,
        }
    }
    (broken, undecided, missed(history))
}

fn judged(history: &History, part: u32, outcome: &mut PartOutcome) -> Result<(), LabError> {
    outcome.totals.operations = history.operations.len() as u64;
    let of = |is: &dyn Fn(&Operation) -> bool| history.operations.iter().filter(|one| is(one)).count() as u64;
    outcome.totals.unknown = of(&|operation| operation.end.is_none());
    outcome.totals.by_invocations = of(&|operation| operation.invocation.is_some());
    let (broken, undecided, missed) = ours(history);
    let theirs = porcupine::judge(history)?;
    let (objects, missed_reads) = (theirs.objects, missed.len() as u64);
    let found = |broken: usize, undecided| OrderFindings { objects, broken: broken as u64, undecided };
    outcome.checkers = Checkers {
        ours: OurFindings { order: found(broken.len(), undecided), missed: missed_reads },
        porcupine: found(theirs.broken.len(), theirs.undecided.len() as u64),
    };
    outcome.totals.lost = missed.iter().filter(|one| one.kind == MissedKind::Lost).count() as u64;
    // What only the search for an order found is told with the old reads: nobody can say which of them is.
    let told: std::collections::BTreeSet<&str> =
        missed.iter().map(|one| history.operations[one.read].object.as_str()).collect();
    let unexplained =
        broken.iter().map(|(object, _)| object).chain(&theirs.broken).filter(|object| !told.contains(object.as_str()));
    let unexplained: std::collections::BTreeSet<&String> = unexplained.collect();
    outcome.totals.stale = missed_reads - outcome.totals.lost + unexplained.len() as u64;
    for one in &missed {
        let read = &history.operations[one.read];
        outcome.totals.violations.push(format!(
            "part {part}: {:?}: {} shows {:?} instead of {:?}: {read:?}",
            one.kind, read.object, one.shown, one.instead
        ));
    }
    for (object, at) in broken.iter().filter(|(object, _)| unexplained.contains(object)) {
        outcome.totals.violations.push(format!("part {part}: no order explains {object}, from here on: {at:?}"));
    }
    for object in theirs.broken.iter().filter(|object| !broken.iter().any(|(ours, _)| ours == *object)) {
        outcome.totals.violations.push(format!("part {part}: porcupine alone refuses {object}"));
    }
    outcome.totals.violations.truncate(DETAILS_MAX);
    for mutation in Mutation::ALL {
        // Of the one object alone: a mutation is one change.
        let Some(changed) = mutated(history, mutation) else { continue };
        let differs = history.operations.iter().zip(&changed.operations).find(|(one, other)| one != other);
        let Some(object) = differs.map(|(one, _)| one.object.clone()) else { continue };
        let small = History {
            operations: changed.operations.into_iter().filter(|one| one.object == object).collect(),
            invocations: changed.invocations,
        };
        let (broken, _, missed) = ours(&small);
        let porcupine = !porcupine::judge(&small)?.broken.is_empty();
        let kind = mutation.name().to_owned();
        outcome.totals.mutations.push(MutationOutcome {
            kind,
            ours: !broken.is_empty() && !missed.is_empty(),
            porcupine,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nigh_check::history::OperationResult;

    use super::*;
    use crate::instrument::peer::PeerError;

    /// A history as the experiment records it, of two clients and one object.
    fn history() -> History {
        let put = |begin, end, value| {
            super::super::record::write("x", None, begin, Some(end), OperationResult::Anything, Some(value))
        };
        let get = |begin, end, value| super::super::record::read("x", None, begin, end, Some(value));
        let operations = vec![put(1, 2, 1), get(3, 4, 1), put(5, 9, 2), get(6, 7, 1), get(10, 11, 2), get(12, 13, 2)];
        History { operations, invocations: Vec::new() }
    }

    #[test]
    fn both_checkers_accept_a_good_history_and_refuse_every_mutation_of_it() {
        let test = "both_checkers_accept_a_good_history_and_refuse_every_mutation_of_it";
        let mut outcome = PartOutcome::default();
        match judged(&history(), 0, &mut outcome) {
            Err(LabError::Peer(error @ PeerError::NotInstalled { .. })) => println!("SKIPPED: {test}: {error}"),
            other => {
                other.unwrap();
                assert_eq!(
                    (outcome.totals.lost, outcome.totals.stale, outcome.checkers.ours.order.objects),
                    (0, 0, 1),
                    "{:?}",
                    outcome.totals.violations
                );
                assert_eq!(outcome.totals.mutations.len(), Mutation::ALL.len());
                assert!(
                    outcome.totals.mutations.iter().all(|one| one.ours && one.porcupine),
                    "{:?}",
                    outcome.totals.mutations
                );
            }
        }
    }
}
