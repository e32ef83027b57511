//! What it takes to give a sandbox other memory: the write of its limit, the whole step before a run, and how long a
//! sandbox that comes to its limit waits until it runs on.
//!
//! The write goes to a sandbox that stands idle, so that the kernel has nothing to take back. The step is what a node's
//! own records say (`step_us`) of runs in sandboxes that rested before, so that each has a limit to raise. The wait is
//! what the function itself notices: the longest time between two pages that it touches one after the other, in a
//! sandbox that is given more by whoever hears that it is at its limit, and by nobody before.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use nigh_functions::function_network::FunctionNetwork;
use nigh_sandbox::sandbox::local::{EngineChoice, EngineSettings, LocalEngine};
use nigh_sandbox::sandbox::{LogSink, Sandbox, SandboxEngine as _, SandboxSpec, StartedSandbox};
use nigh_schedule::memory::grant::Grant;
use nigh_terms::{ByteSize, SandboxId};
use parking_lot::Mutex;
use serde::Serialize;

use super::{ECHO, Figures, RatioTarget, code_folder, deployment, us};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::made_up::failed;
use crate::instrument::node_under_test::{NodeUnderTest, python, settings};
use crate::instrument::platform::{LambdaClient, activations};
use crate::instrument::stats::Sample;

const WRITES: usize = 20_000;
const LIMITS: [ByteSize; 2] = [ByteSize::mib(64), ByteSize::mib(96)];
/// What a sandbox that comes to its limit has at first, is given more each time, and books.
const FIRST: ByteSize = ByteSize::mib(32);
const MORE: ByteSize = ByteSize::mib(32);
const BOOKED: ByteSize = ByteSize::mib(512);
const TOUCHED_MIB: u64 = 256;
/// Longer than a sandbox is looked at after its answer before it is frozen (`functions.freeze_grace`).
const REST: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);
/// Touches page after page and prints the longest times between two of them, in microseconds.
const TOUCHES: &str = "
import mmap, sys, time
size = int(sys.argv[1]) << 20
area = mmap.mmap(-1, size)
last, gaps = time.perf_counter_ns(), []
for at in range(0, size, mmap.PAGESIZE):
    area[at] = 1
    now = time.perf_counter_ns()
    if now - last > 50000:
        gaps.append((now - last) / 1000)
    last = now
print('gaps', *sorted(gaps)[::-1], flush=True)
time.sleep(1000)
";
const FUNCTION: &str = "granted";

#[derive(Clone, Debug, Args)]
pub(super) struct GrantLength {
    /// In how many runs to measure the setting of the memory limit before the run
    #[arg(long, default_value_t = 100)]
    steps: usize,
    /// How many sandboxes to measure; each reaches its memory limit repeatedly
    #[arg(long, default_value_t = 10)]
    rounds: usize,
}

#[derive(Debug, Serialize)]
struct Times {
    what: &'static str,
    count: usize,
    p50_us: f64,
    p99_us: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct GrantReport {
    machine: Machine,
    cgroup: &'static str,
    rows: Vec<Times>,
    #[serde(flatten)]
    figures: Figures,
}

impl Times {
    fn of(what: &'static str, times: Vec<f64>) -> Self {
        let times = Sample::new(times);
        Self { what, count: times.len(), p50_us: times.median(), p99_us: times.percentile(0.99) }
    }
}

#[derive(Default)]
struct PrintedLog(Mutex<String>);

impl LogSink for PrintedLog {
    fn line(&self, line: &[u8]) {
        let mut text = self.0.lock();
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
}

/// A sandbox of the bench, ended with it.
struct BenchSandbox {
    started: StartedSandbox,
    printed: Arc<PrintedLog>,
    _code: tempfile::TempDir,
}

impl BenchSandbox {
    async fn start(engine: &LocalEngine, python: &Path, script: &str, grant: Grant) -> Result<Self, LabError> {
        let code = tempfile::tempdir().at(std::env::temp_dir())?;
        // Its user is another.
        std::fs::set_permissions(code.path(), std::fs::Permissions::from_mode(0o755)).at(code.path())?;
        let printed = Arc::new(PrintedLog::default());
        // What it is installed with lies beside it, and what it is a link to may lie elsewhere.
        let real = python.canonicalize().at(python)?;
        let words = [real.as_os_str(), "-c".as_ref(), script.as_ref(), TOUCHED_MIB.to_string().as_ref()]
            .map(OsString::from)
            .to_vec();
        let spec = SandboxSpec {
            id: SandboxId::random(),
            command: words,
            environment: BTreeMap::new(),
            code: code.path().to_owned(),
            layers: None,
            runtime_folders: folder_of(&real).into_iter().collect(),
            grant,
            tmp: ByteSize::mib(1),
            pids_max: 32,
            network: FunctionNetwork::None,
            log: Arc::clone(&printed) as Arc<dyn LogSink>,
        };
        let started = engine.start(spec).await.map_err(|error| failed("a sandbox", &error))?;
        Ok(Self { started, printed, _code: code })
    }

