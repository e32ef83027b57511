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

use nigh_terms::{ByteSize, SandboxId};
use parking_lot::Mutex;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::TcpListener;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::control::Control;
use super::late_mount::Places;
use super::launch::{Launch, Order, Prepare, Report, Walls, encode};
use super::slots::{Slot, Slots};
use super::stem::Stem;
use super::{CODE, Making, SandboxError, SandboxSpec, SandboxStart, StemSpec};
use crate::cgroup::{CgroupHost, Group};
use crate::grant::Grant;

/// What a sandbox with its own network calls itself.
pub(super) const OWN_NETWORK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// How long a blank may take to stand, and a launch; both take milliseconds on an idle machine.
pub(super) const START_PATIENCE: Duration = Duration::from_secs(20);
/// The init of a sandbox counts against its process limit too.
const INIT_PROCESSES: u32 = 1;
/// What a blank may use: no code but ours runs in it.
const BLANK_MEMORY: ByteSize = ByteSize::mib(64);
const BLANK_PROCESSES: u32 = 4;
/// How much is read of what a stem printed that failed.
const LAST_WORDS_BYTES: usize = 16 << 10;
/// The most sandboxes at a time, whatever the range of users is: addresses end there.
const SANDBOXES_MAX: u16 = u16::MAX;

/// A step that failed, before it is known of which sandbox.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) step: String,
    pub(super) reason: String,
}

impl Failed {
    pub(super) fn at(step: &str, reason: impl ToString) -> Self {
        Self { step: step.to_owned(), reason: reason.to_string() }
    }

    pub(super) fn into_error(self, id: SandboxId) -> SandboxError {
        SandboxError::Start { id, step: self.step, reason: self.reason }
    }
}

/// The groups that are in use, so that a sweep passes them over.
#[derive(Debug, Default)]
struct Living(Mutex<HashSet<String>>);

/// What a sandbox holds while it lives: its user, and its group's name.
#[derive(Debug)]
pub(super) struct Lease {
    slot: Slot,
    name: String,
    living: Arc<Living>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.living.0.lock().remove(&self.name);
    }
}

/// Makes blanks and turns them into sandboxes.
#[derive(Debug)]
pub(super) struct Maker {
    init: PathBuf,
    walls: Walls,
    uids: Range<u32>,
    /// No cgroup bounds processes.
    bounds_by_user: bool,
    cgroups: Arc<CgroupHost>,
    slots: Arc<Slots>,
    living: Arc<Living>,
    stock: Mutex<Stock>,
}

#[derive(Debug)]
struct Stock {
    ready: Vec<Blank>,
    coming: usize,
    max: usize,
}

/// A blank sandbox. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Blank {
    begun: Begun<()>,
    held: Held,
}

/// A sandbox that runs its command.
pub(super) struct Made {
    pub(super) begun: Begun<Listeners>,
    pub(super) group: Group,
    pub(super) lease: Lease,
    pub(super) making: Making,
}

/// Ends the group of a sandbox that does not come to be; its slot is free only then.
#[derive(Debug)]
struct Held(Option<(Group, Lease)>);

impl Held {
    fn slot(&self) -> Result<&Slot, Failed> {
        self.0.as_ref().map(|(_, lease)| &lease.slot).ok_or_else(|| Failed::at("start it", "it has ended"))
    }

    fn bound(&self, grant: Grant, pids_max: u32) -> Result<(), Failed> {
        let Some((group, _)) = &self.0 else { return Err(Failed::at("start it", "it has ended")) };
        group.bound(grant, pids_max + INIT_PROCESSES).map_err(|error| Failed::at("limit its cgroup", error))
    }

    fn made(mut self, begun: Begun<Listeners>, making: Making) -> Result<Made, Failed> {
        let (group, lease) = self.0.take().ok_or_else(|| Failed::at("start it", "it has ended"))?;
        Ok(Made { begun, group, lease, making })
    }

    /// Ends it, if it is still there.
    fn end(&mut self) {
        let Some((group, lease)) = self.0.take() else { return };
        group.end();
        drop(lease);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.is_none() {
            return;
        }
        let mut held = Self(self.0.take());
        // A thread of its own: the async runtime may be what is going. Without one the group ends itself.
        let _no_thread = std::thread::Builder::new().name("end-blank".to_owned()).spawn(move || held.end());
    }
}

impl Blank {
    pub(super) fn has_ended(&self) -> bool {
        self.begun.control.has_ended()
    }

