//! What the scenarios stand on: one Swift, one Redis, one Nigh in front of that Swift; and for each function its
//! processes, warm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::Method;
use tempfile::TempDir;

use super::scenario::Scenario;
use crate::LabError;
use crate::instrument::cpu_time;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, set, settings, socket_address};
use crate::instrument::peer::bare_runtime::BareRuntime;
use crate::instrument::peer::installed::{client_version, python_clients};
use crate::instrument::peer::redis::Redis;
use crate::instrument::peer::swift::Swift;
use crate::instrument::peer::{Peer, PeerError};
use crate::instrument::platform::{Deployment, LambdaClient, runtime_name};
use crate::instrument::s3_door::S3Door;
use crate::instrument::sample_function::{MEASURED_HANDLER, SampleFunction};

const BUCKET: &str = "single-stage";
/// The input of invocations that do not count.
pub(super) const WARM_UP_SIZE: &str = "1k";
/// Of Nigh's cache: the inputs and outputs of a whole run.
const CACHE: &str = "1 GiB";
/// What Nigh's sandboxes may book: the largest function, and its successor while it is still there.
const FUNCTIONS: &str = "6 GiB";

/// The servers. What comes first is ended first.
pub(super) struct Stage {
    node: NodeUnderTest,
    swift: Swift,
    redis: Option<Redis>,
    /// The Python clients of Redis and Swift, if they are installed.
    clients: Option<PathBuf>,
    swift_door: S3Door,
    nigh_door: S3Door,
    python: PathBuf,
    inputs: PathBuf,
    processes: BTreeMap<Scenario, Vec<u32>>,
    work: TempDir,
}

impl Stage {
    /// Starts the servers and notes them in `machine`. What is not installed is told to `say` and left out; Swift must
    /// be there.
    pub(super) fn set(
        project: &Path,
        python: &Path,
        machine: &mut Machine,
        say: impl Fn(String),
    ) -> Result<Self, LabError> {
        let work = tempfile::tempdir().at(std::env::temp_dir())?;
        let swift = Swift::start(&work.path().join("swift"))?;
        machine.add_peer(&swift);
        let redis = left_out(Redis::start(&work.path().join("redis")), &say)?;
        if let Some(redis) = &redis {
            machine.add_peer(redis);
        }
        let clients = left_out(python_clients(&runtime_name()?), &say)?;
        if clients.is_some() {
            for package in ["redis", "hiredis", "python-swiftclient"] {
                machine.peers.insert(package.to_owned(), client_version(package).to_owned());
            }
        }
        let mut settings = settings(Some(&swift.s3()), python);
        set(&mut settings, &[("cache.bytes", CACHE), ("functions.memory", FUNCTIONS)]);
        let node = NodeUnderTest::start(work.path(), &settings)?;
        let of_swift = swift.processes();
        let of_nigh = [&[node.pid()], of_swift.as_slice()].concat();
        let of_redis = redis.as_ref().map(Peer::processes).unwrap_or_default();
        let processes = Scenario::ALL.map(|scenario| match scenario {
            scenario if scenario.is_nigh() => (scenario, of_nigh.clone()),
            Scenario::Redis => (scenario, of_redis.clone()),
            _ => (scenario, of_swift.clone()),
        });
        Ok(Self {
            swift_door: S3Door { signer: swift.s3().signer(), address: socket_address(swift.endpoint())? },
            nigh_door: S3Door { signer: node.signer("s3"), address: node.s3()? },
            node,
            swift,
            redis,
            clients,
            python: python.to_owned(),
            inputs: project.join(".deps/inputs/images"),
            processes: processes.into(),
            work,
        })
    }

    /// Those that can be played here.
    pub(super) fn scenarios(&self) -> Vec<Scenario> {
        let can = |scenario: &Scenario| match scenario {
            Scenario::Redis => self.redis.is_some() && self.clients.is_some(),
            Scenario::SwiftClient => self.clients.is_some(),
            _ => true,
        };
        Scenario::ALL.into_iter().filter(can).collect()
    }

    pub(super) const fn node(&self) -> &NodeUnderTest {
        &self.node
    }

    fn input(&self, size: &str) -> Result<Vec<u8>, LabError> {
        let path = self.inputs.join(format!("hubble-{size}.jpg"));
        std::fs::read(&path).map_err(|_| LabError::Missing {
            missing: path.display().to_string(),
            hint: "run `make deps` in the project's folder first",
        })
    }

    pub(super) fn input_bytes(&self, size: &str) -> Result<u64, LabError> {
        Ok(self.input(size)?.len() as u64)
    }

    /// Puts every input into Swift and into Redis, and has Nigh read it once, so that it is in Nigh's memory.
    pub(super) async fn upload(&self, sizes: &[String]) -> Result<(), LabError> {
        self.swift_door.send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
        for size in sizes.iter().map(String::as_str).chain([WARM_UP_SIZE]) {
            let (key, body) = (input_key(size), self.input(size)?);
            self.swift_door.send(Method::PUT, &format!("/{BUCKET}/{key}"), &body).await?;
            self.nigh_door.send(Method::GET, &format!("/{BUCKET}/{key}"), b"").await?;
            if let Some(redis) = &self.redis {
                redis.set(&format!("{BUCKET}/{key}"), &body)?;
            }
        }
        Ok(())
    }

