//! What a shrinking node gives up, handed to another that has it already: by one question to the home no byte moves.
//!
//! Beside OFC's figures (EuroSys 2021, table 2, of other machines). What the node needed was free before any of it began;
//! how long the kernel took for that stands beside. Where nobody has the objects and they are hot, they are brought into
//! the other's memory through the home: that is timed too, and nobody waits for it.

use std::collections::BTreeMap;
use std::time::Instant;

use clap::Args;
use nigh_terms::ByteSize;
use serde::Serialize;

use super::RatioTarget;
use super::members::{MemberTransport, Members};
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::made_up::failed;
use crate::instrument::stats::Sample;
use crate::instrument::table::table_of;

/// Sizes that OFC gives, in MB, and its times in milliseconds.
const OFC: [(u64, f64); 5] = [(8, 0.18), (64, 1.2), (256, 3.8), (512, 7.5), (1024, 13.5)];
/// Of these so many MB are brought elsewhere where nobody has them.
const COPIED: [u64; 2] = [8, 64];
/// Reads that make an object hot.
const USES: usize = 3;
const ROUNDS_MAX: usize = 50;

/// What `nigh bench reelect` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct ReelectLength {
    /// Rounds of each measurement; the median is told
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Bytes of each object
    #[arg(long, default_value = "1MiB")]
    object: ByteSize,
}

/// Objects handed over.
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

/// Objects brought into another's memory.
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
    summary: BTreeMap<String, f64>,
    asked: BTreeMap<String, RatioTarget>,
}

fn median(values: Vec<f64>) -> f64 {
    Sample::new(values).median()
}

async fn reelected(megabytes: u64, ofc_ms: f64, object: u64, rounds: usize) -> Result<ReelectRow, LabError> {
    let objects = (megabytes << 20).div_ceil(object);
    let (mut all, mut asked, mut free) = (Vec::new(), Vec::new(), Vec::new());
    let members = Members::start(MemberTransport::Tls, object, room(megabytes)).await?;
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

async fn copied(megabytes: u64, object: u64, rounds: usize) -> Result<CopyRow, LabError> {
    let objects = (megabytes << 20).div_ceil(object);
    let mut times = Vec::new();
    for _ in 0..rounds {
        let members = Members::start(MemberTransport::Tls, object, room(megabytes)).await?;
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
    let object = length.object.bytes().clamp(4096, 32 << 20);
    let (mut rows, mut copies) = (Vec::new(), Vec::new());
    for (megabytes, ofc_ms) in OFC {
        rows.push(reelected(megabytes, ofc_ms, object, rounds).await?);
    }
    for megabytes in COPIED {
        copies.push(copied(megabytes, object, rounds).await?);
    }
    let name = |row: &ReelectRow| format!("reelect_ms_{}_mb", row.megabytes);
    let summary = rows.iter().map(|row| (name(row), row.reelect_ms)).collect();
    let asked = rows.iter().map(|row| (name(row), RatioTarget::AtMost(row.ofc_ms))).collect();
    Ok(ReelectReport { machine, object_bytes: object, reelected: rows, copied: copies, summary, asked })
}

pub(super) fn text(report: &ReelectReport) -> String {
    let mut table = table_of("MB | objects | re-elected ms | of it asking ms | freed before ms | OFC ms");
    for row in &report.reelected {
        let times = [row.reelect_ms, row.asked_ms, row.free_ms, row.ofc_ms].map(|ms| format!("{ms:.2}"));
        table.add_row([vec![row.megabytes.to_string(), row.objects.to_string()], times.into()].concat());
    }
    let mut copies = table_of("MB | objects | brought elsewhere ms");
    for row in &report.copied {
        copies.add_row([row.megabytes.to_string(), row.objects.to_string(), format!("{:.1}", row.copy_ms)]);
    }
    let named = report.summary.iter().map(|(name, figure)| {
        let asked = report.asked.get(name).map(RatioTarget::to_string).unwrap_or_default();
        format!("\n{name}: {figure:.2} {asked}")
    });
    format!("{table}\n{copies}{}", named.collect::<String>())
}
