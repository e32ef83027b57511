//! Blank sandboxes: made up to the point where the function must be known, and kept ready in a small stock.
//!
//! What a start would wait for most is the kernel moving a process into its cgroups: on an idle tree that waits for an
//! RCU grace period, 5 to 20 ms. A blank has that behind it, and its namespaces too. A blank holds nothing of any
//! function and becomes the sandbox of one only.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use nigh_schedule::activation::{SandboxStart, Steps};
use nigh_schedule::memory::grant::Grant;
use nigh_terms::{ByteSize, SandboxId};
use parking_lot::Mutex;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::bundle::Bundles;
use super::control::{Control, Listeners};
use super::late_mount::{self, Belongings, MountNamespace};
use super::launch::{InitMessage, Launch, OWN_NETWORK, Order, Prepare, Walls, encode};
use super::outbound::{self, OutboundLink, OutboundNetwork};
use super::root_tree::{self, CODE, LAYERS};
use super::slots::{Slot, Slots};
use super::{FAST_PATH, FAST_PATH_VARIABLE, SandboxError, SandboxSpec};
use crate::cgroup::{CgroupHost, Group};

/// How long a blank may take to stand, and a launch; both take milliseconds on an idle machine.
pub(super) const START_PATIENCE: Duration = Duration::from_secs(20);
/// The init of a sandbox counts against its process limit too.
const INIT_PROCESSES: u32 = 1;
/// What a blank may use: no code but ours runs in it.
const BLANK_MEMORY: ByteSize = ByteSize::mib(64);
const PROBE_TMP_BYTES: u64 = 1 << 20;
const BLANK_PROCESSES: u32 = 4;
/// A container runtime begins inside with threads of its own.
const BLANK_CONTAINER_PROCESSES: u32 = 64;
/// Container runtimes that run at a time, for each processor: more only take each other's time.
const RUNTIMES_PER_PROCESSOR: usize = 2;
/// The most sandboxes at a time, whatever the range of users is: addresses end there.
const SANDBOXES_MAX: u16 = u16::MAX;

/// A step that failed, before it is known of which sandbox.
#[derive(Debug)]
pub(super) struct StepFailure {
    pub(super) step: String,
    pub(super) reason: String,
}

impl StepFailure {
    pub(super) fn at(step: &str, reason: impl ToString) -> Self {
        Self { step: step.to_owned(), reason: reason.to_string() }
    }

    /// As a reason.
    pub(super) fn sentence(&self) -> String {
        format!("cannot {}: {}", self.step, self.reason)
    }

    pub(super) fn into_error(self, id: SandboxId) -> SandboxError {
        SandboxError::Start { id, step: self.step, reason: self.reason }
    }
}

/// The groups that are in use, so that a sweep passes them over.
#[derive(Debug, Default)]
struct GroupsInUse(Mutex<HashSet<String>>);

/// What a sandbox holds while it lives: its user, and its group's name.
#[derive(Debug)]
pub(super) struct Lease {
    slot: Slot,
    name: String,
    living: Arc<GroupsInUse>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.living.0.lock().remove(&self.name);
    }
}

/// Who raises the walls of sandboxes.
#[derive(Debug)]
pub(super) enum IsolationMethod {
    /// The init itself, as far as `Prepare::walls` says.
    ByInit(Walls),
    /// A container runtime.
    ByRuntime(Bundles),
}

/// What sandboxes are made of.
#[derive(Debug)]
pub(super) struct BlankParts {
    /// The program that becomes keeper and init.
    pub(super) init: PathBuf,
    /// Who raises the walls.
    pub(super) raising: IsolationMethod,
    /// The users they run as.
    pub(super) uids: Range<u32>,
    /// Where their groups are made.
    pub(super) cgroups: Arc<CgroupHost>,
    /// How many are kept ready.
    pub(super) blanks: usize,
    /// The init bounds the system calls of commands.
    pub(super) filter: bool,
    /// Functions are told of the fast path, where their network is their own.
    pub(super) fast_path: bool,
}

/// Makes blanks and turns them into sandboxes.
#[derive(Debug)]
pub(super) struct Maker {
    init: PathBuf,
    raising: IsolationMethod,
    walls: Walls,
    uids: Range<u32>,
    pub(super) filter: bool,
    fast_path: bool,
    /// No cgroup bounds processes.
    bounds_by_user: bool,
    cgroups: Arc<CgroupHost>,
    /// How many container runtimes may run at a time.
    runtimes: Semaphore,
    /// Why the last blank could not be made.
    trouble: Mutex<Option<String>>,
    slots: Arc<Slots>,
    living: Arc<GroupsInUse>,
    stock: Mutex<Stock>,
    /// Those that make blanks.
    restocking: TaskTracker,
}