    /// Puts an input into Swift, behind Nigh's back, under a key that nobody has read; returns the key.
    pub(super) async fn upload_unseen(&self, size: &str, name: &str) -> Result<String, LabError> {
        let key = format!("unseen/{name}.jpg");
        self.swift_door.send(Method::PUT, &format!("/{BUCKET}/{key}"), &self.input(size)?).await?;
        Ok(key)
    }

    /// Processor time that the servers of `scenario` have used so far; none if one is gone.
    pub(super) fn servers_cpu(&self, scenario: Scenario) -> Option<Duration> {
        self.processes.get(&scenario)?.iter().map(|&pid| cpu_time::of_process(pid).ok()).sum()
    }

    /// Starts `function` for every scenario.
    pub(super) async fn cast<'a>(&'a self, function: &'a SampleFunction) -> Result<Cast<'a>, LabError> {
        let mut cast = Cast {
            stage: self,
            function,
            scenarios: self.scenarios(),
            processes: BTreeMap::new(),
            lambda: LambdaClient::connect(&self.node)?,
        };
        for scenario in cast.scenarios.clone() {
            let code = self.code(function, scenario)?;
            if scenario == Scenario::NighHitSandboxed {
                let deployment = Deployment {
                    name: &function.name,
                    code: &code,
                    handler: MEASURED_HANDLER,
                    memory_mb: function.memory_mb,
                    timeout_s: function.timeout_s,
                    environment: BTreeMap::new(),
                };
                cast.lambda.deploy(&deployment).await?;
            } else {
                let runtime = BareRuntime::start(&self.python, &code, MEASURED_HANDLER, &self.environment(scenario))?;
                cast.processes.insert(scenario, runtime);
            }
        }
        Ok(cast)
    }

    /// The function's code for a scenario: its own, the measure, and what stands in for boto3.
    fn code(&self, function: &SampleFunction, scenario: Scenario) -> Result<PathBuf, LabError> {
        let folder = self.work.path().join("code").join(&function.name).join(scenario.name());
        function.measured(&folder, scenario.client())?;
        Ok(folder)
    }

    fn environment(&self, scenario: Scenario) -> BTreeMap<String, String> {
        let mut environment = match scenario {
            Scenario::NighHit | Scenario::NighMiss | Scenario::NighHitSandboxed => self.node.s3_access().environment(),
            Scenario::SwiftS3api => self.swift.s3().environment(),
            Scenario::SwiftClient => {
                let s3 = self.swift.s3();
                let variables = [
                    ("NIGH_LAB_SWIFT_AUTH", self.swift.auth_url()),
                    ("NIGH_LAB_SWIFT_USER", s3.access_key),
                    ("NIGH_LAB_SWIFT_KEY", s3.secret_key.reveal().to_owned()),
                ];
                variables.map(|(name, value)| (name.to_owned(), value)).into()
            }
            Scenario::Redis => self.redis.iter().flat_map(Redis::environment).collect(),
        };
        // The same search path for all, though two of them alone need it.
        environment.extend(self.clients.iter().map(|path| ("PYTHONPATH".to_owned(), path.display().to_string())));
        environment
    }
}

/// What is not installed is told and left out.
pub(in crate::experiment) fn left_out<T>(
    part: Result<T, PeerError>,
    say: impl Fn(String),
) -> Result<Option<T>, PeerError> {
    match part {
        Err(missing @ PeerError::NotInstalled { .. }) => {
            say(format!("left out: {missing}"));
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// Where the input of a size lies that everybody has.
pub(super) fn input_key(size: &str) -> String {
    format!("in/hubble-{size}.jpg")
}

/// One function's processes, a scenario each.
pub(super) struct Cast<'a> {
    stage: &'a Stage,
    pub(super) function: &'a SampleFunction,
    pub(super) scenarios: Vec<Scenario>,
    processes: BTreeMap<Scenario, BareRuntime>,
    lambda: LambdaClient,
}

/// An invocation's end.
pub(super) struct PlayedInvocation {
    /// What the handler returned.
    pub(super) payload: Vec<u8>,
    /// From the event's first byte to the answer's last, by who invoked it.
    pub(super) took: Duration,
}

impl Cast<'_> {
    /// Invokes the function on the input at `key`; its output goes where the scenario's last one went.
    pub(super) async fn play(&mut self, scenario: Scenario, key: &str) -> Result<PlayedInvocation, LabError> {
        let function = self.function;
        let failure = |reason: String| LabError::Function {
            function: format!("{} ({})", function.name, scenario.name()),
            input: key.to_owned(),
            reason,
        };
        let event = function.event_of(BUCKET, key, &format!("out/{}/{}", function.name, scenario.name()));
        if scenario == Scenario::NighHitSandboxed {
            // Connected anew: the door closes a connection that has idled through long turns of the others.
            self.lambda = LambdaClient::connect(&self.stage.node)?;
            let request = self.lambda.invocation(&function.name, &event).await?;
            let begin = Instant::now();
            let answer = self.lambda.send(&function.name, &request)?;
            let took = begin.elapsed();
            return match answer.function_error {
                Some(_) => Err(failure(String::from_utf8_lossy(&answer.payload).into_owned())),
                None => Ok(PlayedInvocation { payload: answer.payload, took }),
            };
        }
        let process = self.processes.get_mut(&scenario).ok_or_else(|| failure("it has no process".to_owned()))?;
        let answer = process.invoke(&event).map_err(|error| failure(error.to_string()))?;
        if !answer.succeeded {
            return Err(failure(String::from_utf8_lossy(&answer.payload).into_owned()));
        }
        Ok(PlayedInvocation { payload: answer.payload, took: answer.took })
    }
}
