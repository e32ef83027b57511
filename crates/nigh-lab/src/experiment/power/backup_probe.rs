//! A backup made under load, restored to a disk whose power is cut the moment that `nigh restore` is done.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Handle;

use super::case::{Case, Life};
use super::disk::Options;
use super::machines::Machines;
use super::one_node::OneNode;
use crate::LabError;
use crate::experiment::judged_clients::history::Moment;
use crate::experiment::judged_clients::recorded_run::RecordedRun;
use crate::instrument::error::Tried;
use crate::instrument::programs;

const PAUSE: Duration = Duration::from_millis(50);

/// An archive, and when it was made.
struct Backup {
    archive: PathBuf,
    begin: Moment,
    end: Moment,
}

pub(super) struct BackupProbe {
    folder: PathBuf,
    draw: StdRng,
    newest: Option<Backup>,
    /// Backups that were completed,
    pub(super) made: u64,
    /// and restored.
    pub(super) restored: u64,
}

impl BackupProbe {
    /// Archives and restored nodes are in `folder`, apart from the disk.
    pub(super) fn new(folder: &Path, seed: u64) -> Self {
        let draw = StdRng::seed_from_u64(seed ^ 0xb4);
        Self { folder: folder.to_owned(), draw, newest: None, made: 0, restored: 0 }
    }

    /// Makes backups of the node with this state, one after another, until `stop`. One during which the power is cut is
    /// none. `now` tells the clients' time.
    pub(super) fn back_up(
        &mut self,
        state: &Path,
        now: impl Fn() -> Moment,
        stop: &AtomicBool,
    ) -> Result<(), LabError> {
        while !stop.load(Ordering::Relaxed) {
            let archive = self.folder.join(format!("backup-{}.tar", self.made));
            let begin = now();
            let done = nigh(state, &["backup", &archive.to_string_lossy(), "--objects"])?;
            if done.status.success() {
                self.made += 1;
                if let Some(older) = self.newest.replace(Backup { archive, begin, end: now() }) {
                    fs::remove_file(&older.archive).at(&older.archive)?;
                }
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Restores the newest backup to an empty disk, cuts the power, starts a node there and looks at what it has. `run`
    /// is told what must be in it.
    pub(super) fn restore(&mut self, run: &mut RecordedRun, handle: &Handle) -> Result<(), LabError> {
        let Some(Backup { archive, begin, end }) = self.newest.take() else { return Ok(()) };
        let folder = self.folder.join(format!("restored-{}", self.restored));
        fs::create_dir(&folder).at(&folder)?;
        let (seed, options) = (self.draw.random(), [Options::Usual, Options::Bare][self.draw.random_range(0..2)]);
        let mut node = OneNode::make(&folder, Case::Backup, seed, options, handle)?;
        let life = Life::draw(&mut self.draw, Case::Backup, 0);
        node.power_on(&life)?;
        let text = archive.to_string_lossy();
        let state = folder.join("state");
        let done = nigh(&state, &["restore", &text])?;
        if !done.status.success() {
            let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(LabError::Node(format!("a backup made under load cannot be restored: {why}")));
        }
        node.cut()?;
        node.start(&life)?;
        let (door, _) = node.doors()?.swap_remove(0);
        run.look_at_backup(&door, (begin, end))?;
        self.restored += 1;
        drop(node);
        fs::remove_dir_all(&folder).at(&folder)?;
        fs::remove_file(&archive).at(&archive)
    }
}

/// Runs a command of `nigh` about the node with this state.
fn nigh(state: &Path, arguments: &[&str]) -> Result<Output, LabError> {
    Command::new(programs::nigh()?).arg("--state").arg(state).args(arguments).output().of_node()
}
