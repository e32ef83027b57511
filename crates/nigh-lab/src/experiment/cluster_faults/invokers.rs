//! Clients at the Lambda doors: invocations of real Python functions that read and write the objects, and that call each
//! other by name in their midst. What an invocation did is told by its answer; of one without an answer nobody knows.
//!
//! One that fails is tried again twice, at the next doors, as a client of Lambda would. Every try is an invocation of its own
//! that writes values of its own: the history stays one in which each value is written once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use nigh_check::history::{Moment, OperationResult, Value};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::clients::{BUCKET, OBJECTS, key};
use super::failed_invocations::{FailuresByCause, cause_of_answer, cause_of_no_answer, cause_of_no_connection};
use super::record::{Record, now, read, write};
use super::world::Doors;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::http_load::{Connection, Reply, header};
use crate::instrument::platform::{Deployment, LambdaClient};

const STEPS: &str = include_str!("steps.py");
/// A function that does its steps,
const WORKER: &str = "worker";
/// and one that has a way to the Lambda doors, and calls the other.
const CALLER: &str = "caller";
/// How long an answer is waited for: longer than a function may run.
const PATIENCE: Duration = Duration::from_secs(45);
const TIMEOUT_S: u64 = 30;
const CALLS: f64 = 0.25;
/// How often an invocation that failed is tried again, by Lambda and by its SDKs.
const RETRIES: u32 = 2;
/// Before the first retry, at most; before each other one, twice as long.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX_MS: u64 = 300;
/// How long a deployment is tried.
const DEPLOYED_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Step {
    Get { key: String },
    Put { key: String, value: Value },
    Call { function: &'static str, doors: Vec<String>, event: Event },
}

#[derive(Clone, Debug, Serialize)]
struct Event {
    bucket: &'static str,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, Deserialize)]
struct StepRecord {
    begin: Moment,
    end: Moment,
    status: Status,
    #[serde(default)]
    value: Option<Value>,
    #[serde(default)]
    log: Vec<Self>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Done,
    Absent,
    Torn,
    Unknown,
}

#[derive(Debug, Deserialize)]
struct StepLog {
    log: Vec<StepRecord>,
}

pub(super) fn deploy(folder: &Path, doors: &Doors) -> Result<(), LabError> {
    let code = folder.join("code");
    std::fs::create_dir_all(&code).at(&code)?;
    std::fs::write(code.join("steps.py"), STEPS).at(&code)?;
    for (name, network) in [(WORKER, "none"), (CALLER, "outbound")] {
        let deployment = Deployment {
            name,
            code: &code,
            handler: "steps.handler",
            memory_mb: 128,
            timeout_s: TIMEOUT_S,
            environment: BTreeMap::from([("NIGH_NETWORK".to_owned(), network.to_owned())]),
        };
        let begun = std::time::Instant::now();
        loop {
            let client = LambdaClient::to(doors.lambda[0], doors.lambda_signer.clone());
            match client.and_then(|mut client| doors.handle.block_on(client.deploy(&deployment))) {
                Ok(()) => break,
                Err(error) if begun.elapsed() > DEPLOYED_WITHIN => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }
    Ok(())
}

/// What an answer tells of the steps; none if it tells nothing.
fn log_of(reply: &Reply) -> Option<Vec<StepRecord>> {
    let is_done = matches!(reply.status(), 200..=299) && header(&reply.head, "x-amz-function-error").is_none();
    let log = is_done.then(|| serde_json::from_slice::<StepLog>(&reply.body).ok()).flatten();
    log.map(|answer| answer.log)
}

#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Invocations that their first attempt answered.
    pub(super) answered: AtomicU64,
    /// The others.
    pub(super) failed: Mutex<FailuresByCause>,
    /// Calls of other functions that were answered.
    pub(super) nested: AtomicU64,
}

pub(super) struct Invoker<'a> {
    doors: &'a Doors,
    record: &'a Record,
    ends: &'a Ends,
    part: u32,
    draw: StdRng,
}

impl<'a> Invoker<'a> {
    pub(super) fn new(
        doors: &'a Doors,
        (record, ends): (&'a Record, &'a Ends),
        part: u32,
        number: usize,
        seed: u64,
    ) -> Self {
        let draw = StdRng::seed_from_u64(!seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { doors, record, ends, part, draw }
    }

    pub(super) fn live(&mut self, stop: &AtomicBool) -> Result<(), LabError> {
        while !stop.load(Ordering::Relaxed) {
            self.invoke()?;
            std::thread::sleep(Duration::from_millis(self.draw.random_range(0..PAUSE_MAX_MS)));
        }
        Ok(())
    }

    fn steps(&mut self, count: usize) -> Vec<Step> {
        let generation = self.record.generation();
        let step = |draw: &mut StdRng| {
            let key = key(self.part, generation, draw.random_range(0..OBJECTS));
            if draw.random_bool(0.6) { Step::Get { key } } else { Step::Put { key, value: self.record.value() } }
        };
        (0..count).map(|_| step(&mut self.draw)).collect()
    }

    /// The same steps with values that nobody has written.
    fn with_new_values(&self, steps: &[Step]) -> Vec<Step> {
        let anew = |step: &Step| match step {
            Step::Get { key } => Step::Get { key: key.clone() },
            Step::Put { key, .. } => Step::Put { key: key.clone(), value: self.record.value() },
            Step::Call { function, doors, event } => {
                let event = Event { bucket: event.bucket, steps: self.with_new_values(&event.steps) };
                Step::Call { function, doors: doors.clone(), event }
            }
        };
        steps.iter().map(anew).collect()
    }

    fn invoke(&mut self) -> Result<(), LabError> {
        let (mut door, count) = (self.draw.random_range(0..self.doors.lambda.len()), self.draw.random_range(1..5));
        let mut steps = self.steps(count);
        if self.draw.random_bool(CALLS) {
            let inner = self.steps(2);
            let doors = self.doors.lambda.iter().map(|door| format!("http://{door}")).collect();
            let event = Event { bucket: BUCKET, steps: inner };
            let at = self.draw.random_range(0..=steps.len());
            steps.insert(at, Step::Call { function: WORKER, doors, event });
        }
        let mut event = Event { bucket: BUCKET, steps };
        let Some(cause) = self.attempt(door, &event)? else {
            self.ends.answered.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let mut is_answered = false;
        for retry in 0..RETRIES {
            std::thread::sleep((RETRY_PAUSE * 2_u32.pow(retry)).mul_f64(self.draw.random()));
            door = (door + 1) % self.doors.lambda.len();
            event.steps = self.with_new_values(&event.steps);
            is_answered = self.attempt(door, &event)?.is_none();
            if is_answered {
                break;
            }
        }
        self.ends.failed.lock().count(cause, is_answered);
        Ok(())
    }

    /// Invokes once: why there is no answer that tells what was done, if there is none.
    fn attempt(&self, door: usize, event: &Event) -> Result<Option<String>, LabError> {
        let text = serde_json::to_vec(event).at("an event")?;
        let Doors { lambda, lambda_signer, handle, .. } = self.doors;
        let server = lambda[door];
        let calls = event.steps.iter().any(|step| matches!(step, Step::Call { .. }));
        let path = format!("/2015-03-31/functions/{}/invocations", if calls { CALLER } else { WORKER });
        let headers = [("content-type", "application/json")];
        let request = handle.block_on(lambda_signer.signed(Method::POST, server, &path, &headers, &text))?;
        let begin = now();
        let mut connection = match Connection::open_within(server, PATIENCE) {
            Ok(connection) => connection,
            // Nothing was sent: nothing was done.
            Err(error) => return Ok(Some(cause_of_no_connection(&error))),
        };
        let invocation = self.record.call(begin, None);
        let reply = connection.ask(&request).map_err(|error| cause_of_no_answer(&error));
        let end = now();
        let cause = match reply.as_ref().map(log_of) {
            Ok(Some(log)) if log.len() == event.steps.len() => {
                self.record.ended(invocation, end);
                self.told(invocation, &event.steps, &log);
                return Ok(None);
            }
            _ => reply.as_ref().map_or_else(Clone::clone, cause_of_answer),
        };
        self.untold(invocation, begin, &event.steps);
        Ok(Some(cause))
    }

    fn told(&self, invocation: usize, steps: &[Step], log: &[StepRecord]) {
        let of = Some(invocation);
        for (step, done) in steps.iter().zip(log) {
            let (begin, end) = (done.begin, done.end);
            match (step, done.status) {
                (Step::Get { key }, Status::Done) => self.record.add(read(key, of, begin, end, done.value)),
                (Step::Get { key }, Status::Absent) => self.record.add(read(key, of, begin, end, None)),
                (Step::Get { key }, Status::Torn) => self.record.mixed(&format!("{key}, read by an invocation")),
                (Step::Get { .. }, Status::Unknown) => {}
                (Step::Put { key, value }, status) => {
                    let end = (status == Status::Done).then_some(end);
                    self.record.add(write(key, of, begin, end, OperationResult::Anything, Some(*value)));
                }
                (Step::Call { event, .. }, status) => {
                    let callee = self.record.call(begin, of);
                    if status == Status::Done && done.log.len() == event.steps.len() {
                        self.ends.nested.fetch_add(1, Ordering::Relaxed);
                        self.record.ended(callee, end);
                        self.told(callee, &event.steps, &done.log);
                    } else {
                        self.untold(callee, begin, &event.steps);
                    }
                }
            }
        }
    }

    /// Whatever it was told to write it may have written.
    fn untold(&self, invocation: usize, begin: Moment, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Get { .. } => {}
                Step::Put { key, value } => {
                    self.record.add(write(key, Some(invocation), begin, None, OperationResult::Anything, Some(*value)));
                }
                Step::Call { event, .. } => {
                    let callee = self.record.call(begin, Some(invocation));
                    self.untold(callee, begin, &event.steps);
                }
            }
        }
    }
}
