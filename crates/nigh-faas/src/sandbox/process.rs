//! The engine `process`: each sandbox a process tree of its own behind the kernel's walls, no container runtime.
//!
//! This side decides which walls can be had, makes the cgroup, starts `nigh-sandbox` and speaks with it; what happens
//! inside is `nigh-sandbox`'s. See `launch` for what they say to each other.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use nigh_terms::SandboxId;
use parking_lot::Mutex;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::net::{TcpListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::control::Control;
use super::isolation::Isolation;
use super::launch::{Launch, Report, Walls, encode};
use super::log_lines::Output;
use super::slots::{DEFAULT_UIDS, Slot, Slots, probe_address};
use super::supervise::{ProcessSandbox, Running};
use super::{SandboxEngine, SandboxError, SandboxSpec, Started};
use crate::cgroup::{CgroupHost, Group};

/// The name of the sandboxes' init, beside Nigh's own program.
const INIT: &str = "nigh-sandbox";
/// Where a function's code appears inside.
const CODE: &str = "/var/task";
/// What a sandbox with its own network calls itself.
const OWN_NETWORK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// How long a sandbox may take to stand; it takes milliseconds on an idle machine.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// The init of a sandbox counts against its process limit too.
const INIT_PROCESSES: u32 = 1;
/// The most sandboxes at a time, whatever the range of users is: addresses end there.
const SANDBOXES_MAX: u16 = u16::MAX;

/// What the engine is told.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// Tells this Nigh from others on the machine, the same at each start (a short hash of its state folder).
    pub instance: String,
    /// The program `nigh-sandbox`; none: looked for beside the running program.
    pub init: Option<PathBuf>,
    /// The users that sandboxes run as, when Nigh is root.
    pub uids: Range<u32>,
    /// Run functions also where nothing keeps them apart.
    pub trust_functions: bool,
    /// Where Nigh keeps its state: named when it is not protected.
    pub state: PathBuf,
}

impl ProcessSettings {
    /// The usual settings.
    #[must_use]
    pub fn new(instance: impl Into<String>, state: impl Into<PathBuf>) -> Self {
        let (instance, state) = (instance.into(), state.into());
        Self { instance, init: None, uids: DEFAULT_UIDS, trust_functions: false, state }
    }
}

/// Makes sandboxes out of processes.
#[derive(Debug)]
pub struct ProcessEngine {
    settings: ProcessSettings,
    init: PathBuf,
    isolation: Isolation,
    cgroups: Arc<CgroupHost>,
    slots: Arc<Slots>,
    living: Arc<Living>,
}

/// The sandboxes that live, so that a sweep passes them over.
#[derive(Debug, Default)]
pub(super) struct Living(Mutex<HashSet<String>>);

/// What a sandbox holds while it lives.
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

impl ProcessEngine {
    /// Finds out which walls can be had, by raising them, and takes the strongest.
    ///
    /// # Errors
    /// `Unsupported` if there are none and functions are not trusted, or `nigh-sandbox` cannot be found.
    pub async fn new(settings: ProcessSettings) -> Result<Self, SandboxError> {
        let init = match &settings.init {
            Some(init) => init.clone(),
            None => find_init()?,
        };
        let instance = settings.instance.clone();
        let cgroups = blocking(move || CgroupHost::detect(&instance)).await?;
        let (walls, refused) = probe(&init, &settings).await;
        let walls = match walls {
            Some(walls) => walls,
            None if settings.trust_functions => Walls::None,
            None => return Err(SandboxError::Unsupported(untrusted(&settings, &refused))),
        };
        let count = u16::try_from(settings.uids.len()).unwrap_or(SANDBOXES_MAX);
        let isolation = Isolation { walls, refused, controls: cgroups.controls() };
        Ok(Self {
            slots: Slots::new(count, rand::random()),
            settings,
            init,
            isolation,
            cgroups: Arc::new(cgroups),
            living: Arc::default(),
        })
    }

    /// What keeps its sandboxes apart.
    #[must_use]
    pub fn probe(&self) -> &Isolation {
        &self.isolation
    }

    fn lease(&self, id: SandboxId) -> Result<Lease, SandboxError> {
        let slot = self.slots.lend().ok_or_else(|| SandboxError::Start {
            id,
            step: "find a free user".to_owned(),
            reason: format!("all {} of the range are in use; widen it", self.settings.uids.len()),
        })?;
        let name = id.to_string();
        self.living.0.lock().insert(name.clone());
        Ok(Lease { slot, name, living: Arc::clone(&self.living) })
    }

    fn walls(&self, slot: &Slot) -> Walls {
        let uid = slot.uid(&self.settings.uids);
        match self.isolation.walls {
            Walls::UserAndNamespaces { .. } => Walls::UserAndNamespaces { uid },
            Walls::User { .. } => Walls::User { uid },
            walls @ (Walls::Namespaces | Walls::None) => walls,
        }
    }

