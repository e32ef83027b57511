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
mod tests {
    use nigh_terms::ByteSize;

    use super::*;
    use nigh_functions::action::Action;
    use nigh_functions::function::LayerUse;
    use nigh_functions::test_support::function;

    fn settings() -> RuntimeSettings {
        let python = PythonRuntime {
            minor: 11,
            interpreter: "/venv/bin/python3".into(),
            folders: vec!["/venv".into()],
            client: None,
        };
        RuntimeSettings {
            region: "us-east-1".to_owned(),
            pythons: vec![python],
            http_adapter: None,
            nodes: Vec::new(),
            launchers: None,
            python_library: None,
        }
    }

    fn command_of(function: &Function) -> Result<RuntimeCommand, RuntimeCommandError> {
        command_with(function, &settings())
    }

    fn command_with(function: &Function, settings: &RuntimeSettings) -> Result<RuntimeCommand, RuntimeCommandError> {
        let (key, secret) = (AccessKeyId::new("KEY"), SecretKey::new("secret"));
        let made = Timestamp(1_700_000_000_000);
        runtime_command(
            function,
            settings,
            &SandboxIdentity { id: SandboxId::random(), key: &key, secret: &secret, made },
        )
    }

    fn value<'a>(command: &'a RuntimeCommand, name: &str) -> Option<&'a str> {
        command.environment.get(&OsString::from(name)).and_then(|value| value.to_str())
    }

    #[test]
    fn python_functions_run_under_the_vendors_client() {
        let mut function = function("thumbnail");
        function.runtime = Runtime::Python { minor: 11 };
        let command = command_of(&function).unwrap();
        assert_eq!(command.command, ["/venv/bin/python3", "-m", "awslambdaric", "app.handler"]);
        assert_eq!(command.folders, [PathBuf::from("/venv")]);
        for (name, expected) in [
            ("_HANDLER", "app.handler"),
            ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000"),
            ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128"),
            ("AWS_LAMBDA_LOG_GROUP_NAME", "/aws/lambda/thumbnail"),
            ("AWS_EXECUTION_ENV", "AWS_Lambda_python3.11"),
            ("AWS_ACCESS_KEY_ID", "KEY"),
            ("TZ", ":UTC"),
            ("PYTHONPATH", "/var/task"),
        ] {
            assert_eq!(value(&command, name), Some(expected), "{name}");
        }
        let used = LayerUse {
            arn: String::new(),
            name: function.name.clone(),
            sha256: String::new(),
            size: ByteSize::ZERO,
            unpacked: ByteSize::ZERO,
        };
        function.layers.push(used);
        let layered = command_of(&function).unwrap();
        let path = "/var/task:/opt/python:/opt/python/lib/python3.11/site-packages";
        assert_eq!(value(&layered, "PYTHONPATH"), Some(path));
        let stream = value(&command, "AWS_LAMBDA_LOG_STREAM_NAME").unwrap();
        assert_eq!(stream.strip_prefix("2023/11/14/[$LATEST]"), value(&command, "AWS_SESSION_TOKEN"));
    }

    #[test]
    fn the_package_is_shown_and_its_site_comes_first_whatever_path_a_function_has() {
        let mut function = function("thumbnail");
        function.runtime = Runtime::Python { minor: 11 };
        let settings = RuntimeSettings { python_library: Some("/library".into()), ..settings() };
        let path_of = |function: &Function| {
            let command = command_with(function, &settings).unwrap();
            assert_eq!(command.folders, [PathBuf::from("/venv"), PathBuf::from("/library")]);
            value(&command, "PYTHONPATH").unwrap().to_owned()
        };
        assert_eq!(path_of(&function), "/library/site:/var/task");
        for (own, expected) in [("/var/task/vendor", "/library/site:/var/task/vendor"), ("", "/library/site")] {
            function.environment.insert("PYTHONPATH".to_owned(), own.to_owned());
            assert_eq!(path_of(&function), expected);
        }
        let stem = prewarm_command(&function.runtime, &settings, &[]).unwrap();
        assert_eq!(stem.environment[&OsString::from("PYTHONPATH")], "/library/site:/var/task");
        assert_eq!(stem.folders, [PathBuf::from("/venv"), PathBuf::from("/library")]);
        function.runtime = Runtime::Provided;
        assert_eq!(value(&command_with(&function, &settings).unwrap(), "PYTHONPATH"), Some(""));
    }

    #[test]
    fn a_python_without_the_vendors_client_has_it_last_in_the_path() {
        let mut function = function("f");
        function.runtime = Runtime::Python { minor: 12 };
        let borrower = PythonRuntime {
            minor: 12,
            interpreter: "/usr/bin/python3.12".into(),
            folders: Vec::new(),
            client: Some("/client".into()),
        };
        let mut settings = settings();
        settings.pythons.push(borrower);
        let path_of = |function: &Function, settings: &RuntimeSettings| {
            let command = command_with(function, settings).unwrap();
            assert_eq!(command.folders.first(), Some(&PathBuf::from("/client")));
            value(&command, "PYTHONPATH").unwrap().to_owned()
        };
        assert_eq!(path_of(&function, &settings), "/var/task:/client");
        let stem = prewarm_command(&function.runtime, &settings, &[]).unwrap();
        assert_eq!(stem.environment[&OsString::from("PYTHONPATH")], "/var/task:/client");
        settings.python_library = Some("/library".into());
        function.environment.insert("PYTHONPATH".to_owned(), String::new());
        assert_eq!(path_of(&function, &settings), "/library/site:/client");
    }

    #[test]
    fn handlers_in_javascript_and_actions_have_programs_of_their_own() {
        let node = NodeRuntime { major: 20, program: "/opt/node/bin/node".into(), folders: vec!["/opt/node".into()] };
        let settings = RuntimeSettings { nodes: vec![node], launchers: Some("/launchers".into()), ..settings() };
        let mut function = function("f");
        function.runtime = Runtime::Node { major: 20 };
        function.memory = ByteSize::mib(200);
        let command = command_with(&function, &settings).unwrap();
        let expected = ["/opt/node/bin/node", "--max-old-space-size=180", "/launchers/lambda.js", "app.handler"];
        assert_eq!(command.command, expected);
        assert_eq!(command.folders, [PathBuf::from("/opt/node"), PathBuf::from("/launchers")]);
        assert_eq!(value(&command, "AWS_EXECUTION_ENV"), Some("AWS_Lambda_nodejs20.x"));
        assert_eq!(value(&command, "NODE_PATH"), None);
        let action = serde_json::json!({ "path": "f", "kind": "nodejs:20" });
        function.action = Some(serde_json::from_value(action).unwrap());
        assert_eq!(command_with(&function, &settings).unwrap().command[2], "/launchers/launcher.js");
        function.runtime = Runtime::Node { major: 22 };
        assert_eq!(command_with(&function, &settings).err(), Some(RuntimeCommandError::NoNode(22)));
    }

    #[test]
    fn a_wrapper_is_started_with_the_runtimes_command() {
        let mut function = function("f");
        function.environment.insert(WRAPPER.to_owned(), "/opt/wrapper".to_owned());
        function.runtime = Runtime::Python { minor: 11 };
        assert_eq!(command_of(&function).unwrap().command[..2], ["/opt/wrapper", "/venv/bin/python3"]);
        function.runtime = Runtime::Provided;
        assert_eq!(command_of(&function).unwrap().command, ["/var/task/bootstrap"]);
    }

    #[test]
    fn an_action_finds_its_names_and_a_key_only_where_it_says_so() {
        let mut function = function("p__a");
        function.runtime = Runtime::Python { minor: 11 };
        let action = serde_json::json!({ "path": "p/a", "kind": "python:3" });
        let mut action: Action = serde_json::from_value(action).unwrap();
        function.action = Some(action.clone());
        let settings = RuntimeSettings { launchers: Some("/launchers".into()), ..settings() };
        let command = command_with(&function, &settings).unwrap();
        assert_eq!(value(&command, "__OW_ACTION_NAME"), Some("/tenant/p/a"));
        assert_eq!(value(&command, "PYTHONPATH"), Some("/launchers:/var/task"));
        assert_eq!((value(&command, "__OW_API_KEY"), command.folders.len()), (None, 2));
        action.annotations.set("provide-api-key", true.into());
        function.action = Some(action);
        let keyed = command_with(&function, &settings).unwrap();
        assert!(value(&keyed, "__OW_API_KEY").is_some_and(|key| key.starts_with("KEY:")));
        assert!(command_of(&function).is_err(), "without its launcher it cannot be called");
    }

    #[test]
    fn a_stem_has_what_all_functions_of_its_runtime_have_and_no_secret() {
        let (minor, imports) = (11, ["boto3".to_owned()]);
        let stem = prewarm_command(&Runtime::Python { minor }, &settings(), &imports).unwrap();
        assert_eq!((stem.command.len(), stem.command.last()), (4, Some(&"boto3".into())));
        let mut function = function("thumbnail");
        function.runtime = Runtime::Python { minor };
        let fresh = command_of(&function).unwrap();
        assert_eq!((&stem.command[0], stem.folders), (&fresh.command[0], fresh.folders));
        assert!(stem.environment.iter().all(|(name, value)| fresh.environment.get(name) == Some(value)));
        let secrets = ["KEY", "TOKEN"];
        assert!(stem.environment.keys().all(|name| !secrets.iter().any(|part| name.to_string_lossy().contains(part))));
        assert!(prewarm_command(&Runtime::Provided, &settings(), &imports).is_none());
        assert!(prewarm_command(&Runtime::Python { minor: 8 }, &settings(), &imports).is_none());
    }

    #[test]
    fn a_function_sets_its_own_names_and_cannot_set_reserved_ones() {
        let mut function = function("f");
        for name in RESERVED_NAMES.into_iter().chain(["AWS_ENDPOINT_URL_S3", "PATH", "MINE"]) {
            function.environment.insert(name.to_owned(), "own".to_owned());
        }
        let command = command_of(&function).unwrap();
        for name in RESERVED_NAMES.into_iter().chain(["AWS_ENDPOINT_URL_S3"]) {
            assert_ne!(value(&command, name), Some("own"), "{name}");
        }
        assert_eq!((value(&command, "PATH"), value(&command, "MINE")), (Some("own"), Some("own")));
        assert_eq!(command.command, ["/var/task/bootstrap"]);
    }

    #[test]
    fn a_python_that_is_not_there_is_named_with_those_that_are() {
        let mut function = function("f");
        function.runtime = Runtime::Python { minor: 8 };
        let error = command_of(&function).err().map(|error| error.to_string()).unwrap();
        assert!(error.contains("python3.8") && error.contains("python3.11"), "{error}");
    }
}
