//! Readers and writers beside Nigh: who reads the store finds what Nigh has acknowledged, and who reads Nigh what others
//! have written to the store.
//!
//! For each store and write mode: clients of a node and clients of the store behind it write, delete and read the same
//! keys, a few at a time, then others; at the end nothing waits, and each key is read on both sides. A read is *stale* if
//! it is older than what had been acknowledged, to anybody, before it began. An outside write is *lost* if the store ends
//! with something older and nothing of it is kept apart. Each row says what guards Nigh's copies, and `promises` which
//! counts must be zero then; rows of the control have no guard, and must show that the experiment finds what it looks for.

mod clients;
mod event_relay;
mod promises;
mod race;
mod verdict;
mod world;

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use self::verdict::Verdict;
use self::world::World;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::peer::PeerError;
use crate::instrument::report_text::tell;

const BUCKET: &str = "outside";
/// How often a control is raced until it finds something: in seconds of a slow store few reads meet a write of others.
const CONTROL_TRIES: u64 = 5;

#[derive(Clone, Debug, Args)]
pub(super) struct OutsideArgs {
    /// How long Nigh and others write and read with each pair of store and write mode, in seconds
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    seconds: f64,
    /// Only the rows whose name contains all of these words: `shadow`, `minio events`; separate several with commas
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    only: Vec<String>,
    /// The random seed, which decides what clients do
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Store {
    Swift,
    Minio,
    Versitygw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Through,
    Shadow,
    Lazy,
    Ephemeral,
}

/// What keeps Nigh's copies from being older than what others wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Guard {
    /// Swift's middleware tells of each write before and after it.
    Middleware,
    /// The service sends an event before it answers the writer. Of one that cannot, a relay before it does.
    Events,
    /// The bucket's policy has Nigh ask the store before each hit.
    Freshness,
    /// Nothing does. Nigh knows that others write the bucket, and overwrites nothing of theirs.
    Shared,
    /// Nothing does, and Nigh takes the bucket for its own: the control.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Setting {
    store: Store,
    mode: Mode,
    guard: Guard,
}

/// All that is raced; the control last.
const SETTINGS: [Setting; 17] = {
    const fn of(store: Store, mode: Mode, guard: Guard) -> Setting {
        Setting { store, mode, guard }
    }
    [
        of(Store::Swift, Mode::Through, Guard::Middleware),
        of(Store::Swift, Mode::Shadow, Guard::Middleware),
        of(Store::Swift, Mode::Lazy, Guard::Middleware),
        of(Store::Minio, Mode::Through, Guard::Events),
        of(Store::Minio, Mode::Through, Guard::Freshness),
        of(Store::Minio, Mode::Lazy, Guard::Events),
        of(Store::Minio, Mode::Lazy, Guard::Freshness),
        of(Store::Minio, Mode::Lazy, Guard::Shared),
        of(Store::Versitygw, Mode::Through, Guard::Events),
        of(Store::Versitygw, Mode::Through, Guard::Freshness),
        of(Store::Versitygw, Mode::Lazy, Guard::Events),
        of(Store::Versitygw, Mode::Lazy, Guard::Freshness),
        of(Store::Versitygw, Mode::Lazy, Guard::Shared),
        of(Store::Versitygw, Mode::Ephemeral, Guard::Shared),
        of(Store::Swift, Mode::Through, Guard::None),
        of(Store::Minio, Mode::Lazy, Guard::None),
        of(Store::Versitygw, Mode::Lazy, Guard::None),
    ]
};

impl Setting {
    fn name(self) -> String {
        format!("{:?} {:?} {:?}", self.store, self.mode, self.guard).to_lowercase()
    }
}

#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    setting: Setting,
    /// Reads that were checked, on both sides.
    reads: u64,
    /// Those of them that are older than what had been acknowledged.
    stale_reads: u64,
    #[serde(flatten)]
    verdict: Verdict,
    nigh_writes: u64,
    outside_writes: u64,
    /// Versions of Nigh's that are kept under another key, as others had written theirs.
    kept_apart: u64,
    refused: u64,
    /// Why the first was.
    refusal: Option<String>,
    /// The first that is wrong.
    first: Option<String>,
}