    /// Ends it; when this returns nothing is left of it.
    pub(super) async fn end(self) {
        let Self { begun, mut held } = self;
        drop(begun.control);
        let mut keeper = begun.keeper;
        let _gone = timeout(START_PATIENCE, keeper.wait()).await;
        let _ended = tokio::task::spawn_blocking(move || held.end()).await;
    }
}

impl Maker {
    pub(super) fn new(init: PathBuf, walls: Walls, uids: Range<u32>, cgroups: CgroupHost, blanks: usize) -> Self {
        let count = u16::try_from(uids.len()).unwrap_or(SANDBOXES_MAX);
        Self {
            init,
            walls,
            uids,
            bounds_by_user: cgroups.controls().processes.is_err(),
            cgroups: Arc::new(cgroups),
            slots: Slots::new(count, rand::random()),
            living: Arc::default(),
            stock: Mutex::new(Stock { ready: Vec::new(), coming: 0, max: blanks }),
        }
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
            tokio::spawn(async move {
                let blank = maker.blank().await;
                let mut stock = maker.stock.lock();
                stock.coming -= 1;
                match blank {
                    Ok(blank) => stock.ready.push(blank),
                    // The next start says it if it lasts.
                    Err(failed) => tracing::debug!(step = failed.step, reason = failed.reason, "no blank sandbox"),
                }
            });
        }
    }

    /// Ends what an earlier process left.
    pub(super) fn sweep(&self) -> usize {
        self.cgroups.sweep(&|name| self.living.0.lock().contains(name))
    }

    /// Makes the sandbox of a function.
    pub(super) async fn make(&self, spec: &SandboxSpec) -> Result<Made, Failed> {
        let wanted = Instant::now();
        let Blank { begun, held } = match self.take() {
            Some(blank) => blank,
            None => self.blank().await?,
        };
        let walls = wanted.elapsed();
        let slot = held.slot()?;
        held.bound(spec.grant, spec.pids_max)?;
        let launch = self.launch(spec, slot);
        let begun = in_time("start it", begun.launch(launch)).await?;
        let making =
            Making { start: SandboxStart::Cold, walls, mount: Duration::ZERO, launch: wanted.elapsed() - walls };
        held.made(begun, making)
    }

    /// Makes a stem. Functions have the same processes' limit as it.
    pub(super) async fn warm(&self, spec: &StemSpec) -> Result<Stem, Failed> {
        let Blank { mut begun, held } = self.blank().await?;
        held.bound(Grant::full(spec.memory), spec.pids_max)?;
        let order = Launch {
            command: spec.command.clone(),
            environment: pairs(&spec.environment),
            code: None,
            runtime_folders: names(&spec.runtime_folders),
            tmp_bytes: spec.tmp.bytes(),
            processes_max: self.processes_max(spec.pids_max),
        };
        let (places, said) =
            in_time("warm it", begun.warm(order)).await.map_err(|failed| begun.with_last_line(failed))?;
        Ok(Stem { blank: Box::new(Blank { begun, held }), places, said, tmp: spec.tmp, pids_max: spec.pids_max })
    }

    /// Makes the sandbox of a function of `stem`.
    pub(super) async fn adopt(&self, stem: Stem, spec: &SandboxSpec) -> Result<Made, Failed> {
        let wanted = Instant::now();
        let Stem { blank, places, said: _, tmp, pids_max } = stem;
        let Blank { begun, held } = *blank;
        if pids_max != spec.pids_max {
            return Err(Failed::at("take a stem", "it was made for another number of processes"));
        }
        held.bound(spec.grant, spec.pids_max)?;
        if tmp != spec.tmp {
            places.resize_tmp(spec.tmp.bytes()).map_err(|error| Failed::at("give it its /tmp", error))?;
        }
        places.bring(&spec.code).await.map_err(|error| Failed::at("bring its code in", error))?;
        let mount = wanted.elapsed();
        // Its root stands: of all this it hears the command and the environment only.
        let launch = self.launch(spec, held.slot()?);
        let begun = in_time("start it", begun.launch(launch)).await?;
        let launch = wanted.elapsed() - mount;
        held.made(begun, Making { start: SandboxStart::Prewarmed, walls: Duration::ZERO, mount, launch })
    }

    /// A blank that still stands.
    fn take(&self) -> Option<Blank> {
        loop {
            let blank = self.stock.lock().ready.pop()?;
            if !blank.has_ended() {
                return Some(blank);
            }
        }
    }

    async fn blank(&self) -> Result<Blank, Failed> {
        let lease = self.lease()?;
        let (cgroups, name) = (Arc::clone(&self.cgroups), lease.name.clone());
        let group = tokio::task::spawn_blocking(move || {
            let group = cgroups.create(&name)?;
            match group.bound(Grant::full(BLANK_MEMORY), BLANK_PROCESSES) {
                Ok(()) => Ok(group),
                Err(error) => {
                    group.end();
                    Err(error)
                }
            }
        });
        let group = match group.await {
            Ok(made) => made.map_err(|error: crate::cgroup::CgroupError| Failed::at("make its cgroup", error))?,
            Err(ended) => return Err(Failed::at("make its cgroup", ended)),
        };
        let prepare = self.prepare(&lease.slot, &group);
        // From here on the group is ended by whoever holds this, on every way out.
        let held = Held(Some((group, lease)));
        let begun = in_time("raise its walls", Begun::prepare(&self.init, &prepare)).await?;
        Ok(Blank { begun, held })
    }

    fn lease(&self) -> Result<Lease, Failed> {
        let slot = self.slots.lend().ok_or_else(|| {
            Failed::at("find a free user", format!("all {} of the range are in use; widen it", self.uids.len()))
        })?;
        let name = SandboxId::random().to_string();
        self.living.0.lock().insert(name.clone());
        Ok(Lease { slot, name, living: Arc::clone(&self.living) })
    }

    fn address(&self, slot: &Slot) -> Ipv4Addr {
        if self.walls.has_namespaces() { OWN_NETWORK } else { slot.address() }
    }

    fn prepare(&self, slot: &Slot, group: &Group) -> Prepare {
        let uid = slot.uid(&self.uids);
        let walls = match self.walls {
            Walls::UserAndNamespaces { .. } => Walls::UserAndNamespaces { uid },
            Walls::User { .. } => Walls::User { uid },
            walls @ (Walls::Namespaces | Walls::None) => walls,
        };
        Prepare {
            walls,
            address: self.address(slot),
            join: group.join_files().map(PathBuf::into_os_string).collect(),
            thaw: group.thaw_before_death().map(|(file, word)| (file.into_os_string(), word.to_owned())),
            folders: group.folders().iter().map(|folder| folder.as_os_str().to_owned()).collect(),
        }
    }

    /// Bounds processes where no cgroup does.
    fn processes_max(&self, pids_max: u32) -> Option<u64> {
        let own = self.walls.own_processes().filter(|_| self.bounds_by_user)?;
        Some(u64::from(pids_max + own))
    }

    fn launch(&self, spec: &SandboxSpec, slot: &Slot) -> Launch {
        let mut launch = Launch {
            command: spec.command.clone(),
            environment: pairs(&spec.environment),
            code: Some(spec.code.as_os_str().to_owned()),
            runtime_folders: names(&spec.runtime_folders),
            tmp_bytes: spec.tmp.bytes(),
            processes_max: self.processes_max(spec.pids_max),
        };
        if !self.walls.has_namespaces() {
            let outside = |text: &OsStr| as_seen_outside(text, &spec.code, self.address(slot));
            launch.command = launch.command.iter().map(|text| outside(text)).collect();
            for (_, value) in &mut launch.environment {
                *value = outside(value);
            }
        }
        launch
    }
}

