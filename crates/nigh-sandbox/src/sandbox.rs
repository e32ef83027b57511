//! A sandbox: one process tree that runs one function's code, isolated from all others.
//!
//! The trait is mechanism only; `nigh_schedule::keep_alive` decides which sandbox lives how long. Inside, the function
//! finds its code read-only at `/var/task`, a private `/tmp`, the Runtime API at `127.0.0.1:9001`, the data door at
//! `127.0.0.1:9000` and the fast path at the abstract socket `@nigh-fast`. It reaches no other network unless it has an
//! outbound network.

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

pub use self::launch::ProgramFault;
pub use self::outbound::OutboundSettings;
pub use self::stem::PrewarmedSandbox;

/// The port of the Runtime API inside a sandbox.
pub const RUNTIME_PORT: u16 = 9001;
/// The port of the data door inside a sandbox.
pub const DATA_PORT: u16 = 9000;

/// The fast path's abstract socket inside a sandbox with its own network (unix(7)); docs/design/fast-path.md.
pub const FAST_PATH: &str = "nigh-fast";
/// The environment variable that tells the function the socket's name, with the `@` of abstract names.
pub const FAST_PATH_VARIABLE: &str = "NIGH_FAST_PATH";

/// Why a sandbox cannot be made or controlled.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// A step of making the sandbox failed.
    #[error("sandbox {id}: {step}: {reason}")]
    Start {
        /// The id of the sandbox.
        id: SandboxId,
        /// What was tried.
        step: String,
        /// The system's reason, with a hint.
        reason: String,
    },
    /// The kernel cannot execute the program in the function's code.
    #[error("sandbox {id}: start {program}: {reason}")]
    Entrypoint {
        /// The id of the sandbox.
        id: SandboxId,
        /// The path of the program inside the sandbox.
        program: String,
        /// What is wrong with the program.
        fault: ProgramFault,
        /// The system's reason.
        reason: String,
    },
    /// The sandbox has ended already.
    #[error("sandbox {0} has ended")]
    Ended(SandboxId),
    /// This machine lacks what the text names.
    #[error("sandboxes cannot be isolated here: {0}")]
    Unsupported(String),
    /// A system call failed.
    #[error("sandbox: {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

/// Receives what a sandbox prints, line by line, without the newline. It must not block.
pub trait LogSink: Send + Sync {
    /// One line, or a piece of one that is longer than the engine's line limit.
    fn line(&self, line: &[u8]);
}

/// What sandbox to make.
pub struct SandboxSpec {
    /// The sandbox's id.
    pub id: SandboxId,
    /// The program and its arguments; the program's path is as seen inside.
    pub command: Vec<OsString>,
    /// The whole environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// The folder that appears read-only at `/var/task`.
    pub code: PathBuf,
    /// The folder that appears read-only at `/opt`; none if the function has no layers.
    pub layers: Option<PathBuf>,
    /// Folders of the host that appear read-only at the same path: the interpreter, its packages.
    pub runtime_folders: Vec<PathBuf>,
    /// The booking, and the memory that the first run may use.
    pub grant: Grant,
    /// The size of the sandbox's /tmp.
    pub tmp: ByteSize,
    /// The most processes and threads.
    pub pids_max: u32,
    /// The outbound network that the function may use beside the two doors.
    pub network: FunctionNetwork,
    /// Receives the standard output and error.
    pub log: Arc<dyn LogSink>,
}

/// What pre-warmed sandbox to make: it has no function, and its runtime has done its imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrewarmedSpec {
    /// The runtime's program. It learns from a descriptor what to become; the descriptor's number is appended as the
    /// last argument.
    pub command: Vec<OsString>,
    /// The whole environment: the part that is the same for all functions.
    pub environment: BTreeMap<OsString, OsString>,
    /// Folders of the host that appear read-only at the same path.
    pub runtime_folders: Vec<PathBuf>,
    /// The memory that it may use until it is a function's.
    pub memory: ByteSize,
    /// The size of /tmp. If the function's is another, it is set when the sandbox becomes the function's.
    pub tmp: ByteSize,
    /// The most processes and threads of the function.
    pub pids_max: u32,
}

