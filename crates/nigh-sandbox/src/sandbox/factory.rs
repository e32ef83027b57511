//! Makes sandboxes: blank ones up to the point where the function must be known, kept ready in a small stock, and
//! functions' sandboxes from them.
//!
//! The slowest step of a start is moving a process into its cgroups: on an idle tree the kernel waits 5 to 20 ms for an
//! RCU grace period. A blank sandbox has done that step and has its namespaces. It holds nothing of any function and
//! becomes the sandbox of one function only.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_schedule::activation::{SandboxStart, Steps};
use nigh_schedule::memory::grant::Grant;
use nigh_terms::{ByteSize, SandboxId};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::as_seen_outside::{as_seen_outside, names, own_folders, pairs};
use super::blank::{BlankSandbox, GroupGuard, GroupsInUse, LaunchedSandbox, Lease};
use super::blank_stock::BlankStock;
use super::bundle::Bundles;
use super::late_mount::{self, Belongings, MountNamespace};
use super::launch::{IsolationLevel, Launch, OWN_NETWORK, Prepare};
use super::outbound::{self, OutboundNetwork};
use super::processes::SandboxProcesses;
use super::root_tree::{self, CODE};
use super::slots::{Slot, Slots};
use super::step_failure::{StepFailure, in_time};
use super::{FAST_PATH, FAST_PATH_VARIABLE, SandboxSpec};
use crate::cgroup::{CgroupHost, Group};

/// The memory limit of a blank sandbox; only Nigh's own code runs in it.
const BLANK_MEMORY: ByteSize = ByteSize::mib(64);
const PROBE_TMP_BYTES: u64 = 1 << 20;
const BLANK_PROCESSES: u32 = 4;
/// The limit of processes of a blank sandbox made by a container runtime, which starts threads inside.
const BLANK_CONTAINER_PROCESSES: u32 = 64;
/// Container runtimes that run at a time, for each processor. More would only slow each other.
const RUNTIMES_PER_PROCESSOR: usize = 2;
/// The most sandboxes at a time: each needs an address, and there are no more addresses.
const SANDBOXES_MAX: u16 = u16::MAX;

/// What sets up the isolation of sandboxes.
#[derive(Debug)]
pub(super) enum IsolationMethod {
    /// The init, as `Prepare::level` says.
    ByInit(IsolationLevel),
    /// A container runtime.
    ByRuntime(Bundles),
}

/// What a [`SandboxFactory`] is made of.
#[derive(Debug)]
pub(super) struct FactoryParts {
    /// The program of keeper and init.
    pub(super) init: PathBuf,
    /// What sets up the isolation.
    pub(super) raising: IsolationMethod,
    /// The users that sandboxes run as.
    pub(super) uids: Range<u32>,
    /// The program of keeper and init (`nigh-sandbox`).
    pub(super) cgroups: Arc<CgroupHost>,
    /// How many blank sandboxes are kept ready.
    pub(super) blanks: usize,
    /// True if the init filters the system calls of commands.
    pub(super) filter: bool,
    /// True if functions with their own network are told of the fast path.
    pub(super) fast_path: bool,
}

/// Makes blank sandboxes and turns them into functions' sandboxes.
#[derive(Debug)]
pub(super) struct SandboxFactory {
    init: PathBuf,
    raising: IsolationMethod,
    level: IsolationLevel,
    uids: Range<u32>,
    pub(super) filter: bool,
    fast_path: bool,
    /// True if no cgroup limits processes, so that the user's limit must.
    bounds_by_user: bool,
    cgroups: Arc<CgroupHost>,
    /// Limits how many container runtimes run at a time.
    runtimes: Semaphore,
    /// Why the last blank sandbox could not be made; none if it was made.
    trouble: Mutex<Option<String>>,
    slots: Arc<Slots>,
    living: Arc<GroupsInUse>,
    stock: Arc<BlankStock>,
}

