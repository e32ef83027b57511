//! A blank sandbox: isolation without a function.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use nigh_schedule::activation::Steps;
use nigh_schedule::memory::grant::Grant;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::control::Listeners;
use super::late_mount::MountNamespace;
use super::outbound::OutboundLink;
use super::processes::SandboxProcesses;
use super::slots::Slot;
use super::step_failure::{START_PATIENCE, StepFailure};
use crate::cgroup::Group;

/// The init counts against the sandbox's limit of processes.
const INIT_PROCESSES: u32 = 1;
/// The names of the cgroups in use. A sweep leaves these groups alone.
#[derive(Debug, Default)]
pub(super) struct GroupsInUse(pub(super) Mutex<HashSet<String>>);

/// A sandbox's user and the name of its cgroup, reserved until the sandbox ends.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) slot: Slot,
    pub(super) name: String,
    pub(super) living: Arc<GroupsInUse>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.living.0.lock().remove(&self.name);
    }
}

/// A blank sandbox. Dropping it ends it.
#[derive(Debug)]
pub(super) struct BlankSandbox {
    pub(super) processes: SandboxProcesses<()>,
    pub(super) held: GroupGuard,
    /// Where the function's folders are mounted from outside; none if the init mounts them.
    pub(super) inside: Option<MountNamespace>,
}

/// A sandbox that runs its command.
pub(super) struct LaunchedSandbox {
    pub(super) processes: SandboxProcesses<Listeners>,
    pub(super) group: Group,
    pub(super) lease: Lease,
    pub(super) network: Option<OutboundLink>,
    pub(super) steps: Steps,
}

/// Ends the cgroup of a sandbox that is not completed, and then frees its lease.
#[derive(Debug)]
pub(super) struct GroupGuard(pub(super) Option<(Group, Lease)>);

impl GroupGuard {
    pub(super) fn lease(&self) -> Result<&Lease, StepFailure> {
        self.0.as_ref().map(|(_, lease)| lease).ok_or_else(|| StepFailure::at("start it", "it has ended"))
    }

    pub(super) fn bound(&self, grant: Grant, pids_max: u32) -> Result<(), StepFailure> {
        let Some((group, _)) = &self.0 else { return Err(StepFailure::at("start it", "it has ended")) };
        group.bound(grant, pids_max + INIT_PROCESSES).map_err(|error| StepFailure::at("limit its cgroup", error))
    }

    /// The files that a process writes its id to in order to join the cgroup.
    pub(super) fn join_files(&self) -> Vec<PathBuf> {
        self.0.iter().flat_map(|(group, _)| group.join_files()).collect()
    }

    pub(super) fn made(
        mut self,
        processes: SandboxProcesses<Listeners>,
        steps: Steps,
    ) -> Result<LaunchedSandbox, StepFailure> {
        let (group, lease) = self.0.take().ok_or_else(|| StepFailure::at("start it", "it has ended"))?;
        Ok(LaunchedSandbox { processes, group, lease, network: None, steps })
    }

    /// Ends the group, if it still exists.
    pub(super) fn end(&mut self) {
        let Some((group, lease)) = self.0.take() else { return };
        group.end();
        drop(lease);
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        if self.0.is_none() {
            return;
        }
        let mut held = Self(self.0.take());
        // A separate thread, because the async runtime may be shutting down. If no thread starts, the closure is
        // dropped and the group's own drop ends it.
        let _no_thread = std::thread::Builder::new().name("end-blank".to_owned()).spawn(move || held.end());
    }
}

impl BlankSandbox {
    pub(super) fn has_ended(&self) -> bool {
        self.processes.control.has_ended()
    }

    /// Ends the sandbox and removes its cgroup before it returns.
    pub(super) async fn end(self) {
        let Self { processes, mut held, inside: _ } = self;
        drop(processes.control);
        let mut keeper = processes.keeper;
        let _gone = timeout(START_PATIENCE, keeper.wait()).await;
        let _ended = tokio::task::spawn_blocking(move || held.end()).await;
    }
}
