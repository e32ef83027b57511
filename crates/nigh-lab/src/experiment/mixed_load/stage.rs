//! What the mixed load is played on: one Swift, one Redis, two nodes of Nigh in front of that Swift, one with everything and
//! one with all off, and bare processes; all with their files on one disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use nigh_node::Outcome;
use nigh_terms::{ByteSize, Clock as _, SystemClock};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::bare_pool::{BareClient, BarePool};
use super::node_look::{StretchObservation, watch};
use super::side::Side;
use crate::LabError;
use crate::experiment::single::left_out;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, settings, socket_address};
use crate::instrument::peer::installed::python_clients;
use crate::instrument::peer::redis::Redis;
use crate::instrument::peer::swift::Swift;
use crate::instrument::platform::{LambdaClient, activations_while, admin_document, runtime_name};
use crate::instrument::s3_door::S3Door;
use crate::instrument::sample_function::SampleFunction;
use crate::load::arrivals::Arrival;
use crate::load::booking::{BookingProfile, NAIVE_MB};
use crate::load::door_client::{DoorClient, Events, invoke};
use crate::load::open_loop::{self, LoadClient, Pace};
use crate::load::run::{InvocationTimes, Run};
use crate::load::stage::{deployment, read_input};
use crate::load::take_records;
use crate::load::tenants::{OfferedFunction, Tenant};

const BUCKET: &str = "mixed-load";
/// The cache's own memory: all else it has of what functions do not use, where the node lends that.
const CACHE: ByteSize = ByteSize::mib(64);
/// What sandboxes may book together, of this machine's memory: nobody uses what all book.
const BOOKED_SHARE: f64 = 0.85;
/// Nobody is refused because others run.
const QUEUE: &str = "60 s";
/// Settings of what lends and sizes memory, where the node has them.
const SWITCHES: [(&str, &str); 2] = [("grants", "off"), ("sizing", "off")];
/// Invocations at a time before the load.
const TRAINERS: usize = 2;
/// Records of one stretch of the load.
const RECORDS_MAX: usize = 100_000;

/// One stretch of the load as one side played it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stretch {
    pub(super) side: Side,
    pub(super) runs: Vec<Run>,
    /// Of a node.
    pub(super) seen: StretchObservation,
    /// Sandboxes that ended for want of memory.
    pub(super) out_of_memory: usize,
}

/// What is played, and by whom.
pub(super) struct Cast {
    pub(super) tenants: Vec<Tenant>,
    pub(super) functions: Vec<SampleFunction>,
    /// All inputs that a function may have: those it is run on before the load.
    pub(super) offered: Vec<OfferedFunction>,
}

/// The servers. What comes first is ended first.
pub(super) struct Stage {
    nigh: NodeUnderTest,
    off: NodeUnderTest,
    pools: BTreeMap<Side, BarePool>,
    swift: Swift,
    redis: Option<Redis>,
    cast: Cast,
    /// What sandboxes may book together.
    pub(super) functions_memory: ByteSize,
    /// What was switched off beside the cache; empty where the node has no such settings.
    pub(super) switched_off: Vec<String>,
    work: TempDir,
}