impl SandboxFactory {
    pub(super) fn new(making: FactoryParts) -> Self {
        let FactoryParts { init, raising, uids, cgroups, blanks, filter, fast_path } = making;
        let count = u16::try_from(uids.len()).unwrap_or(SANDBOXES_MAX);
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            init,
            level: match &raising {
                IsolationMethod::ByInit(level) => *level,
                IsolationMethod::ByRuntime(_) => IsolationLevel::Container { uid: uids.start },
            },
            raising,
            uids,
            filter,
            fast_path,
            bounds_by_user: cgroups.controls().processes.is_err(),
            cgroups,
            runtimes: Semaphore::new(processors * RUNTIMES_PER_PROCESSOR),
            trouble: Mutex::default(),
            slots: Slots::new(count, rand::random()),
            living: Arc::default(),
            stock: BlankStock::new(blanks),
        }
    }

    /// The isolation of its sandboxes, with an example user.
    pub(super) fn level(&self) -> IsolationLevel {
        self.level
    }

    /// Why no blank sandbox can be made now.
    pub(super) fn trouble(&self) -> Option<String> {
        if let IsolationMethod::ByRuntime(bundles) = &self.raising {
            let missing = bundles.runtime_missing();
            if missing.is_some() {
                return missing;
            }
        }
        self.trouble.lock().clone()
    }

    /// Makes a sandbox without a command, up to the start of the command, and ends it.
    pub(super) async fn probe(&self) -> Result<(), StepFailure> {
        let BlankSandbox { processes, mut held, inside } = self.blank().await?;
        // `/usr` is a folder that every user can read.
        let code = Path::new("/usr");
        if let Some(inside) = inside {
            let own = vec![(code.to_owned(), PathBuf::from(CODE))];
            self.move_in(inside, held.lease()?, own, &[], PROBE_TMP_BYTES).await?;
        }
        processes.probe(Launch::probe(code, PROBE_TMP_BYTES)).await?;
        // The probe's user is free again before this returns.
        let ended = tokio::task::spawn_blocking(move || held.end()).await;
        ended.map_err(|error| StepFailure::at("remove its cgroup", error))
    }

    /// Fills the stock of blank sandboxes in the background.
    pub(super) fn restock(self: &Arc<Self>) {
        self.stock.fill(|| {
            let factory = Arc::clone(self);
            async move { factory.blank().await }
        });
    }

    /// Ends all blank sandboxes and makes no more. If no other sandbox lives, Nigh's cgroups are removed too.
    pub(super) async fn close(&self) {
        self.stock.close().await;
        if let IsolationMethod::ByRuntime(bundles) = &self.raising {
            bundles.end_life();
        }
        let cgroups = Arc::clone(&self.cgroups);
        let _closed = tokio::task::spawn_blocking(move || cgroups.close()).await;
    }

    /// Ends the sandboxes that an earlier process left. Returns how many.
    pub(super) fn sweep(&self) -> usize {
        let groups = self.cgroups.sweep(&|name| self.living.0.lock().contains(name));
        match &self.raising {
            IsolationMethod::ByInit(_) => groups,
            IsolationMethod::ByRuntime(bundles) => groups.max(bundles.sweep()),
        }
    }

    /// Makes the sandbox of a function, with outbound connections if `outbound` is given.
    pub(super) async fn make(
        &self,
        spec: &SandboxSpec,
        outbound: Option<&OutboundNetwork>,
    ) -> Result<LaunchedSandbox, StepFailure> {
        let wanted = Instant::now();
        let BlankSandbox { mut processes, held, inside } = match self.stock.take() {
            Some(blank) => blank,
            None => self.blank().await?,
        };
        let walls = wanted.elapsed();
        held.bound(spec.grant, spec.pids_max + outbound.map_or(0, |_| outbound::PROCESSES))?;
        let texts = outbound.map(|outbound| root_tree::names(&outbound.resolv_conf()));
        let texts = texts.iter().flatten().map(|(path, text)| ((*path).to_owned(), text.clone())).collect::<Vec<_>>();
        let moves_in = inside.is_some();
        if let Some(inside) = inside {
            let lease = held.lease()?;
            let mut own = own_folders(spec);
            own.extend(self.own_files(lease, &texts)?);
            self.move_in(inside, lease, own, &spec.runtime_folders, spec.tmp.bytes()).await?;
        }
        let mount = if moves_in { wanted.elapsed() - walls } else { Duration::ZERO };
        let network = match outbound {
            None => None,
            Some(outbound) => {
                let network =
                    processes.network.take().ok_or_else(|| StepFailure::at("find its network", "it is unknown"))?;
                Some(outbound.attach(network, held.join_files()).await?)
            }
        };
        let launch = Launch { texts, ..self.launch(spec, held.lease()?) };
        let processes = in_time("start it", processes.launch(launch)).await?;
        let launch = wanted.elapsed() - walls - mount;
        let made = held.made(processes, Steps { start: SandboxStart::Cold, walls, mount, launch })?;
        Ok(LaunchedSandbox { network, ..made })
    }

    /// Mounts a function's folders in a sandbox that has its root already.
    pub(super) async fn move_in(
        &self,
        inside: MountNamespace,
        lease: &Lease,
        own: Vec<(PathBuf, PathBuf)>,
        runtime_folders: &[PathBuf],
        tmp_bytes: u64,
    ) -> Result<(), StepFailure> {
        if let IsolationMethod::ByRuntime(bundles) = &self.raising {
            bundles.make_places(runtime_folders.iter().map(PathBuf::as_path))?;
        }
        let runtimes = runtime_folders.iter().map(|folder| (folder.clone(), folder.clone()));
        let shown = own.into_iter().chain(runtimes).collect();
        late_mount::move_in(inside, Belongings { shown, tmp_bytes, uid: lease.slot.uid(&self.uids) }).await
    }

    /// Writes a container's files beside its bundle. Returns each file's place on the host and its place inside.
    fn own_files(&self, lease: &Lease, texts: &[(String, String)]) -> Result<Vec<(PathBuf, PathBuf)>, StepFailure> {
        let IsolationMethod::ByRuntime(bundles) = &self.raising else { return Ok(Vec::new()) };
        let write = |(path, text): &(String, String)| {
            let written = bundles.write_beside(&lease.name, path, text);
            Ok((written.map_err(|error| StepFailure::at(&format!("write {path}"), error))?, path.into()))
        };
        texts.iter().map(write).collect()
    }

    pub(super) async fn blank(&self) -> Result<BlankSandbox, StepFailure> {
        let blank = self.make_blank().await;
        *self.trouble.lock() = blank.as_ref().err().map(StepFailure::sentence);
        blank
    }

    async fn make_blank(&self) -> Result<BlankSandbox, StepFailure> {
        let lease = self.lease()?;
        let (cgroups, name) = (Arc::clone(&self.cgroups), lease.name.clone());
        let processes_max = match self.raising {
            IsolationMethod::ByInit(_) => BLANK_PROCESSES,
            IsolationMethod::ByRuntime(_) => BLANK_CONTAINER_PROCESSES,
        };
        let group = tokio::task::spawn_blocking(move || {
            let group = cgroups.create(&name)?;
            match group.bound(Grant::full(BLANK_MEMORY), processes_max) {
                Ok(()) => Ok(group),
                Err(error) => {
                    group.end();
                    Err(error)
                }
            }
        });
        let group = match group.await {
            Ok(made) => made.map_err(|error: crate::cgroup::CgroupError| StepFailure::at("make its cgroup", error))?,
            Err(ended) => return Err(StepFailure::at("make its cgroup", ended)),
        };
        let prepare = self.prepare(&lease, &group);
        let name = lease.name.clone();
        // From here on every return ends the group, unless `held` is passed on.
        let held = GroupGuard(Some((group, lease)));
        let prepare = prepare?;
        let _permit = match prepare.container {
            Some(_) => self.runtimes.acquire().await.ok(),
            None => None,
        };
        let processes = in_time("isolate it", SandboxProcesses::prepare(&self.init, &prepare)).await;
        let processes = processes.inspect_err(|_| self.forget(&name))?;
        let inside = processes.process.map(|process| MountNamespace::of(process, &name)).transpose();
        let inside = inside.map_err(|error| StepFailure::at("find its files", error))?;
        Ok(BlankSandbox { processes, held, inside })
    }

    fn forget(&self, name: &str) {
        if let IsolationMethod::ByRuntime(bundles) = &self.raising {
            bundles.forget(name);
        }
    }

    fn lease(&self) -> Result<Lease, StepFailure> {
        let slot = self.slots.lend().ok_or_else(|| {
            StepFailure::at(
                "find a free user",
                format!("all {} users of the range are in use; widen the range in the settings", self.uids.len()),
            )
        })?;
        let name = SandboxId::random().to_string();
        self.living.0.lock().insert(name.clone());
        Ok(Lease { slot, name, living: Arc::clone(&self.living) })
    }

    fn address(&self, slot: &Slot) -> Ipv4Addr {
        if self.level.has_namespaces() { OWN_NETWORK } else { slot.address() }
    }

    fn prepare(&self, lease: &Lease, group: &Group) -> Result<Prepare, StepFailure> {
        let uid = lease.slot.uid(&self.uids);
        let thaw = group.thaw_before_death().map(|(file, word)| (file.into_os_string(), word.to_owned()));
        let folders = group.folders().iter().map(|folder| folder.as_os_str().to_owned()).collect();
        match &self.raising {
            IsolationMethod::ByInit(level) => Ok(Prepare {
                level: match level {
                    IsolationLevel::UserAndNamespaces { .. } => IsolationLevel::UserAndNamespaces { uid },
                    IsolationLevel::User { .. } => IsolationLevel::User { uid },
                    level => *level,
                },
                address: self.address(&lease.slot),
                join: group.join_files().map(PathBuf::into_os_string).collect(),
                thaw,
                folders,
                container: None,
            }),
            IsolationMethod::ByRuntime(bundles) => {
                let path =
                    self.cgroups.runtime_path(&lease.name).map_err(|why| StepFailure::at("name its cgroup", why))?;
                let container = bundles
                    .write(&lease.name, uid, &path)
                    .map_err(|error| StepFailure::at("write what the container runtime reads", error))?;
                Ok(Prepare { thaw, folders, container: Some(container), ..Prepare::inside_container(uid) })
            }
        }
    }

    /// The limit of processes for the user; none if the cgroup limits them.
    pub(super) fn processes_max(&self, pids_max: u32) -> Option<u64> {
        let own = self.level.own_processes().filter(|_| self.bounds_by_user)?;
        Some(u64::from(pids_max + own))
    }

    pub(super) fn launch(&self, spec: &SandboxSpec, lease: &Lease) -> Launch {
        let mut launch = Launch {
            command: spec.command.clone(),
            environment: pairs(&spec.environment),
            code: Some(spec.code.as_os_str().to_owned()),
            layers: spec.layers.as_ref().map(|layers| layers.as_os_str().to_owned()),
            runtime_folders: names(&spec.runtime_folders),
            texts: Vec::new(),
            tmp_bytes: spec.tmp.bytes(),
            processes_max: self.processes_max(spec.pids_max),
            filter: self.filter,
        };
        if self.level.has_namespaces() {
            if self.fast_path {
                launch.environment.push((FAST_PATH_VARIABLE.into(), format!("@{FAST_PATH}").into()));
            }
        } else {
            let layers = spec.layers.as_deref();
            let outside = |text: &OsStr| as_seen_outside(text, &spec.code, layers, self.address(&lease.slot));
            launch.command = launch.command.iter().map(|text| outside(text)).collect();
            for (_, value) in &mut launch.environment {
                *value = outside(value);
            }
        }
        launch
    }
}
