//! A function's process: its command, its environment as Lambda sets it, and the folders it needs. Pure.

mod environment;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nigh_functions::function::{Function, Runtime};
use nigh_terms::{AccessKeyId, SandboxId, SecretKey, Timestamp};
use thiserror::Error;

pub use self::environment::RESERVED_NAMES;
use self::environment::{complete_path, defaults, fixed, fixed_by_runtime, of_action, prepend_path};
use crate::sandbox::root_tree::CODE;

/// The pre-warmed runtime of Python, as a program in one argument.
const PYTHON_PREWARM: &str = include_str!("../../../runtimes/python/nigh_stem.py");
/// The folder of Nigh's Python package that is first in the path. Its `sitecustomize` loads the hook for boto3 and puts
/// the package itself last.
pub const SITE_FOLDER: &str = "site";

/// The programs that call OpenWhisk's actions and Lambda's handlers in JavaScript, in the launchers' folder.
const NODE_LAUNCHER: &str = "launcher.js";
const NODE_CLIENT: &str = "lambda.js";
/// The share of its memory that a function's JavaScript heap may have, in percent, as in Lambda. By itself Node.js goes by
/// the limit at its start, which may be far below what the function booked.
const NODE_HEAP_PERCENT: u64 = 90;
/// A script that is started in place of the runtime, with the runtime's command as its arguments ("Modifying the runtime
/// environment").
const WRAPPER: &str = "AWS_LAMBDA_EXEC_WRAPPER";
/// The argument with which the adapter runs a program for each invocation.
pub const EXEC_MODE: &str = "exec";

/// A Python that functions may run on, with the vendor's runtime interface client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonRuntime {
    /// The minor version: the `x` of 3.x.
    pub minor: u8,
    /// The interpreter: a virtual environment's, or one whose packages hold `awslambdaric`.
    pub interpreter: PathBuf,
    /// Folders that the interpreter needs beyond the system's own: the virtual environment, its base installation.
    pub folders: Vec<PathBuf>,
    /// A folder with the vendor's client, for an interpreter whose own packages have none.
    pub client: Option<PathBuf>,
}

/// A Node.js that functions may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRuntime {
    /// The major version.
    pub major: u8,
    /// The path of the program.
    pub program: PathBuf,
    /// Folders that the program needs beyond the system's own.
    pub folders: Vec<PathBuf>,
}

/// The values that all functions of a node share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeSettings {
    /// The AWS region that functions see in their environment.
    pub region: String,
    /// The installed Pythons.
    pub pythons: Vec<PythonRuntime>,
    /// The program that connects functions which are HTTP servers; none if it is not installed. It is alone in its
    /// folder.
    pub http_adapter: Option<PathBuf>,
    /// The folder of Nigh's Python package (`runtimes/python`); none if functions do not get it.
    pub python_library: Option<PathBuf>,
    /// The installed versions of Node.js.
    pub nodes: Vec<NodeRuntime>,
    /// The folder of the programs that call OpenWhisk's actions, and handlers in JavaScript (`runtimes/openwhisk`,
    /// `runtimes/node`); none if they could not be unpacked.
    pub launchers: Option<PathBuf>,
}

/// The values of one sandbox's environment.
pub struct SandboxIdentity<'a> {
    /// The id of the sandbox.
    pub id: SandboxId,
    /// The access key of the sandbox.
    pub key: &'a AccessKeyId,
    /// The secret of the sandbox's access key.
    pub secret: &'a SecretKey,
    /// When the sandbox is made: a part of its log stream's name.
    pub made: Timestamp,
}

/// A command to start as a process.
pub struct RuntimeCommand {
    /// The program and its arguments, as seen inside.
    pub command: Vec<OsString>,
    /// The whole environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// Folders of the host that the process needs.
    pub folders: Vec<PathBuf>,
}

/// Why a function cannot have a process.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuntimeCommandError {
    /// The node lacks the Python that the function wants.
    #[error("python3.{asked} is not installed here (there is: {there}); deploy the function for one that is")]
    NoPython {
        /// The minor version that the function wants.
        asked: u8,
        /// The installed versions.
        there: String,
    },
    /// The node has no adapter for HTTP servers.
    #[error("{0} is not installed here: nigh-http-adapter was not found beside nigh")]
    NoHttpAdapter(&'static str),
    /// The node lacks the Node.js that the function wants: its major version.
    #[error("Node.js {0} is not installed here; name it in functions.node, or deploy the function for another version")]
    NoNode(u8),
    /// The programs that call actions and handlers could not be unpacked.
    #[error("functions of this runtime cannot be called here: `nigh status` says why its programs are missing")]
    NoLaunchers,
}

