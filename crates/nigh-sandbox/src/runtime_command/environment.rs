//! The environment of a function's process, as Lambda sets it (developer guide, "Defined runtime environment variables"): a
//! function cannot set the reserved names, and can replace the other defaults. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use nigh_functions::action::Action;
use nigh_functions::function::{Function, Runtime};

use super::{RuntimeSettings, SITE_FOLDER, SandboxIdentity};
use crate::sandbox::root_tree::{CODE, LAYERS};
use crate::sandbox::{DATA_PORT, RUNTIME_PORT};

/// The place of Lambda's own runtimes; empty in Nigh's sandboxes.
const RUNTIME_DIR: &str = "/var/runtime";
const PYTHON_PATH: &str = "PYTHONPATH";

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

/// The environment of an OpenWhisk action. The launcher sets the values that differ between activations.
pub(super) fn of_action(function: &Function, action: &Action, sandbox: &SandboxIdentity<'_>) -> Vec<(String, String)> {
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
pub(super) fn prepend_path(environment: &mut BTreeMap<String, String>, folder: &Path) {
    let folder = folder.display().to_string();
    let path = match environment.get(PYTHON_PATH) {
        Some(own) if !own.is_empty() => format!("{folder}:{own}"),
        _ => folder,
    };
    environment.insert(PYTHON_PATH.to_owned(), path);
}

/// Around a Python function's own path: before it the package's `sitecustomize`, which loads a `sitecustomize` of the
/// function itself; after it the vendor's client, where the interpreter has none.
pub(super) fn complete_path(environment: &mut BTreeMap<String, String>, runtime: &Runtime, settings: &RuntimeSettings) {
    let Runtime::Python { minor } = runtime else { return };
    let python = settings.pythons.iter().find(|python| python.minor == *minor);
    if let Some(client) = python.and_then(|python| python.client.as_ref()) {
        let path = environment.entry(PYTHON_PATH.to_owned()).or_default();
        if !path.is_empty() {
            path.push(':');
        }
        path.push_str(&client.display().to_string());
    }
    if let Some(library) = &settings.python_library {
        prepend_path(environment, &library.join(SITE_FOLDER));
    }
}

/// Defaults that a function may replace.
pub(super) fn defaults(runtime: &Runtime, has_layers: bool) -> BTreeMap<String, String> {
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
    // The data door serves what functions invoke others and start executions by, too.
    for name in ["AWS_ENDPOINT_URL_LAMBDA", "AWS_ENDPOINT_URL_SFN"] {
        environment.insert(name.to_owned(), format!("http://127.0.0.1:{DATA_PORT}"));
    }
    if let Runtime::Python { minor } = runtime {
        let mut path = CODE.to_owned();
        if has_layers {
            path.push_str(&format!(":{LAYERS}/python:{LAYERS}/python/lib/python3.{minor}/site-packages"));
        }
        environment.insert(PYTHON_PATH.to_owned(), path);
    }
    if let (Runtime::Node { major }, true) = (runtime, has_layers) {
        let path = format!("{LAYERS}/nodejs/node{major}/node_modules:{LAYERS}/nodejs/node_modules");
        environment.insert("NODE_PATH".to_owned(), path);
    }
    environment
}

/// Values that a function cannot replace.
pub(super) fn fixed(
    function: &Function,
    settings: &RuntimeSettings,
    sandbox: &SandboxIdentity<'_>,
) -> Vec<(String, String)> {
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
pub(super) fn fixed_by_runtime(runtime: &Runtime) -> Vec<(String, String)> {
    let mut environment = vec![("AWS_LAMBDA_RUNTIME_API".to_owned(), format!("127.0.0.1:{RUNTIME_PORT}"))];
    match runtime {
        Runtime::Python { .. } => {
            environment.push(("AWS_EXECUTION_ENV".to_owned(), format!("AWS_Lambda_{runtime}")));
        }
        Runtime::Node { major } => {
            environment.push(("AWS_EXECUTION_ENV".to_owned(), format!("AWS_Lambda_nodejs{major}.x")));
        }
        Runtime::Provided | Runtime::ProvidedHttp | Runtime::Native => {}
    }
    environment
}