#[derive(Debug)]
struct Stock {
    ready: Vec<BlankSandbox>,
    coming: usize,
    max: usize,
}

/// A blank sandbox. Dropping it ends it.
#[derive(Debug)]
pub(super) struct BlankSandbox {
    pub(super) begun: SandboxProcesses<()>,
    pub(super) held: GroupGuard,
    /// Where the function moves in from outside.
    pub(super) inside: Option<MountNamespace>,
}

/// A sandbox that runs its command.
pub(super) struct LaunchedSandbox {
    pub(super) begun: SandboxProcesses<Listeners>,
    pub(super) group: Group,
    pub(super) lease: Lease,
    pub(super) network: Option<OutboundLink>,
    pub(super) steps: Steps,
}

/// Ends the group of a sandbox that does not come to be; its slot is free only then.
#[derive(Debug)]
pub(super) struct GroupGuard(Option<(Group, Lease)>);

impl GroupGuard {
    pub(super) fn lease(&self) -> Result<&Lease, StepFailure> {
        self.0.as_ref().map(|(_, lease)| lease).ok_or_else(|| StepFailure::at("start it", "it has ended"))
    }

    pub(super) fn bound(&self, grant: Grant, pids_max: u32) -> Result<(), StepFailure> {
        let Some((group, _)) = &self.0 else { return Err(StepFailure::at("start it", "it has ended")) };
        group.bound(grant, pids_max + INIT_PROCESSES).map_err(|error| StepFailure::at("limit its cgroup", error))
    }

    /// The files by which a process joins its cgroup.
    fn join_files(&self) -> Vec<PathBuf> {
        self.0.iter().flat_map(|(group, _)| group.join_files()).collect()
    }

    pub(super) fn made(
        mut self,
        begun: SandboxProcesses<Listeners>,
        steps: Steps,
    ) -> Result<LaunchedSandbox, StepFailure> {
        let (group, lease) = self.0.take().ok_or_else(|| StepFailure::at("start it", "it has ended"))?;
        Ok(LaunchedSandbox { begun, group, lease, network: None, steps })
    }

    /// Ends it, if it is still there.
    fn end(&mut self) {
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
        // A thread of its own: the async runtime may be what is going. Without one the group ends itself.
        let _no_thread = std::thread::Builder::new().name("end-blank".to_owned()).spawn(move || held.end());
    }
}

impl BlankSandbox {
    pub(super) fn has_ended(&self) -> bool {
        self.begun.control.has_ended()
    }

    /// Ends it; when this returns nothing is left of it.
    pub(super) async fn end(self) {
        let Self { begun, mut held, inside: _ } = self;
        drop(begun.control);
        let mut keeper = begun.keeper;
        let _gone = timeout(START_PATIENCE, keeper.wait()).await;
        let _ended = tokio::task::spawn_blocking(move || held.end()).await;
    }
}

impl Maker {
    pub(super) fn new(making: BlankParts) -> Self {
        let BlankParts { init, raising, uids, cgroups, blanks, filter, fast_path } = making;
        let count = u16::try_from(uids.len()).unwrap_or(SANDBOXES_MAX);
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            init,
            walls: match &raising {
                IsolationMethod::ByInit(walls) => *walls,
                IsolationMethod::ByRuntime(_) => Walls::Container { uid: uids.start },
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
            stock: Mutex::new(Stock { ready: Vec::new(), coming: 0, max: blanks }),
            restocking: TaskTracker::new(),
        }
    }

    /// The walls of its sandboxes; the user stands for any.
    pub(super) fn walls(&self) -> Walls {
        self.walls
    }

    /// What keeps it from making blanks now.
    pub(super) fn trouble(&self) -> Option<String> {
        if let IsolationMethod::ByRuntime(bundles) = &self.raising {
            let missing = bundles.runtime_missing();
            if missing.is_some() {
                return missing;
            }
        }
        self.trouble.lock().clone()
    }

