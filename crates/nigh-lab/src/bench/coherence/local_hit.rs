//! A read that finds a copy at its node: the time, and the messages, of which there is none.

use std::hint::black_box;
use std::sync::Arc;

use nigh_protocol::{
    CacheLimits, CacheOutput, Contract, Counter, Cover, FromHome, Member, NodeCache, NodeNumber, ObjectName,
    ReadDecision, Reply, Stamp, ToHome,
};
use nigh_sim::llc::SplitMix64;
use nigh_terms::{Epoch, Incarnation, Monotonic, Sequence, ShardId, Token, Version};
use serde::Serialize;

use super::Length;
use super::home_steps::names;
use crate::LabError;
use crate::instrument::cpu_time::of_this_thread;
use crate::instrument::made_up::failed;
use crate::instrument::stats::Sample;

#[derive(Debug, Serialize)]
pub(super) struct HitRow {
    pub(super) copies: u64,
    pub(super) names: &'static str,
    pub(super) ns: f64,
    /// Of all reads.
    pub(super) messages: u64,
}

const NOW: Monotonic = Monotonic(0);
const SHARD: ShardId = ShardId(0);
const EPOCH: Epoch = Epoch(1);
const ME: Member = Member { node: NodeNumber(1), incarnation: Incarnation(1) };

fn fill<O: ObjectName>(
    cache: &mut NodeCache<O, Arc<()>>,
    object: &O,
    value: &Arc<()>,
    out: &mut Vec<CacheOutput<O, Arc<()>>>,
) -> Result<(), LabError> {
    out.clear();
    cache.read(NOW, SHARD, object, false, out);
    let attempt = out.iter().find_map(|output| match output {
        CacheOutput::Send(_, request) => match request.body {
            ToHome::Fetch { attempt, .. } => Some(attempt),
            _ => None,
        },
        _ => None,
    });
    let attempt = attempt.ok_or_else(|| failed("a read", &"a copy was there before it was fetched"))?;
    let version = Version { epoch: EPOCH, sequence: Sequence(1) };
    let stamp = Stamp::new(SHARD, version, &Token::empty());
    let cover = Cover { counter: Counter(0), through: version };
    let body = FromHome::Found { attempt, object: object.clone(), stamp, absent: false, cover };
    let reply = Reply { shard: SHARD, epoch: EPOCH, to: ME, body };
    cache.receive(NOW, reply, Some(Arc::clone(value)), out);
    Ok(())
}

fn measure<O: ObjectName>(names: &'static str, objects: &[O], length: Length) -> Result<HitRow, LabError> {
    let mut cache: NodeCache<O, Arc<()>> = NodeCache::new(ME, CacheLimits::default(), Contract);
    let (mut out, value) = (Vec::new(), Arc::new(()));
    cache.meet(NOW, SHARD, EPOCH, &mut out);
    for object in objects {
        fill(&mut cache, object, &value, &mut out)?;
    }
    let mut random = SplitMix64::new(2);
    let mut times = Vec::new();
    out.clear();
    for _ in 0..length.rounds {
        let begun = of_this_thread();
        for _ in 0..length.operations {
            let object = &objects[random.below(objects.len() as u32) as usize];
            let read = cache.read(NOW, SHARD, object, false, &mut out);
            if !matches!(black_box(read), ReadDecision::Hit(_)) {
                return Err(failed("a read", &"it was no hit"));
            }
        }
        times.push((of_this_thread() - begun).as_nanos() as f64 / length.operations as f64);
    }
    Ok(HitRow { copies: objects.len() as u64, names, ns: Sample::new(times).median(), messages: out.len() as u64 })
}

pub(super) fn run(sizes: &[u64], length: Length) -> Result<Vec<HitRow>, LabError> {
    let mut rows = Vec::new();
    for &copies in sizes {
        rows.push(measure("numbers", &(0..copies).collect::<Vec<u64>>(), length)?);
        rows.push(measure("names", &names(copies)?, length)?);
    }
    Ok(rows)
}
