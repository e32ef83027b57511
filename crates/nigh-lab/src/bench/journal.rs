//! The journal beside the least that a durable write can cost here: `pwrite` and `fdatasync` on a preallocated, zeroed
//! file of the same file system, turn about.
//!
//! A body of up to 64 KiB goes inline, a larger one in pieces of 1 MiB as a door would stage it while it arrives. With
//! many writers the bare loop writes the batches that the journal wrote in the round before it: as many, as large.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use nigh_engine::journal::OnDamage;
use nigh_engine::{
    Body, Change, INLINE_MAX_BYTES, Journal, JournalSettings, Ledger as _, LedgerError, PIECE_MAX_BYTES, Record,
    RequestId,
};
use nigh_terms::{BucketName, ByteSize, Epoch, Namespace, ObjectKey, ShardId};
use serde::Serialize;

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::stats::Sample;
use crate::instrument::table::table_of;

const SHARD: ShardId = ShardId(0);
/// What a writer says of an object, bytes: about what its metadata takes.
const ABOUT_BYTES: usize = 200;
/// The bare loop's file.
const BARE_BYTES: u64 = 64 << 20;
/// Pieces of a body on their way at a time, while the next arrives.
const STAGED_AT_ONCE: usize = 3;
/// Sizes of bodies with one writer, and commits of each in a round.
const ALONE: [(&str, usize, usize); 4] =
    [("1kib", 1 << 10, 60), ("64kib", 64 << 10, 40), ("1mib", 1 << 20, 12), ("10mib", 10 << 20, 4)];
/// Many writers, and the bytes of each body.
const WRITERS: usize = 64;
const TOGETHER_BYTES: usize = 1 << 10;

