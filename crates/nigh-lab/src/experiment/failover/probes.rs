//! Clients that write to one shard at one door all the time, and what they noticed of a failure.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use nigh_data::ObjectId;
use nigh_objects::Shards;
use nigh_terms::{BucketName, Namespace, ObjectKey, ShardId};
use parking_lot::Mutex;

use crate::LabError;
use crate::experiment::client_calls::{CallOutcome, Caller, Door};

/// As many as a local cluster has.
pub(super) const SHARDS: u16 = 8;
pub(super) const BUCKET: &str = "failover";
/// No node has failed.
pub(super) const NOBODY: usize = usize::MAX;
/// An answer that takes longer is given up, and the write made anew.
const PATIENCE: Duration = Duration::from_secs(5);
/// The wait after a write that was refused.
const REFUSED: Duration = Duration::from_millis(10);

/// An acknowledged write.
#[derive(Clone, Copy, Debug)]
struct Ack {
    begun: Instant,
    at: Instant,
}

/// A client of one shard at one door.
pub(super) struct Probe {
    pub(super) shard: u16,
    pub(super) door: usize,
    key: String,
    acks: Mutex<Vec<Ack>>,
    /// What it was told when a write was refused last.
    refusal: Mutex<Option<String>>,
}

/// The keys and clients of every shard at every door.
pub(super) fn probes(namespace: &Namespace, doors: usize) -> Vec<Probe> {
    let places = (0..SHARDS).flat_map(|shard| (0..doors).map(move |door| (shard, door)));
    let of = |(shard, door)| {
        let key = key_of(namespace, door, ShardId(shard))?;
        Some(Probe { shard, door, key, acks: Mutex::default(), refusal: Mutex::default() })
    };
    places.filter_map(of).collect()
}

/// A key of `shard`; none if none of many is of it.
fn key_of(namespace: &Namespace, door: usize, shard: ShardId) -> Option<String> {
    let shards = Shards::new(NonZeroU16::new(SHARDS)?);
    let is_of = |key: &String| {
        let (bucket, key) = (BucketName::new(BUCKET).ok()?, ObjectKey::new(key).ok()?);
        Some(shards.of(&ObjectId { namespace: namespace.clone(), bucket, key }) == shard)
    };
    (0..10_000).map(|number| format!("probe-{door}/{number}")).find(|key| is_of(key) == Some(true))
}

impl Probe {
    /// Writes until `stop`, but not while the node of its door is the one that has failed.
    pub(super) fn live(
        &self,
        doors: &[Door],
        every: Duration,
        failed: &AtomicUsize,
        stop: &AtomicBool,
    ) -> Result<(), LabError> {
        let mut caller = Caller::within(&doors[self.door], PATIENCE);
        let path = format!("/{BUCKET}/{}", self.key);
        while !stop.load(Ordering::Relaxed) {
            if failed.load(Ordering::Relaxed) == self.door {
                std::thread::sleep(every);
                continue;
            }
            let begun = Instant::now();
            let answer = caller.call(&Method::PUT, &path, &[], b"probe")?;
            let is_done = matches!(answer, CallOutcome::Done { .. });
            match answer {
                CallOutcome::Done { .. } => self.acks.lock().push(Ack { begun, at: Instant::now() }),
                CallOutcome::Absent => *self.refusal.lock() = Some("404".to_owned()),
                CallOutcome::Refused(why) | CallOutcome::Broken(why) => *self.refusal.lock() = Some(why),
            }
            std::thread::sleep(if is_done { every } else { REFUSED });
        }
        Ok(())
    }

    /// True if a write that began after `blow` was acknowledged.
    pub(super) fn is_served_since(&self, blow: Instant) -> bool {
        self.acks.lock().last().is_some_and(|ack| ack.begun > blow)
    }

    /// Milliseconds from `blow` to the first acknowledgement after the longest time without one, and that time; the time up to
    /// `end` counts too.
    pub(super) fn longest_gap(&self, blow: Instant, end: Instant) -> (f64, f64) {
        gap_of(self.acks.lock().iter().map(|ack| ack.at), blow, end)
    }

    /// The shard, the door, and what was said of the last write that was refused.
    pub(super) fn trouble(&self) -> String {
        let refusal = self.refusal.lock().clone().unwrap_or_else(|| "nothing was refused".to_owned());
        format!("shard {} at node {}: {refusal}", self.shard, self.door + 1)
    }

    /// Forgets all answers.
    pub(super) fn forget(&self) {
        self.acks.lock().clear();
        *self.refusal.lock() = None;
    }
}

fn gap_of(acks: impl Iterator<Item = Instant>, blow: Instant, end: Instant) -> (f64, f64) {
    let (mut last, mut longest) = (blow, (Duration::ZERO, Duration::ZERO));
    for at in acks.filter(|at| (blow..end).contains(at)).chain([end]) {
        longest = longest.max((at - last, at - blow));
        last = at;
    }
    let ms = |span: Duration| span.as_secs_f64() * 1000.0;
    (ms(longest.1), ms(longest.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_without_a_write_begins_at_the_blow_at_the_earliest() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let acks = [5, 90, 120, 180, 200].map(at);
        assert_eq!(gap_of(acks.into_iter(), at(100), at(220)), (80.0, 60.0));
        assert_eq!(gap_of(acks.into_iter(), at(100), at(400)), (300.0, 200.0), "it is not served again");
        assert_eq!(gap_of([].into_iter(), at(100), at(150)), (50.0, 50.0));
    }

    #[test]
    fn every_shard_has_a_client_at_every_door() {
        let all = probes(&Namespace::new("tests").unwrap(), 3);
        assert_eq!(all.len(), usize::from(SHARDS) * 3);
    }
}
