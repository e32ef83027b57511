//! The two ways to do a job of the demonstration: through Nigh, or by a bare process directly against the store.
//!
//! Sandboxes and processes stay: from the second round on both sides are warm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::INSTRUMENT;
use crate::LabError;
use crate::instrument::peer::bare_runtime::BareRuntime;
use crate::instrument::peer::swift::Swift;
use crate::instrument::platform::LambdaClient;
use crate::instrument::sample_function::SampleFunction;

/// One piece of work.
pub(super) struct Job<'a> {
    pub(super) function: &'a SampleFunction,
    pub(super) input: &'a str,
    pub(super) event: Vec<u8>,
}

fn failure(job: &Job<'_>, reason: impl std::fmt::Display) -> LabError {
    LabError::Function { function: job.function.name.clone(), input: job.input.to_owned(), reason: reason.to_string() }
}

/// How long `job` took through Nigh, and what it printed.
pub(super) fn through_nigh(
    lambda: &mut Result<LambdaClient, LabError>,
    requests: &BTreeMap<(String, String), Vec<u8>>,
    job: &Job<'_>,
) -> Result<(Duration, Vec<String>), LabError> {
    let lambda = lambda.as_mut().map_err(|error| failure(job, error))?;
    let request = requests.get(&(job.function.name.clone(), job.input.to_owned())).map_or(&[][..], Vec::as_slice);
    let begin = Instant::now();
    let answer = lambda.send(&job.function.name, request)?;
    let took = begin.elapsed();
    if answer.function_error.is_some() {
        return Err(failure(job, String::from_utf8_lossy(&answer.payload)));
    }
    Ok((took, answer.log.lines().map(str::to_owned).collect()))
}

/// The functions as processes of their own, with the store's own address and key in their environment; each client
/// has one of each.
pub(super) struct DirectFunctions<'a> {
    processes: Vec<Mutex<BTreeMap<String, BareRuntime>>>,
    environment: BTreeMap<String, String>,
    codes: &'a BTreeMap<String, PathBuf>,
    python: &'a Path,
}

impl<'a> DirectFunctions<'a> {
    pub(super) fn new(clients: u8, swift: &Swift, codes: &'a BTreeMap<String, PathBuf>, python: &'a Path) -> Self {
        let mut environment = swift.s3().environment();
        environment.insert(INSTRUMENT.0.to_owned(), INSTRUMENT.1.to_owned());
        let processes = (0..clients).map(|_| Mutex::default()).collect();
        Self { processes, environment, codes, python }
    }

    /// How long `job` took a process of `client`, and what it printed.
    pub(super) fn run(&self, client: u8, job: &Job<'_>) -> Result<(Duration, Vec<String>), LabError> {
        let name = &job.function.name;
        let processes =
            self.processes.get(usize::from(client)).ok_or_else(|| failure(job, "there is no such client"))?;
        let mut processes = processes.lock().unwrap_or_else(PoisonError::into_inner);
        if !processes.contains_key(name) {
            let code = self.codes.get(name).map_or(Path::new("."), PathBuf::as_path);
            let runtime = BareRuntime::start(self.python, code, &job.function.handler, &self.environment)?;
            processes.insert(name.clone(), runtime);
        }
        let runtime = processes.get_mut(name).ok_or_else(|| failure(job, "it has no process"))?;
        let answer = runtime.invoke(&job.event).map_err(|error| failure(job, error))?;
        if !answer.succeeded {
            return Err(failure(job, String::from_utf8_lossy(&answer.payload)));
        }
        Ok((answer.took, answer.log))
    }
}
