//! Many functions on one node: what each costs to create and to keep, and what their number costs everybody.
//!
//! One client creates them one after another, as a tool that deploys a project does; each has a small handler of its own
//! name. Then they are listed, the node is ended and started again, and the one created last is invoked. The same is done
//! with the first function alone, so that the difference is what their number costs.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::{code_folder, deployment};
use crate::LabError;
use crate::instrument::cpu_time;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, python, set, settings};
use crate::instrument::platform::{LambdaClient, zip_folder};
use crate::instrument::process_status::memory_of;
use crate::instrument::stats::Sample;

const HANDLER: &str = "def handler(event, context):\n    return context.function_name\n";
/// A namespace has no more.
const COUNT_MAX: u64 = 10_000;

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct FunctionsArgs {
    /// How many functions to create
    #[arg(long, default_value_t = COUNT_MAX, value_parser = clap::value_parser!(u64).range(2..=COUNT_MAX))]
    count: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct ManyReport {
    machine: Machine,
    functions: u64,
    create_p50_ms: f64,
    create_p99_ms: f64,
    /// The median of the last tenth over that of the first: 1 if a function costs the same however many there are.
    create_last_over_first: f64,
    create_total_s: f64,
    create_cpu_ms: f64,
    /// All of them, in pages of 50.
    list_ms: f64,
    /// From the start of the program until the doors are open.
    restart_ms: f64,
    /// The same with one function.
    restart_one_ms: f64,
    /// Memory of the node for each, of what a restart reads again.
    rss_per_function_bytes: f64,
    rss_mib: f64,
    /// The same with one function.
    rss_one_mib: f64,
    /// A cold start of the function created last, after the restart.
    invoke_last_ms: f64,
    /// A cold start of the only function, after a restart.
    invoke_one_ms: f64,
}

/// What is read of a node that was started again.
struct RestartTimes {
    took: Duration,
    rss: u64,
    invoked: Duration,
}

pub(super) async fn run(many: &FunctionsArgs, machine: Machine) -> Result<ManyReport, LabError> {
    let folder = tempfile::tempdir().at(std::env::temp_dir())?;
    let code = code_folder(folder.path(), "code", HANDLER)?;
    let archive = zip_folder(&code)?;
    let mut settings = settings(None, &python()?);
    // A cold start then is the same whenever it comes.
    set(&mut settings, &[("functions.prewarm", "off")]);
    let node = NodeUnderTest::start(folder.path(), &settings)?;
    let mut took = create(&node, &code, &archive, 0..1).await?;
    drop(node);
    let (node, one) = restart(folder.path(), 0).await?;

    let cpu = cpu_time::of_process(node.pid()).of_node()?;
    let begin = Instant::now();
    took.extend(create(&node, &code, &archive, 1..many.count).await?);
    let create_total = begin.elapsed();
    let cpu_after = cpu_time::of_process(node.pid()).of_node()?;
    drop(node);
    let (node, all) = restart(folder.path(), many.count - 1).await?;

    let begin = Instant::now();
    let listed = LambdaClient::connect(&node)?.list().await?;
    let list = begin.elapsed();
    if listed.len() as u64 != many.count {
        return Err(LabError::Node(format!("{} functions are listed of {}", listed.len(), many.count)));
    }
    let tenth = took.len().div_ceil(10);
    let median = |of: &[f64]| Sample::new(of.to_vec()).median();
    let last_over_first = median(&took[took.len() - tenth..]) / median(&took[..tenth]);
    let took = Sample::new(took);
    let (ms, mib) = (|span: Duration| span.as_secs_f64() * 1e3, |bytes: u64| bytes as f64 / f64::from(1 << 20));
    Ok(ManyReport {
        machine,
        functions: many.count,
        create_p50_ms: took.median(),
        create_p99_ms: took.percentile(0.99),
        create_last_over_first: last_over_first,
        create_total_s: create_total.as_secs_f64(),
        create_cpu_ms: ms(cpu_after.saturating_sub(cpu)) / (many.count - 1) as f64,
        list_ms: ms(list),
        restart_ms: ms(all.took),
        restart_one_ms: ms(one.took),
        rss_per_function_bytes: all.rss.saturating_sub(one.rss) as f64 / (many.count - 1) as f64,
        rss_mib: mib(all.rss),
        rss_one_mib: mib(one.rss),
        invoke_last_ms: ms(all.invoked),
        invoke_one_ms: ms(one.invoked),
    })
}

fn name(number: u64) -> String {
    format!("many-{number:05}")
}

/// Creates those of `numbers`; how long each took, milliseconds.
async fn create(
    node: &NodeUnderTest,
    code: &Path,
    archive: &[u8],
    numbers: std::ops::Range<u64>,
) -> Result<Vec<f64>, LabError> {
    let mut lambda = LambdaClient::connect(node)?;
    let mut took = Vec::new();
    for number in numbers {
        let name = name(number);
        let request = lambda.creation(&deployment(&name, code, 128), archive).await?;
        let begin = Instant::now();
        lambda.send(&name, &request)?;
        took.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok(took)
}

async fn restart(folder: &Path, number: u64) -> Result<(NodeUnderTest, RestartTimes), LabError> {
    let begin = Instant::now();
    let node = NodeUnderTest::start_again(folder)?;
    let took = begin.elapsed();
    let rss = memory_of(node.pid(), "VmRSS")?;
    let mut lambda = LambdaClient::connect(&node)?;
    let name = name(number);
    let request = lambda.invocation(&name, b"{}").await?;
    let begin = Instant::now();
    let answer = lambda.send(&name, &request)?;
    let invoked = begin.elapsed();
    if answer.payload != format!("\"{name}\"").as_bytes() {
        let reason = format!("it answered {}", String::from_utf8_lossy(&answer.payload));
        return Err(LabError::Request { what: name, reason });
    }
    Ok((node, RestartTimes { took, rss, invoked }))
}
