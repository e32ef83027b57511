//! What functions are profiled on: a node whose memory has room for one sandbox, the functions in it, and their inputs.
//!
//! Each function is deployed under two names. Two sessions in a row use different names, so that each has a new sandbox; the node
//! ends the old one to make room.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http::Method;
use nigh_node::{Activation, Outcome};
use serde::Deserialize;
use tempfile::TempDir;

use super::arguments::ProfiledFunction;
use super::input_maker::InputMaker;
use super::inputs::MadeUp;
use super::plan::PlannedRow;
use super::recording::{InputFacts, RowMeasurements};
use super::sandbox_group::SandboxGroup;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::node_under_test::{self, NodeUnderTest, set};
use crate::instrument::platform::{self, Deployment, LambdaClient};
use crate::instrument::s3_door::S3Door;

/// What each function books: the memory of one whole processor on Lambda.
pub(super) const BOOKED_MB: u64 = 1769;
/// Room for one sandbox and not for two.
const FUNCTIONS_MB: u64 = 2048;
/// Objects are read from memory, as on a warm platform.
const CACHE_MB: u64 = 512;
const TIMEOUT_S: u64 = 600;
/// How long an answer may take: a new sandbox and a whole run, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(3 * TIMEOUT_S);
const BUCKET: &str = "memory";
const INSTRUMENT: &str = include_str!("nigh_measured.py");
const HANDLER: &str = "nigh_measured.handler";
/// Further runs of one row for its processor time, if it takes less than this; longer runs vary little.
const REPEATS: usize = 5;
const REPEATED_MAX: Duration = Duration::from_millis(400);

/// The node, its clients, and what it holds.
pub(super) struct Stage {
    lambda: LambdaClient,
    door: S3Door,
    maker: InputMaker,
    /// The inputs that are in the store.
    known: BTreeMap<String, InputFacts>,
    /// What the current session runs in.
    group: Option<SandboxGroup>,
    // Dropped last.
    node: NodeUnderTest,
    _work: TempDir,
}

/// What the instrument says.
#[derive(Deserialize)]
struct InstrumentOutput {
    cpu_s: f64,
}