    /// Makes a sandbox around nothing, up to where its command would start, and ends it.
    pub(super) async fn probe(&self) -> Result<(), StepFailure> {
        let BlankSandbox { begun, mut held, inside } = self.blank().await?;
        // Any folder that every user sees.
        let code = Path::new("/usr");
        if let Some(inside) = inside {
            let own = vec![(code.to_owned(), PathBuf::from(CODE))];
            self.move_in(inside, held.lease()?, own, &[], PROBE_TMP_BYTES).await?;
        }
        begun.probe(Launch::probe(code, PROBE_TMP_BYTES)).await?;
        // Its user is free when this returns.
        let ended = tokio::task::spawn_blocking(move || held.end()).await;
        ended.map_err(|error| StepFailure::at("remove its cgroup", error))
    }

    /// Makes blanks in the background until the stock is full.
    pub(super) fn restock(self: &Arc<Self>) {
        let missing = {
            let mut stock = self.stock.lock();
            let missing = stock.max.saturating_sub(stock.ready.len() + stock.coming);
            stock.coming += missing;
            missing
        };
        for _ in 0..missing {
            let maker = Arc::clone(self);
            self.restocking.spawn(async move {
                let blank = maker.blank().await;
                let surplus = {
                    let mut stock = maker.stock.lock();
                    stock.coming -= 1;
                    match blank {
                        Ok(blank) if stock.max == 0 => Some(blank),
                        Ok(blank) => {
                            stock.ready.push(blank);
                            None
                        }
                        // The next start says it if it lasts.
                        Err(failed) => {
                            tracing::warn!(step = failed.step, reason = failed.reason, "no blank sandbox");
                            None
                        }
                    }
                };
                if let Some(blank) = surplus {
                    blank.end().await;
                }
            });
        }
    }

    /// Ends the stock for good. When this returns nothing is left of it, nor, where no sandbox lives, of Nigh's cgroups.
    pub(super) async fn close(&self) {
        let ready = {
            let mut stock = self.stock.lock();
            stock.max = 0;
            std::mem::take(&mut stock.ready)
        };
        self.restocking.close();
        join(join_all(ready.into_iter().map(BlankSandbox::end)), self.restocking.wait()).await;
        if let IsolationMethod::ByRuntime(bundles) = &self.raising {
            bundles.end_life();
        }
        let cgroups = Arc::clone(&self.cgroups);
        let _closed = tokio::task::spawn_blocking(move || cgroups.close()).await;
    }

    /// Ends what an earlier process left.
    pub(super) fn sweep(&self) -> usize {
        let groups = self.cgroups.sweep(&|name| self.living.0.lock().contains(name));
        match &self.raising {
            IsolationMethod::ByInit(_) => groups,
            IsolationMethod::ByRuntime(bundles) => groups.max(bundles.sweep()),
        }
    }

