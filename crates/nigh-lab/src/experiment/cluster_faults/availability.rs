//! For how long the shards of a home that failed took no write: one client a shard writes without a pause, by the door of any
//! node that answers.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use nigh_check::history::{Found, Moment};
use nigh_objects::{ObjectId, Shards};
use nigh_terms::{BucketName, Namespace, ObjectKey, ShardId};
use parking_lot::Mutex;

use super::clients::{BUCKET, Caller};
use super::record::{Record, now, write};
use super::values::body_of;
use crate::LabError;
use crate::experiment::crash::s3_calls::Answer;

/// As many as a local cluster has.
pub(super) const SHARDS: u16 = 8;
/// An answer that takes longer is asked for at another door.
const PATIENCE: Duration = Duration::from_millis(1500);
const PAUSE: Duration = Duration::from_millis(40);

/// When each shard took writes, by its number.
pub(super) type Taken = Vec<Mutex<Vec<Moment>>>;

/// The shard of a key of the one bucket.
pub(super) fn shard_of(namespace: &Namespace, key: &str) -> Option<ShardId> {
    let shards = Shards::new(NonZeroU16::new(SHARDS)?);
    let (bucket, key) = (BucketName::new(BUCKET).ok()?, ObjectKey::new(key).ok()?);
    Some(shards.of(&ObjectId { namespace: namespace.clone(), bucket, key }))
}

/// The object of a part by which a shard is probed; none if none of many is of it.
pub(super) fn probe_of(namespace: &Namespace, part: u32, shard: ShardId) -> Option<String> {
    (0..10_000).map(|n| format!("probe-{part}/{n}")).find(|key| shard_of(namespace, key) == Some(shard))
}

/// Writes one object until `stop`.
pub(super) fn probe(
    caller: Caller<'_>,
    record: &Record,
    key: &str,
    taken: &Mutex<Vec<Moment>>,
    stop: &AtomicBool,
    doors: usize,
) -> Result<(), LabError> {
    let mut caller = caller.within(PATIENCE);
    let mut door = 0;
    while !stop.load(Ordering::Relaxed) {
        let (value, begin) = (record.value(), now());
        let answer = caller.call(door, Method::PUT, &format!("/{BUCKET}/{key}"), &[], &body_of(value))?;
        let end = matches!(answer, Answer::Done { .. }).then(now);
        record.add(write(key, None, begin, end, Found::Anything, Some(value)));
        match end {
            Some(end) => taken.lock().push(end),
            None => door = (door + 1) % doors,
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// A home that failed, and for how long that alone was so.
#[derive(Clone, Debug)]
pub(super) struct FailedHome {
    pub(super) shards: Vec<ShardId>,
    pub(super) at: Moment,
    pub(super) until: Moment,
}

/// The longest time in which a shard of `failed` took no write; what is still so at its end counts up to there.
pub(super) fn unavailable(failed: &FailedHome, taken: &Taken) -> Duration {
    let longest = failed.shards.iter().filter_map(|shard| taken.get(usize::from(shard.0))).map(|taken| {
        let taken = taken.lock();
        let before = taken.iter().copied().rfind(|at| *at <= failed.at).unwrap_or(failed.at);
        let within = taken.iter().copied().filter(|at| (failed.at..failed.until).contains(at));
        let (mut last, mut longest) = (before, 0);
        for at in within.chain([failed.until]) {
            longest = longest.max(at - last);
            last = at;
        }
        longest
    });
    Duration::from_nanos(longest.max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_without_a_write_is_taken_of_the_failed_shards_alone() {
        let taken: Taken = vec![Mutex::new(vec![5, 10, 60, 70]), Mutex::new(vec![9]), Mutex::new(vec![])];
        let failed =
            |shards: &[u16]| FailedHome { shards: shards.iter().copied().map(ShardId).collect(), at: 20, until: 75 };
        assert_eq!(unavailable(&failed(&[0]), &taken), Duration::from_nanos(50), "from 10 to 60");
        assert_eq!(unavailable(&failed(&[0, 1]), &taken), Duration::from_nanos(66), "never again");
        assert_eq!(unavailable(&failed(&[2]), &taken), Duration::from_nanos(55));
        assert_eq!(unavailable(&failed(&[]), &taken), Duration::ZERO);
    }

    #[test]
    fn every_shard_has_an_object_that_probes_it() {
        let namespace = Namespace::new("tests").unwrap();
        let found: Vec<String> = (0..SHARDS).filter_map(|n| probe_of(&namespace, 3, ShardId(n))).collect();
        assert_eq!(found.len(), usize::from(SHARDS));
    }
}
