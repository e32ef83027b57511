//! Memory that the cache gives back at once: what the decision takes, and the whole beside the least that freeing memory
//! costs here: closing files in memory of the same sizes, made and filled the same way, turn about.
//!
//! The copies are clean, as those are that go first.

use std::fs::File;
use std::io::Write as _;
use std::time::Instant;

use clap::Args;
use nigh_objects::{ObjectMemory, ShrinkResult};
use nigh_terms::ByteSize;
use rustix::fs::MemfdFlags;
use serde::Serialize;

use super::{Figures, RatioTarget, median};
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::made_up::{FilledMemory, failed};
use crate::instrument::stats::Sample;

/// How many objects there are while one in a hundred is given up.
const COUNTS: [u64; 3] = [1_000, 10_000, 100_000];
const SMALL_BYTES: u64 = 1 << 10;
/// The part that is given up at a time: one in so many.
const PART: u64 = 100;
/// Sizes of objects of which half are given up, and how many there are.
const WHOLE: [(u64, u64); 3] = [(64 << 10, 1024), (1 << 20, 128), (10 << 20, 24)];
/// Rounds at most: each takes another part of the objects.
const ROUNDS_MAX: usize = 50;

#[derive(Clone, Debug, Args)]
pub(super) struct ShrinkLength {
    /// How many rounds each measurement has; the report shows their median
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

#[derive(Debug, Serialize)]
struct DecisionRow {
    objects: u64,
    copies: u64,
    /// The longest decision: some copies are chosen and taken out with the cache locked, then others have their turn.
    /// Microseconds.
    decision_us: f64,
    /// All decisions together, microseconds.
    decisions_us: f64,
}

#[derive(Debug, Serialize)]
struct WholeRow {
    object_bytes: u64,
    freed_bytes: u64,
    total_ms: f64,
    /// Closing files in memory of as many bytes.
    close_ms: f64,
    ratio: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct ShrinkReport {
    machine: Machine,
    decisions: Vec<DecisionRow>,
    whole: Vec<WholeRow>,
    #[serde(flatten)]
    figures: Figures,
}

async fn fill(count: u64, bytes: u64) -> Result<FilledMemory, LabError> {
    // Room for four times as much: bodies on their way in may take a part of it only.
    let filled = FilledMemory::begin(bytes, ByteSize(4 * count * bytes.max(4096))).await?;
    filled.read(0..count).await?;
    let kept = filled.memory.usage().objects;
    if kept != count {
        return Err(failed("filling the memory", &format!("{kept} of {count} objects are kept")));
    }
    Ok(filled)
}

/// Gives `wanted` bytes back, or says why they were not.
fn shrink(memory: &ObjectMemory, wanted: u64) -> Result<ShrinkResult, LabError> {
    let shrunk = memory.shrink(ByteSize(wanted));
    if shrunk.freed.bytes() < wanted {
        return Err(failed("a shrink", &format!("{} of {wanted} bytes were freed", shrunk.freed.bytes())));
    }
    Ok(shrunk)
}

async fn decision(objects: u64, rounds: usize) -> Result<DecisionRow, LabError> {
    let FilledMemory { memory, .. } = &fill(objects, SMALL_BYTES).await?;
    let wanted = memory.usage().living.bytes() / PART;
    let shrunk = (0..rounds).map(|_| shrink(memory, wanted)).collect::<Result<Vec<_>, _>>()?;
    let median = |of: fn(&ShrinkResult) -> f64| Sample::new(shrunk.iter().map(of).collect()).median();
    Ok(DecisionRow {
        objects,
        copies: median(|one| one.copies as f64) as u64,
        decision_us: median(|one| one.locked_for.as_secs_f64() * 1e6),
        decisions_us: median(|one| one.decided_in.as_secs_f64() * 1e6),
    })
}

fn files(count: u64, bytes: u64) -> Result<Vec<File>, LabError> {
    let body = vec![7; bytes as usize];
    let file = |_| {
        let made = rustix::fs::memfd_create("nigh-bench", MemfdFlags::CLOEXEC);
        let mut file = File::from(made.map_err(|error| failed("a file in memory", &error))?);
        file.write_all(&body).map_err(|error| failed("a file in memory", &error))?;
        Ok(file)
    };
    (0..count).map(file).collect()
}

async fn whole(bytes: u64, count: u64, rounds: usize) -> Result<WholeRow, LabError> {
    let (mut totals, mut closes, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut freed = 0;
    for _ in 0..rounds {
        let FilledMemory { memory, .. } = &fill(count, bytes).await?;
        let files = files(count / 2, bytes)?;
        let begun = Instant::now();
        freed = shrink(memory, bytes * count / 2)?.freed.bytes();
        let total = begun.elapsed().as_secs_f64() * 1e3;
        let begun = Instant::now();
        drop(files);
        let close = begun.elapsed().as_secs_f64() * 1e3;
        totals.push(total);
        closes.push(close);
        ratios.push(total / close);
    }
    Ok(WholeRow {
        object_bytes: bytes,
        freed_bytes: freed,
        total_ms: median(totals),
        close_ms: median(closes),
        ratio: median(ratios),
    })
}

pub(super) async fn run(length: &ShrinkLength, machine: Machine) -> Result<ShrinkReport, LabError> {
    let rounds = length.rounds.clamp(1, ROUNDS_MAX);
    let (mut decisions, mut wholes) = (Vec::new(), Vec::new());
    for objects in COUNTS {
        decisions.push(decision(objects, rounds).await?);
    }
    for (bytes, count) in WHOLE {
        wholes.push(whole(bytes, count, rounds).await?);
    }
    let mut figures = Figures::default();
    for row in &wholes {
        let name = format!("whole_over_close_{}_kib", row.object_bytes >> 10);
        figures.add(name, row.ratio, RatioTarget::AtMost(1.2));
    }
    if let Some(row) = decisions.last() {
        let name = format!("decision_us_{}_objects", row.objects);
        figures.add(name, row.decision_us, RatioTarget::AtMost(100.0));
    }
    Ok(ShrinkReport { machine, decisions, whole: wholes, figures })
}
