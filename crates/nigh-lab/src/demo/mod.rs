//! The demonstration: real functions on real inputs, one after the other, in rounds that take turns between the function
//! directly against the store, without a platform, and the same function through Nigh.
//!
//! The store is Swift with Nigh in front of it, where Swift is installed. Else it is Nigh's directory store: then there is nothing
//! to compare, and the report has times alone. A function's row is printed when the function is done; the end is one picture and
//! one sentence.

mod closing;
mod load;
mod page;
mod picture;
mod report;
mod sentence;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::Method;
use indicatif::ProgressBar;
use nigh_node::status::Status;

use self::load::{BUCKET, NOTHING_KEPT, Stage};
use self::report::{BookedMemory, DemoReport, FirstRound, Side, Summary, comparisons, summarize};
use self::table::{Row, Table};
use crate::LabError;
use crate::instrument::bare_pool::BarePool;
use crate::instrument::choice::chosen;
use crate::instrument::cpu_time::of_process_and_ended_threads;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, python, set, settings, socket_address};
use crate::instrument::peer::PeerError;
use crate::instrument::peer::swift::Swift;
use crate::instrument::platform::{Deployment, LambdaClient, activations, status};
use crate::instrument::progress::{self, unless_stopped};
use crate::instrument::report::publish;
use crate::instrument::s3_door::S3Door;
use crate::instrument::sample_function::{SampleFunction, read_input};

pub(crate) const INSTRUMENT: (&str, &str) = ("BOTOCORE_EXPERIMENTAL__PLUGINS", "nigh_phases=nigh_phases");

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Write the picture, the table and the sentence as a page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The time for the rounds of all functions together; each has an equal part of it, or takes its least rounds
    #[arg(long, default_value_t = 100)]
    seconds: u64,
    /// The least number of rounds of each function; the first is cold and not counted
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// How many clients invoke at once; each sends its next invocation when its last one is answered
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    clients: u8,
    /// Only these functions (names of folders in `functions/`)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
}

/// The door for inputs: Swift's own, behind Nigh's back, so that Nigh's first read of each is a miss; or Nigh's, as the directory
/// store has none.
fn input_door(swift: Option<&Swift>, node: &NodeUnderTest) -> Result<S3Door, LabError> {
    let Some(swift) = swift else { return Ok(S3Door { signer: node.signer("s3"), address: node.s3()? }) };
    Ok(S3Door { signer: swift.s3().signer(), address: socket_address(swift.endpoint())? })
}

impl DemoArgs {
    /// Keeps the functions of the mixture, or those that are named; quick ones first. A function outside the mixture gets every
    /// input of its kind.
    fn choose(&self, functions: &mut Vec<SampleFunction>, inputs: &Path) -> Result<(), LabError> {
        chosen("sample function", &self.only, functions, |function| &function.name)?;
        if self.only.is_empty() {
            functions.retain(|function| !function.demo.inputs.is_empty());
        } else {
            functions.retain(|function| self.only.contains(&function.name));
        }
        for function in functions.iter_mut().filter(|function| function.demo.inputs.is_empty()) {
            function.demo.inputs = function.sweep(inputs)?;
        }
        functions.sort_by_key(|function| (function.timeout_s, function.memory_mb));
        Ok(())
    }

    pub(crate) async fn run(self, mut machine: Machine, json: bool) -> Result<(), LabError> {
        let project = std::env::current_dir().at(".")?;
        let python = python()?;
        let mut functions = SampleFunction::read_all(&project.join("functions"))?;
        let inputs = project.join(".deps/inputs");
        self.choose(&mut functions, &inputs)?;
        let work = tempfile::tempdir().at(std::env::temp_dir())?;

        // From here on Ctrl-C ends the servers, too.
        let stop = progress::stop_on_interrupt();
        let progress = progress::spinner();
        progress.enable_steady_tick(Duration::from_millis(120));
        let step = |what: &'static str| {
            progress.set_message(what);
            unless_stopped(&stop, NOTHING_KEPT)
        };
        step("starting the store")?;
        let swift = match Swift::start(&work.path().join("swift")) {
            Err(PeerError::NotInstalled { hint, .. }) => {
                progress.println(format!("Swift is not installed ({hint}); using the directory store"));
                None
            }
            started => Some(started?),
        };
        if let Some(swift) = &swift {
            machine.add_peer(swift);
        }
        step("starting Nigh")?;
        let mut of_node = settings(swift.as_ref().map(Swift::s3), &python);
        // What is written is pushed between the runs, in which neither side is measured.
        set(&mut of_node, &[("writes.delay", "1 ms")]);
        let node = NodeUnderTest::start(work.path(), &of_node)?;
        step("uploading the inputs")?;
        upload(&input_door(swift.as_ref(), &node)?, &functions, &inputs).await?;
        step("deploying the functions")?;

