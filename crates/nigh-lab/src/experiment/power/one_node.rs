//! One node with its state, journal and directory store on one disk.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nigh_node::state_folder::StatePaths;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Handle;

use super::case::{Case, Life};
use super::disk::{Disk, Options};
use super::machines::Machines;
use super::older_format::turn_back;
use super::write_cache::Syncs;
use crate::LabError;
use crate::experiment::client_calls::Door;
use crate::experiment::judged_clients::fast_calls::FastDoor;
use crate::experiment::judged_clients::history::ReadFinding;
use crate::experiment::judged_clients::recorded_run::PUSHED_WITHIN;
use crate::experiment::judged_clients::store_behind::BackingStore;
use crate::instrument::error::Tried;
use crate::instrument::node_under_test::{NodeUnderTest, configure, set};
use crate::instrument::platform::until_pushed;
use crate::instrument::programs;

pub(super) const DISK_BYTES: u64 = 512 << 20;
/// Small, so that objects leave the cache.
const CACHE: &str = "16 MiB";

pub(super) struct OneNode {
    folder: PathBuf,
    state: PathBuf,
    case: Case,
    handle: Handle,
    /// None while there is no power.
    node: Option<NodeUnderTest>,
    /// After the node.
    disk: Disk,
}

impl OneNode {
    /// An empty disk in `folder`; its power is off.
    pub(super) fn make(
        folder: &Path,
        case: Case,
        seed: u64,
        options: Options,
        handle: &Handle,
    ) -> Result<Self, LabError> {
        let state = folder.join("state");
        let disk = Disk::make(folder, "disk", &state, DISK_BYTES, seed, options)?;
        Ok(Self { folder: folder.to_owned(), state, case, handle: handle.clone(), node: None, disk })
    }

    fn configure(&self, life: &Life) -> Result<(), LabError> {
        let mut settings = toml::Table::new();
        let delay = format!("{} ms", life.delay_ms);
        set(&mut settings, &[("writes.mode", life.mode), ("writes.delay", &delay), ("cache.bytes", CACHE)]);
        // The cache is to stay that small, and no sandbox is made that nobody asks for.
        set(&mut settings, &[("memory.grants", "off"), ("functions.prewarm", "off"), ("llc.policy", "off")]);
        set(&mut settings, self.case.settings());
        configure(&self.folder, &settings)
    }

    /// Mounts the disk; no process runs.
    pub(super) fn power_on(&mut self, life: &Life) -> Result<(), LabError> {
        self.disk.power_on()?;
        if life.room_before_start {
            self.disk.unfill()?;
        }
        if self.case == Case::Upgrade {
            turn_back(&StatePaths::new(&self.state).database())?;
        }
        self.configure(life)
    }

    fn node(&self) -> Result<&NodeUnderTest, LabError> {
        self.node.as_ref().ok_or_else(|| LabError::Node("it does not run".to_owned()))
    }
}

impl Machines for OneNode {
    fn doors(&self) -> Result<Vec<(Door, Option<FastDoor>)>, LabError> {
        let node = self.node()?;
        let door = Door { server: node.s3()?, signer: node.signer("s3"), handle: self.handle.clone() };
        let fast = node.endpoints.fast_socket.clone().map(|socket| FastDoor { socket, access: node.s3_access() });
        Ok(vec![(door, fast)])
    }

    fn start(&mut self, life: &Life) -> Result<Duration, LabError> {
        self.power_on(life)?;
        let began = Instant::now();
        let started = match NodeUnderTest::start_again(&self.folder) {
            // Without room it may refuse to start; it must start once there is some.
            Err(LabError::Node(_)) if self.case == Case::Full && !life.room_before_start => {
                self.disk.unfill()?;
                NodeUnderTest::start_again(&self.folder)
            }
            started => started,
        };
        self.node = Some(started?);
        let took = began.elapsed();
        self.disk.unfill()?;
        Ok(took)
    }

    fn start_and_cut(&mut self, life: &Life, after: Duration) -> Result<(), LabError> {
        self.power_on(life)?;
        let log = self.folder.join("nigh.log");
        let output = File::create(&log).at(&log)?;
        let mut command = Command::new(programs::nigh()?);
        command.arg("up").arg("--config").arg(self.folder.join("nigh.toml")).stdin(Stdio::null());
        let mut starting = Starting(command.stdout(output.try_clone().at(&log)?).stderr(output).spawn().of_node()?);
        std::thread::sleep(after);
        kill(starting.0.id());
        self.disk.power_off();
        starting.end();
        self.disk.forget()
    }

    fn cut(&mut self) -> Result<(), LabError> {
        let node = self.node.take();
        // Nothing that it does after this moment is seen by anybody; then the disk, before the kernel writes more.
        if let Some(node) = &node {
            kill(node.pid());
        }
        self.disk.power_off();
        if let Some(mut node) = node {
            node.kill();
        }
        self.disk.forget()
    }

    fn set_syncs(&mut self, syncs: Syncs) -> Result<(), LabError> {
        self.disk.set_syncs(syncs)
    }

    fn write_back(&self) {
        self.disk.write_back();
    }

    fn hold_next_sync(&self) {
        self.disk.hold_next_sync();
    }

    fn holds_a_sync(&self) -> bool {
        self.disk.holds_a_sync()
    }

    fn take_room(&mut self, life: &Life) -> Result<(), LabError> {
        life.room.map_or(Ok(()), |left| self.disk.fill(left))
    }

    fn state(&self) -> Option<&Path> {
        Some(&self.state)
    }

    fn counts(&self) -> (u64, u64) {
        self.disk.counts()
    }

    fn settle(&mut self, _: &[ReadFinding]) -> Result<BackingStore, LabError> {
        let endpoints = &self.node()?.endpoints;
        self.handle.block_on(until_pushed(&endpoints.admin_socket, PUSHED_WITHIN))?;
        let behind = BackingStore::directory(&self.state, endpoints.namespace.as_str());
        drop(self.node.take());
        Ok(behind)
    }
}

/// Sends SIGKILL and does not wait.
pub(super) fn kill(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        // It fails only for a process that has ended.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// A node that is killed during its start.
struct Starting(Child);

impl Starting {
    fn end(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.end();
    }
}