/// The command of `function`.
///
/// # Errors
/// If the function's runtime is not installed.
pub fn runtime_command(
    function: &Function,
    settings: &RuntimeSettings,
    sandbox: &SandboxIdentity<'_>,
) -> Result<RuntimeCommand, RuntimeCommandError> {
    let (mut command, folders) = match function.runtime {
        Runtime::Provided => (vec![OsString::from(format!("{CODE}/bootstrap"))], Vec::new()),
        Runtime::ProvidedHttp => {
            let (adapter, folder) = adapter(settings, "provided.http")?;
            (vec![adapter.into()], vec![folder])
        }
        Runtime::Native => {
            let (adapter, folder) = adapter(settings, "native")?;
            (vec![adapter.into(), EXEC_MODE.into()], vec![folder])
        }
        Runtime::Node { major } => {
            let node = settings.nodes.iter().find(|node| node.major == major);
            let node = node.ok_or(RuntimeCommandError::NoNode(major))?;
            let launchers = settings.launchers.as_ref().ok_or(RuntimeCommandError::NoLaunchers)?;
            let program = launchers.join(if function.action.is_some() { NODE_LAUNCHER } else { NODE_CLIENT });
            let folders = node.folders.iter().chain([launchers]).cloned().collect();
            let heap = format!("--max-old-space-size={}", function.memory.mib_ceil() * NODE_HEAP_PERCENT / 100);
            (vec![node.program.clone().into(), heap.into(), program.into(), (&function.handler).into()], folders)
        }
        Runtime::Python { minor } => {
            let python = settings.pythons.iter().find(|python| python.minor == minor).ok_or_else(|| {
                let there: Vec<String> = settings.pythons.iter().map(|one| format!("python3.{}", one.minor)).collect();
                RuntimeCommandError::NoPython { asked: minor, there: there.join(", ") }
            })?;
            let command =
                vec![python.interpreter.clone().into(), "-m".into(), "awslambdaric".into(), (&function.handler).into()];
            (command, python_folders(python, settings))
        }
    };
    let mut environment = defaults(&function.runtime, !function.layers.is_empty());
    environment.extend(function.environment.iter().map(|(name, value)| (name.clone(), value.clone())));
    for name in RESERVED_NAMES {
        environment.remove(name);
    }
    environment.extend(fixed(function, settings, sandbox));
    if let Some(action) = &function.action {
        environment.extend(of_action(function, action, sandbox));
        if matches!(function.runtime, Runtime::Python { .. }) {
            let launchers = settings.launchers.as_ref().ok_or(RuntimeCommandError::NoLaunchers)?;
            prepend_path(&mut environment, launchers);
        }
    }
    complete_path(&mut environment, &function.runtime, settings);
    let is_managed = matches!(function.runtime, Runtime::Python { .. } | Runtime::Node { .. });
    if is_managed && let Some(wrapper) = environment.get(WRAPPER).filter(|wrapper| !wrapper.is_empty()) {
        command.insert(0, wrapper.into());
    }
    let environment = environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    Ok(RuntimeCommand { command, environment, folders })
}

/// The command of a pre-warmed `runtime`: a process that imports `imports` and then waits to become any function's of
/// this runtime. None if the runtime cannot be pre-warmed or is not installed.
#[must_use]
pub fn prewarm_command(runtime: &Runtime, settings: &RuntimeSettings, imports: &[String]) -> Option<RuntimeCommand> {
    let Runtime::Python { minor } = runtime else { return None };
    let python = settings.pythons.iter().find(|python| python.minor == *minor)?;
    let command = [python.interpreter.clone().into(), "-c".into(), PYTHON_PREWARM.into()];
    let command = command.into_iter().chain(imports.iter().map(Into::into)).collect();
    let mut environment = defaults(runtime, false);
    environment.extend(fixed_by_runtime(runtime));
    complete_path(&mut environment, runtime, settings);
    let environment = environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    Some(RuntimeCommand { command, environment, folders: python_folders(python, settings) })
}

/// The folders of `python` and of Nigh's package.
fn python_folders(python: &PythonRuntime, settings: &RuntimeSettings) -> Vec<PathBuf> {
    let own = [&python.client, &settings.python_library, &settings.launchers];
    python.folders.iter().chain(own.into_iter().flatten()).cloned().collect()
}

/// The adapter for functions that do not speak the Runtime API, and its folder. `runtime` is named in the error.
fn adapter(settings: &RuntimeSettings, runtime: &'static str) -> Result<(PathBuf, PathBuf), RuntimeCommandError> {
    let adapter = settings.http_adapter.clone().ok_or(RuntimeCommandError::NoHttpAdapter(runtime))?;
    let folder = adapter.parent().map(Path::to_owned).ok_or(RuntimeCommandError::NoHttpAdapter(runtime))?;
    Ok((adapter, folder))
}

#[cfg(test)]
mod tests;