    fn launch(&self, spec: &SandboxSpec, lease: &Lease, group: &Group) -> Launch {
        let walls = self.walls(&lease.slot);
        let name = |path: &Path| path.as_os_str().to_owned();
        let mut launch = Launch {
            walls,
            command: spec.command.clone(),
            environment: spec.environment.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            code: name(&spec.code),
            runtime_folders: spec.runtime_folders.iter().map(|folder| name(folder)).collect(),
            tmp_bytes: spec.tmp.bytes(),
            address: OWN_NETWORK,
            join: group.join_files().map(PathBuf::into_os_string).collect(),
            thaw: group.thaw_before_death().map(|(file, word)| (file.into_os_string(), word.to_owned())),
            folders: group.folders().iter().map(|folder| name(folder)).collect(),
            processes_max: match self.isolation.controls.processes {
                Ok(()) => None,
                Err(_) => walls.own_processes().map(|own| u64::from(spec.pids_max + own)),
            },
        };
        if !walls.has_namespaces() {
            launch.address = lease.slot.address();
            let outside = |text: &OsStr| as_seen_outside(text, &spec.code, launch.address);
            launch.command = launch.command.iter().map(|text| outside(text)).collect();
            for (_, value) in &mut launch.environment {
                *value = outside(value);
            }
        }
        launch
    }

    async fn begin(&self, spec: SandboxSpec) -> Result<Started, SandboxError> {
        let id = spec.id;
        let lease = self.lease(id)?;
        let (cgroups, grant, pids_max) = (Arc::clone(&self.cgroups), spec.grant, spec.pids_max + INIT_PROCESSES);
        let name = lease.name.clone();
        let group = blocking(move || cgroups.create(&name, grant, pids_max)).await?.map_err(|error| {
            SandboxError::Start { id, step: "make its cgroup".to_owned(), reason: error.to_string() }
        })?;
        let launch = self.launch(&spec, &lease, &group);
        // From here on the group is ended by whoever holds this, on every way out.
        let unfinished = Unfinished(Some((group, lease)));
        let outcome = timeout(START_PATIENCE, start_init(&self.init, &launch)).await;
        let Begun { keeper, control, output, listeners } = match outcome {
            Ok(Ok(begun)) => begun,
            Ok(Err(failed)) => return Err(failed.into_error(id)),
            Err(_) => return Err(Failed::at("start it", format!("not done in {START_PATIENCE:?}")).into_error(id)),
        };
        let [runtime, data] = listeners.map_err(|error| Failed::at("take the listeners over", error).into_error(id))?;
        let output = Output::new(output);
        let Some((group, lease)) = unfinished.finish() else { return Err(SandboxError::Ended(id)) };
        let running = Running { id, control, keeper, output, log: spec.log, group, lease };
        Ok(Started { sandbox: Arc::new(ProcessSandbox::supervise(running)), runtime, data })
    }
}

#[async_trait]
impl SandboxEngine for ProcessEngine {
    fn kind(&self) -> &'static str {
        "process"
    }

    fn isolation(&self) -> String {
        self.isolation.to_string()
    }

    async fn start(&self, spec: SandboxSpec) -> Result<Started, SandboxError> {
        if spec.command.is_empty() {
            return Err(Failed::at("start its command", "there is none").into_error(spec.id));
        }
        self.begin(spec).await
    }

    async fn sweep(&self) -> Result<usize, SandboxError> {
        let (cgroups, living) = (Arc::clone(&self.cgroups), Arc::clone(&self.living));
        blocking(move || cgroups.sweep(&|name| living.0.lock().contains(name))).await
    }
}

/// Ends the group of a sandbox that does not come to stand; its slot is free only then.
struct Unfinished(Option<(Group, Lease)>);

impl Unfinished {
    fn finish(mut self) -> Option<(Group, Lease)> {
        self.0.take()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some((group, lease)) = self.0.take() else { return };
        let end = move || {
            group.end();
            drop(lease);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(end)),
            Err(_) => end(),
        }
    }
}

/// A step that failed, before it is known of which sandbox.
struct Failed {
    step: String,
    reason: String,
}

impl Failed {
    fn at(step: &str, reason: impl ToString) -> Self {
        Self { step: step.to_owned(), reason: reason.to_string() }
    }

    fn into_error(self, id: SandboxId) -> SandboxError {
        SandboxError::Start { id, step: self.step, reason: self.reason }
    }
}

/// What runs, and how it is spoken with.
struct Begun {
    keeper: Child,
    control: Control,
    output: Receiver,
    listeners: io::Result<[TcpListener; 2]>,
}

