//! What the scenarios stand on: one Swift, one Redis, one Nigh in front of that Swift; and for each application its functions
//! and its state machine there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use nigh_node::Activation;
use nigh_terms::{Clock as _, SystemClock, Timestamp};
use nigh_workflow::Definition;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::application::{Application, SCRATCH};
use super::bare_engine::{BareEngine, BareExecution};
use super::figures::Figures;
use super::scenario::Scenario;
use crate::LabError;
use crate::experiment::single::left_out;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, set, settings, socket_address};
use crate::instrument::peer::installed::{client_version, python_clients};
use crate::instrument::peer::redis::Redis;
use crate::instrument::peer::swift::{AccessLog, Swift};
use crate::instrument::pipeline_inputs::{make_inputs, measured_code};
use crate::instrument::platform::{Deployment, LambdaClient, activations_while, runtime_name, status};
use crate::instrument::s3_door::S3Door;
use crate::instrument::states_door::StatesDoor;

/// The bucket of Swift and Redis themselves, and that of Nigh in front of the same Swift.
const BUCKET: &str = "pipelines";
const NIGH_BUCKET: &str = "pipelines-nigh";
/// Of Nigh's memory: inputs, and the intermediates of one execution.
const CACHE: &str = "2 GiB";
/// The largest input and more.
const OBJECT_MAX: &str = "128 MiB";
/// What Nigh's sandboxes may book: two of each function of an application, and of the one before.
const FUNCTIONS: &str = "8 GiB";
/// How late the records of an execution may be, how long its writes may take to the store, and between two looks.
const RECORDS_WITHIN: Duration = Duration::from_secs(10);
const PUSHED_WITHIN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// Tasks of an execution at most.
const RECORDS_MAX: usize = 10_000;

/// An execution at its end.
pub(super) struct PlayedExecution {
    pub(super) output: Value,
    /// From its start to its answer, by who started it.
    pub(super) took: Duration,
    /// Of each task.
    pub(super) figures: Vec<Figures>,
    /// Reads that Nigh had from the store, by its own records.
    pub(super) misses: u64,
}

/// The servers. What comes first is ended first.
pub(super) struct Stage {
    node: NodeUnderTest,
    swift: Swift,
    redis: Option<Redis>,
    log: AccessLog,
    /// The Python client of Redis, if it is installed.
    clients: Option<PathBuf>,
    swift_door: S3Door,
    python: PathBuf,
    work: TempDir,
}

impl Stage {
    /// Starts the servers and notes them in `machine`. What is not installed is told to `say` and left out; Swift must be
    /// there.
    pub(super) async fn set(python: &Path, machine: &mut Machine, say: impl Fn(String)) -> Result<Self, LabError> {
        let work = tempfile::tempdir().at(std::env::temp_dir())?;
        let log = AccessLog::listen().map_err(|error| LabError::Node(format!("Swift's log: {error}")))?;
        let swift = Swift::start_with_log(&work.path().join("swift"), &log)?;
        machine.add_peer(&swift);
        let clients = left_out(python_clients(&runtime_name()?), &say)?;
        let redis = match &clients {
            Some(_) => left_out(Redis::start(&work.path().join("redis")), &say)?,
            None => None,
        };
        if let Some(redis) = &redis {
            machine.add_peer(redis);
            for package in ["redis", "hiredis"] {
                machine.peers.insert(package.to_owned(), client_version(package).to_owned());
            }
        }
        let mut settings = settings(Some(&swift.s3()), python);
        set(
            &mut settings,
            &[("cache.bytes", CACHE), ("cache.object_max", OBJECT_MAX), ("functions.memory", FUNCTIONS)],
        );
        let node = NodeUnderTest::start(work.path(), &settings)?;
        let swift_door = S3Door { signer: swift.s3().signer(), address: socket_address(swift.endpoint())? };
        for bucket in [BUCKET, NIGH_BUCKET] {
            swift_door.send(Method::PUT, &format!("/{bucket}"), b"").await?;
        }
        Ok(Self { node, swift, redis, log, clients, swift_door, python: python.to_owned(), work })
    }

    /// Those that can be played here.
    pub(super) fn scenarios(&self) -> Vec<Scenario> {
        let can = |scenario: &Scenario| *scenario != Scenario::Redis || self.redis.is_some();
        Scenario::ALL.into_iter().filter(can).collect()
    }

