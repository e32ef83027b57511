//! The journal beside the least that a durable write can cost here: `pwrite` and `fdatasync` on a preallocated, zeroed
//! file of the same file system, turn about.
//!
//! A body of up to 64 KiB goes inline, a larger one in pieces of 1 MiB as a door would stage it while it arrives. With
//! many writers the bare loop writes the batches that the journal wrote in the round before it: as many, as large.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use nigh_engine::journal::OnDamage;
use nigh_engine::{Journal, JournalSettings};
use nigh_terms::{ByteSize, Epoch};
use serde::Serialize;

use super::commits::{TOGETHER_BYTES, WRITERS, commit};
use super::{median, process_time, us};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::made_up::failed;
use crate::instrument::stats::Sample;

const BARE_BYTES: u64 = 64 << 20;
/// Pieces of a body on their way at a time, while the next arrives.
const STAGED_AT_ONCE: usize = 3;
/// Sizes of bodies with one writer, and commits of each in a round.
const ALONE: [(&str, usize, usize); 4] =
    [("1kib", 1 << 10, 60), ("64kib", 64 << 10, 40), ("1mib", 1 << 20, 12), ("10mib", 10 << 20, 4)];

#[derive(Clone, Debug, Args)]
pub(super) struct JournalLength {
    /// How many rounds each measurement has; the journal and the bare loop take turns
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// How long each round with many writers lasts, in seconds
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct JournalRow {
    bytes: usize,
    writers: usize,
    p50_us: f64,
    p99_us: f64,
    /// Processor time of the whole process for each commit, microseconds.
    cpu_us: f64,
    /// A bare write and sync of the same bytes; with many writers, of a batch.
    bare_p50_us: f64,
    /// Median of the rounds' ratios: of medians, or with many writers of commits a second.
    ratio: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct JournalReport {
    machine: Machine,
    rows: Vec<JournalRow>,
    summary: BTreeMap<String, f64>,
}

/// A bare loop's file: zeroed, written over and over from its begin.
struct BareFile {
    file: File,
    at: u64,
}

impl BareFile {
    fn make(path: &Path) -> Result<Self, LabError> {
        let made = (|| {
            let file = File::options().read(true).write(true).create_new(true).open(path)?;
            let zeroes = vec![0; 1 << 20];
            for at in (0..BARE_BYTES).step_by(zeroes.len()) {
                file.write_all_at(&zeroes, at)?;
            }
            file.sync_all()?;
            Ok(Self { file, at: 0 })
        })();
        made.map_err(|error: std::io::Error| LabError::file(path, &error))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<Duration, LabError> {
        if self.at + bytes.len() as u64 > BARE_BYTES {
            self.at = 0;
        }
        let begun = Instant::now();
        let written = self.file.write_all_at(bytes, self.at).and_then(|()| self.file.sync_data());
        let took = begun.elapsed();
        written.map_err(|error| failed("a bare write", &error))?;
        self.at += bytes.len() as u64;
        Ok(took)
    }
}

pub(super) async fn run(length: &JournalLength, machine: Machine) -> Result<JournalReport, LabError> {
    let folder = tempfile::tempdir().at(std::env::temp_dir())?;
    let settings = JournalSettings {
        limit: ByteSize::mib(512),
        segment: ByteSize::mib(64),
        epoch_min: Epoch(1),
        on_damage: OnDamage::Refuse,
    };
    let (journal, _) = Journal::open(&folder.path().join("journal"), &settings)
        .map_err(|error| failed("opening the journal", &error))?;
    let journal = Arc::new(journal);
    let mut bare = BareFile::make(&folder.path().join("bare"))?;
    let mut request = 0;
    let (mut rows, mut summary) = (Vec::new(), BTreeMap::new());
    for (name, bytes, commits) in ALONE {
        let row = alone(&journal, &mut bare, bytes, commits, length.rounds.max(1), &mut request).await?;
        summary.insert(format!("ratio_{name}"), row.ratio);
        rows.push(row);
    }
    let (row, commits_per_fdatasync) = together(&journal, &mut bare, length, &mut request).await?;
    summary.insert("commits_per_fdatasync".to_owned(), commits_per_fdatasync);
    summary.insert("throughput_of_bare".to_owned(), row.ratio);
    rows.push(row);
    Ok(JournalReport { machine, rows, summary })
}

/// One writer: a commit and a bare write in turn, so that both meet the same weather.
async fn alone(
    journal: &Arc<Journal>,
    bare: &mut BareFile,
    bytes: usize,
    commits: usize,
    rounds: usize,
    request: &mut u128,
) -> Result<JournalRow, LabError> {
    let body = Bytes::from(vec![b'x'; bytes]);
    let (mut own, mut cpu_us, mut other, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for _ in 0..commits {
            *request += 1;
            let before = process_time();
            here.push(us(commit(&**journal, *request, &body, STAGED_AT_ONCE).await?));
            cpu_us.push(us(process_time().saturating_sub(before)));
            there.push(us(bare.write(&body)?));
        }
        ratios.push(median(here.clone()) / median(there.clone()));
        own.extend(here);
        other.extend(there);
    }
    Ok(row(bytes, 1, own, cpu_us, other, ratios))
}

fn row(bytes: usize, writers: usize, own: Vec<f64>, cpu_us: Vec<f64>, bare: Vec<f64>, ratios: Vec<f64>) -> JournalRow {
    let (own, cpu_us, bare_p50_us, ratio) = (Sample::new(own), median(cpu_us), median(bare), median(ratios));
    JournalRow { bytes, writers, p50_us: own.median(), p99_us: own.percentile(0.99), cpu_us, bare_p50_us, ratio }
}

/// Many writers, each with one commit at a time; then the same batches bare.
async fn together(
    journal: &Arc<Journal>,
    bare: &mut BareFile,
    length: &JournalLength,
    request: &mut u128,
) -> Result<(JournalRow, f64), LabError> {
    let body = Bytes::from(vec![b'x'; TOGETHER_BYTES]);
    let round = Duration::from_secs_f64(length.seconds.clamp(0.05, 60.0));
    let (mut own, mut cpu_us, mut batches_us) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ratios, mut batch_sizes) = (Vec::new(), Vec::new());
    for _ in 0..length.rounds.max(1) {
        let (before, cpu, begun) = (journal.usage(), process_time(), Instant::now());
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS as u128 {
            let (journal, body, first) = (Arc::clone(journal), body.clone(), *request + (writer << 64));
            writers.spawn(async move {
                let mut latencies = Vec::new();
                while begun.elapsed() < round {
                    let next = first + latencies.len() as u128 + 1;
                    latencies.push(us(commit(&*journal, next, &body, STAGED_AT_ONCE).await?));
                }
                Ok::<_, LabError>(latencies)
            });
        }
        let mut commits = 0;
        for latencies in writers.join_all().await {
            let latencies = latencies?;
            commits += latencies.len();
            own.extend(latencies);
        }
        let (took, after) = (begun.elapsed(), journal.usage());
        *request += commits as u128;
        cpu_us.push(us(process_time().saturating_sub(cpu)) / commits as f64);
        let syncs = (after.syncs - before.syncs).max(1) as usize;
        batch_sizes.push(commits as f64 / syncs as f64);

        let batch = vec![b'x'; TOGETHER_BYTES * commits / syncs];
        let bare_begun = Instant::now();
        for _ in 0..syncs {
            batches_us.push(us(bare.write(&batch)?));
        }
        ratios.push(bare_begun.elapsed().as_secs_f64() / took.as_secs_f64());
    }
    Ok((row(TOGETHER_BYTES, WRITERS, own, cpu_us, batches_us, ratios), median(batch_sizes)))
}
