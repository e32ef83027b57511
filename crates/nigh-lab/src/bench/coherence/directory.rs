//! Measures how much memory a home's directory needs per object, without the object's name, with a million and with ten
//! million objects.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::home_steps::{DrivenHome, NODES};
use crate::LabError;
use crate::bench::memory::own_memory;
use crate::instrument::made_up::failed;

#[derive(Debug, Serialize)]
pub(super) struct DirectoryRow {
    pub(super) objects: u64,
    /// Bytes of the process's own memory per object, without the eight bytes of the object's name.
    pub(super) bytes_per_object: f64,
    pub(super) fill_seconds: f64,
}

/// How long to wait until the heap has returned its free pages to the system.
const SETTLES: Duration = Duration::from_millis(300);

pub(super) fn run(sizes: &[u64]) -> Result<Vec<DirectoryRow>, LabError> {
    // No home is dropped before all are measured: freed memory would falsify the later measurements.
    let mut homes = Vec::new();
    sizes.iter().map(|objects| row(*objects, &mut homes)).collect()
}

fn row(objects: u64, homes: &mut Vec<DrivenHome<u64>>) -> Result<DirectoryRow, LabError> {
    std::thread::sleep(SETTLES);
    let before = own_memory()?;
    let begun = Instant::now();
    let mut asked: DrivenHome<u64> = DrivenHome::new();
    for object in 0..objects {
        // Each object gets two sharers.
        asked.fetch(object as u32 % NODES, &object);
        asked.fetch((object as u32 + 1) % NODES, &object);
    }
    let fill_seconds = begun.elapsed().as_secs_f64();
    std::thread::sleep(SETTLES);
    let after = own_memory()?;
    let kept = asked.home.objects() as u64;
    if kept != objects {
        return Err(failed("the directory", &format!("it has {kept} of {objects} objects")));
    }
    let bytes_per_object = after.saturating_sub(before) as f64 / objects as f64 - size_of::<u64>() as f64;
    homes.push(asked);
    Ok(DirectoryRow { objects, bytes_per_object, fill_seconds })
}
