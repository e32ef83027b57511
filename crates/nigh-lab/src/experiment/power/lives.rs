//! The lives of machines on one set of disks: load and a power cut, a start, and a look at every key; at last what the
//! store holds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::backup_probe::BackupProbe;
use super::case::{Case, Life};
use super::disk::Options;
use super::machines::Machines;
use super::one_node::{DISK_BYTES, OneNode};
use super::open_uploads::{self, OpenUploads};
use super::three_nodes::ThreeNodes;
use super::write_cache::Syncs;
use crate::LabError;
use crate::experiment::client_calls::Caller;
use crate::experiment::judged_clients::client::Client;
use crate::experiment::judged_clients::history::ReadFinding;
use crate::experiment::judged_clients::recorded_run::{Findings, RecordedRun, until_told};
use crate::experiment::judged_clients::{BUCKET, DETAILS_MAX};
use crate::instrument::parallel::joined;

/// The share of disk space that a node leaves free of objects.
const MARGIN: u64 = DISK_BYTES / 20;

/// Where the kernel writes back all the time.
const WRITTEN_BACK_EVERY: Duration = Duration::from_millis(15);
/// How long a cut waits for the sync that it is to meet.
const SYNC_WITHIN: Duration = Duration::from_millis(500);

/// What a part came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PartOutcome {
    pub(super) totals: Totals,
    pub(super) restarts_ms: Vec<f64>,
    pub(super) violations: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Totals {
    /// Cuts under load.
    pub(super) cuts: u32,
    /// Cuts during the start after one.
    pub(super) cuts_in_starts: u32,
    #[serde(flatten)]
    pub(super) findings: Findings,
    /// Parts of uploads that were acknowledged and whose upload was open during a cut. A loss counts as `lost`.
    pub(super) open_parts: u64,
    pub(super) backups: u64,
    /// Backups that were restored, to a disk whose power was cut then.
    pub(super) restored: u64,
    /// Syncs that the disks were asked for.
    pub(super) syncs: u64,
    /// Sectors that were not synced and are gone.
    pub(super) sectors_forgotten: u64,
}

impl PartOutcome {
    pub(super) fn add(&mut self, other: Self) {
        let (sum, more) = (&mut self.totals, other.totals);
        sum.cuts += more.cuts;
        sum.cuts_in_starts += more.cuts_in_starts;
        sum.findings.add(more.findings);
        sum.open_parts += more.open_parts;
        sum.backups += more.backups;
        sum.restored += more.restored;
        sum.syncs += more.syncs;
        sum.sectors_forgotten += more.sectors_forgotten;
        self.restarts_ms.extend(other.restarts_ms);
        self.violations.extend(other.violations);
        self.violations.truncate(DETAILS_MAX);
    }
}

/// What decides how a part is played.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) nodes: u8,
    pub(super) case: Case,
    pub(super) options: Options,
    pub(super) lying: bool,
    pub(super) seed: u64,
}

pub(super) struct Lives {
    plan: Plan,
    handle: Handle,
    draw: StdRng,
    life: Life,
    run: RecordedRun,
    uploads: OpenUploads,
    backups: BackupProbe,
    totals: Totals,
    restarts_ms: Vec<f64>,
    machines: Box<dyn Machines>,
}

impl Lives {
    /// Starts machines with empty disks in `folder`, and makes the buckets.
    pub(super) fn begin(folder: &Path, plan: Plan, handle: &Handle) -> Result<Self, LabError> {
        let Plan { nodes, case, options, seed, .. } = plan;
        let mut draw = StdRng::seed_from_u64(seed);
        let life = Life::draw(&mut draw, case, MARGIN);
        let machines: Box<dyn Machines> = if nodes == 1 {
            let mut node = OneNode::make(folder, case, seed, options, handle)?;
            node.start(&life)?;
            Box::new(node)
        } else {
            Box::new(ThreeNodes::start(folder, seed, options, handle)?)
        };
        let mut run = RecordedRun::new(seed);
        run.clients.iter_mut().for_each(|client| client.set_habits(case.uploads(), case.has_large_writes()));
        for bucket in [BUCKET, open_uploads::BUCKET] {
            let (door, _) = machines.doors()?.swap_remove(0);
            let mut caller = Caller::new(&door);
            until_told(|| Ok(caller.call(&Method::PUT, &format!("/{bucket}"), &[], b"")?.body()))?;
        }
        Ok(Self {
            plan,
            handle: handle.clone(),
            draw,
            life,
            run,
            uploads: OpenUploads::new(seed),
            backups: BackupProbe::new(folder, seed),
            totals: Totals::default(),
            restarts_ms: Vec::new(),
            machines,
        })
    }

