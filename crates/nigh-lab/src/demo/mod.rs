//! The demonstration: a mixed load of real functions on real inputs, in rounds that take turns between the functions directly
//! against the store, without a platform, and the same functions through Nigh.
//!
//! The store is Swift with Nigh in front of it, where Swift is installed. Else it is Nigh's directory store: then there is nothing
//! to compare, and the report has times alone.

mod page;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use http::Method;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use self::report::{DemoReport, Run, Side, summarize};
use crate::LabError;
use crate::instrument::bare_pool::BarePool;
use crate::instrument::choice::chosen;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, python, settings, socket_address};
use crate::instrument::parallel::by_workers;
use crate::instrument::peer::PeerError;
use crate::instrument::peer::swift::Swift;
use crate::instrument::phase_log::{PhasesMs, processor_ms};
use crate::instrument::platform::{Deployment, LambdaClient, activations};
use crate::instrument::progress::{self, unless_stopped};
use crate::instrument::report::{name_of, publish};
use crate::instrument::s3_door::S3Door;
use crate::instrument::sample_function::{SampleFunction, read_input};

const BUCKET: &str = "demo-bucket";
/// The order of the load is the same in every run.
const SEED: u64 = 3;
pub(crate) const INSTRUMENT: (&str, &str) = ("BOTOCORE_EXPERIMENTAL__PLUGINS", "nigh_phases=nigh_phases");

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Write the page with the charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Start no further round after this many seconds
    #[arg(long, default_value_t = 90)]
    seconds: u64,
    /// The least number of rounds of each contender
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// How many clients invoke at once; each sends its next invocation when its last one is answered
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
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
    /// Keeps the functions of the mixture, or those that are named. A function outside the mixture gets every input of its kind.
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
        Ok(())
    }

    pub(crate) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        let project = std::env::current_dir().at(".")?;
        let python = python()?;
        let mut functions = SampleFunction::read_all(&project.join("functions"))?;
        let inputs = project.join(".deps/inputs");
        self.choose(&mut functions, &inputs)?;
        let work = tempfile::tempdir().at(std::env::temp_dir())?;

        let progress = progress::spinner();
        progress.enable_steady_tick(Duration::from_millis(120));
        progress.set_message("starting the store");
        let swift = match Swift::start(&work.path().join("swift")) {
            Err(PeerError::NotInstalled { hint, .. }) => {
                progress.println(format!("Swift is not installed ({hint}); using the directory store"));
                None
            }
            started => Some(started?),
        };
        progress.set_message("starting Nigh");
        let node = NodeUnderTest::start(work.path(), &settings(swift.as_ref().map(Swift::s3), &python))?;
        progress.set_message("uploading the inputs");
        upload(&input_door(swift.as_ref(), &node)?, &functions, &inputs).await?;
        progress.set_message("deploying the functions");
        let mut codes = BTreeMap::new();
        let mut lambda = LambdaClient::connect(&node)?;
        for function in &functions {
            let code = work.path().join("code").join(&function.name);
            function.instrumented(&project.join("runtimes/python/nigh_phases"), &code)?;
            lambda.deploy(&deployment(function, &code)).await?;
            codes.insert(function.name.clone(), code);
        }
        drop(lambda);
        progress.finish_and_clear();

        let (runs, rounds, failed) = self.load(&functions, &node, swift.as_ref(), &codes, &python).await?;
        let records = activations(&node, runs.len() + functions.len()).await?;
        let summaries = summarize(&runs, &records);
        let report = DemoReport {
            machine,
            store: if swift.is_some() { "OpenStack Swift (s3api)" } else { "directory store" },
            clients: self.clients.into(),
            rounds,
            failed,
            summaries,
            runs,
        };
        publish(&report, self.html.as_deref(), page::page, DemoReport::text, json)
    }

    /// Rounds of both sides until the time is up, each in its own order.
    async fn load(
        &self,
        functions: &[SampleFunction],
        node: &NodeUnderTest,
        swift: Option<&Swift>,
        codes: &BTreeMap<String, PathBuf>,
        python: &Path,
    ) -> Result<(Vec<Run>, usize, usize), LabError> {
        let mut jobs = Vec::new();
        let lambda = LambdaClient::connect(node)?;
        for function in functions {
            for input in &function.demo.inputs {
                let event = function.event(BUCKET, input);
                let request = lambda.invocation(&function.name, &event).await?;
                jobs.push(Job { function, input, code: &codes[&function.name], event, request });
            }
        }
        let direct = swift.map(|swift| {
            let mut environment = swift.s3().environment();
            environment.insert(INSTRUMENT.0.to_owned(), INSTRUMENT.1.to_owned());
            BarePool::new(python, environment)
        });
        let sides: &[Side] = if direct.is_some() { &[Side::Direct, Side::Nigh] } else { &[Side::Nigh] };

        let progress = progress::bar(0);
        let stop = progress::stop_on_interrupt();
        let begin = Instant::now();
        let mut random = StdRng::seed_from_u64(SEED);
        let (mut runs, mut failed, mut round) = (Vec::new(), 0, 0);
        while round < self.rounds || begin.elapsed() < Duration::from_secs(self.seconds) {
            jobs.shuffle(&mut random);
            for &side in sides {
                progress.set_length(((round + 1) * sides.len() * jobs.len()) as u64);
                progress.set_message(format!("round {} {}", round + 1, name_of(&side)));
                let run = |job: &Job<'_>, (took, log): (Duration, String)| {
                    progress.inc(1);
                    Run {
                        function: job.function.name.clone(),
                        input: job.input.to_owned(),
                        side,
                        round,
                        took_ms: took.as_secs_f64() * 1e3,
                        phases_ms: PhasesMs::read(log.lines(), took),
                        processor_ms: processor_ms(log.lines()),
                    }
                };
                let worker = || {
                    let (direct, run, stop, mut lambda) = (&direct, &run, &stop, None);
                    move |job: &Job<'_>| {
                        let done = match (side, direct) {
                            _ if stop.load(Ordering::Relaxed) => return None,
                            (Side::Direct, Some(pool)) => job.directly(pool),
                            _ => job.through_nigh(lambda.get_or_insert_with(|| LambdaClient::connect(node))),
                        };
                        Some(done.map(|done| run(job, done)))
                    }
                };
                for result in by_workers(&jobs, self.clients.into(), worker).into_iter().flatten() {
                    match result {
                        Ok(run) => runs.push(run),
                        Err(error) => {
                            progress.println(error.to_string());
                            failed += 1;
                        }
                    }
                }
                unless_stopped(&stop, "nothing is kept")?;
            }
            round += 1;
        }
        progress.finish_and_clear();
        Ok((runs, round, failed))
    }
}