/// How long, and where.
#[derive(Clone, Debug, Args)]
pub(super) struct JournalLength {
    /// Rounds of each measurement; the journal and the bare loop take turns
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Seconds of each round with many writers
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// A folder on the disk to measure [default: the folder of temporary files]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// One figure.
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

/// What the bench measures.
#[derive(Debug, Serialize)]
pub(super) struct JournalReport {
    machine: Machine,
    rows: Vec<JournalRow>,
    summary: BTreeMap<String, f64>,
}

/// One side's measurements.
#[derive(Default)]
struct Side {
    latencies_us: Vec<f64>,
    cpu_us: Vec<f64>,
}

fn failed(what: &str, reason: &dyn std::fmt::Display) -> LabError {
    LabError::Request { what: what.to_owned(), reason: reason.to_string() }
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

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn record(request: u128) -> Result<Record, LabError> {
    let bad = |error| failed("a name", &error);
    Ok(Record {
        request: RequestId(request),
        namespace: Namespace::new("bench").map_err(bad)?,
        bucket: BucketName::new("bench-bucket").map_err(bad)?,
        key: ObjectKey::new(&format!("object-{}", request % 997)).map_err(bad)?,
        change: Change::Put { about: Bytes::from(vec![b'a'; ABOUT_BYTES]) },
    })
}

/// One durable write of `body`, and the news that the store has it.
async fn commit(journal: &Journal, request: u128, body: &Bytes) -> Result<Duration, LabError> {
    let record = record(request)?;
    let refused = |error: LedgerError| failed("a commit", &error);
    let begun = Instant::now();
    let body = if body.len() <= INLINE_MAX_BYTES {
        Body::Inline(body.clone())
    } else {
        let pieces = (0..body.len()).step_by(PIECE_MAX_BYTES).map(|at| {
            let piece = body.slice(at..body.len().min(at + PIECE_MAX_BYTES));
            journal.stage(SHARD, piece)
        });
        Body::Staged(stream::iter(pieces).buffered(STAGED_AT_ONCE).try_collect().await.map_err(refused)?)
    };
    let appended = journal.append(SHARD, record, body).await.map_err(refused)?;
    let took = begun.elapsed();
    journal.stored(SHARD, appended.version).await.map_err(refused)?;
    Ok(took)
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub(super) async fn run(length: &JournalLength, machine: Machine) -> Result<JournalReport, LabError> {
    let parent = length.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::tempdir_in(&parent).at(&parent)?;
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
    let (mut own, mut other, mut ratios) = (Side::default(), Side::default(), Vec::new());
    for _ in 0..rounds {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for _ in 0..commits {
            *request += 1;
            let before = cpu_time();
            here.push(us(commit(journal, *request, &body).await?));
            own.cpu_us.push(us(cpu_time().saturating_sub(before)));
            there.push(us(bare.write(&body)?));
        }
        ratios.push(Sample::new(here.clone()).median() / Sample::new(there.clone()).median());
        own.latencies_us.extend(here);
        other.latencies_us.extend(there);
    }
    let (own, latencies) = (Sample::new(own.latencies_us), Sample::new(own.cpu_us));
    Ok(JournalRow {
        bytes,
        writers: 1,
        p50_us: own.median(),
        p99_us: own.percentile(0.99),
        cpu_us: latencies.median(),
        bare_p50_us: Sample::new(other.latencies_us).median(),
        ratio: Sample::new(ratios).median(),
    })
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
    let (mut own, mut batches_us, mut ratios, mut batch_sizes) = (Side::default(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..length.rounds.max(1) {
        let (before, cpu, begun) = (journal.usage(), cpu_time(), Instant::now());
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS as u128 {
            let (journal, body, first) = (Arc::clone(journal), body.clone(), *request + (writer << 64));
            writers.spawn(async move {
                let mut latencies = Vec::new();
                while begun.elapsed() < round {
                    let next = first + latencies.len() as u128 + 1;
                    latencies.push(us(commit(&journal, next, &body).await?));
                }
                Ok::<_, LabError>(latencies)
            });
        }
        let mut commits = 0;
        for latencies in writers.join_all().await {
            let latencies = latencies?;
            commits += latencies.len();
            own.latencies_us.extend(latencies);
        }
        let (took, after) = (begun.elapsed(), journal.usage());
        *request += commits as u128;
        own.cpu_us.push(us(cpu_time().saturating_sub(cpu)) / commits as f64);
        let syncs = (after.syncs - before.syncs).max(1) as usize;
        batch_sizes.push(commits as f64 / syncs as f64);

        let batch = vec![b'x'; TOGETHER_BYTES * commits / syncs];
        let bare_begun = Instant::now();
        for _ in 0..syncs {
            batches_us.push(us(bare.write(&batch)?));
        }
        ratios.push(bare_begun.elapsed().as_secs_f64() / took.as_secs_f64());
    }
    let latencies = Sample::new(own.latencies_us);
    let row = JournalRow {
        bytes: TOGETHER_BYTES,
        writers: WRITERS,
        p50_us: latencies.median(),
        p99_us: latencies.percentile(0.99),
        cpu_us: Sample::new(own.cpu_us).median(),
        bare_p50_us: Sample::new(batches_us).median(),
        ratio: Sample::new(ratios).median(),
    };
    Ok((row, Sample::new(batch_sizes).median()))
}

pub(super) fn text(report: &JournalReport) -> String {
    let mut table = table_of("bytes | writers | p50 us | p99 us | cpu us | bare p50 us | ratio");
    for row in &report.rows {
        let figures = [row.p50_us, row.p99_us, row.cpu_us, row.bare_p50_us].map(|value| format!("{value:.0}"));
        let mut cells = vec![row.bytes.to_string(), row.writers.to_string()];
        cells.extend(figures);
        cells.push(format!("{:.2}", row.ratio));
        table.add_row(cells);
    }
    let machine = &report.machine;
    let summary: Vec<String> = report.summary.iter().map(|(name, value)| format!("{name} {value:.2}")).collect();
    format!(
        "{table}\n{}\n{} x {}, load {}, Linux {}, {}",
        summary.join(", "),
        machine.cores,
        machine.cpu,
        machine.load,
        machine.kernel,
        machine.date
    )
}