    fn sandbox(&self) -> &Arc<dyn Sandbox> {
        &self.started.sandbox
    }
}

/// The folder of an interpreter that is not among the system's own.
fn folder_of(python: &Path) -> Option<PathBuf> {
    let folder = python.parent()?.parent()?;
    (!folder.starts_with("/usr")).then(|| folder.to_owned())
}

async fn writes(engine: &LocalEngine, python: &Path) -> Result<Vec<f64>, LabError> {
    let sleeps = "import time; time.sleep(1000)";
    let begun = BenchSandbox::start(engine, python, sleeps, Grant::full(BOOKED)).await?;
    let memory = begun.sandbox().memory();
    let mut times = Vec::with_capacity(WRITES);
    for limit in LIMITS.iter().cycle().take(WRITES) {
        let began = Instant::now();
        memory.set_limit(*limit).map_err(|error| failed("a limit", &error))?;
        times.push(us(began.elapsed()));
    }
    begun.sandbox().destroy().await;
    Ok(times)
}

/// How long a sandbox stands still each time that it is at its limit, as it notices itself.
async fn waits(engine: &LocalEngine, python: &Path) -> Result<Vec<f64>, LabError> {
    let grant = Grant { memory: FIRST, booked: BOOKED };
    let begun = BenchSandbox::start(engine, python, TOUCHES, grant).await?;
    let (sandbox, limit) = (Arc::downgrade(begun.sandbox()), Mutex::new(FIRST));
    let notice = move |used: ByteSize| {
        let mut limit = limit.lock();
        if let Some(sandbox) = sandbox.upgrade()
            && used + ByteSize::mib(1) > *limit
        {
            let more = (*limit + MORE).min(BOOKED);
            if sandbox.memory().set_limit(more).is_ok() {
                *limit = more;
            }
        }
    };
    let heard = begun.sandbox().memory().on_pressure(Box::new(notice));
    heard.map_err(|error| failed("hearing of a sandbox at its limit", &error))?;
    let said = async {
        loop {
            let text = begun.printed.0.lock().clone();
            if let Some(line) = text.lines().find(|line| line.starts_with("gaps")) {
                return line.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let line = tokio::time::timeout(PATIENCE, said).await;
    let line = line.map_err(|_| failed("a sandbox at its limit", &begun.printed.0.lock().clone()))?;
    begun.sandbox().destroy().await;
    // As often as it was given more it stood still; the longest times are these.
    let raised = (TOUCHED_MIB - FIRST.mib_ceil()) / MORE.mib_ceil();
    Ok(line.split(' ').filter_map(|gap| gap.parse().ok()).take(raised as usize).collect())
}

async fn steps(count: usize, python: &Path) -> Result<Vec<f64>, LabError> {
    let folder = tempfile::tempdir().at(std::env::temp_dir())?;
    let code = code_folder(folder.path(), "code", ECHO)?;
    let node = NodeUnderTest::start(folder.path(), &settings(None, python))?;
    let mut lambda = LambdaClient::connect(&node)?;
    lambda.deploy(&deployment(FUNCTION, &code, 256)).await?;
    let request = lambda.invocation(FUNCTION, b"{}").await?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        lambda.send(FUNCTION, &request)?;
        let record = activations(&node, 1).await?.pop().unwrap_or_default();
        times.extend(record["memory"]["step_us"].as_f64());
        tokio::time::sleep(REST).await;
    }
    // The first has had a sandbox made.
    Ok(times.split_off(1.min(times.len())))
}

pub(super) async fn run(length: &GrantLength, machine: Machine) -> Result<GrantReport, LabError> {
    let python = python()?;
    let state = tempfile::tempdir().at(std::env::temp_dir())?;
    let instance = SandboxId::random().to_string()[..12].to_owned();
    let settings = EngineSettings { choice: EngineChoice::Process, ..EngineSettings::new(instance, state.path()) };
    let engine = LocalEngine::open(settings).await.map_err(|error| failed("sandboxes", &error))?;
    let controls = &engine.probe().controls;
    if let Err(why) = &controls.memory {
        return Err(failed("the memory of sandboxes", why));
    }
    let cgroup = controls.version;
    let writes = Times::of("limit written", writes(&engine, &python).await?);
    let mut gaps = Vec::new();
    for _ in 0..length.rounds.max(1) {
        gaps.extend(waits(&engine, &python).await?);
    }
    engine.close().await;
    let waits = Times::of("at its limit until it runs on", gaps);
    let steps = Times::of("step before a run", steps(length.steps.max(2), &python).await?);
    let mut figures = Figures::default();
    figures.add("write_p50_us", writes.p50_us, RatioTarget::AtMost(5.0));
    figures.add("step_p50_us", steps.p50_us, RatioTarget::AtMost(50.0));
    figures.add("wait_p50_us", waits.p50_us, RatioTarget::AtMost(1000.0));
    Ok(GrantReport { machine, cgroup, rows: vec![writes, steps, waits], figures })
}