    /// Load until a moment that is drawn, the cut, a start, and a look at all keys.
    pub(super) fn play_and_cut(&mut self, longest: Duration) -> Result<(), LabError> {
        let load = longest.mul_f64(self.draw.random_range(0.05..1.0));
        let doors = self.machines.doors()?;
        self.machines.take_room(&self.life)?;
        if self.plan.lying {
            self.machines.set_syncs(Syncs::Lying)?;
        }
        let stop = AtomicBool::new(false);
        let remembers = self.plan.nodes == 1 && self.life.is_lazy() && self.plan.case != Case::Full;
        let state = self.machines.state().filter(|_| self.plan.case == Case::Backup).map(Path::to_owned);
        let clock = self.run.clock();
        let Life { eager, in_sync, .. } = self.life;
        let has_uploads = self.plan.case == Case::Uploads;
        let (clients, machines) = (&mut self.run.clients, &mut self.machines);
        let (uploads, backups) = (&mut self.uploads, &mut self.backups);
        std::thread::scope(|scope| {
            let stop = &stop;
            let mut threads = Vec::new();
            for (number, client) in clients.iter_mut().enumerate() {
                let (door, fast) = &doors[number % doors.len()];
                threads.push(scope.spawn(move || Client::live(client, (door, fast.as_ref()), remembers, stop)));
            }
            if has_uploads {
                let (door, _) = &doors[0];
                threads.push(scope.spawn(move || uploads.begin_some(door, stop)));
            }
            if let Some(state) = &state {
                threads.push(scope.spawn(move || backups.back_up(state, clock, stop)));
            }
            let begun = Instant::now();
            while let Some(left) = load.checked_sub(begun.elapsed()) {
                if eager {
                    machines.write_back();
                }
                std::thread::sleep(left.min(WRITTEN_BACK_EVERY));
            }
            if in_sync {
                machines.hold_next_sync();
                let begun = Instant::now();
                while !machines.holds_a_sync() && begun.elapsed() < SYNC_WITHIN {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            let cut = machines.cut();
            stop.store(true, Ordering::Relaxed);
            joined(threads).and(cut)
        })?;
        self.totals.cuts += 1;
        self.machines.set_syncs(Syncs::Honest)?;
        self.life = Life::draw(&mut self.draw, self.plan.case, MARGIN);
        while self.draw.random_bool(self.plan.case.cuts_in_start()) {
            // Of starts so far: into the middle of this one, or just behind it.
            let usual = self.restarts_ms.last().copied().unwrap_or(300.0);
            let after = Duration::from_secs_f64(usual / 1000.0).mul_f64(self.draw.random_range(0.0..1.2));
            self.machines.start_and_cut(&self.life, after)?;
            self.totals.cuts_in_starts += 1;
        }
        let took = self.machines.start(&self.life)?;
        self.restarts_ms.push(took.as_secs_f64() * 1000.0);
        self.run.give_up();
        self.look()?;
        if has_uploads {
            let (door, _) = self.machines.doors()?.swap_remove(0);
            self.uploads.complete_all(&door)?;
        }
        self.backups.restore(&mut self.run, &self.handle)
    }

    /// Reads and lists all keys by every door; what the last of them gave.
    fn look(&mut self) -> Result<Vec<ReadFinding>, LabError> {
        let mut seen = Vec::new();
        for (number, (door, _)) in self.machines.doors()?.iter().enumerate() {
            seen = self.run.look(door, &format!("cut {} at door {}", self.totals.cuts, number + 1))?;
        }
        Ok(seen)
    }

    /// Waits until the store has everything, and compares. What all lives came to.
    pub(super) fn end(mut self) -> Result<PartOutcome, LabError> {
        // Nobody writes any more: what Nigh gives now is what must come to the store.
        let through_nigh = self.look()?;
        let behind = self.machines.settle(&through_nigh)?;
        let differ = self.run.compare(&behind, through_nigh)?;
        let (syncs, sectors_forgotten) = self.machines.counts();
        let (mut findings, mut violations) = self.run.judge(differ);
        let OpenUploads { parts: open_parts, lost, .. } = self.uploads;
        findings.lost += lost.len() as u64;
        violations.extend(lost);
        violations.truncate(DETAILS_MAX);
        let BackupProbe { made: backups, restored, .. } = self.backups;
        let totals = Totals { findings, open_parts, backups, restored, syncs, sectors_forgotten, ..self.totals };
        Ok(PartOutcome { totals, restarts_ms: self.restarts_ms, violations })
    }
}