impl Stage {
    /// Starts the servers, their files below `folder`, puts the inputs and deploys the functions.
    pub(super) async fn set(
        cast: Cast,
        folder: &Path,
        python: &Path,
        machine: &mut Machine,
        say: impl Fn(String),
    ) -> Result<Self, LabError> {
        let work = tempfile::tempdir_in(folder).at(folder)?;
        let place = |name: &str| {
            let place = work.path().join(name);
            std::fs::create_dir(&place).map(|()| place.clone()).at(place)
        };
        let swift = Swift::start(&place("swift")?)?;
        machine.add_peer(&swift);
        let clients = left_out(python_clients(&runtime_name()?), &say)?;
        let redis = match &clients {
            Some(_) => left_out(Redis::start(&place("redis")?), &say)?,
            None => None,
        };
        if let Some(redis) = &redis {
            machine.add_peer(redis);
        }
        let memory = ByteSize((machine.memory_gib * BOOKED_SHARE * ByteSize::gib(1).bytes() as f64) as u64);
        let with = |sections: &[(&str, &[(&str, &str)])]| {
            let mut all = settings(Some(&swift.s3()), python);
            for (section, values) in sections {
                let table = all.entry(*section).or_insert_with(|| toml::Table::new().into());
                if let Some(table) = table.as_table_mut() {
                    table.extend(values.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())));
                }
            }
            all
        };
        let memory_text = format!("{} MiB", memory.bytes() >> 20);
        let cache = format!("{} MiB", CACHE.bytes() >> 20);
        let functions: &[(&str, &str)] = &[("memory", memory_text.as_str()), ("queue", QUEUE)];
        let nigh = with(&[("functions", functions), ("cache", &[("bytes", &cache)])]);
        let nigh = NodeUnderTest::start(&place("nigh")?, &nigh)?;
        let config = admin_document(&nigh.endpoints.admin_socket, "/config")?;
        let has = |name: &str| config.to_string().contains(&format!("\"memory.{name}\""));
        let switches: Vec<(&str, &str)> = SWITCHES.into_iter().filter(|(name, _)| has(name)).collect();
        let mut off = vec![
            ("functions", functions),
            ("cache", &[("bytes", "1 MiB"), ("object_max", "0 B")][..]),
            ("writes", &[("mode", "through")][..]),
        ];
        if !switches.is_empty() {
            off.push(("memory", switches.as_slice()));
        }
        let off = NodeUnderTest::start(&place("off")?, &with(&off))?;
        let mut pools = BTreeMap::new();
        let path = clients.iter().map(|path| ("PYTHONPATH".to_owned(), path.display().to_string()));
        let environments = [
            (Side::Swift, Some(swift.s3().environment())),
            (Side::Redis, redis.as_ref().map(|redis| redis.environment().into())),
        ];
        for (side, environment) in environments {
            let Some(mut environment) = environment else { continue };
            environment.extend(path.clone());
            let mut codes = BTreeMap::new();
            for function in &cast.functions {
                let code = work.path().join("code").join(side.name()).join(&function.name);
                function.measured(&code, side.client())?;
                codes.insert(function.name.clone(), code);
            }
            pools.insert(side, BarePool { python: python.to_owned(), environment, codes, idle: Mutex::default() });
        }
        let switched_off = switches.iter().map(|(name, _)| format!("memory.{name}")).collect();
        let stage = Self { nigh, off, pools, swift, redis, cast, functions_memory: memory, switched_off, work };
        Ok(stage)
    }

    /// Puts all inputs into Swift, behind Nigh's back, and into Redis, and deploys every tenant's function on both nodes.
    pub(super) async fn furnish(&self, inputs: &Path) -> Result<(), LabError> {
        let door = S3Door { signer: self.swift.s3().signer(), address: socket_address(self.swift.endpoint())? };
        door.send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
        let of_tenants = self.cast.tenants.iter().flat_map(|tenant| {
            tenant.inputs.iter().enumerate().map(|(number, input)| (input.clone(), tenant.input_key(number)))
        });
        let of_training: std::collections::BTreeSet<String> =
            self.cast.offered.iter().flat_map(|one| one.inputs.iter().cloned()).collect();
        let of_training = of_training.into_iter().map(|input| (input.clone(), training_key(&input)));
        for (input, key) in of_tenants.chain(of_training) {
            let body = read_input(inputs, &input)?;
            door.send(Method::PUT, &format!("/{BUCKET}/{key}"), &body).await?;
            if let Some(redis) = &self.redis {
                redis.set(&format!("{BUCKET}/{key}"), &body)?;
            }
        }
        for node in [&self.nigh, &self.off] {
            let mut lambda = LambdaClient::connect(node)?;
            for tenant in &self.cast.tenants {
                let Some(function) = self.function(tenant) else { continue };
                let code = self.work.path().join("code").join("nigh").join(&function.name);
                function.measured(&code, None)?;
                lambda.reconnect()?;
                lambda.deploy(&deployment(&tenant.name, &code, function, NAIVE_MB)).await?;
            }
        }
        Ok(())
    }

    pub(super) fn tenants(&self) -> &[Tenant] {
        &self.cast.tenants
    }

    fn function(&self, tenant: &Tenant) -> Option<&SampleFunction> {
        self.cast.functions.iter().find(|function| function.name == tenant.function)
    }

    fn admin(&self, side: Side) -> Option<&Path> {
        match side {
            Side::Nigh => Some(&self.nigh.endpoints.admin_socket),
            Side::NighOff => Some(&self.off.endpoints.admin_socket),
            Side::Swift | Side::Redis => None,
        }
    }

    /// Those that can be played here.
    pub(super) fn sides(&self) -> Vec<Side> {
        Side::ALL.into_iter().filter(|side| self.admin(*side).is_some() || self.pools.contains_key(side)).collect()
    }

    /// Runs every tenant's function `rounds` times on Nigh, with two gigabytes, on inputs that lie elsewhere than those of
    /// the load: models learn from it, and it tells what is used at most. By tenant.
    pub(super) fn train(
        &self,
        rounds: usize,
        handle: &Handle,
        stop: &AtomicBool,
        ended: &(dyn Fn(&Run) + Sync),
    ) -> Result<Vec<ByteSize>, LabError> {
        let tenants = self.cast.tenants.len();
        let arrival = |number: usize| Arrival { number, due_s: 0.0, tenant: number % tenants, input: number / tenants };
        let arrivals: Vec<Arrival> = (0..rounds * tenants).map(arrival).collect();
        let pace = Pace { clients: TRAINERS, from_s: 0.0, stop, ended };
        let client = || Ok(Trainer { stage: self, lambda: LambdaClient::connect(&self.nigh)?, handle: handle.clone() });
        let mut most = vec![ByteSize::ZERO; tenants];
        for run in open_loop::play(&arrivals, &pace, client)? {
            let failed = |reason: String| LabError::Function {
                function: self.cast.tenants[run.arrival.tenant].name.clone(),
                input: "an input before the load".to_owned(),
                reason,
            };
            let peak = run.answered.map_err(failed)?.peak.unwrap_or(ByteSize::ZERO);
            let most = &mut most[run.arrival.tenant];
            *most = (*most).max(peak);
        }
        Ok(most)
    }

    /// Has every tenant book by `profile` on both nodes what its function was seen to use, whoever's it was, and has each
    /// side run each tenant's function once, so that the load finds it warm. Returns what each tenant books.
    pub(super) fn book(
        &self,
        profile: BookingProfile,
        most: &[ByteSize],
        handle: &Handle,
    ) -> Result<Vec<u64>, LabError> {
        let of_function = |function: &str| {
            let same = self.cast.tenants.iter().zip(most).filter(|(tenant, _)| tenant.function == function);
            same.map(|(_, most)| *most).max().unwrap_or(ByteSize::ZERO)
        };
        let booked: Vec<u64> =
            self.cast.tenants.iter().map(|tenant| profile.booked_mb(of_function(&tenant.function))).collect();
        for node in [&self.nigh, &self.off] {
            let mut lambda = LambdaClient::connect(node)?;
            for (tenant, &booked_mb) in self.cast.tenants.iter().zip(&booked) {
                lambda.reconnect()?;
                handle.block_on(lambda.set_memory(&tenant.name, booked_mb))?;
                invoke(&mut lambda, &tenant.name, &self.training_event(tenant, 0), handle)?;
            }
        }
        for pool in self.pools.values() {
            for tenant in &self.cast.tenants {
                let failed = |reason: String| LabError::Function {
                    function: tenant.name.clone(),
                    input: "an input before the load".to_owned(),
                    reason,
                };
                pool.invoke(&tenant.name, &tenant.function, &self.training_event(tenant, 0)).map_err(failed)?;
            }
        }
        Ok(booked)
    }

    /// An event before the load; its output is of no interest.
    fn training_event(&self, tenant: &Tenant, round: usize) -> Vec<u8> {
        let inputs = self.cast.offered.iter().find(|one| one.function == tenant.function).map(|one| &one.inputs);
        let input = inputs.and_then(|inputs| inputs.get(round % inputs.len().max(1))).map_or("", String::as_str);
        let output = format!("out/training/{}", tenant.name);
        self.function(tenant).map_or_else(Vec::new, |one| one.event_of(BUCKET, &training_key(input), &output))
    }

    /// Has `side` play `arrivals`, which begin at `from_s` of the load.
    pub(super) fn play(
        &self,
        side: Side,
        arrivals: &[Arrival],
        pace: &Pace<'_>,
        handle: &Handle,
    ) -> Result<Stretch, LabError> {
        let (tenants, functions) = (&self.cast.tenants, &self.cast.functions);
        let events = Events { tenants, functions, bucket: BUCKET, side: side.name() };
        let node = match side {
            Side::Nigh => &self.nigh,
            Side::NighOff => &self.off,
            Side::Swift | Side::Redis => {
                let pool = self.pools.get(&side).ok_or_else(|| LabError::Node(format!("{side:?} does not run")))?;
                let runs = open_loop::play(arrivals, pace, || Ok(BareClient { pool, events: &events }))?;
                return Ok(Stretch { side, runs, seen: StretchObservation::default(), out_of_memory: 0 });
            }
        };
        let (admin, begin) = (node.endpoints.admin_socket.as_path(), SystemClock::new().wall());
        let over = AtomicBool::new(false);
        let (runs, seen) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| watch(admin, pace.from_s, &over));
            let client = || Ok(DoorClient::new(LambdaClient::connect(node)?, &events, handle.clone()));
            let runs = open_loop::play(arrivals, pace, client);
            over.store(true, Ordering::Release);
            let panicked = |_| Err(LabError::Node("the watch over the node ended early".to_owned()));
            (runs, watch.join().unwrap_or_else(panicked))
        });
        let mut runs = runs?;
        take_records(&mut runs, admin)?;
        let recorded = activations_while(admin, RECORDS_MAX, |one| one.start >= begin)?;
        let out_of_memory = recorded.iter().filter(|one| one.outcome == Outcome::OutOfMemory).count();
        Ok(Stretch { side, runs, seen: seen?, out_of_memory })
    }
}

/// A client before the load.
struct Trainer<'a> {
    stage: &'a Stage,
    lambda: LambdaClient,
    handle: Handle,
}

impl LoadClient for Trainer<'_> {
    fn invoke(&mut self, arrival: &Arrival) -> Result<InvocationTimes, String> {
        let tenant = &self.stage.cast.tenants[arrival.tenant];
        let event = self.stage.training_event(tenant, arrival.input);
        invoke(&mut self.lambda, &tenant.name, &event, &self.handle).map_err(|error| error.to_string())
    }
}

fn training_key(input: &str) -> String {
    format!("training/{input}")
}

/// Where the files are, as the report says it.
pub(super) fn folder_of(given: Option<&PathBuf>) -> PathBuf {
    given.cloned().unwrap_or_else(std::env::temp_dir)
}
