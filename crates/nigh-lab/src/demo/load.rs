//! The runs of the demonstration: a function's rounds, in which both sides take turns.
//!
//! Before the direct side's turn Nigh has pushed what it acknowledged, so that neither side works while the other is measured.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::report::{Run, Side};
use crate::LabError;
use crate::instrument::bare_pool::BarePool;
use crate::instrument::node_under_test::NodeUnderTest;
use crate::instrument::parallel::by_workers;
use crate::instrument::phase_log::{PhasesMs, processor_ms};
use crate::instrument::platform::{LambdaClient, until_pushed};
use crate::instrument::progress::unless_stopped;
use crate::instrument::report::name_of;
use crate::instrument::sample_function::SampleFunction;

/// The bucket of the inputs and outputs.
pub(super) const BUCKET: &str = "demo-bucket";
/// The most rounds of a function: a quick one is known well enough by then.
const ROUNDS_MAX: usize = 25;
/// How long Nigh may take to push what a round wrote.
const PUSHED_WITHIN: Duration = Duration::from_secs(60);
/// What becomes of an interrupted run.
pub(super) const NOTHING_KEPT: &str = "nothing is kept, and nothing is left running";

/// Where and how the functions run.
pub(super) struct Stage<'a> {
    pub(super) node: &'a NodeUnderTest,
    /// The processes of the direct side; none if there is no second store.
    pub(super) direct: Option<BarePool>,
    pub(super) clients: usize,
    pub(super) rounds_min: usize,
    /// No further round of a function begins after this time.
    pub(super) within: Duration,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) progress: ProgressBar,
}

/// The runs of one function.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) runs: Vec<Run>,
    pub(super) failed: usize,
}

/// One function on one input. Sandboxes and processes stay: from the second round on both sides are warm.
struct Job<'a> {
    function: &'a SampleFunction,
    input: &'a str,
    code: &'a Path,
    event: Vec<u8>,
    request: Vec<u8>,
}

impl Stage<'_> {
    /// Runs the function, which is deployed, in rounds of all its inputs. `code` is the folder that was deployed.
    pub(super) async fn measure(&self, function: &SampleFunction, code: &Path) -> Result<Measured, LabError> {
        let begin = Instant::now();
        let mut measured = Measured::default();
        let mut round = 0;
        while round < self.rounds_min || (round < ROUNDS_MAX && begin.elapsed() < self.within) {
            for &side in self.turns(round) {
                if side == Side::Direct {
                    until_pushed(&self.node.endpoints.admin_socket, PUSHED_WITHIN).await?;
                }
                self.progress.set_message(format!("{}: round {}, {}", function.name, round + 1, name_of(&side)));
                // Signed anew for each turn: a signature is good for minutes.
                let jobs = self.jobs(function, code).await?;
                self.take_turn(&jobs, side, round, &mut measured);
                unless_stopped(&self.stop, NOTHING_KEPT)?;
            }
            round += 1;
        }
        Ok(measured)
    }

    /// Who runs first changes from round to round.
    fn turns(&self, round: usize) -> &'static [Side] {
        match (self.direct.is_some(), round.is_multiple_of(2)) {
            (false, _) => &[Side::Nigh],
            (true, true) => &[Side::Direct, Side::Nigh],
            (true, false) => &[Side::Nigh, Side::Direct],
        }
    }

    async fn jobs<'j>(&self, function: &'j SampleFunction, code: &'j Path) -> Result<Vec<Job<'j>>, LabError> {
        let lambda = LambdaClient::connect(self.node)?;
        let mut jobs = Vec::new();
        for input in &function.demo.inputs {
            let event = function.event(BUCKET, input);
            let request = lambda.invocation(&function.name, &event).await?;
            jobs.push(Job { function, input, code, event, request });
        }
        Ok(jobs)
    }

    /// Has the clients run all jobs on one side.
    fn take_turn(&self, jobs: &[Job<'_>], side: Side, round: usize, measured: &mut Measured) {
        let run = |job: &Job<'_>, (took, log): (Duration, String)| Run {
            function: job.function.name.clone(),
            input: job.input.to_owned(),
            side,
            round,
            took_ms: took.as_secs_f64() * 1e3,
            phases_ms: PhasesMs::read(log.lines(), took),
            processor_ms: processor_ms(log.lines()),
        };
        let worker = || {
            let (run, mut lambda) = (&run, None);
            move |job: &Job<'_>| {
                let done = match (side, &self.direct) {
                    _ if self.stop.load(Ordering::Relaxed) => return None,
                    (Side::Direct, Some(pool)) => job.directly(pool),
                    _ => job.through_nigh(lambda.get_or_insert_with(|| LambdaClient::connect(self.node))),
                };
                Some(done.map(|done| run(job, done)))
            }
        };
        for result in by_workers(jobs, self.clients, worker).into_iter().flatten() {
            match result {
                Ok(run) => measured.runs.push(run),
                Err(error) => {
                    self.progress.println(error.to_string());
                    measured.failed += 1;
                }
            }
        }
    }
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
