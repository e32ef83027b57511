//! For how long the shards of a home that failed took no write: for each shard a client at every door writes all the time, so
//! that while one waits at a door that has stopped the others tell.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use nigh_check::history::{Moment, OperationResult};
use nigh_data::ObjectId;
use nigh_objects::Shards;
use nigh_terms::{BucketName, Namespace, ObjectKey, ShardId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::clients::{BUCKET, was_not_done};
use super::plan::Kind;
use super::record::{Record, now, write};
use super::values::body_of;
use crate::LabError;
use crate::experiment::client_calls::{CallOutcome, Caller, Door};
use crate::instrument::report::name_of;

/// As many as a local cluster has.
pub(super) const SHARDS: u16 = 8;
/// An answer that takes longer is asked for again.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Each shard is written to at all doors: a write about every 100 ms. More would keep the servers' disks busy with nothing else.
const PAUSE: Duration = Duration::from_millis(300);
/// A shard that took a write so long ago is served.
const SERVED: Duration = Duration::from_millis(500);

pub(super) type WriteTimes = Vec<Mutex<Vec<Moment>>>;

pub(super) fn shard_of(namespace: &Namespace, key: &str) -> Option<ShardId> {
    let shards = Shards::new(NonZeroU16::new(SHARDS)?);
    let (bucket, key) = (BucketName::new(BUCKET).ok()?, ObjectKey::new(key).ok()?);
    Some(shards.of(&ObjectId { namespace: namespace.clone(), bucket, key }))
}

/// The object of a part by which a shard is probed at a door; none if none of many is of it.
pub(super) fn probe_of(namespace: &Namespace, part: u32, door: usize, shard: ShardId) -> Option<String> {
    (0..10_000).map(|n| format!("probe-{part}-{door}/{n}")).find(|key| shard_of(namespace, key) == Some(shard))
}

pub(super) fn probe(
    door: &Door,
    record: &Record,
    key: &str,
    taken: &Mutex<Vec<Moment>>,
    stop: &AtomicBool,
) -> Result<(), LabError> {
    let mut caller = Caller::within(door, PATIENCE);
    while !stop.load(Ordering::Relaxed) {
        let (value, begin) = (record.value(), now());
        let answer = caller.call(&Method::PUT, &format!("/{BUCKET}/{key}"), &[], &body_of(value))?;
        if !was_not_done(record, &answer) {
            let end = matches!(answer, CallOutcome::Done { .. }).then(now);
            record.add(write(key, None, begin, end, OperationResult::Anything, Some(value)));
            taken.lock().extend(end);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// A home that failed, and for how long that alone was so.
#[derive(Clone, Debug)]
pub(super) struct FailedHome {
    pub(super) kind: Kind,
    pub(super) shards: Vec<ShardId>,
    pub(super) at: Moment,
    pub(super) until: Moment,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outage {
    pub(super) kind: String,
    /// Every shard had just taken a write: no fault before was still felt.
    pub(super) alone: bool,
    /// The longest time in which one of them took no write.
    pub(super) ms: f64,
}

impl Outage {
    /// What is still so at its end counts up to there.
    pub(super) fn of(failed: &FailedHome, taken: &WriteTimes) -> Self {
        let longest = failed.shards.iter().filter_map(|shard| taken.get(usize::from(shard.0))).map(|taken| {
            let mut taken = taken.lock();
            // Of several clients.
            taken.sort_unstable();
            let before = taken.iter().copied().rfind(|at| *at <= failed.at).unwrap_or(failed.at);
            let within = taken.iter().copied().filter(|at| (failed.at..failed.until).contains(at));
            let (mut last, mut longest) = (before, 0);
            for at in within.chain([failed.until]) {
                longest = longest.max(at - last);
                last = at;
            }
            longest
        });
        let served = failed.at.saturating_sub(SERVED.as_nanos() as Moment)..=failed.at;
        let alone = taken.iter().all(|taken| taken.lock().iter().any(|at| served.contains(at)));
        let ms = Duration::from_nanos(longest.max().unwrap_or_default()).as_secs_f64() * 1000.0;
        Self { kind: name_of(&failed.kind), alone, ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_without_a_write_is_taken_of_the_failed_shards_alone() {
        let ms = |ms: u64| ms * 1_000_000;
        let times = |times: &[u64]| Mutex::new(times.iter().copied().map(ms).collect());
        let taken: WriteTimes = vec![times(&[5, 60, 10, 70]), times(&[9]), times(&[])];
        let outage = |shards: &[u16], taken: &WriteTimes| {
            let shards = shards.iter().copied().map(ShardId).collect();
            Outage::of(&FailedHome { kind: Kind::KillNode, shards, at: ms(20), until: ms(75) }, taken)
        };
        let lasted = |shards: &[u16]| outage(shards, &taken).ms.round() as u64;
        assert_eq!(lasted(&[0]), 50, "from 10 to 60");
        assert_eq!(lasted(&[0, 1]), 66, "never again");
        assert_eq!(lasted(&[2]), 55);
        assert_eq!(lasted(&[]), 0);
        assert!(!outage(&[0], &taken).alone, "one shard took nothing before");
        assert!(outage(&[0], &taken[..2].iter().map(|one| Mutex::new(one.lock().clone())).collect()).alone);
    }

    #[test]
    fn every_shard_has_an_object_that_probes_it() {
        let namespace = Namespace::new("tests").unwrap();
        let found: Vec<String> = (0..SHARDS).filter_map(|n| probe_of(&namespace, 3, 1, ShardId(n))).collect();
        assert_eq!(found.len(), usize::from(SHARDS));
    }
}
