//! Starts sandboxes around small shell scripts and collects what they print.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nigh_functions::function_network::FunctionNetwork;
use nigh_sandbox::sandbox::local::{EngineChoice, EngineSettings, LocalEngine};
use nigh_sandbox::sandbox::{LogSink, Sandbox, SandboxEnd, SandboxEngine as _, SandboxSpec, StartedSandbox};
use nigh_schedule::memory::grant::Grant;
use nigh_terms::{ByteSize, SandboxId};

/// Longer than anything here takes on a busy machine; only a failing test waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Names the init, where the tests run away from their build folder.
pub(crate) const INIT_VARIABLE: &str = "NIGH_TEST_INIT";
/// Names the engine: `runc`, else Nigh's own.
pub(crate) const ENGINE_VARIABLE: &str = "NIGH_TEST_ENGINE";
/// Set where the engine is trusted with functions that nothing keeps apart.
pub(crate) const TRUST_VARIABLE: &str = "NIGH_TEST_TRUST";

#[derive(Default)]
pub(crate) struct Lines(Mutex<Vec<String>>);

impl LogSink for Lines {
    fn line(&self, line: &[u8]) {
        self.0.lock().unwrap().push(String::from_utf8_lossy(line).into_owned());
    }
}

impl Lines {
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }

    /// Waits until a line holds `part`.
    pub(crate) async fn wait_for(&self, part: &str) {
        until(&format!("a line with {part:?}"), || self.text().contains(part)).await;
    }
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "not in {PATIENCE:?}: {what}");
}

pub(crate) fn settings() -> EngineSettings {
    let instance = SandboxId::random().to_string()[..12].to_owned();
    let init = std::env::var_os(INIT_VARIABLE).map_or_else(|| env!("CARGO_BIN_EXE_nigh-sandbox").into(), PathBuf::from);
    let trust_functions = std::env::var_os(TRUST_VARIABLE).is_some();
    let choice = if under_runc() { EngineChoice::Runc } else { EngineChoice::Process };
    EngineSettings { choice, init: Some(init), trust_functions, ..EngineSettings::new(instance, "/srv/nigh") }
}

/// True if runc shall make the sandboxes.
pub(crate) fn under_runc() -> bool {
    std::env::var_os(ENGINE_VARIABLE).is_some_and(|engine| engine == "runc")
}

pub(crate) async fn engine() -> LocalEngine {
    LocalEngine::open(settings()).await.unwrap()
}

/// True if the engine's sandboxes have their own files, processes and network.
pub(crate) fn has_namespaces(engine: &LocalEngine) -> bool {
    engine.probe().level.has_namespaces()
}

pub(crate) struct Function {
    pub(crate) spec: SandboxSpec,
    pub(crate) lines: Arc<Lines>,
    // The code lives as long as the specification.
    pub(crate) code: tempfile::TempDir,
}

/// A function that is a shell script.
pub(crate) fn script(text: &str) -> Function {
    command(&["/bin/sh", "-c", text])
}

pub(crate) fn command(words: &[&str]) -> Function {
    use std::os::unix::fs::PermissionsExt as _;
    let code = tempfile::tempdir().unwrap();
    std::fs::set_permissions(code.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(code.path().join("handler.txt"), "code\n").unwrap();
    let lines = Arc::new(Lines::default());
    let spec = SandboxSpec {
        id: SandboxId::random(),
        command: words.iter().map(OsString::from).collect(),
        environment: [("PATH", "/usr/bin:/bin"), ("DOORS", "127.0.0.1:")].map(|(k, v)| (k.into(), v.into())).into(),
        code: code.path().to_owned(),
        layers: None,
        runtime_folders: Vec::new(),
        grant: Grant::full(ByteSize::mib(64)),
        tmp: ByteSize::mib(1),
        pids_max: 32,
        network: FunctionNetwork::None,
        log: lines.clone(),
    };
    Function { spec, lines, code }
}

pub(crate) async fn start(engine: &LocalEngine, function: Function) -> (StartedSandbox, Arc<Lines>, tempfile::TempDir) {
    let started = engine.start(function.spec).await.unwrap();
    (started, function.lines, function.code)
}

/// Runs a function to its end; returns what it printed and how it ended.
pub(crate) async fn run(engine: &LocalEngine, function: Function) -> (String, SandboxEnd) {
    let (started, lines, _code) = start(engine, function).await;
    let end = tokio::time::timeout(PATIENCE, started.sandbox.ended()).await.expect("the function ends");
    started.sandbox.destroy().await;
    (lines.text(), end)
}

/// Runs a shell script to its end; returns what it printed.
pub(crate) async fn output(engine: &LocalEngine, text: &str) -> String {
    run(engine, script(text)).await.0
}

/// Destroys a sandbox; fails if that takes too long.
pub(crate) async fn destroy(sandbox: &dyn Sandbox) {
    tokio::time::timeout(PATIENCE, sandbox.destroy()).await.expect("it is destroyed");
}

/// A number that no other process has in its command line, as an argument of `sleep`.
pub(crate) fn marker() -> String {
    let random = SandboxId::random().to_string();
    let digits: String = random.chars().map(|c| char::from(b'0' + c as u8 % 10)).take(15).collect();
    format!("9{digits}")
}

/// Processes of this machine with `marker` among their arguments.
pub(crate) fn processes_with(marker: &str) -> Vec<i32> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            // A process that is only starting another has a whole script for an argument.
            line.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes())
        })
        .collect()
}