fn pairs(environment: &BTreeMap<OsString, OsString>) -> Vec<(OsString, OsString)> {
    environment.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn names(folders: &[PathBuf]) -> Vec<OsString> {
    folders.iter().map(|folder| folder.as_os_str().to_owned()).collect()
}

async fn in_time<T>(step: &str, work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    timeout(START_PATIENCE, work).await.map_err(|_| Failed::at(step, format!("not done in {START_PATIENCE:?}")))?
}

/// The Runtime API's, then the data door's.
pub(super) type Listeners = [TcpListener; 2];

/// A keeper and an init, and how they are spoken with.
#[derive(Debug)]
pub(super) struct Begun<L> {
    pub(super) keeper: Child,
    pub(super) control: Control,
    pub(super) output: Receiver,
    pub(super) listeners: L,
}

impl Begun<()> {
    /// Starts `nigh-sandbox` and waits until the walls stand.
    pub(super) async fn prepare(init: &Path, prepare: &Prepare) -> Result<Self, Failed> {
        let message = encode(prepare).map_err(|error| Failed::at("describe it", error))?;
        let (ours, theirs) = Control::pair().map_err(|error| Failed::at("make a socket", error))?;
        // One pipe for both outputs, so that lines keep their order.
        let pipe = || -> io::Result<_> {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            Ok((Receiver::from_owned_fd(read)?, write.try_clone()?, write))
        };
        let (output, copy, write) = pipe().map_err(|error| Failed::at("make a pipe", error))?;
        let keeper = spawn(init, theirs, copy, write)
            .map_err(|error| Failed::at(&format!("start {}", init.display()), error))?;
        let mut control = ours;
        control.send(&message).await.map_err(|error| Failed::at("describe it", error))?;
        expect(&mut control, &Report::Ready).await?;
        Ok(Self { keeper, control, output, listeners: () })
    }

    /// Has the init start the command and waits until it runs.
    async fn launch(mut self, launch: Launch) -> Result<Begun<Listeners>, Failed> {
        self.run(launch).await?;
        let listeners = self.control.take_listeners().map_err(|error| Failed::at("take the listeners over", error))?;
        let Self { keeper, control, output, listeners: () } = self;
        Ok(Begun { keeper, control, output, listeners })
    }

    /// Has the init start a stem and waits until it is ready: where to bring the function, and what the stem says.
    async fn warm(&mut self, order: Launch) -> Result<(Places, String), Failed> {
        self.order(&Order::Warm(order)).await?;
        let Report::Warmed { said } = heard(&mut self.control).await? else {
            return Err(Failed::at("warm it", "an unexpected report"));
        };
        let places = Places::new(self.control.take_descriptors()).map_err(|error| Failed::at("warm it", error))?;
        Ok((places, said))
    }

    /// What the stem printed last may say why it failed.
    fn with_last_line(&self, failed: Failed) -> Failed {
        let mut printed = [0; LAST_WORDS_BYTES];
        let length = self.output.try_read(&mut printed).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed[..length]);
        match printed.lines().last() {
            Some(line) => Failed { reason: format!("{}; it printed: {line}", failed.reason), ..failed },
            None => failed,
        }
    }

    /// Has the init go as far as it can without a command, and ends it.
    pub(super) async fn probe(mut self, launch: Launch) -> Result<(), Failed> {
        self.run(launch).await?;
        drop(self.control);
        self.keeper.wait().await.map(drop).map_err(|error| Failed::at("wait for its end", error))
    }

    async fn run(&mut self, launch: Launch) -> Result<(), Failed> {
        self.order(&Order::Launch(launch)).await?;
        expect(&mut self.control, &Report::Running).await
    }

    async fn order(&mut self, order: &Order) -> Result<(), Failed> {
        let message = encode(order).map_err(|error| Failed::at("describe it", error))?;
        self.control.send(&message).await.map_err(|error| Failed::at("describe it", error))
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

async fn expect(control: &mut Control, wanted: &Report) -> Result<(), Failed> {
    match heard(control).await? {
        report if report == *wanted => Ok(()),
        other => Err(Failed::at("start it", format!("unexpected report {other:?}"))),
    }
}

/// The next report, unless it is of a failure.
async fn heard(control: &mut Control) -> Result<Report, Failed> {
    match control.report().await {
        Ok(Some(Report::Failed { step, reason })) => Err(Failed { step, reason }),
        Ok(Some(report)) => Ok(report),
        Ok(None) => Err(Failed::at("start it", "nigh-sandbox ended without a word")),
        Err(error) => Err(Failed::at("start it", error)),
    }
}

/// Where files and network are the host's: names of inside become those of outside.
fn as_seen_outside(text: &OsStr, code: &Path, address: Ipv4Addr) -> OsString {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let network = replace(text.as_bytes(), b"127.0.0.1:", format!("{address}:").as_bytes());
    OsString::from_vec(replace(&network, CODE.as_bytes(), code.as_os_str().as_bytes()))
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
            |text: &str| as_seen_outside(OsStr::new(text), Path::new("/code/f"), Ipv4Addr::new(127, 77, 0, 9));
        assert_eq!(outside("http://127.0.0.1:9000/x"), "http://127.77.0.9:9000/x");
        assert_eq!(outside("/var/task/bootstrap:/var/task"), "/code/f/bootstrap:/code/f");
        assert_eq!(outside("plain"), "plain");
    }
}