/// How a sandbox ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxEnd {
    /// The sandbox's first process exited with this code.
    Exited(i32),
    /// The sandbox's first process was ended by this signal.
    Signalled(i32),
    /// The kernel killed one of the sandbox's processes because memory ran out.
    OutOfMemory,
    /// The sandbox was destroyed by `destroy`.
    Destroyed,
}

/// A started sandbox. The listeners exist in its network; nobody serves them yet.
pub struct StartedSandbox {
    /// The sandbox.
    pub sandbox: Arc<dyn Sandbox>,
    /// The listener of the Runtime API.
    pub runtime: TcpListener,
    /// The listener of the S3 door.
    pub data: TcpListener,
    /// The listener of the fast path; none if the sandbox shares the host's network.
    pub fast: Option<OwnedFd>,
    /// How the sandbox was made, and how long each step took.
    pub steps: Steps,
}

/// Makes sandboxes of one kind.
#[async_trait]
pub trait SandboxEngine: Send + Sync {
    /// The name of the kind: `runc` or `process`.
    fn kind(&self) -> &'static str;
    /// The isolation of its sandboxes in one line for people: what is on, what is off and why.
    fn isolation(&self) -> String;
    /// Why no sandbox can be made now; none if one can.
    fn trouble(&self) -> Option<String> {
        None
    }
    /// The outbound network of its sandboxes, in one line for people.
    ///
    /// # Errors
    /// Why its sandboxes have none.
    fn outbound(&self) -> Result<String, String> {
        Err("the sandbox engine has no outbound network".to_owned())
    }
    /// Makes a sandbox and starts its command.
    async fn start(&self, spec: SandboxSpec) -> Result<StartedSandbox, SandboxError>;
    /// Succeeds if pre-warmed sandboxes can be made here.
    ///
    /// # Errors
    /// Why they cannot.
    fn makes_prewarmed(&self) -> Result<(), String>;
    /// Makes a pre-warmed sandbox.
    async fn warm(&self, spec: &PrewarmedSpec) -> Result<PrewarmedSandbox, SandboxError>;
    /// Makes a sandbox from a pre-warmed one of the command's runtime. If that fails, it makes a new sandbox.
    async fn start_from(&self, stem: PrewarmedSandbox, spec: SandboxSpec) -> Result<StartedSandbox, SandboxError>;
    /// Ends the sandboxes and cgroups that an earlier process of this Nigh left. Returns the number of sandboxes.
    async fn sweep(&self) -> Result<usize, SandboxError>;
}

/// A running sandbox. Every call is harmless after its end. Dropping the last handle destroys it.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// The sandbox's id.
    fn id(&self) -> SandboxId;
    /// The sandbox's memory.
    fn memory(&self) -> &dyn SandboxMemory;
    /// Where the sandbox's tasks are found; none if the engine cannot tell.
    fn tasks(&self) -> Option<Members> {
        None
    }
    /// An invocation begins. Only an out-of-memory kill from now on makes the sandbox's end `OutOfMemory`. Engines that
    /// cannot tell need not implement this.
    fn begin_run(&self) {}
    /// Stops all processes until `thaw`.
    async fn freeze(&self) -> Result<(), SandboxError>;
    /// Lets all processes continue.
    async fn thaw(&self) -> Result<(), SandboxError>;
    /// Returns when everything printed before this call has reached the log sink, an unfinished line as a line. The
    /// wait is bounded, so a sandbox that never stops printing delays nobody. Engines that pass lines on at once need
    /// not implement this.
    async fn flush_log(&self) {}
    /// Ends all processes and removes everything made for the sandbox. Returns when both are done.
    async fn destroy(&self);
    /// Returns when the sandbox has ended, with the first reason.
    async fn ended(&self) -> SandboxEnd;
}
