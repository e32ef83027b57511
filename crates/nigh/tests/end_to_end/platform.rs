//! A node under test: its process, its state, and the command that talks to it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::programs::build_programs;
use crate::skipped::skip;

/// How long anything may take here; the machine is shared.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const NIGH: &str = env!("CARGO_BIN_EXE_nigh");

/// A handler that knows nothing of Nigh.
pub(crate) const HANDLER: &str = r#"
import time
import boto3

s3 = boto3.client("s3")

def handler(event, context):
    print("a line of the log")
    if "sleep" in event:
        time.sleep(event["sleep"])
    if "raise" in event:
        raise ValueError(event["raise"])
    if "read" in event:
        body = s3.get_object(Bucket="data", Key=event["read"])["Body"].read()
        s3.put_object(Bucket="data", Key=event["read"] + ".reversed", Body=body[::-1])
        return {"bytes": len(body)}
    return {"echo": event}
"#;

/// A Python that has what handlers need; or says that a test is skipped.
pub(crate) fn python(test: &str) -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.deps/python/bin/python3");
    let python = std::env::var_os("NIGH_TEST_PYTHON").map_or(installed, PathBuf::from);
    let has_all = Command::new(&python)
        .args(["-c", "import awslambdaric, boto3"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_all {
        skip(test, format_args!("{} has no awslambdaric and boto3; `make deps` installs them", python.display()));
    }
    has_all.then_some(python)
}

/// A node, ended when dropped.
pub(crate) struct Node {
    pub(crate) state: PathBuf,
    python: PathBuf,
    /// What runs it, if not this process itself.
    way_in: Vec<OsString>,
    flags: Vec<String>,
    child: Child,
    _folder: TempDir,
}

impl Node {
    /// A node with a state of its own.
    pub(crate) fn start(python: &Path) -> Self {
        Self::start_with(python, &[])
    }

    /// The same, with further flags of `nigh up`.
    pub(crate) fn start_with(python: &Path, flags: &[&str]) -> Self {
        Self::start_by(Vec::new(), python, flags)
    }

    /// The same, run by the program and arguments of `way_in`, which become the node.
    pub(crate) fn start_by(way_in: Vec<OsString>, python: &Path, flags: &[&str]) -> Self {
        build_programs();
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let child = up(&way_in, &state, python, &flags);
        let mut node = Self { state, python: python.to_owned(), way_in, flags, child, _folder: folder };
        node.await_ready();
        node
    }

    /// Starts it again, on the same state.
    pub(crate) fn restart(&mut self) {
        self.child = up(&self.way_in, &self.state, &self.python, &self.flags);
        self.await_ready();
    }

    /// Kills it and starts it again, on the same state, with these flags.
    pub(crate) fn restart_with(&mut self, flags: &[&str]) {
        self.kill();
        self.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        self.restart();
    }

    fn await_ready(&mut self) {
        wait_for("the node to be ready", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{status}: {}", fs::read_to_string(self.state.with_extension("log")).unwrap());
            }
            self.nigh(["status"]).status.success()
        });
    }

    /// Runs the command.
    pub(crate) fn nigh<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Output {
        command(&self.state).args(arguments).output().unwrap()
    }

    /// Runs the command; it must succeed. What it prints.
    pub(crate) fn ok<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> String {
        let output = self.nigh(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the command with `--json`; it must succeed.
    pub(crate) fn json<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Value {
        let arguments: Vec<_> = arguments.into_iter().map(|one| one.as_ref().to_owned()).collect();
        let all = [OsStr::new("--json").to_owned()].into_iter().chain(arguments);
        serde_json::from_str(&self.ok(all)).unwrap()
    }

    /// Runs the command with `--json`; it must fail, and answer.
    pub(crate) fn json_of_failed<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Value {
        let arguments: Vec<_> = arguments.into_iter().map(|one| one.as_ref().to_owned()).collect();
        let output = self.nigh([OsStr::new("--json").to_owned()].into_iter().chain(arguments));
        assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Begins the command and does not wait for it.
    pub(crate) fn begin<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Child {
        command(&self.state).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Deploys `HANDLER` as `name`.
    pub(crate) fn deploy(&self, name: &str) {
        self.deploy_code(name, HANDLER, "256MiB");
    }

    /// Deploys a module with a `handler` as `name`.
    pub(crate) fn deploy_code(&self, name: &str, module: &str, memory: &str) {
        let code = self.state.with_file_name("code");
        fs::create_dir_all(&code).unwrap();
        fs::write(code.join("app.py"), module).unwrap();
        let folder = code.to_str().unwrap();
        let runtime = self.python_runtime();
        self.ok([
            "deploy",
            name,
            "--folder",
            folder,
            "--handler",
            "app.handler",
            "--runtime",
            &runtime,
            "--memory",
            memory,
            "--timeout",
            "30s",
        ]);
    }

    /// `python3.x`, as the node names what it has.
    pub(crate) fn python_runtime(&self) -> String {
        let status = self.json(["status"]);
        let levels = status["levels"].as_array().unwrap();
        let python = levels.iter().find(|level| level["name"] == "python").unwrap();
        python["detail"].as_str().unwrap().split(' ').next().unwrap().to_owned()
    }

    /// The newest record.
    pub(crate) fn last_activation(&self) -> Value {
        self.json(["activations", "--limit", "1"])[0].clone()
    }

    /// Where it listens, as it tells scripts.
    pub(crate) fn endpoints(&self) -> Value {
        endpoints(&self.state)
    }

    /// The environment of an SDK that talks to it.
    pub(crate) fn sdk_environment(&self) -> Vec<(String, String)> {
        sdk_environment(&self.state)
    }

    /// Its process.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// All processes below the node's: its sandboxes.
    pub(crate) fn descendants(&self) -> BTreeSet<i32> {
        let parents: Vec<(i32, i32)> = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid: i32| {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
                Some((pid, stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?))
            })
            .collect();
        let mut found = BTreeSet::from([self.pid().as_raw_nonzero().get()]);
        while parents.iter().any(|(pid, parent)| found.contains(parent) && found.insert(*pid)) {}
        found.remove(&self.pid().as_raw_nonzero().get());
        found
    }

    /// What its groups and folders are called.
    fn mark(&self) -> String {
        let instance = nigh_node::state_folder::StatePaths::new(&self.state).instance();
        format!("nigh-{}", nigh_node::state_folder::instance::name_of(&instance).unwrap())
    }

    /// Where runc works for it.
    pub(crate) fn containers_folder(&self) -> PathBuf {
        Path::new("/run").join(self.mark())
    }

    /// The cgroups of its sandboxes, in all hierarchies.
    pub(crate) fn sandbox_groups(&self) -> Vec<PathBuf> {
        let mut own = Vec::new();
        find_folders(Path::new("/sys/fs/cgroup"), &self.mark(), 4, &mut own);
        let below = own.iter().flat_map(|group| fs::read_dir(group).into_iter().flatten());
        below.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    /// Ends it as a power cut would, and reaps it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).unwrap();
    }

    /// Its exit code, once it has ended.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        wait_for("the node to end", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(self.pid(), Signal::TERM);
            let begin = Instant::now();
            while begin.elapsed() < PATIENCE && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn endpoints(state: &Path) -> Value {
    serde_json::from_slice(&fs::read(state.join("endpoints.json")).unwrap()).unwrap()
}

/// The environment of an SDK that talks to the node with this state.
pub(crate) fn sdk_environment(state: &Path) -> Vec<(String, String)> {
    let endpoints = endpoints(state);
    let text = |name: &str| endpoints[name].as_str().unwrap().to_owned();
    let trusted = endpoints["ca_bundle"].as_str().map(|path| ("AWS_CA_BUNDLE".to_owned(), path.to_owned()));
    let credentials = fs::read_to_string(state.join("credentials")).unwrap();
    let key = |name: &str| {
        credentials.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = ")).unwrap().to_owned()
    };
    let mut environment = vec![
        ("AWS_ENDPOINT_URL".to_owned(), text("s3")),
        ("AWS_ENDPOINT_URL_S3".to_owned(), text("s3")),
        ("AWS_ENDPOINT_URL_LAMBDA".to_owned(), text("lambda")),
        ("AWS_ENDPOINT_URL_SFN".to_owned(), text("lambda")),
        ("AWS_ENDPOINT_URL_SCHEDULER".to_owned(), text("lambda")),
        ("AWS_DEFAULT_REGION".to_owned(), text("region")),
        ("AWS_REGION".to_owned(), text("region")),
        ("AWS_ACCESS_KEY_ID".to_owned(), key("aws_access_key_id")),
        ("AWS_SECRET_ACCESS_KEY".to_owned(), key("aws_secret_access_key")),
        ("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned()),
    ];
    environment.extend(trusted);
    environment
}

/// `nigh`, on this state.
pub(crate) fn command(state: &Path) -> Command {
    command_by(&[], state)
}

fn command_by(way_in: &[OsString], state: &Path) -> Command {
    let program = way_in.iter().map(OsString::as_os_str).chain([OsStr::new(NIGH)]).collect::<Vec<_>>();
    let mut command = quiet(Path::new(program[0]));
    command.args(&program[1..]).env("NIGH_STATE", state).stdin(Stdio::null());
    command
}

/// `program`, deaf to the settings of whoever runs the tests.
pub(crate) fn quiet(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("NIGH_") {
            command.env_remove(name);
        }
    }
    command
}

fn up(way_in: &[OsString], state: &Path, python: &Path, flags: &[String]) -> Child {
    let log = fs::OpenOptions::new().create(true).append(true).open(state.with_extension("log")).unwrap();
    command_by(way_in, state)
        .args(["up", "--s3-listen", "127.0.0.1:0", "--lambda-listen", "127.0.0.1:0", "--cache", "256 MiB"])
        .arg("--python")
        .arg(python)
        .args(flags)
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn find_folders(root: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            if entry.file_name() == name {
                found.push(path);
            } else if depth > 1 {
                find_folders(&path, name, depth - 1, found);
            }
        }
    }
}

/// Waits until `holds`, and fails after a long time.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// True while a process with this number is there and has not ended.
pub(crate) fn lives(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