        let stage = Stage {
            node: &node,
            direct: swift.as_ref().map(|swift| direct_side(swift, &python)),
            clients: self.clients.into(),
            rounds_min: self.rounds.into(),
            within: Duration::from_secs(self.seconds) / functions.len().max(1) as u32,
            stop: Arc::clone(&stop),
            progress: progress.clone(),
        };
        let processor_before = of_process_and_ended_threads(node.pid()).of_node()?;
        let table = Table::new(functions.iter().map(|function| function.name.as_str()));
        if !json {
            show(&progress, &table.head());
        }
        let (mut runs, mut failed, mut summaries) = (Vec::new(), 0, Vec::new());
        for function in &functions {
            let code = work.path().join("code").join(&function.name);
            function.instrumented(&project.join("runtimes/python/nigh_phases"), &code)?;
            LambdaClient::connect(&node)?.deploy(&deployment(function, &code)).await?;
            let measured = stage.measure(function, &code).await?;
            // Nigh's own records of this function are the newest.
            let records = activations(&node, measured.runs.len() + measured.failed).await?;
            let of_function = summarize(&function.name, &measured.runs, &records);
            if !json {
                show(&progress, &row(table, &of_function, &function.name));
            }
            runs.extend(measured.runs);
            failed += measured.failed;
            summaries.extend(of_function);
        }
        summaries.sort_by(|one: &Summary, other| (&one.function, one.side).cmp(&(&other.function, other.side)));
        let processor = of_process_and_ended_threads(node.pid()).of_node()?.saturating_sub(processor_before);
        let through_nigh = runs.iter().filter(|run| run.side == Side::Nigh).count();
        let memory = booked_memory(&status(&node).await?);
        progress.finish_and_clear();
        let store = if swift.is_some() { "OpenStack Swift (s3api)" } else { "directory store" };
        // All servers and processes have ended when the end is printed.
        drop(stage);
        drop((node, swift));
        let report = DemoReport {
            machine,
            store,
            clients: self.clients.into(),
            failed,
            first_round: FirstRound::of(&runs),
            memory,
            node_processor_ms: processor.as_secs_f64() * 1e3 / through_nigh.max(1) as f64,
            summaries,
            runs,
            page: self.html.clone(),
        };
        publish(&report, self.html.as_deref(), page::page, DemoReport::text, json)
    }
}

/// The processes of the direct side, with the instrument in them.
fn direct_side(swift: &Swift, python: &Path) -> BarePool {
    let mut environment = swift.s3().environment();
    environment.insert(INSTRUMENT.0.to_owned(), INSTRUMENT.1.to_owned());
    BarePool::new(python, environment)
}

/// Prints a line of the report without tearing the progress.
#[expect(clippy::print_stdout, reason = "the table is the command's output")]
fn show(progress: &ProgressBar, line: &str) {
    progress.suspend(|| println!("{line}"));
}

/// The row of a function.
fn row(table: Table, summaries: &[Summary], function: &str) -> String {
    match comparisons(summaries).first() {
        Some(comparison) => table.line(&Row::of(comparison)),
        None => format!("{function}: every invocation through Nigh failed"),
    }
}

/// How much of the sandboxes' bookings the cache may use. None where they do not share memory.
fn booked_memory(status: &Status) -> Option<BookedMemory> {
    let sandboxes = &status.sandboxes;
    let booked = sandboxes.booked + sandboxes.idle_booked + sandboxes.prewarmed_booked;
    let granted = status.memory.as_ref()?.granted;
    Some(BookedMemory { booked_bytes: booked.bytes(), granted_bytes: granted.bytes() })
}

fn deployment<'a>(function: &'a SampleFunction, code: &'a Path) -> Deployment<'a> {
    Deployment {
        name: &function.name,
        code,
        handler: &function.handler,
        memory_mb: function.memory_mb,
        timeout_s: function.timeout_s,
        environment: BTreeMap::from([(INSTRUMENT.0.to_owned(), INSTRUMENT.1.to_owned())]),
    }
}

/// Puts every input into the store that both sides read.
async fn upload(door: &S3Door, functions: &[SampleFunction], inputs: &Path) -> Result<(), LabError> {
    door.send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
    let names: BTreeSet<&String> = functions.iter().flat_map(|function| &function.demo.inputs).collect();
    for name in names {
        door.send(Method::PUT, &format!("/{BUCKET}/{name}"), &read_input(inputs, name)?).await?;
    }
    Ok(())
}