/// One function on one input. Sandboxes and processes stay: from the second round on both sides are warm.
struct Job<'a> {
    function: &'a SampleFunction,
    input: &'a str,
    code: &'a Path,
    event: Vec<u8>,
    request: Vec<u8>,
}

impl Job<'_> {
    fn failure(&self, reason: String) -> LabError {
        LabError::Function { function: self.function.name.clone(), input: self.input.to_owned(), reason }
    }

    /// The time of the job through Nigh, and the lines that it printed.
    fn through_nigh(&self, lambda: &mut Result<LambdaClient, LabError>) -> Result<(Duration, String), LabError> {
        let lambda = lambda.as_mut().map_err(|error| self.failure(error.to_string()))?;
        let begin = Instant::now();
        let answer = lambda.send(&self.function.name, &self.request)?;
        let took = begin.elapsed();
        match answer.function_error {
            Some(_) => Err(self.failure(String::from_utf8_lossy(&answer.payload).into_owned())),
            None => Ok((took, answer.log)),
        }
    }

    /// The time of the job in a bare process, directly against the store, and the lines that it printed.
    fn directly(&self, pool: &BarePool) -> Result<(Duration, String), LabError> {
        let answer = pool.invoke(&self.function.name, (self.code, &self.function.handler), &self.event);
        answer.map_err(|reason| self.failure(reason)).map(|(answer, _)| (answer.took, answer.log.join("\n")))
    }
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
