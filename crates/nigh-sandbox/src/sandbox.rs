//! A sandbox: one process tree that runs one function's code, apart from all others.
//!
//! The trait is mechanism only; which sandbox lives how long is decided in `nigh_schedule::keep_alive`.
//! Inside, the function finds: its code read-only at `/var/task`, a private `/tmp`, the Runtime API at
//! `127.0.0.1:9001`, the data door at `127.0.0.1:9000`, the fast path at the abstract socket `@nigh-fast`, and nothing
//! else of the network, unless it is given a way out.

mod as_seen_outside;
mod blank;
mod blank_stock;
pub mod bundle;
mod control;
mod external_program;
mod factory;
pub mod isolation;
mod late_mount;
pub mod launch;
pub mod local;
pub mod log_lines;
pub mod mounts;
mod oci_config;
mod outbound;
mod process;
mod processes;
pub mod root_tree;
mod runc;
pub mod seccomp_profile;
mod slots;
mod stem;
mod step_failure;
mod supervise;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use nigh_functions::function_network::FunctionNetwork;
use nigh_llc::resctrl::Members;
use nigh_schedule::activation::Steps;
use nigh_schedule::memory::grant::{Grant, SandboxMemory};
use nigh_terms::{ByteSize, SandboxId};
use thiserror::Error;
use tokio::net::TcpListener;

pub use self::outbound::OutboundSettings;
pub use self::stem::Stem;

/// Where the Runtime API listens inside a sandbox.
pub const RUNTIME_PORT: u16 = 9001;
/// Where the data door listens inside a sandbox.
pub const DATA_PORT: u16 = 9000;

/// The fast path's abstract socket inside a sandbox whose network is its own (unix(7)); docs/design/fast-path.md.
pub const FAST_PATH: &str = "nigh-fast";
/// The variable that names it to the function, with the `@` that abstract names are written with.
pub const FAST_PATH_VARIABLE: &str = "NIGH_FAST_PATH";

/// Why a sandbox cannot be made or driven.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// A step of its making failed.
    #[error("sandbox {id}: {step}: {reason}")]
    Start {
        /// The sandbox.
        id: SandboxId,
        /// What was tried.
        step: String,
        /// The system's reason, with a hint.
        reason: String,
    },
    /// It has ended already.
    #[error("sandbox {0} has ended")]
    Ended(SandboxId),
    /// This machine lacks something.
    #[error("sandboxes cannot be isolated here: {0}")]
    Unsupported(String),
    /// The system's reason.
    #[error("sandbox: {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

/// Takes what a sandbox prints, line by line as it comes, without the newline. It must not block.
pub trait LogSink: Send + Sync {
    /// One line, or a piece of one that is longer than the engine's line limit.
    fn line(&self, line: &[u8]);
}

/// What a sandbox shall be.
pub struct SandboxSpec {
    /// Its name.
    pub id: SandboxId,
    /// The program and its arguments; the program's path is as seen inside.
    pub command: Vec<OsString>,
    /// Its whole environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// The folder that appears read-only at `/var/task`.
    pub code: PathBuf,
    /// The folder that appears read-only at `/opt`, if there is one.
    pub layers: Option<PathBuf>,
    /// Folders of the host that appear read-only at the same path: the interpreter, its packages.
    pub runtime_folders: Vec<PathBuf>,
    /// Its memory.
    pub grant: Grant,
    /// The size of its /tmp.
    pub tmp: ByteSize,
    /// Processes and threads it may have.
    pub pids_max: u32,
    /// What of the network it has beside the two doors.
    pub network: FunctionNetwork,
    /// Takes its standard output and error.
    pub log: Arc<dyn LogSink>,
}

