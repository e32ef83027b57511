//! What the scenarios stand on: one Swift, one Redis, one Nigh in front of that Swift; and for each application its functions
//! and its state machine there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_node::Activation;
use nigh_terms::{Clock as _, SystemClock, Timestamp};
use nigh_workflow::Definition;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Scenario;
use super::application::{Application, SCRATCH};
use super::bare_engine::BareEngine;
use crate::LabError;
use crate::instrument::bare_pool::BarePool;
use crate::instrument::compared_stores::{ComparedStores, REDIS_CLIENT};
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, set, settings};
use crate::instrument::peer::swift::AccessLog;
use crate::instrument::pipeline_inputs::make_inputs;
use crate::instrument::platform::{Deployment, LambdaClient, activations_while, until_pushed};
use crate::instrument::report::name_of;
use crate::instrument::sample_function::measured_code;
use crate::instrument::states_door::StatesDoor;

/// The bucket of Swift and Redis themselves, and that of Nigh in front of the same Swift.
const BUCKET: &str = "pipelines";
const NIGH_BUCKET: &str = "pipelines-nigh";
/// Nigh's cache has room for inputs, and the intermediates of one execution.
const CACHE: &str = "2 GiB";
/// The largest input and more.
const OBJECT_MAX: &str = "128 MiB";
/// Nigh's sandboxes have room for two of each function of an application, and of the one before it.
const FUNCTIONS: &str = "8 GiB";
/// How late the records of an execution may be and how often they are looked for, and how long its pushes may take.
const RECORDS_WITHIN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);
const PUSHED_WITHIN: Duration = Duration::from_secs(60);
/// Tasks of an execution at most.
const RECORDS_MAX: usize = 10_000;

/// What a task's line of figures begins with (`peers/measured.py`).
const MARK: &str = "nigh-stage ";

/// One task's time in its own process, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct Figures {
    /// The handler, from its first line to its last.
    pub(super) total_us: f64,
    /// Waiting for objects.
    pub(super) extract_us: f64,
    /// Storing objects.
    pub(super) load_us: f64,
}

impl Figures {
    /// The figures among the lines that a task has printed.
    pub(super) fn read<'a>(lines: impl Iterator<Item = &'a str>) -> impl Iterator<Item = Self> {
        let told = lines.filter_map(|line| line.split_once(MARK));
        told.filter_map(|(_, figures)| serde_json::from_str(figures).ok())
    }
}

/// An execution at its end.
pub(super) struct Execution {
    pub(super) output: Value,
    /// The caller's time, from its start to its answer.
    pub(super) took: Duration,
    /// The times of each task.
    pub(super) figures: Vec<Figures>,
    /// Reads that Nigh had from the store, by its own records.
    pub(super) misses: u64,
}

/// The servers, the first of them ended first.
pub(super) struct Stage {
    node: NodeUnderTest,
    stores: ComparedStores,
    log: AccessLog,
    python: PathBuf,
    work: TempDir,
}

impl Stage {
    /// Starts the servers and notes them in `machine`. `say` is told what is not installed and left out; Swift must be there.
    pub(super) async fn set(python: &Path, machine: &mut Machine, say: impl Fn(String)) -> Result<Self, LabError> {
        let work = tempfile::tempdir().at(std::env::temp_dir())?;
        let log = AccessLog::listen().map_err(|error| LabError::Node(format!("Swift's log: {error}")))?;
        let stores = ComparedStores::start(work.path(), Some(&log), &["redis", "hiredis"], machine, say)?;
        let mut settings = settings(Some(stores.swift.s3()), python);
        let values = [("cache.bytes", CACHE), ("cache.object_max", OBJECT_MAX), ("functions.memory", FUNCTIONS)];
        set(&mut settings, &values);
        let node = NodeUnderTest::start(work.path(), &settings)?;
        for bucket in [BUCKET, NIGH_BUCKET] {
            stores.create_bucket(bucket).await?;
        }
        Ok(Self { node, stores, log, python: python.to_owned(), work })
    }

    /// Those that can be played here.
    pub(super) fn scenarios(&self) -> Vec<Scenario> {
        let can = |scenario: &Scenario| *scenario != Scenario::Redis || self.stores.others.redis.is_some();
        Scenario::ALL.into_iter().filter(can).collect()
    }

