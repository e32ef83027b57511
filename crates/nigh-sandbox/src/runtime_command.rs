//! A function's process: its command, its environment as Lambda sets it, and the folders it needs. Pure.
//!
//! The environment follows the Lambda developer guide, "Defined runtime environment variables": a function cannot set
//! the reserved names, and can replace the other defaults.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nigh_functions::action::Action;
use nigh_functions::function::{Function, Runtime};
use nigh_terms::{AccessKeyId, SandboxId, SecretKey, Timestamp};
use thiserror::Error;

use crate::sandbox::root_tree::{CODE, LAYERS};
use crate::sandbox::{DATA_PORT, RUNTIME_PORT};

/// The pre-warmed runtime of Python, as a program in one argument.
const PYTHON_PREWARM: &str = include_str!("../../../runtimes/python/nigh_stem.py");
/// The place of Lambda's own runtimes; empty in Nigh's sandboxes.
const RUNTIME_DIR: &str = "/var/runtime";
/// The folder of Nigh's Python package that is first in the path. Its `sitecustomize` loads the hook for boto3 and puts
/// the package itself last.
pub const SITE_FOLDER: &str = "site";

const PYTHON_PATH: &str = "PYTHONPATH";
/// The launcher of actions for Node.js, in its folder.
const NODE_LAUNCHER: &str = "launcher.js";
/// The argument with which the adapter runs a program for each invocation.
pub const EXEC_MODE: &str = "exec";

/// Names that a function's own environment cannot set (Lambda developer guide).
pub const RESERVED_NAMES: [&str; 18] = [
    "_HANDLER",
    "_X_AMZN_TRACE_ID",
    "AWS_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_DEFAULT_REGION",
    "AWS_EXECUTION_ENV",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_VERSION",
    "AWS_LAMBDA_INITIALIZATION_TYPE",
    "AWS_LAMBDA_LOG_GROUP_NAME",
    "AWS_LAMBDA_LOG_STREAM_NAME",
    "AWS_LAMBDA_RUNTIME_API",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "LAMBDA_RUNTIME_DIR",
    "LAMBDA_TASK_ROOT",
];

/// A Python that functions may run on, with the vendor's runtime interface client among its packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonRuntime {
    /// The minor version: the `x` of 3.x.
    pub minor: u8,
    /// The interpreter: a virtual environment's, or one whose packages hold `awslambdaric`.
    pub interpreter: PathBuf,
    /// Folders that the interpreter needs beyond the system's own: the virtual environment, its base installation.
    pub folders: Vec<PathBuf>,
}

/// A Node.js that actions may run on.
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
    /// The folder of the launchers of OpenWhisk actions (`runtimes/openwhisk`); none if they could not be unpacked.
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
    /// The node lacks the Node.js that the action wants: its major version.
    #[error("nodejs:{0} is not installed here; set functions.node to one, or deploy the action for another kind")]
    NoNode(u8),
    /// The launchers of actions could not be unpacked.
    #[error("OpenWhisk's actions cannot be called here: `nigh status` says why their launchers are missing")]
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
    let (command, folders) = match function.runtime {
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
            let launcher = launchers.join(NODE_LAUNCHER);
            let folders = node.folders.iter().chain([launchers]).cloned().collect();
            (vec![node.program.clone().into(), launcher.into(), (&function.handler).into()], folders)
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
    prepend_site(&mut environment, &function.runtime, settings);
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
    prepend_site(&mut environment, runtime, settings);
    let environment = environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    Some(RuntimeCommand { command, environment, folders: python_folders(python, settings) })
}

/// The folders of `python` and of Nigh's package.
fn python_folders(python: &PythonRuntime, settings: &RuntimeSettings) -> Vec<PathBuf> {
    python.folders.iter().chain(&settings.python_library).chain(&settings.launchers).cloned().collect()
}

/// The adapter for functions that do not speak the Runtime API, and its folder. `runtime` is named in the error.
fn adapter(settings: &RuntimeSettings, runtime: &'static str) -> Result<(PathBuf, PathBuf), RuntimeCommandError> {
    let adapter = settings.http_adapter.clone().ok_or(RuntimeCommandError::NoHttpAdapter(runtime))?;
    let folder = adapter.parent().map(Path::to_owned).ok_or(RuntimeCommandError::NoHttpAdapter(runtime))?;
    Ok((adapter, folder))
}