    /// How many tasks of a map run at a time: what there are processors.
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
        match (scenario, &self.redis) {
            (Scenario::Redis, Some(redis)) => Ok(redis.set(&format!("{BUCKET}/{key}"), body)?),
            _ => self.swift_door.send(Method::PUT, &format!("/{}/{key}", bucket_of(scenario)), body).await,
        }
    }

    /// Bytes that Swift has been sent so far to a folder of the scenario's bucket, by its own log.
    pub(super) fn sent_to_swift(&self, scenario: Scenario, folder: &str) -> u64 {
        self.log.received(&format!("{}/{folder}", bucket_of(scenario)))
    }

    /// Returns when what lay between the stages is removed, and the store has all that Nigh has to bring there.
    pub(super) async fn until_pushed(&self) -> Result<(), LabError> {
        let begun = Instant::now();
        loop {
            let writes = status(&self.node).await?.writes;
            if writes.waiting == 0 && writes.ephemeral == 0 {
                return Ok(());
            }
            if begun.elapsed() > PUSHED_WITHIN {
                return Err(LabError::Node(format!("its writes wait for {} s", PUSHED_WITHIN.as_secs())));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Deploys `application` everywhere.
    pub(super) async fn cast<'a>(&self, application: &'a Application) -> Result<Cast<'a>, LabError> {
        let definition = application.definition()?;
        let code = |scenario: Scenario| {
            let folder = self.work.path().join("code").join(&application.name).join(scenario.name());
            measured_code(&application.folder, &folder, scenario.client()).map(|()| folder)
        };
        let functions = definition.functions();
        let handler = |function| format!("measured.{}", application.stage(function));
        let mut engines = BTreeMap::new();
        for scenario in self.scenarios().into_iter().filter(|scenario| !scenario.is_nigh()) {
            let engine = BareEngine {
                python: self.python.clone(),
                code: code(scenario)?,
                environment: self.environment(scenario),
                handlers: functions.iter().map(|function| (function.clone(), handler(function))).collect(),
                idle: Mutex::default(),
                told: Mutex::default(),
            };
            engines.insert(scenario, engine);
        }
        let code = code(Scenario::NighHit)?;
        for function in &functions {
            let deployment = Deployment {
                name: function.as_str(),
                code: &code,
                handler: &handler(function),
                memory_mb: application.memory_mb,
                timeout_s: application.timeout_s,
                // They say that they gain by the cache: what is learned of it is measured elsewhere.
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
                if scenario != Scenario::Redis || self.redis.is_some() {
                    self.put(scenario, &application.shared_key(shared), &body).await?;
                }
            }
        }
        Ok(Cast { application, definition, engines, machine })
    }

    /// The same; `cast` is of the application before, whose functions make room if it is another.
    pub(super) async fn recast<'a>(&self, cast: Cast<'a>, application: &'a Application) -> Result<Cast<'a>, LabError> {
        if cast.application.name == application.name {
            return Ok(cast);
        }
        for function in cast.definition.functions() {
            LambdaClient::connect(&self.node)?.remove(function.as_str()).await?;
        }
        drop(cast);
        self.cast(application).await
    }

    fn environment(&self, scenario: Scenario) -> BTreeMap<String, String> {
        let mut environment: BTreeMap<String, String> = match scenario {
            Scenario::Redis => self.redis.iter().flat_map(Redis::environment).collect(),
            _ => self.swift.s3().environment(),
        };
        // The same search path for both, though one of them alone needs it.
        environment.extend(self.clients.iter().map(|path| ("PYTHONPATH".to_owned(), path.display().to_string())));
        environment
    }

    /// Runs one execution of what was cast on the input at `key`. Of `tasks` tasks, where that is known.
    pub(super) async fn play(
        &self,
        cast: &Cast<'_>,
        scenario: Scenario,
        key: &str,
        tasks: usize,
    ) -> Result<PlayedExecution, LabError> {
        let input = cast.application.input(bucket_of(scenario), key, self.at_once());
        if let Some(engine) = cast.engines.get(&scenario) {
            let BareExecution { output, took, figures } = engine.execute(&cast.definition, scenario.name(), input)?;
            return Ok(PlayedExecution { output, took, figures, misses: 0 });
        }
        // Connected anew: the door closes what has idled through long turns of the others.
        let mut states = StatesDoor::connect(&self.node)?;
        let body = json!({ "stateMachineArn": cast.machine, "input": input.to_string() });
        let request = states.request("StartSyncExecution", &body).await?;
        let begin = SystemClock::new().wall();
        let (output, took_us) = states.run(&request)?;
        let records = self.records(begin, tasks).await?;
        Ok(PlayedExecution {
            output,
            took: Duration::from_secs_f64(took_us / 1e6),
            figures: records.iter().flat_map(|record| Figures::read(record.log.lines())).collect(),
            misses: records.iter().map(|record| record.misses).sum(),
        })
    }

    /// The records of all that has begun since `begin`, as soon as they are `tasks`.
    async fn records(&self, begin: Timestamp, tasks: usize) -> Result<Vec<Activation>, LabError> {
        let begun = Instant::now();
        loop {
            let records =
                activations_while(&self.node.endpoints.admin_socket, RECORDS_MAX, |record| record.start >= begin)?;
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