#[derive(Debug, Serialize)]
struct OutsideReport {
    machine: Machine,
    seconds: f64,
    seed: u64,
    rows: Vec<Row>,
    /// Rows that cannot be had here, and why.
    left_out: Vec<String>,
}

impl OutsideArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        if !(0.5..=600.0).contains(&self.seconds) {
            let reason = format!("{} s: expected 0.5 to 600", self.seconds);
            return Err(LabError::Request { what: "--seconds".to_owned(), reason });
        }
        let handle = tokio::runtime::Handle::current();
        let played = tokio::task::spawn_blocking(move || self.play(machine, &handle));
        let report = played.await.map_err(|error| LabError::Node(format!("the run ended: {error}")))??;
        tell(&report, json)?;
        report.check()
    }

    fn play(&self, machine: Machine, handle: &tokio::runtime::Handle) -> Result<OutsideReport, LabError> {
        let (mut rows, mut left_out) = (Vec::new(), Vec::new());
        for setting in SETTINGS {
            let name = setting.name();
            let is_meant =
                |words: &String| words.split_whitespace().all(|word| name.split(' ').any(|part| part == word));
            if !self.only.is_empty() && !self.only.iter().any(is_meant) {
                continue;
            }
            match self.row(setting, handle) {
                Ok(row) => rows.push(row),
                Err(LabError::Peer(error @ PeerError::NotInstalled { .. })) => {
                    left_out.push(format!("{name}: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        if rows.is_empty() {
            let hint = "run `make peers` for the stores; `--only` takes words of: swift minio versitygw through shadow lazy \
                        ephemeral middleware events freshness shared none";
            return Err(LabError::Missing { missing: format!("a row to race ({})", left_out.join("; ")), hint });
        }
        Ok(OutsideReport { machine, seconds: self.seconds, seed: self.seed, rows, left_out })
    }

    /// Races with a store and a node of their own. A control that found nothing is raced again, with other draws.
    fn row(&self, setting: Setting, handle: &tokio::runtime::Handle) -> Result<Row, LabError> {
        let mut tries = 0;
        loop {
            let folder = tempfile::tempdir().at(std::env::temp_dir())?;
            let world = World::start(setting, folder.path(), handle)?;
            let history = race::race(&world, Duration::from_secs_f64(self.seconds), self.seed.wrapping_add(tries))?;
            let row = Row::new(setting, &history);
            tries += 1;
            if !row.is_blind() || tries == CONTROL_TRIES {
                return Ok(row);
            }
        }
    }
}

impl Row {
    fn new(setting: Setting, history: &race::History) -> Self {
        let verdict = verdict::check(&history.writes, &history.reads, &history.kept_apart);
        let written = |nigh: bool| {
            let acknowledged =
                history.writes.iter().filter(|write| write.acknowledged.is_some() && write.by_nigh == nigh);
            acknowledged.count() as u64
        };
        Self {
            setting,
            reads: history.reads.len() as u64,
            stale_reads: verdict.stale_outside_reads + verdict.stale_nigh_reads,
            nigh_writes: written(true),
            outside_writes: written(false),
            kept_apart: history.kept_apart.len() as u64,
            refused: history.refused,
            refusal: history.refusal.clone(),
            first: verdict.lost_first.clone().or_else(|| verdict.first.clone()),
            verdict,
        }
    }

    /// It is a control, and found nothing.
    fn is_blind(&self) -> bool {
        self.setting.guard == Guard::None && self.stale_reads + self.verdict.lost_outside_writes == 0
    }
}

impl OutsideReport {
    /// Refuses broken promises, and a control that found nothing.
    fn check(&self) -> Result<(), LabError> {
        let mut broken = Vec::new();
        for row in &self.rows {
            let name = row.setting.name();
            for (what, count) in promises::broken(row.setting, &row.verdict) {
                broken.push(format!("{name}: {count} {what}"));
            }
            if row.is_blind() {
                broken.push(format!("{name}: the control found nothing"));
            }
        }
        if broken.is_empty() { Ok(()) } else { Err(LabError::Found(broken.join("; "))) }
    }
}
