//! What the scenarios stand on: one Swift, one Redis, one Nigh in front of that Swift; and for each function its
//! processes, warm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use tempfile::TempDir;

use super::Scenario;
use crate::LabError;
use crate::instrument::bare_pool::BarePool;
use crate::instrument::compared_stores::{ComparedStores, REDIS_CLIENT};
use crate::instrument::cpu_time;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, set, settings};
use crate::instrument::peer::Peer;
use crate::instrument::platform::LambdaClient;
use crate::instrument::report::name_of;
use crate::instrument::s3_door::S3Door;
use crate::instrument::sample_function::{MEASURED_HANDLER, SampleFunction, read_input};

const BUCKET: &str = "single-stage";
/// The input of invocations that do not count.
pub(super) const WARM_UP_SIZE: &str = "1k";
/// Nigh's cache has room for the inputs and outputs of a whole run.
const CACHE: &str = "1 GiB";
/// Nigh's sandboxes have room for the largest function and for the next one.
const FUNCTIONS: &str = "6 GiB";

/// The servers, the first of them ended first.
pub(super) struct Stage {
    pub(super) node: NodeUnderTest,
    stores: ComparedStores,
    nigh_door: S3Door,
    python: PathBuf,
    inputs: PathBuf,
    work: TempDir,
}

impl Stage {
    /// Starts the servers and notes them in `machine`. `say` is told what is not installed and left out; Swift must be there.
    pub(super) fn set(
        project: &Path,
        python: &Path,
        machine: &mut Machine,
        say: impl Fn(String),
    ) -> Result<Self, LabError> {
        let work = tempfile::tempdir().at(std::env::temp_dir())?;
        let stores =
            ComparedStores::start(work.path(), None, &["redis", "hiredis", "python-swiftclient"], machine, say)?;
        let mut settings = settings(Some(stores.swift.s3()), python);
        set(&mut settings, &[("cache.bytes", CACHE), ("functions.memory", FUNCTIONS)]);
        let node = NodeUnderTest::start(work.path(), &settings)?;
        Ok(Self {
            nigh_door: S3Door { signer: node.signer("s3"), address: node.s3()? },
            node,
            stores,
            python: python.to_owned(),
            inputs: project.join(".deps/inputs/images"),
            work,
        })
    }

    /// Those that can be played here.
    pub(super) fn scenarios(&self) -> Vec<Scenario> {
        let can = |scenario: &Scenario| match scenario {
            Scenario::Redis => self.stores.others.redis.is_some(),
            Scenario::SwiftClient => self.stores.others.has_clients(),
            _ => true,
        };
        Scenario::ALL.into_iter().filter(can).collect()
    }

    pub(super) fn input(&self, size: &str) -> Result<Vec<u8>, LabError> {
        read_input(&self.inputs, &format!("hubble-{size}.jpg"))
    }

    /// Puts every input into Swift and Redis, and has Nigh read it once, so that Nigh has cached it.
    pub(super) async fn upload(&self, sizes: &[&&str]) -> Result<(), LabError> {
        self.stores.create_bucket(BUCKET).await?;
        for size in sizes.iter().map(|size| **size).chain([WARM_UP_SIZE]) {
            let (key, body) = (input_key(size), self.input(size)?);
            self.stores.put_into_swift(BUCKET, &key, &body).await?;
            self.nigh_door.send(Method::GET, &format!("/{BUCKET}/{key}"), b"").await?;
            self.stores.put_into_redis(BUCKET, &key, &body)?;
        }
        Ok(())
    }

    /// Puts an input into Swift, behind Nigh's back, under a key that nobody has read.
    pub(super) async fn put_unseen(&self, key: &str, body: &[u8]) -> Result<(), LabError> {
        self.stores.put_into_swift(BUCKET, key, body).await
    }

