//! Prints how long an engine takes: to start a sandbox around `true` from a blank and without one, to change its memory
//! limit, to freeze and thaw it, to destroy it; and what a frozen one costs. `cargo build -p nigh-sandbox --bins &&
//! cargo run -p nigh-sandbox --example sandbox_latency -- [runc|process] [FROZEN]`

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_functions::function_network::FunctionNetwork;
use nigh_sandbox::sandbox::local::{EngineChoice, EngineSettings, LocalEngine};
use nigh_sandbox::sandbox::{LogSink, SandboxEngine as _, SandboxSpec};
use nigh_schedule::memory::grant::Grant;
use nigh_terms::{ByteSize, SandboxId};

const ROUNDS: usize = 40;
const PLAIN_ROUNDS: usize = 20;
/// Long enough for the stock of blanks to fill again.
const REST: Duration = Duration::from_millis(250);
const WRITES: u32 = 1000;

struct Silent;

impl LogSink for Silent {
    fn line(&self, _: &[u8]) {}
}

fn spec(program: &[&str]) -> SandboxSpec {
    SandboxSpec {
        id: SandboxId::random(),
        command: program.iter().map(Into::into).collect(),
        environment: BTreeMap::new(),
        code: "/usr".into(),
        layers: None,
        runtime_folders: Vec::new(),
        grant: Grant::full(ByteSize::mib(64)),
        tmp: ByteSize::mib(64),
        pids_max: 32,
        network: FunctionNetwork::None,
        log: Arc::new(Silent),
    }
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    println!("{what:28} p50 {:>9.1?}  p90 {:>9.1?}", at(0.5), at(0.9));
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let init = std::env::current_exe()?.ancestors().nth(2).map(|folder| folder.join("nigh-sandbox"));
    let choice = match std::env::args().nth(1).as_deref() {
        Some("runc") => EngineChoice::Runc,
        Some("process") => EngineChoice::Process,
        _ => EngineChoice::Auto,
    };
    let settings = EngineSettings { choice, init, ..EngineSettings::new("latency", "/") };
    let plain = LocalEngine::open(EngineSettings { blanks: 0, ..settings.clone() }).await?;
    println!("{}: {}", plain.kind(), plain.isolation());
    let mut started = Vec::new();
    for _ in 0..PLAIN_ROUNDS {
        let begin = Instant::now();
        let sandbox = plain.start(spec(&["/usr/bin/true"])).await?.sandbox;
        started.push(begin.elapsed());
        sandbox.destroy().await;
    }
    print("start without a blank", started);
    drop(plain);

    let engine = LocalEngine::open(settings).await?;
    let (mut started, mut ended, mut destroyed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        tokio::time::sleep(REST).await;
        let begin = Instant::now();
        let sandbox = engine.start(spec(&["/usr/bin/true"])).await?.sandbox;
        started.push(begin.elapsed());
        sandbox.ended().await;
        ended.push(begin.elapsed());
        let begin = Instant::now();
        sandbox.destroy().await;
        destroyed.push(begin.elapsed());
    }
    print("start from a blank", started);
    print("start, until it has ended", ended);
    print("clear up", destroyed);

    let sandbox = engine.start(spec(&["/usr/bin/sleep", "1000"])).await?.sandbox;
    let memory = sandbox.memory();
    let (mut limits, mut peaks, mut freezes, mut thaws) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..WRITES {
        let begin = Instant::now();
        memory.set_limit(ByteSize::mib(64 + u64::from(round % 2)))?;
        limits.push(begin.elapsed());
        let begin = Instant::now();
        memory.peak()?;
        memory.reset_peak()?;
        peaks.push(begin.elapsed());
    }
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        sandbox.freeze().await?;
        freezes.push(begin.elapsed());
        let begin = Instant::now();
        sandbox.thaw().await?;
        thaws.push(begin.elapsed());
    }
    print("memory limit", limits);
    print("peak read and reset", peaks);
    print("freeze", freezes);
    print("thaw", thaws);
    let begin = Instant::now();
    sandbox.destroy().await;
    print("destroy, running", vec![begin.elapsed()]);
    if let Some(count) = std::env::args().nth(2) {
        freeze_many(&engine, count.parse()?).await?;
    }
    Ok(())
}

/// Starts so many sandboxes one after another, freezes each, and prints what one costs: what its cgroup counts, and its
/// keeper's share of memory, which stands outside.
async fn freeze_many(engine: &LocalEngine, count: usize) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let mut frozen = Vec::with_capacity(count);
    for _ in 0..count {
        let sandbox = engine.start(spec(&["/usr/bin/sleep", "100000"])).await?.sandbox;
        sandbox.freeze().await?;
        frozen.push(sandbox);
    }
    let took = begin.elapsed();
    let used = frozen.iter().filter_map(|sandbox| sandbox.memory().used().ok());
    let inside = used.map(|used| used.bytes()).sum::<u64>() / 1024 / count.max(1) as u64;
    let keepers: Vec<u64> = children()?.iter().filter_map(|pid| share_kib(pid)).collect();
    let keeper = keepers.iter().sum::<u64>() / keepers.len().max(1) as u64;
    println!("{count} frozen in {took:.1?}; each {inside} KiB in its cgroup, and a keeper of {keeper} KiB");
    let begin = Instant::now();
    for sandbox in &frozen {
        sandbox.destroy().await;
    }
    println!("destroyed in {:.1?}", begin.elapsed());
    Ok(())
}

fn children() -> Result<Vec<String>, Box<dyn Error>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let pids = std::fs::read_to_string(task?.path().join("children"))?;
        found.extend(pids.split_whitespace().map(str::to_owned));
    }
    Ok(found)
}

/// The proportional share of a process in this machine's memory.
fn share_kib(pid: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pss:"))?.trim().trim_end_matches(" kB").parse().ok()
}