/// What a stem shall be: a sandbox without a function, in which a runtime has its imports behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StemSpec {
    /// The runtime's program; it is told on a descriptor, whose number is added as the last argument, what to become.
    pub command: Vec<OsString>,
    /// Its whole environment: what is the same for all functions.
    pub environment: BTreeMap<OsString, OsString>,
    /// Folders of the host that appear read-only at the same path.
    pub runtime_folders: Vec<PathBuf>,
    /// What it may use until it is a function's.
    pub memory: ByteSize,
    /// The size of /tmp that functions mostly have; another is set when it is a function's.
    pub tmp: ByteSize,
    /// Processes and threads that a function may have.
    pub pids_max: u32,
}

/// How a sandbox ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxEnd {
    /// Its first process exited with this code.
    Exited(i32),
    /// Its first process was ended by this signal.
    Signalled(i32),
    /// The kernel ended a process of it for want of memory.
    OutOfMemory,
    /// `destroy` was called.
    Destroyed,
}

/// A sandbox that has begun: the listeners stand in its network, nobody serves them yet.
pub struct StartedSandbox {
    /// The sandbox.
    pub sandbox: Arc<dyn Sandbox>,
    /// Where its runtime client will ask.
    pub runtime: TcpListener,
    /// Where its S3 clients will ask.
    pub data: TcpListener,
    /// Where its clients will ask without HTTP; none where its network is not its own.
    pub fast: Option<OwnedFd>,
    /// How it came to be.
    pub steps: Steps,
}

/// Makes sandboxes of one kind.
#[async_trait]
pub trait SandboxEngine: Send + Sync {
    /// Its kind: `runc`, `process`.
    fn kind(&self) -> &'static str;
    /// How its sandboxes are kept apart, in one line for people: what is on, what is off and why.
    fn isolation(&self) -> String;
    /// What keeps it from making sandboxes now; nothing, where it can.
    fn trouble(&self) -> Option<String> {
        None
    }
    /// How it gives sandboxes a way out to the network, in one line for people.
    ///
    /// # Errors
    /// Why it does not.
    fn outbound(&self) -> Result<String, String> {
        Err("the engine has no way out".to_owned())
    }
    /// Makes a sandbox and starts its command.
    async fn start(&self, spec: SandboxSpec) -> Result<StartedSandbox, SandboxError>;
    /// Whether it makes stems here.
    ///
    /// # Errors
    /// Why it does not.
    fn makes_stems(&self) -> Result<(), String>;
    /// Makes a stem.
    async fn warm(&self, spec: &StemSpec) -> Result<Stem, SandboxError>;
    /// Makes a sandbox out of a stem whose runtime is the command's; out of another if that one cannot be it.
    async fn start_from(&self, stem: Stem, spec: SandboxSpec) -> Result<StartedSandbox, SandboxError>;
    /// Ends whatever an earlier process of this Nigh left: sandboxes and their cgroups. Returns how many.
    async fn sweep(&self) -> Result<usize, SandboxError>;
}

/// A running sandbox. No call does harm after its end. Dropping the last handle destroys it.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Its name.
    fn id(&self) -> SandboxId;
    /// Its memory.
    fn memory(&self) -> &dyn SandboxMemory;
    /// Where its tasks are found; nothing, where the engine cannot say.
    fn tasks(&self) -> Option<Members> {
        None
    }
    /// An invocation begins: only what the kernel ends for want of memory from here on makes its end `OutOfMemory`.
    /// Engines that cannot tell need not do anything.
    fn begin_run(&self) {}
    /// Stops all its processes until `thaw`.
    async fn freeze(&self) -> Result<(), SandboxError>;
    /// Lets them run on.
    async fn thaw(&self) -> Result<(), SandboxError>;
    /// Returns when what it printed before this call has come to the log sink, an unfinished line as a line; bounded,
    /// so that a sandbox which never stops printing holds nobody up. Engines that hand lines over at once need not do
    /// anything.
    async fn flush_log(&self) {}
    /// Ends all its processes and removes what was made for it. Returns when both are done.
    async fn destroy(&self);
    /// Returns when it has ended, with the first reason.
    async fn ended(&self) -> SandboxEnd;
}
