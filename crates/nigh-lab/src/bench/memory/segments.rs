//! A segment in new pages beside one in pages that a former object has left: the processor time to fill it, seal it and
//! let it go, turn about.

use std::sync::Arc;

use nigh_data::account::Account;
use nigh_data::segment::SegmentWriter;
use nigh_data::{Cost, ObjectError};
use serde::Serialize;

use crate::LabError;
use crate::instrument::cpu_time;
use crate::instrument::made_up::failed;
use crate::instrument::stats::Sample;

const SIZES: [u64; 4] = [64 << 10, 1 << 20, 10 << 20, 64 << 20];
/// Bytes that all rounds of a size write each way, about.
const BYTES_A_WAY: u64 = 512 << 20;
/// What is written at a time.
const PIECE_BYTES: usize = 64 << 10;
/// The pool may take an eighth of its limit: two segments.
const LIMIT_SEGMENTS: u64 = 16;

#[derive(Debug, Serialize)]
pub(super) struct SegmentRow {
    bytes: u64,
    /// Processor time of a new segment, microseconds.
    new_us: f64,
    /// Processor time of a segment from the pool, microseconds.
    pooled_us: f64,
    /// The second over the first: the median of the rounds' ratios.
    ratio: f64,
}

fn fill(account: &Arc<Account>, bytes: u64, piece: &[u8]) -> Result<f64, ObjectError> {
    let begun = cpu_time::of_this_thread();
    let mut filling = SegmentWriter::new(account, bytes)?;
    while filling.filled() < bytes {
        filling.append(piece)?;
    }
    drop(filling.seal()?);
    Ok(cpu_time::of_this_thread().saturating_sub(begun).as_secs_f64() * 1e6)
}

fn row(bytes: u64) -> Result<SegmentRow, ObjectError> {
    let (new, pooled) = (Account::open()?, Account::open()?);
    drop(pooled.set_pool_limit(Cost { bytes: LIMIT_SEGMENTS * bytes, segments: LIMIT_SEGMENTS }));
    let piece = vec![7; PIECE_BYTES];
    for account in [&new, &pooled] {
        fill(account, bytes, &piece)?;
    }
    let rounds = (BYTES_A_WAY / bytes).clamp(7, 200);
    let (mut news, mut pools, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (made, reused) = (fill(&new, bytes, &piece)?, fill(&pooled, bytes, &piece)?);
        news.push(made);
        pools.push(reused);
        ratios.push(reused / made);
    }
    if pooled.pool_counts().pooled != rounds {
        return Err(ObjectError::Memory { operation: "reuse a segment", reason: "the pool had none".to_owned() });
    }
    Ok(SegmentRow {
        bytes,
        new_us: Sample::new(news).median(),
        pooled_us: Sample::new(pools).median(),
        ratio: Sample::new(ratios).median(),
    })
}

/// A row for each size. It takes the thread for a second or two.
pub(super) fn measure() -> Result<Vec<SegmentRow>, LabError> {
    let rows: Result<Vec<SegmentRow>, ObjectError> = SIZES.into_iter().map(row).collect();
    rows.map_err(|error| failed("filling segments", &error))
}
