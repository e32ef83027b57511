//! What a cached object takes beside its bytes: many small objects, read once each into the memory of this process,
//! which does nothing else. The store behind makes them up, so that no disk is measured.
//!
//! It tells the process's own memory (RssAnon, proc_pid_status(5)) an object, without the key's text; the objects'
//! bytes are in shared files, and told beside. After that, what a segment's pages cost (`segments`).

mod segments;

use clap::Args;
use nigh_terms::ByteSize;
use serde::Serialize;

use self::segments::SegmentRow;
use super::{Figures, RatioTarget};
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::made_up::{FilledMemory, failed, key};
use crate::instrument::process_status::memory_of;

/// What is asked: bytes an object, beside its pages and its key.
const OVERHEAD_MAX: f64 = 256.0;
const LENGTH: u64 = 100;

#[derive(Clone, Debug, Args)]
pub(super) struct MemoryLength {
    /// How many objects to read into memory
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    objects: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct MemoryReport {
    machine: Machine,
    objects: u64,
    object_bytes: u64,
    key_bytes: u64,
    /// Of the process's own memory, for each object, its key's text left out.
    overhead_bytes: f64,
    /// What the cache's budget counts for all of them.
    counted_bytes: u64,
    segments: Vec<SegmentRow>,
    #[serde(flatten)]
    figures: Figures,
}

/// Memory of this process that is no file's and not shared.
pub(super) fn own_memory() -> Result<u64, LabError> {
    memory_of(std::process::id(), "RssAnon")
}

pub(super) async fn run(length: &MemoryLength, machine: Machine) -> Result<MemoryReport, LabError> {
    let objects = length.objects;
    let filled = FilledMemory::begin(LENGTH, ByteSize(objects * 4096)).await?;
    let memory = &filled.memory;
    // What the first reads make and keep for all others does not count.
    let warm = objects / 100;
    filled.read(0..warm).await?;
    let (before, kept_before) = (own_memory()?, memory.usage().objects);
    filled.read(warm..objects).await?;
    let after = own_memory()?;
    let usage = memory.usage();
    if usage.objects != objects || kept_before != warm {
        return Err(failed("filling the memory", &format!("{} of {objects} objects are kept", usage.objects)));
    }
    let key_bytes = key(0)?.as_str().len() as u64;
    let overhead_bytes = after.saturating_sub(before) as f64 / (objects - warm) as f64 - key_bytes as f64;
    let segments = segments::measure()?;
    let mut figures = Figures::default();
    figures.add("overhead_bytes_per_object", overhead_bytes, RatioTarget::AtMost(OVERHEAD_MAX));
    Ok(MemoryReport {
        machine,
        objects,
        object_bytes: LENGTH,
        key_bytes,
        overhead_bytes,
        counted_bytes: usage.living.bytes(),
        segments,
        figures,
    })
}