/// Starts `nigh-sandbox` and waits until the command runs.
async fn start_init(init: &Path, launch: &Launch) -> Result<Begun, Failed> {
    let message = encode(launch).map_err(|error| Failed::at("describe it", error))?;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(|error| Failed::at("make a socket", error))?;
    let ours = ours
        .set_nonblocking(true)
        .and_then(|()| UnixStream::from_std(ours))
        .map_err(|error| Failed::at("make a socket", error))?;
    // One pipe for both, so that lines keep their order.
    let pipe = || -> io::Result<_> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Receiver::from_owned_fd(read)?, write.try_clone()?, write))
    };
    let (output, copy, write) = pipe().map_err(|error| Failed::at("make a pipe", error))?;
    let mut command = Command::new(init);
    command
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(copy))
        .stderr(Stdio::from(write))
        // A ctrl-C at Nigh's terminal is Nigh's to answer.
        .process_group(0);
    let keeper = command.spawn().map_err(|error| Failed::at(&format!("start {}", init.display()), error))?;
    // Holds the other ends of the socket and the pipe, whose closing must show when the sandbox ends.
    drop(command);
    let mut ours = ours;
    ours.write_all(&message).await.map_err(|error| Failed::at("describe it", error))?;
    let mut control = Control::new(ours);
    match control.report().await {
        Ok(Some(Report::Running)) => {}
        Ok(Some(Report::Failed { step, reason })) => return Err(Failed { step, reason }),
        Ok(Some(other)) => return Err(Failed::at("start it", format!("unexpected report {other:?}"))),
        Ok(None) => return Err(Failed::at("start it", "nigh-sandbox ended without a word")),
        Err(error) => return Err(Failed::at("start it", error)),
    }
    let listeners = control.take_listeners();
    Ok(Begun { keeper, control, output, listeners })
}

/// Raises walls around nothing, the strongest first; returns the first that stand, and why the others do not.
async fn probe(init: &Path, settings: &ProcessSettings) -> (Option<Walls>, Vec<String>) {
    let uid = settings.uids.start;
    let root = rustix::process::geteuid().is_root();
    let candidates: &[(&str, Walls)] = if root {
        &[
            ("own user and namespaces", Walls::UserAndNamespaces { uid }),
            ("user namespace", Walls::Namespaces),
            ("own user", Walls::User { uid }),
        ]
    } else {
        &[("user namespace", Walls::Namespaces)]
    };
    let mut refused = Vec::new();
    for (name, walls) in candidates {
        let launch = Launch {
            walls: *walls,
            command: Vec::new(),
            environment: Vec::new(),
            // Any folder that every user sees.
            code: OsString::from("/usr"),
            runtime_folders: Vec::new(),
            tmp_bytes: 1 << 20,
            // On a shared network another Nigh may probe at the same time.
            address: if walls.has_namespaces() { OWN_NETWORK } else { probe_address(rand::random()) },
            join: Vec::new(),
            thaw: None,
            folders: Vec::new(),
            processes_max: None,
        };
        match timeout(START_PATIENCE, start_init(init, &launch)).await {
            Ok(Ok(Begun { mut keeper, control, .. })) => {
                drop(control);
                let _reaped_later = keeper.wait().await;
                return (Some(*walls), refused);
            }
            Ok(Err(Failed { step, reason })) => refused.push(format!("{name}: cannot {step}: {reason}")),
            Err(_) => refused.push(format!("{name}: not done in {START_PATIENCE:?}")),
        }
    }
    (None, refused)
}

/// What a function could do where nothing keeps it apart.
fn untrusted(settings: &ProcessSettings, refused: &[String]) -> String {
    format!(
        "{}. A function could read and change whatever Nigh's own user can: its home folder, Nigh's state in {} with \
         the keys and the code of all functions, and the memory of other functions. Start Nigh as root, or allow user \
         namespaces; or start it with --trust-functions if you trust every function with that",
        refused.join("; "),
        settings.state.display()
    )
}

/// Beside the running program, or beside the folder it is in (where Cargo puts tests).
fn find_init() -> Result<PathBuf, SandboxError> {
    let this = std::env::current_exe()
        .map_err(|source| SandboxError::Io { what: "find the running program".to_owned(), source })?;
    this.ancestors().skip(1).take(2).map(|folder| folder.join(INIT)).find(|init| init.is_file()).ok_or_else(|| {
        SandboxError::Unsupported(format!(
            "the program {INIT} is missing; install it beside {}, or name it in the settings",
            this.display()
        ))
    })
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

/// Runs what blocks for up to milliseconds off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, SandboxError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| SandboxError::Io { what: "run a blocking step".to_owned(), source: io::Error::other(error) })
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

    #[test]
    fn the_refusal_names_what_a_function_could_reach() {
        let message = untrusted(&ProcessSettings::new("x", "/srv/nigh"), &["user namespace: forbidden".to_owned()]);
        for part in ["user namespace: forbidden", "home", "/srv/nigh", "--trust-functions"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[tokio::test]
    async fn a_missing_init_is_named() {
        let settings = ProcessSettings { init: Some("/absent/init".into()), ..ProcessSettings::new("x", "/srv/nigh") };
        let error = ProcessEngine::new(settings).await.unwrap_err();
        assert!(error.to_string().contains("/absent/init"), "{error}");
    }
}
