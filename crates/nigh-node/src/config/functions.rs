//! Functions, their sandboxes, and asynchronous invocations.

use std::path::PathBuf;

use nigh_sandbox::sandbox::local::EngineChoice;
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use super::lists::{Folders, ListSetting, Modules, Namespaces, Resolvers};
use super::{PythonChoice, Span, Switch};
use crate::machine::Machine;

/// Functions and their sandboxes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSettings {
    /// The memory for sandboxes, which is also the most that a function can book. The cache uses the part that
    /// sandboxes leave, and lends them its own.
    pub memory: ByteSize,
    /// The most sandboxes.
    pub sandboxes_max: usize,
    /// How long an idle sandbox is kept.
    pub keep_alive: Span,
    /// How long after its response a sandbox is frozen.
    pub freeze_grace: Span,
    /// How long an invocation may wait for a sandbox.
    pub queue: Span,
    /// The most invocations that wait.
    pub queue_max: usize,
    /// The interpreters of `python3.x` functions: programs separated by `:`, or `auto`, of each version one that is
    /// found in the virtual environment in use, `.venv` here, `~/.local/share/nigh/python`, beside `nigh`, `PATH`, uv
    /// and pyenv. The first with `awslambdaric` and boto3 is the default; Nigh lends `awslambdaric` to the others.
    pub python: PythonChoice,
    /// The Node.js of functions: programs separated by `:`. `node` alone means of each version one that is found in
    /// `PATH` and by nvm, fnm, Volta, mise and n.
    pub node: PathBuf,
    /// Further folders that functions may read, at the same path; separated by `:` in a variable.
    pub runtime_folders: Folders,
    /// The sandbox engine: `runc`, `process`, or `auto`: runc if it works.
    pub engine: EngineChoice,
    /// The program runc; if absent, the one in `PATH`.
    pub runc: Option<PathBuf>,
    /// Run functions even if this machine's files cannot be hidden from them.
    pub trust_functions: bool,
    /// The first user id of sandboxes, if Nigh runs as root.
    pub uid_base: u32,
    /// Whether boto3 in Python sandboxes uses the fast path, if `s3.fast_path` is on.
    pub fast_path: Switch,
    /// Keep pre-warmed sandboxes, in which a runtime has its imports done.
    pub prewarm: PrewarmMode,
    /// The most memory that pre-warmed sandboxes may book, within `memory`.
    pub prewarm_memory: ByteSize,
    /// The most pre-warmed sandboxes, within `sandboxes_max`.
    pub prewarm_max: usize,
    /// Modules that a pre-warmed Python has imported; separated by `,` in a variable.
    pub prewarm_imports: Modules,
    /// The first program of a sandbox; if absent, `nigh-sandbox` beside `nigh`.
    pub sandbox_program: Option<PathBuf>,
    /// Whether a function that asks for an outbound network gets one.
    pub network: Network,
    /// The namespaces whose functions may have it; if empty, all. Separated by `,` in a variable.
    pub network_namespaces: Namespaces,
    /// The IPv4 name servers of such functions; if empty, this machine's own. Separated by `,` in a variable.
    pub network_resolvers: Resolvers,
    /// The program slirp4netns; if absent, the one in `PATH`.
    pub network_tool: Option<PathBuf>,
}

/// Asynchronous invocations.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventSettings {
    /// The most accepted events of one namespace that wait or run; further ones are rejected.
    pub queue_max: usize,
    /// The most bytes of their inputs, and of those of dead letters.
    pub queue_bytes: ByteSize,
    /// The most events that run at a time, over all namespaces.
    pub running_max: usize,
    /// The most dead letters of one namespace; the oldest are removed first.
    pub dead_max: usize,
    /// The wait before the first retry after a function's error; twice as long before the second.
    pub retry_wait: Span,
    /// The first wait after a throttle; it doubles up to 300 times this.
    pub back_off: Span,
}

/// Whether sandboxes are pre-warmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrewarmMode {
    /// As many sandboxes are pre-warmed as recent cold starts need, within the limits.
    On,
    /// No sandbox is pre-warmed.
    Off,
}

/// Whether functions may have an outbound network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// No function has an outbound network.
    None,
    /// Functions that ask for it have one.
    Permitted,
}

impl FunctionSettings {
    pub(super) fn defaults(machine: &Machine) -> Self {
        Self {
            memory: ByteSize(machine.memory.bytes() / 2),
            sandboxes_max: 256,
            keep_alive: Span::seconds(3600),
            freeze_grace: Span::millis(50),
            queue: Span::seconds(10),
            queue_max: 1000,
            python: PythonChoice::Auto,
            node: PathBuf::from("node"),
            runtime_folders: Folders::default(),
            engine: EngineChoice::Auto,
            runc: None,
            trust_functions: false,
            uid_base: 2_000_000_000,
            fast_path: Switch::On,
            prewarm: PrewarmMode::On,
            prewarm_memory: ByteSize(machine.memory.bytes() / 16),
            prewarm_max: 8,
            prewarm_imports: ListSetting(vec!["boto3".to_owned()]),
            sandbox_program: None,
            network: Network::None,
            network_namespaces: Namespaces::default(),
            network_resolvers: Resolvers::default(),
            network_tool: None,
        }
    }
}

impl Default for EventSettings {
    fn default() -> Self {
        Self {
            queue_max: 10_000,
            queue_bytes: ByteSize::mib(256),
            running_max: 100,
            dead_max: 1000,
            retry_wait: Span::seconds(60),
            back_off: Span::seconds(1),
        }
    }
}