    /// Processor time that the servers of `scenario` have used so far; none if one is gone.
    pub(super) fn servers_cpu(&self, scenario: Scenario) -> Option<Duration> {
        let processes = match scenario {
            Scenario::Redis => self.stores.others.redis.as_ref().map(Peer::processes).unwrap_or_default(),
            _ => self.stores.swift.processes(),
        };
        let nigh = scenario.is_nigh().then(|| self.node.pid());
        processes.into_iter().chain(nigh).map(|pid| cpu_time::of_process(pid).ok()).sum()
    }

    /// Makes `function` ready for every scenario.
    pub(super) async fn cast<'a>(&'a self, function: &'a SampleFunction) -> Result<Cast<'a>, LabError> {
        let mut cast =
            Cast { stage: self, function, processes: BTreeMap::new(), lambda: LambdaClient::connect(&self.node)? };
        for scenario in self.scenarios() {
            let code = self.work.path().join("code").join(&function.name).join(name_of(&scenario));
            let client = match scenario {
                Scenario::Redis => Some(REDIS_CLIENT),
                Scenario::SwiftClient => Some(include_str!("../../../peers/swift_client.py")),
                _ => None,
            };
            function.measured(&code, client)?;
            if scenario == Scenario::NighHitSandboxed {
                let deployment = function.deployment(&function.name, &code, function.memory_mb);
                cast.lambda.deploy(&deployment).await?;
            } else {
                let pool = BarePool::new(&self.python, self.environment(scenario));
                cast.processes.insert(scenario, (pool, code));
            }
        }
        Ok(cast)
    }

    fn environment(&self, scenario: Scenario) -> BTreeMap<String, String> {
        match scenario {
            Scenario::SwiftS3api => self.stores.swift_environment(),
            Scenario::Redis => self.stores.others.redis_environment(),
            Scenario::SwiftClient => {
                let s3 = self.stores.swift.s3();
                let variables = [
                    ("NIGH_LAB_SWIFT_AUTH", self.stores.swift.auth_url()),
                    ("NIGH_LAB_SWIFT_USER", s3.access_key.clone()),
                    ("NIGH_LAB_SWIFT_KEY", s3.secret_key.reveal().to_owned()),
                ];
                self.stores.others.with_clients(variables.map(|(name, value)| (name.to_owned(), value)).into())
            }
            _ => self.stores.others.with_clients(self.node.s3_access().environment()),
        }
    }
}

/// The key of the input of a size that all scenarios but `nigh_miss` read.
pub(super) fn input_key(size: &str) -> String {
    format!("in/hubble-{size}.jpg")
}

/// One function, ready for every scenario.
pub(super) struct Cast<'a> {
    pub(super) stage: &'a Stage,
    pub(super) function: &'a SampleFunction,
    processes: BTreeMap<Scenario, (BarePool, PathBuf)>,
    lambda: LambdaClient,
}

impl Cast<'_> {
    /// Invokes the function on the input at `key`; each scenario has one output. Returns the answer and the caller's time.
    pub(super) async fn play(&mut self, scenario: Scenario, key: &str) -> Result<(Vec<u8>, Duration), LabError> {
        let name = &self.function.name;
        let event = self.function.event_of(BUCKET, key, &format!("out/{name}/{}", name_of(&scenario)));
        if let Some((pool, code)) = self.processes.get(&scenario) {
            let answer = pool.invoke(name, (code, MEASURED_HANDLER), &event);
            let (answer, _) = answer.map_err(|reason| self.failure(scenario, key, reason))?;
            return Ok((answer.payload, answer.took));
        }
        let request = self.lambda.invocation(name, &event).await?;
        let (answer, took) = self.lambda.invoke(name, &request)?;
        Ok((answer.payload, took))
    }

    pub(super) fn failure(&self, scenario: Scenario, key: &str, reason: String) -> LabError {
        let function = format!("{} ({})", self.function.name, name_of(&scenario));
        LabError::Function { function, input: key.to_owned(), reason }
    }
}
