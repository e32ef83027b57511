//! What a shrinking node gives up, handed to another that has it already: by one question to the home no byte moves.
//!
//! Beside OFC's figures (EuroSys 2021, table 2, of other machines). What the node needed was free before any of it began;
//! how long the kernel took for that stands beside. Where nobody has the objects and they are hot, they are brought into
//! the other's memory through the home: that is timed too, and nobody waits for it.

use std::time::Instant;

use clap::Args;
use nigh_terms::ByteSize;
use serde::Serialize;

use super::members::{MemberTransport, Members};
use super::{Figures, RatioTarget, median};
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::made_up::failed;

/// Sizes that OFC gives, in MB, and its times in milliseconds.
const OFC: [(u64, f64); 5] = [(8, 0.18), (64, 1.2), (256, 3.8), (512, 7.5), (1024, 13.5)];
/// Of these so many MB are brought elsewhere where nobody has them.
const COPIED: [u64; 2] = [8, 64];
const USES: usize = 3;
const ROUNDS_MAX: usize = 50;
const OBJECT_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, Args)]
pub(super) struct ReelectLength {
    /// How many rounds each measurement has; the report shows their median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

#[derive(Debug, Serialize)]
struct ReelectRow {
    megabytes: u64,
    objects: u64,
    /// Choosing what goes, and the homes' word on who has it: milliseconds.
    reelect_ms: f64,
    /// Of that, the questions to the home.
    asked_ms: f64,
    /// Giving the memory back to the kernel, which comes before.
    free_ms: f64,
    ofc_ms: f64,
}

#[derive(Debug, Serialize)]
struct CopyRow {
    megabytes: u64,
    objects: u64,
    /// From the shrink's begin until the other has them all.
    copy_ms: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct ReelectReport {
    machine: Machine,
    object_bytes: u64,
    reelected: Vec<ReelectRow>,
    copied: Vec<CopyRow>,
    #[serde(flatten)]
    figures: Figures,
}

async fn reelected(megabytes: u64, ofc_ms: f64, rounds: usize) -> Result<ReelectRow, LabError> {
    let objects = (megabytes << 20).div_ceil(OBJECT_BYTES);
    let (mut all, mut asked, mut free) = (Vec::new(), Vec::new(), Vec::new());
    let members = Members::start((MemberTransport::Tls, None), OBJECT_BYTES, room(megabytes)).await?;
    members.bring(2, objects, 0).await?;
    // The first round warms the connections up.
    for round in 0..=rounds {
        members.bring(1, objects, 0).await?;
        let begun = Instant::now();
        let (shrunk, done) = members.give_up(1, room(megabytes).bytes()).await;
        let whole = begun.elapsed();
        if (shrunk.copies, done.reelected, members.copies(2)) != (objects, objects, objects) {
            return Err(failed("a hand-over", &format!("of {objects} objects: {shrunk:?}, {done:?}")));
        }
        if round > 0 {
            let reelect = shrunk.decided_in + done.elected_in;
            all.push(reelect.as_secs_f64() * 1e3);
            asked.push(done.elected_in.as_secs_f64() * 1e3);
            free.push(whole.saturating_sub(reelect).as_secs_f64() * 1e3);
        }
    }
    let (reelect_ms, asked_ms, free_ms) = (median(all), median(asked), median(free));
    Ok(ReelectRow { megabytes, objects, reelect_ms, asked_ms, free_ms, ofc_ms })
}

async fn copied(megabytes: u64, rounds: usize) -> Result<CopyRow, LabError> {
    let objects = (megabytes << 20).div_ceil(OBJECT_BYTES);
    let mut times = Vec::new();
    for _ in 0..rounds {
        let members = Members::start((MemberTransport::Tls, None), OBJECT_BYTES, room(megabytes)).await?;
        members.bring(1, objects, USES).await?;
        let begun = Instant::now();
        let (_, done) = members.give_up(1, room(megabytes).bytes()).await;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        if done.copied != objects {
            return Err(failed("a copy", &format!("of {objects} objects: {done:?}")));
        }
    }
    Ok(CopyRow { megabytes, objects, copy_ms: median(times) })
}

/// Twice what is held, so that all of it is brought, and some.
const fn room(megabytes: u64) -> ByteSize {
    ByteSize::mib(megabytes * 5 / 2 + 64)
}

pub(super) async fn run(length: &ReelectLength, machine: Machine) -> Result<ReelectReport, LabError> {
    let rounds = length.rounds.clamp(1, ROUNDS_MAX);
    let (mut rows, mut copies) = (Vec::new(), Vec::new());
    for (megabytes, ofc_ms) in OFC {
        rows.push(reelected(megabytes, ofc_ms, rounds).await?);
    }
    for megabytes in COPIED {
        copies.push(copied(megabytes, rounds).await?);
    }
    let mut figures = Figures::default();
    for row in &rows {
        figures.add(format!("reelect_ms_{}_mb", row.megabytes), row.reelect_ms, RatioTarget::AtMost(row.ofc_ms));
    }
    Ok(ReelectReport { machine, object_bytes: OBJECT_BYTES, reelected: rows, copied: copies, figures })
}