/// The environment of an OpenWhisk action. The launcher sets the values that differ between activations.
fn of_action(function: &Function, action: &Action, sandbox: &SandboxIdentity<'_>) -> Vec<(String, String)> {
    let mut environment = vec![
        ("__OW_NAMESPACE".to_owned(), function.namespace.to_string()),
        ("__OW_ACTION_NAME".to_owned(), format!("/{}/{}", function.namespace, action.path)),
        ("__OW_ACTION_VERSION".to_owned(), action.version.to_string()),
    ];
    if action.annotations.says("provide-api-key") {
        environment.push(("__OW_API_KEY".to_owned(), format!("{}:{}", sandbox.key, sandbox.secret.reveal())));
    }
    environment
}

/// Puts `folder` before the function's own path.
fn prepend_path(environment: &mut BTreeMap<String, String>, folder: &Path) {
    let folder = folder.display().to_string();
    let path = match environment.get(PYTHON_PATH) {
        Some(own) if !own.is_empty() => format!("{folder}:{own}"),
        _ => folder,
    };
    environment.insert(PYTHON_PATH.to_owned(), path);
}

/// The package's `sitecustomize` comes before the function's own path, and loads a `sitecustomize` of the function
/// itself.
fn prepend_site(environment: &mut BTreeMap<String, String>, runtime: &Runtime, settings: &RuntimeSettings) {
    let (Runtime::Python { .. }, Some(library)) = (runtime, &settings.python_library) else { return };
    prepend_path(environment, &library.join(SITE_FOLDER));
}

/// Defaults that a function may replace.
fn defaults(runtime: &Runtime, has_layers: bool) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::from(
        [
            ("LANG", "en_US.UTF-8"),
            ("TZ", ":UTC"),
            ("PATH", "/usr/local/bin:/usr/bin:/bin:/opt/bin"),
            ("LD_LIBRARY_PATH", "/var/task:/var/task/lib:/opt/lib"),
            // Without this, an SDK without credentials would wait for a metadata service that does not exist.
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    if let Runtime::Python { minor } = runtime {
        let mut path = CODE.to_owned();
        if has_layers {
            path.push_str(&format!(":{LAYERS}/python:{LAYERS}/python/lib/python3.{minor}/site-packages"));
        }
        environment.insert(PYTHON_PATH.to_owned(), path);
    }
    environment
}

/// Values that a function cannot replace.
fn fixed(function: &Function, settings: &RuntimeSettings, sandbox: &SandboxIdentity<'_>) -> Vec<(String, String)> {
    let made = sandbox.made.date();
    let stream = format!("{}/{:02}/{:02}/[$LATEST]{}", made.year(), u8::from(made.month()), made.day(), sandbox.id);
    let environment = [
        ("_HANDLER", function.handler.clone()),
        ("AWS_ACCESS_KEY_ID", sandbox.key.to_string()),
        ("AWS_SECRET_ACCESS_KEY", sandbox.secret.reveal().to_owned()),
        // Lambda's keys are temporary and have one: code may rely on it. The doors check the key alone.
        ("AWS_SESSION_TOKEN", sandbox.id.to_string()),
        ("AWS_REGION", settings.region.clone()),
        ("AWS_DEFAULT_REGION", settings.region.clone()),
        // An address and no name: SDKs then put the bucket into the path.
        ("AWS_ENDPOINT_URL_S3", format!("http://127.0.0.1:{DATA_PORT}")),
        ("AWS_LAMBDA_FUNCTION_NAME", function.name.to_string()),
        ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST".to_owned()),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", function.memory.mib_ceil().to_string()),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand".to_owned()),
        ("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{}", function.name)),
        ("AWS_LAMBDA_LOG_STREAM_NAME", stream),
        ("LAMBDA_TASK_ROOT", CODE.to_owned()),
        ("LAMBDA_RUNTIME_DIR", RUNTIME_DIR.to_owned()),
    ];
    let environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value));
    environment.chain(fixed_by_runtime(&function.runtime)).collect()
}

/// Values that are the same for all functions of a runtime; its modules read them at import.
fn fixed_by_runtime(runtime: &Runtime) -> Vec<(String, String)> {
    let mut environment = vec![("AWS_LAMBDA_RUNTIME_API".to_owned(), format!("127.0.0.1:{RUNTIME_PORT}"))];
    if let Runtime::Python { .. } = runtime {
        environment.push(("AWS_EXECUTION_ENV".to_owned(), format!("AWS_Lambda_{runtime}")));
    }
    environment
}

#[cfg(test)]
mod tests;