    /// Tasks of a map that run at a time: one a processor.
    pub(super) fn at_once(&self) -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }

    /// The bytes of an input.
    pub(super) fn made(&self, file: &str) -> Result<Vec<u8>, LabError> {
        let folder = self.work.path().join("inputs");
        make_inputs(&self.python, &folder, &[file])?;
        std::fs::read(folder.join(file)).at(folder.join(file))
    }

    /// Puts an object where `scenario` reads it: for Nigh into Swift, behind its back.
    pub(super) async fn put(&self, scenario: Scenario, key: &str, body: &[u8]) -> Result<(), LabError> {
        match scenario {
            Scenario::Redis => self.stores.put_into_redis(BUCKET, key, body),
            _ => self.stores.put_into_swift(bucket_of(scenario), key, body).await,
        }
    }

    /// Bytes that Swift has been sent so far to a folder of the scenario's bucket, by its own log.
    pub(super) fn sent_to_swift(&self, scenario: Scenario, folder: &str) -> u64 {
        self.log.received(&format!("{}/{folder}", bucket_of(scenario)))
    }

    /// Waits until Nigh has removed the intermediate objects and pushed all others.
    pub(super) async fn until_pushed(&self) -> Result<(), LabError> {
        until_pushed(&self.node.endpoints.admin_socket, PUSHED_WITHIN).await
    }

    /// Deploys `application` everywhere, and removes the functions of the one `before` it, unless it is the same.
    pub(super) async fn cast<'a>(
        &self,
        before: Option<Cast<'a>>,
        application: &'a Application,
    ) -> Result<Cast<'a>, LabError> {
        if let Some(before) = before {
            if before.application.name == application.name {
                return Ok(before);
            }
            for function in before.definition.functions() {
                LambdaClient::connect(&self.node)?.remove(function.as_str()).await?;
            }
        }
        let definition = application.definition()?;
        let functions = definition.functions();
        let code_of = |scenario: Scenario, client: Option<&str>| {
            let folder = self.work.path().join("code").join(&application.name).join(name_of(&scenario));
            measured_code(&application.folder, &folder, client).map(|()| folder)
        };
        let handler = |function| format!("measured.{}", application.stage(function));
        let mut engines = BTreeMap::new();
        for scenario in self.scenarios().into_iter().filter(|scenario| !scenario.is_nigh()) {
            let (environment, client) = match scenario {
                Scenario::Redis => (self.stores.others.redis_environment(), Some(REDIS_CLIENT)),
                _ => (self.stores.swift_environment(), None),
            };
            let engine = BareEngine {
                pool: BarePool::new(&self.python, environment),
                code: code_of(scenario, client)?,
                handlers: functions.iter().map(|function| (function.clone(), handler(function))).collect(),
                figures: Mutex::default(),
            };
            engines.insert(scenario, engine);
        }
        let code = code_of(Scenario::NighHit, None)?;
        for function in &functions {
            let deployment = Deployment {
                name: function.as_str(),
                code: &code,
                handler: &handler(function),
                memory_mb: application.memory_mb,
                timeout_s: application.timeout_s,
                // Functions declare that caching pays: its model is measured elsewhere.
                environment: BTreeMap::from([("NIGH_CACHE".to_owned(), "benefit".to_owned())]),
            };
            LambdaClient::connect(&self.node)?.deploy(&deployment).await?;
        }
        let mut states = StatesDoor::connect(&self.node)?;
        let scratch = format!("{NIGH_BUCKET}/{SCRATCH}/");
        let machine = states.create(&application.deployed(), "EXPRESS", &application.machine, Some(&scratch)).await?;
        for shared in &application.shared {
            let body = self.made(&shared.file)?;
            for scenario in [Scenario::Swift, Scenario::Redis, Scenario::NighHit] {
                self.put(scenario, &application.shared_key(shared), &body).await?;
            }
        }
        Ok(Cast { application, definition, engines, machine })
    }

    /// Runs one execution of what was cast on the input at `key`, of `tasks` tasks if that is known.
    pub(super) async fn play(
        &self,
        cast: &Cast<'_>,
        scenario: Scenario,
        key: &str,
        tasks: usize,
    ) -> Result<Execution, LabError> {
        let input = cast.application.input(bucket_of(scenario), key, self.at_once());
        if let Some(engine) = cast.engines.get(&scenario) {
            return engine.execute(&cast.definition, &name_of(&scenario), &input);
        }
        // A new connection each time: the door closes one that idles while others take their turns.
        let mut states = StatesDoor::connect(&self.node)?;
        let body = json!({ "stateMachineArn": cast.machine, "input": input.to_string() });
        let request = states.request("StartSyncExecution", &body).await?;
        let begin = SystemClock::new().wall();
        let (output, took_us) = states.run(&request)?;
        let records = self.records(begin, tasks).await?;
        Ok(Execution {
            output,
            took: Duration::from_secs_f64(took_us / 1e6),
            figures: records.iter().flat_map(|record| Figures::read(record.log.lines())).collect(),
            misses: records.iter().map(|record| record.misses).sum(),
        })
    }

    /// The records of the tasks that began after `begin`, as soon as there are `tasks` of them.
    async fn records(&self, begin: Timestamp, tasks: usize) -> Result<Vec<Activation>, LabError> {
        let (begun, admin) = (Instant::now(), &self.node.endpoints.admin_socket);
        loop {
            let records = activations_while(admin, RECORDS_MAX, |record| record.start >= begin)?;
            if records.len() >= tasks || begun.elapsed() > RECORDS_WITHIN {
                return Ok(records);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

const fn bucket_of(scenario: Scenario) -> &'static str {
    if scenario.is_nigh() { NIGH_BUCKET } else { BUCKET }
}

/// One application's functions everywhere.
pub(super) struct Cast<'a> {
    pub(super) application: &'a Application,
    definition: Arc<Definition>,
    engines: BTreeMap<Scenario, BareEngine>,
    /// The ARN of its state machine on Nigh.
    machine: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_among_what_a_task_prints() {
        let log = "START\nhello\nnigh-stage {\"total_us\": 9.5, \"extract_us\": 2, \"load_us\": 3, \"cpu_us\": 1}\nnigh-stage x";
        let found: Vec<Figures> = Figures::read(log.lines()).collect();
        assert_eq!(found, [Figures { total_us: 9.5, extract_us: 2.0, load_us: 3.0 }]);
    }
}
