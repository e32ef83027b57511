//! Objects of all generations: one for each shard and door, written by one client alone and read by all. What must stay right
//! over many faults is seen by them.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use nigh_check::history::OperationResult;
use nigh_data::ObjectId;
use nigh_objects::Shards;
use nigh_terms::{BucketName, Namespace, ObjectKey, ShardId};

use super::clients::{BUCKET, was_not_done};
use super::record::{Record, now, write};
use super::values::body_of;
use crate::LabError;
use crate::experiment::client_calls::{CallOutcome, Caller, Door};

/// As many as a local cluster has.
pub(super) const SHARDS: u16 = 8;
/// An answer that takes longer is asked for again.
const PATIENCE: Duration = Duration::from_millis(1500);
const PAUSE: Duration = Duration::from_millis(300);

pub(super) fn shard_of(namespace: &Namespace, key: &str) -> Option<ShardId> {
    let shards = Shards::new(NonZeroU16::new(SHARDS)?);
    let (bucket, key) = (BucketName::new(BUCKET).ok()?, ObjectKey::new(key).ok()?);
    Some(shards.of(&ObjectId { namespace: namespace.clone(), bucket, key }))
}

/// The object of a part that is written at a door and lies in a shard; none if none of many does.
pub(super) fn long_lived_key(namespace: &Namespace, part: u32, door: usize, shard: ShardId) -> Option<String> {
    (0..10_000).map(|n| format!("long-{part}-{door}/{n}")).find(|key| shard_of(namespace, key) == Some(shard))
}

pub(super) fn write_long(door: &Door, record: &Record, key: &str, stop: &AtomicBool) -> Result<(), LabError> {
    let mut caller = Caller::within(door, PATIENCE);
    while !stop.load(Ordering::Relaxed) {
        let (value, begin) = (record.value(), now());
        let answer = caller.call(&Method::PUT, &format!("/{BUCKET}/{key}"), &[], &body_of(value))?;
        if !was_not_done(record, &answer) {
            let end = matches!(answer, CallOutcome::Done { .. }).then(now);
            record.add(write(key, None, begin, end, OperationResult::Anything, Some(value)));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_has_an_object_at_each_door() {
        let namespace = Namespace::new("tests").unwrap();
        let found: Vec<String> = (0..SHARDS).filter_map(|n| long_lived_key(&namespace, 3, 1, ShardId(n))).collect();
        assert_eq!(found.len(), usize::from(SHARDS));
    }
}
