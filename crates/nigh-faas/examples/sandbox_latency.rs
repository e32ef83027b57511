//! Prints how long the process engine takes: to start a sandbox around `true`, to change its memory limit, to freeze
//! and thaw it, to destroy it. `cargo build -p nigh-faas --bins && cargo run -p nigh-faas --example sandbox_latency`

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_faas::grant::Grant;
use nigh_faas::sandbox::local::{EngineSettings, LocalEngine};
use nigh_faas::sandbox::{LogSink, SandboxEngine as _, SandboxSpec};
use nigh_terms::{ByteSize, SandboxId};

const ROUNDS: usize = 100;
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
        runtime_folders: Vec::new(),
        grant: Grant::full(ByteSize::mib(64)),
        tmp: ByteSize::mib(64),
        pids_max: 32,
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
    let engine = LocalEngine::open(EngineSettings { init, ..EngineSettings::new("latency", "/") }).await?;
    println!("{}", engine.isolation());

    let (mut started, mut ended, mut destroyed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let sandbox = engine.start(spec(&["/usr/bin/true"])).await?.sandbox;
        started.push(begin.elapsed());
        sandbox.ended().await;
        ended.push(begin.elapsed());
        let begin = Instant::now();
        sandbox.destroy().await;
        destroyed.push(begin.elapsed());
    }
    print("start, until it runs", started);
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
    Ok(())
}