impl Stage {
    /// Starts a node and deploys the functions of the project's folder.
    pub(super) async fn set(project: &Path, functions: &[&'static ProfiledFunction]) -> Result<Self, LabError> {
        let python = node_under_test::python()?;
        let work = tempfile::tempdir().at(std::env::temp_dir())?;
        let node = NodeUnderTest::start(work.path(), &settings(&python))?;
        let mut lambda = LambdaClient::connect(&node)?.waiting(PATIENCE)?;
        for function in functions {
            let code = work.path().join("code").join(function.name);
            std::fs::create_dir_all(&code).at(&code)?;
            let source = project.join("functions").join(function.name).join("app.py");
            std::fs::copy(&source, code.join("app.py")).at(&source)?;
            let instrument = code.join("nigh_measured.py");
            std::fs::write(&instrument, INSTRUMENT).at(&instrument)?;
            for name in names(function) {
                let deployment = Deployment {
                    name: &name,
                    code: &code,
                    handler: HANDLER,
                    memory_mb: BOOKED_MB,
                    timeout_s: TIMEOUT_S,
                    environment: BTreeMap::new(),
                };
                lambda.deploy(&deployment).await?;
            }
        }
        let maker = InputMaker::start(&python, work.path())?;
        let door = S3Door { signer: node.signer("s3"), address: node.s3()? };
        door.send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
        Ok(Self { lambda, door, maker, known: BTreeMap::new(), group: None, node, _work: work })
    }

    /// The facts of an input, which is made and stored the first time.
    pub(super) async fn input(&mut self, input: &MadeUp) -> Result<InputFacts, LabError> {
        if let Some(known) = self.known.get(&input.id) {
            return Ok(known.clone());
        }
        let made = self.maker.make(input)?;
        self.door.send(Method::PUT, &format!("/{BUCKET}/{}", input.id), &made.bytes).await?;
        let known = InputFacts { size: made.bytes.len() as u64, features: made.features };
        self.known.insert(input.id.clone(), known.clone());
        Ok(known)
    }

    /// Begins a session: the next run of `function` in it is in a new sandbox.
    pub(super) fn begin_session(&mut self) {
        self.group = None;
    }

    /// Runs a row in the session of this number, several times if its plan says so. Its input is stored already.
    pub(super) async fn measure(
        &mut self,
        function: &ProfiledFunction,
        session: u32,
        planned: &PlannedRow,
    ) -> Result<RowMeasurements, LabError> {
        let used_before = self.group.as_ref().map(SandboxGroup::used).transpose()?;
        let (activation, cpu_s) = self.run(function, session, planned).await?;
        let failed = |reason: &str| failed(function, planned, reason);
        let group = match self.group.take() {
            Some(_) if activation.cold => return Err(failed("its sandbox had ended before the run")),
            Some(group) => group,
            None => {
                let sandbox = activation.sandbox.ok_or_else(|| failed("it ran in no sandbox"))?;
                SandboxGroup::find(&sandbox.to_string())?
            }
        };
        let page_cache = group.page_cache()?;
        self.group = Some(group);
        let written = activation.data_calls.iter().filter(|call| call.served == "write");
        let mut measured = RowMeasurements {
            is_cold: activation.cold,
            used_before,
            peak: activation.peak_memory.ok_or_else(|| failed("its peak was not measured"))?.bytes(),
            page_cache,
            touched_limit: activation.memory.reached_booked,
            cpu_s,
            output_size: written.map(|call| call.bytes).sum(),
            repeats: Vec::new(),
        };
        if planned.is_repeated && cpu_s < REPEATED_MAX.as_secs_f64() {
            for _ in 0..REPEATS {
                measured.repeats.push(self.run(function, session, planned).await?.1);
            }
        }
        Ok(measured)
    }

    /// Runs a row whose measurements do not count: an interrupted session continues in a sandbox that has run, and the first
    /// sandbox of a function is charged for its libraries.
    pub(super) async fn warm(
        &mut self,
        function: &ProfiledFunction,
        session: u32,
        planned: &PlannedRow,
    ) -> Result<(), LabError> {
        self.measure(function, session, &PlannedRow { is_repeated: false, ..planned.clone() }).await.map(drop)
    }

    /// One run: its record, and its processor time.
    async fn run(
        &mut self,
        function: &ProfiledFunction,
        session: u32,
        planned: &PlannedRow,
    ) -> Result<(Activation, f64), LabError> {
        let name = &names(function)[session as usize % 2];
        let mut event = serde_json::json!({
            "input": {"bucket": BUCKET, "key": planned.input.id},
            "output": {"bucket": BUCKET, "key": format!("out/{}", function.name)},
        });
        for (argument, value) in &planned.arguments {
            event[*argument] = value.clone();
        }
        let request = self.lambda.invocation(name, event.to_string().as_bytes()).await?;
        let answer = self.lambda.send(name, &request);
        if answer.is_err() {
            // A broken connection is not used again.
            self.lambda = LambdaClient::connect(&self.node)?.waiting(PATIENCE)?;
        }
        let answer = answer?;
        let failed = |reason: &str| failed(function, planned, reason);
        if answer.function_error.is_some() {
            return Err(failed(&String::from_utf8_lossy(&answer.payload)));
        }
        let said: InstrumentOutput =
            serde_json::from_slice(&answer.payload).map_err(|error| failed(&error.to_string()))?;
        let activation = platform::activation(&self.node, &answer.id).await?;
        match activation.outcome {
            Outcome::Answered => Ok((activation, said.cpu_s)),
            outcome => Err(failed(&format!("{outcome:?}"))),
        }
    }
}

fn failed(function: &ProfiledFunction, planned: &PlannedRow, reason: &str) -> LabError {
    let input = format!("row {}, {}", planned.seq, planned.input.id);
    LabError::Function { function: function.name.to_owned(), input, reason: reason.to_owned() }
}

/// The two names that a function is deployed under.
fn names(function: &ProfiledFunction) -> [String; 2] {
    [function.name.to_owned(), format!("{}-again", function.name)]
}

fn settings(python: &Path) -> toml::Table {
    let mut settings = node_under_test::settings(None, python);
    let (memory, cache) = (format!("{FUNCTIONS_MB} MiB"), format!("{CACHE_MB} MiB"));
    let queue = format!("{TIMEOUT_S} s");
    let values = [
        ("functions.memory", memory.as_str()),
        ("cache.bytes", &cache),
        // A sandbox is cold or warm here: one that has its imports behind it would be a third start.
        ("functions.prewarm", "off"),
        ("functions.queue", &queue),
    ];
    set(&mut settings, &values);
    settings
}