    /// Makes the sandbox of a function, with a way out if `outbound` gives it one.
    pub(super) async fn make(
        &self,
        spec: &SandboxSpec,
        outbound: Option<&OutboundNetwork>,
    ) -> Result<LaunchedSandbox, StepFailure> {
        let wanted = Instant::now();
        let BlankSandbox { mut begun, held, inside } = match self.take() {
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
                    begun.network.take().ok_or_else(|| StepFailure::at("find its network", "it is unknown"))?;
                Some(outbound.attach(network, held.join_files()).await?)
            }
        };
        let launch = Launch { texts, ..self.launch(spec, held.lease()?) };
        let begun = in_time("start it", begun.launch(launch)).await?;
        let launch = wanted.elapsed() - walls - mount;
        let made = held.made(begun, Steps { start: SandboxStart::Cold, walls, mount, launch })?;
        Ok(LaunchedSandbox { network, ..made })
    }

    /// A blank that still stands.
    fn take(&self) -> Option<BlankSandbox> {
        loop {
            let blank = self.stock.lock().ready.pop()?;
            if !blank.has_ended() {
                return Some(blank);
            }
        }
    }

    /// Shows a function's folders in a sandbox whose root stands already.
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

    /// Writes the texts that a container shall have, beside its bundle: where they are, and where they appear.
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
        let processes = match self.raising {
            IsolationMethod::ByInit(_) => BLANK_PROCESSES,
            IsolationMethod::ByRuntime(_) => BLANK_CONTAINER_PROCESSES,
        };
        let group = tokio::task::spawn_blocking(move || {
            let group = cgroups.create(&name)?;
            match group.bound(Grant::full(BLANK_MEMORY), processes) {
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
        // From here on the group is ended by whoever holds this, on every way out.
        let held = GroupGuard(Some((group, lease)));
        let prepare = prepare?;
        let _permit = match prepare.container {
            Some(_) => self.runtimes.acquire().await.ok(),
            None => None,
        };
        let begun = in_time("raise its walls", SandboxProcesses::prepare(&self.init, &prepare)).await;
        let begun = begun.inspect_err(|_| self.forget(&name))?;
        let inside = begun.process.map(|process| MountNamespace::of(process, &name)).transpose();
        let inside = inside.map_err(|error| StepFailure::at("find its files", error))?;
        Ok(BlankSandbox { begun, held, inside })
    }

    fn forget(&self, name: &str) {
        if let IsolationMethod::ByRuntime(bundles) = &self.raising {
            bundles.forget(name);
        }
    }

    fn lease(&self) -> Result<Lease, StepFailure> {
        let slot = self.slots.lend().ok_or_else(|| {
            StepFailure::at("find a free user", format!("all {} of the range are in use; widen it", self.uids.len()))
        })?;
        let name = SandboxId::random().to_string();
        self.living.0.lock().insert(name.clone());
        Ok(Lease { slot, name, living: Arc::clone(&self.living) })
    }

    fn address(&self, slot: &Slot) -> Ipv4Addr {
        if self.walls.has_namespaces() { OWN_NETWORK } else { slot.address() }
    }

    fn prepare(&self, lease: &Lease, group: &Group) -> Result<Prepare, StepFailure> {
        let uid = lease.slot.uid(&self.uids);
        let thaw = group.thaw_before_death().map(|(file, word)| (file.into_os_string(), word.to_owned()));
        let folders = group.folders().iter().map(|folder| folder.as_os_str().to_owned()).collect();
        match &self.raising {
            IsolationMethod::ByInit(walls) => Ok(Prepare {
                walls: match walls {
                    Walls::UserAndNamespaces { .. } => Walls::UserAndNamespaces { uid },
                    Walls::User { .. } => Walls::User { uid },
                    walls => *walls,
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

    /// Bounds processes where no cgroup does.
    pub(super) fn processes_max(&self, pids_max: u32) -> Option<u64> {
        let own = self.walls.own_processes().filter(|_| self.bounds_by_user)?;
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
        if self.walls.has_namespaces() {
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

/// The folders that are the function's own, and where they appear.
pub(super) fn own_folders(spec: &SandboxSpec) -> Vec<(PathBuf, PathBuf)> {
    let layers = spec.layers.iter().map(|layers| (layers.clone(), PathBuf::from(LAYERS)));
    std::iter::once((spec.code.clone(), PathBuf::from(CODE))).chain(layers).collect()
}

pub(super) fn pairs(environment: &BTreeMap<OsString, OsString>) -> Vec<(OsString, OsString)> {
    environment.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

pub(super) fn names(folders: &[PathBuf]) -> Vec<OsString> {
    folders.iter().map(|folder| folder.as_os_str().to_owned()).collect()
}

pub(super) async fn in_time<T>(
    step: &str,
    work: impl Future<Output = Result<T, StepFailure>>,
) -> Result<T, StepFailure> {
    timeout(START_PATIENCE, work).await.map_err(|_| StepFailure::at(step, format!("not done in {START_PATIENCE:?}")))?
}

/// A keeper and an init, and how they are spoken with.
#[derive(Debug)]
pub(super) struct SandboxProcesses<L> {
    pub(super) keeper: Child,
    pub(super) control: Control,
    pub(super) output: Receiver,
    pub(super) listeners: L,
    /// The init's process, if a container runtime made it.
    pub(super) process: Option<u32>,
    /// Its network, if it has one of its own; let go of when the command starts.
    pub(super) network: Option<OwnedFd>,
}

impl SandboxProcesses<()> {
    /// Starts `nigh-sandbox` and waits until the walls stand.
    pub(super) async fn prepare(init: &Path, prepare: &Prepare) -> Result<Self, StepFailure> {
        let message = encode(prepare).map_err(|error| StepFailure::at("describe it", error))?;
        let (ours, theirs) = Control::pair().map_err(|error| StepFailure::at("make a socket", error))?;
        // One pipe for both outputs, so that lines keep their order.
        let pipe = || -> io::Result<_> {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            Ok((Receiver::from_owned_fd(read)?, write.try_clone()?, write))
        };
        let (output, copy, write) = pipe().map_err(|error| StepFailure::at("make a pipe", error))?;
        let keeper = spawn(init, theirs, copy, write)
            .map_err(|error| StepFailure::at(&format!("start {}", init.display()), error))?;
        let mut control = ours;
        control.send(&message).await.map_err(|error| StepFailure::at("describe it", error))?;
        let mut process = None;
        let mut ready = false;
        // In either order.
        while !ready || (prepare.container.is_some() && process.is_none()) {
            match next(&mut control).await? {
                InitMessage::Ready => ready = true,
                InitMessage::Contained { process: number } => process = Some(number),
                other => return Err(unexpected(&other)),
            }
        }
        let network = control.take_descriptors().pop();
        Ok(Self { keeper, control, output, listeners: (), process, network })
    }

    /// Has the init start the command and waits until it runs.
    pub(super) async fn launch(mut self, launch: Launch) -> Result<SandboxProcesses<Listeners>, StepFailure> {
        self.order(&Order::Launch(launch)).await?;
        self.runs().await?;
        let listeners =
            self.control.take_listeners().map_err(|error| StepFailure::at("take the listeners over", error))?;
        let Self { keeper, control, output, listeners: (), process, network: _ } = self;
        Ok(SandboxProcesses { keeper, control, output, listeners, process, network: None })
    }

    /// Has the init go as far as it can without a command, and ends it.
    pub(super) async fn probe(mut self, launch: Launch) -> Result<(), StepFailure> {
        self.order(&Order::Launch(launch)).await?;
        self.runs().await?;
        self.control.end();
        self.keeper.wait().await.map(drop).map_err(|error| StepFailure::at("wait for its end", error))
    }

    pub(super) async fn order(&mut self, order: &Order) -> Result<(), StepFailure> {
        let message = encode(order).map_err(|error| StepFailure::at("describe it", error))?;
        self.control.send(&message).await.map_err(|error| StepFailure::at("describe it", error))
    }

    async fn runs(&mut self) -> Result<(), StepFailure> {
        match next(&mut self.control).await? {
            InitMessage::Running => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

fn spawn(init: &Path, control: OwnedFd, stdout: OwnedFd, stderr: OwnedFd) -> io::Result<Child> {
    Command::new(init)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(control))
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::from(stderr))
        // A ctrl-C at Nigh's terminal is Nigh's to answer.
        .process_group(0)
        .spawn()
}

/// What keeper or init say next, if it is not that they failed.
pub(super) async fn next(control: &mut Control) -> Result<InitMessage, StepFailure> {
    match control.report().await {
        Ok(Some(InitMessage::Failed { step, reason })) => Err(StepFailure { step, reason }),
        Ok(Some(report)) => Ok(report),
        Ok(None) => Err(StepFailure::at("start it", "nigh-sandbox ended without a word")),
        Err(error) => Err(StepFailure::at("start it", error)),
    }
}

pub(super) fn unexpected(report: &InitMessage) -> StepFailure {
    StepFailure::at("start it", format!("unexpected report {report:?}"))
}

/// Where files and network are the host's: names of inside become those of outside.
fn as_seen_outside(text: &OsStr, code: &Path, layers: Option<&Path>, address: Ipv4Addr) -> OsString {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let network = replace(text.as_bytes(), b"127.0.0.1:", format!("{address}:").as_bytes());
    // The layers first: their place might be part of a folder's name on the host, but no folder's is part of theirs.
    let shared = match layers {
        Some(layers) => replace(&network, LAYERS.as_bytes(), layers.as_os_str().as_bytes()),
        None => network,
    };
    OsString::from_vec(replace(&shared, CODE.as_bytes(), code.as_os_str().as_bytes()))
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_inside_become_those_of_outside() {
        let outside =
            |text: &str| as_seen_outside(OsStr::new(text), Path::new("/code/f"), None, Ipv4Addr::new(127, 77, 0, 9));
        let layered =
            as_seen_outside(OsStr::new("/var/task:/opt/x"), Path::new("/c"), Some(Path::new("/l")), OWN_NETWORK);
        assert_eq!(layered, "/c:/l/x");
        assert_eq!(outside("http://127.0.0.1:9000/x"), "http://127.77.0.9:9000/x");
        assert_eq!(outside("/var/task/bootstrap:/var/task"), "/code/f/bootstrap:/code/f");
        assert_eq!(outside("plain"), "plain");
    }
}
