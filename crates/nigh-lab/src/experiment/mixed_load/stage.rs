//! The servers of the mixed load: one Swift, one Redis, two nodes of Nigh in front of that Swift, one as it is and one with all
//! off, and bare processes; all with their files on one disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nigh_node::Outcome;
use nigh_terms::{ByteSize, Clock as _, SystemClock};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::Side;
use super::node_look::{StretchObservation, watch};
use crate::LabError;
use crate::instrument::bare_pool::BarePool;
use crate::instrument::compared_stores::{ComparedStores, REDIS_CLIENT};
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, set, settings};
use crate::instrument::platform::{LambdaClient, activations_while, admin_api};
use crate::instrument::report::name_of;
use crate::instrument::sample_function::{MEASURED_HANDLER, read_input};
use crate::load::arrivals::Arrival;
use crate::load::booking::{BookingProfile, NAIVE_MB};
use crate::load::door_client::{Events, door_client, invoke};
use crate::load::open_loop::{self, Pace};
use crate::load::run::{InvocationTimes, Run};
use crate::load::stage::Cast;
use crate::load::take_records;
use crate::load::tenants::Tenant;

const BUCKET: &str = "mixed-load";
/// The cache's own memory; a node that lends memory gives it more, of what functions do not use.
const CACHE: &str = "64 MiB";
/// The share of this machine's memory that sandboxes may book together: they never use all that they book.
const BOOKED_SHARE: f64 = 0.85;
/// An invocation waits so long for memory: none is refused because others run.
const QUEUE: &str = "60 s";
/// Settings that switch lending and sizing of memory off, where the node has them.
const SWITCHES: [&str; 2] = ["memory.grants", "memory.sizing"];
/// Invocations at a time before the load.
const TRAINERS: usize = 2;
/// Records of one stretch of the load.
const RECORDS_MAX: usize = 100_000;

/// One stretch of the load as one side played it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stretch {
    pub(super) side: Side,
    pub(super) runs: Vec<Run>,
    /// What the node showed; empty for bare processes.
    pub(super) seen: StretchObservation,
    /// Sandboxes that ended for want of memory.
    pub(super) out_of_memory: usize,
}

/// The servers, the first of them ended first.
pub(super) struct Stage {
    nigh: NodeUnderTest,
    off: NodeUnderTest,
    pools: BTreeMap<Side, BarePool>,
    stores: ComparedStores,
    cast: Cast,
    /// What sandboxes may book together.
    pub(super) functions_memory: ByteSize,
    /// What was switched off beside the cache; empty where the node has no such settings.
    pub(super) switched_off: Vec<&'static str>,
    work: TempDir,
}

impl Stage {
    /// Starts the servers, with their files below `folder`.
    pub(super) fn set(
        cast: Cast,
        folder: &Path,
        python: &Path,
        machine: &mut Machine,
        say: impl Fn(String),
    ) -> Result<Self, LabError> {
        let work = tempfile::tempdir_in(folder).at(folder)?;
        for name in ["swift", "redis", "nigh", "off"] {
            std::fs::create_dir(work.path().join(name)).at(work.path())?;
        }
        let stores = ComparedStores::start(work.path(), None, &[], machine, say)?;
        let functions_memory = ByteSize((machine.memory_gib * BOOKED_SHARE * ByteSize::gib(1).bytes() as f64) as u64);
        let memory = format!("{} MiB", functions_memory.bytes() >> 20);
        let start = |name: &str, values: &[(&str, &str)]| {
            let mut all = settings(Some(stores.swift.s3()), python);
            set(&mut all, &[("functions.memory", memory.as_str()), ("functions.queue", QUEUE)]);
            set(&mut all, values);
            NodeUnderTest::start(&work.path().join(name), &all)
        };
        let nigh = start("nigh", &[("cache.bytes", CACHE)])?;
        let config = admin_api::<Value>(&nigh.endpoints.admin_socket, "/config")?.to_string();
        let switched_off: Vec<&str> =
            SWITCHES.into_iter().filter(|name| config.contains(&format!("\"{name}\""))).collect();
        let mut values = vec![("cache.bytes", "1 MiB"), ("cache.object_max", "0 B"), ("writes.mode", "through")];
        values.extend(switched_off.iter().map(|name| (*name, "off")));
        let off = start("off", &values)?;
        let mut pools = BTreeMap::from([(Side::Swift, BarePool::new(python, stores.swift_environment()))]);
        if stores.others.redis.is_some() {
            pools.insert(Side::Redis, BarePool::new(python, stores.others.redis_environment()));
        }
        let stage = Self { nigh, off, pools, stores, cast, functions_memory, switched_off, work };
        for side in stage.sides() {
            for function in &stage.cast.functions {
                let client = (side == Side::Redis).then_some(REDIS_CLIENT);
                function.measured(&stage.code(side, &function.name), client)?;
            }
        }
        Ok(stage)
    }

    fn code(&self, side: Side, function: &str) -> std::path::PathBuf {
        self.work.path().join("code").join(name_of(&side)).join(function)
    }

    /// Puts all inputs into Swift, behind Nigh's back, and into Redis, and deploys every tenant's function on both nodes.
    pub(super) async fn furnish(&self) -> Result<(), LabError> {
        self.stores.create_bucket(BUCKET).await?;
        let of_tenants = self.cast.tenants.iter().flat_map(|tenant| {
            tenant.inputs.iter().enumerate().map(|(number, input)| (input, tenant.input_key(number)))
        });
        let of_training: BTreeSet<&String> = self.cast.offered.iter().flat_map(|one| &one.inputs).collect();
        let of_training = of_training.into_iter().map(|input| (input, training_key(input)));
        for (input, key) in of_tenants.chain(of_training) {
            let body = read_input(&self.cast.inputs, input)?;
            self.stores.put_into_swift(BUCKET, &key, &body).await?;
            self.stores.put_into_redis(BUCKET, &key, &body)?;
        }
        for node in [&self.nigh, &self.off] {
            let mut lambda = LambdaClient::connect(node)?;
            for tenant in &self.cast.tenants {
                let function = self.cast.function_of(tenant)?;
                let code = self.code(Side::Nigh, &function.name);
                lambda.reconnect()?;
                lambda.deploy(&function.deployment(&tenant.name, &code, NAIVE_MB)).await?;
            }
        }
        Ok(())
    }

    pub(super) fn tenants(&self) -> &[Tenant] {
        &self.cast.tenants
    }

    /// Those that can be played here.
    pub(super) fn sides(&self) -> Vec<Side> {
        [Side::Nigh, Side::NighOff].into_iter().chain(self.pools.keys().copied()).collect()
    }

    /// Runs every tenant's function `rounds` times on Nigh, with two gigabytes, on other objects than those of the load: models
    /// learn from these runs. Returns the most memory that each tenant's function used.
    pub(super) fn train(
        &self,
        rounds: usize,
        stop: &AtomicBool,
        ended: &(dyn Fn(&Run) + Sync),
    ) -> Result<Vec<ByteSize>, LabError> {
        let (tenants, handle) = (&self.cast.tenants, Handle::current());
        let arrival = |number: usize| Arrival {
            number,
            due_s: 0.0,
            tenant: number % tenants.len(),
            input: number / tenants.len(),
        };
        let arrivals: Vec<Arrival> = (0..rounds * tenants.len()).map(arrival).collect();
        let pace = Pace { clients: TRAINERS, from_s: 0.0, stop, ended };
        let client = || {
            let (mut lambda, handle) = (LambdaClient::connect(&self.nigh)?, handle.clone());
            Ok(move |arrival: &Arrival| {
                let tenant = &tenants[arrival.tenant];
                let event = self.training_event(tenant, arrival.input);
                handle.block_on(invoke(&mut lambda, &tenant.name, &event)).map_err(|error| error.to_string())
            })
        };
        let mut most = vec![ByteSize::ZERO; tenants.len()];
        for run in block_in_place(|| open_loop::play(&arrivals, &pace, client))? {
            let times = run.answered.map_err(|reason| failed_before(&tenants[run.arrival.tenant], reason))?;
            let most = &mut most[run.arrival.tenant];
            *most = (*most).max(times.peak.unwrap_or(ByteSize::ZERO));
        }
        Ok(most)
    }

    /// Has every tenant book by `profile` on both nodes the most that any tenant's copy of its function used, and has each side
    /// run each tenant's function once, so that the load finds it warm. Returns what each tenant books.
    pub(super) async fn book(&self, profile: BookingProfile, most: &[ByteSize]) -> Result<Vec<u64>, LabError> {
        let tenants = &self.cast.tenants;
        let of_function = |function: &str| {
            let same = tenants.iter().zip(most).filter(|(tenant, _)| tenant.function == function);
            same.map(|(_, most)| *most).max().unwrap_or(ByteSize::ZERO)
        };
        let booked: Vec<u64> = tenants.iter().map(|tenant| profile.booked_mb(of_function(&tenant.function))).collect();
        for node in [&self.nigh, &self.off] {
            let mut lambda = LambdaClient::connect(node)?;
            for (tenant, &booked_mb) in tenants.iter().zip(&booked) {
                lambda.reconnect()?;
                lambda.set_memory(&tenant.name, booked_mb).await?;
                invoke(&mut lambda, &tenant.name, &self.training_event(tenant, 0)).await?;
            }
        }
        for &side in self.pools.keys() {
            for tenant in tenants {
                let times = self.invoke_bare(side, tenant, &self.training_event(tenant, 0));
                times.map_err(|reason| failed_before(tenant, reason))?;
            }
        }
        Ok(booked)
    }

    /// Runs a tenant's function once in a process of a side without a platform.
    fn invoke_bare(&self, side: Side, tenant: &Tenant, event: &[u8]) -> Result<InvocationTimes, String> {
        let pool = self.pools.get(&side).ok_or("this side does not run")?;
        let code = self.code(side, &tenant.function);
        let (answer, cold) = pool.invoke(&tenant.name, (&code, MEASURED_HANDLER), event)?;
        Ok(InvocationTimes { cold, ..InvocationTimes::read(&answer.payload)? })
    }

    /// An event before the load; its output is not compared.
    fn training_event(&self, tenant: &Tenant, round: usize) -> Vec<u8> {
        let inputs = self.cast.offered.iter().find(|one| one.function == tenant.function).map(|one| &one.inputs);
        let input = inputs.and_then(|inputs| inputs.get(round % inputs.len().max(1))).map_or("", String::as_str);
        let output = format!("out/training/{}", tenant.name);
        let function = self.cast.function_of(tenant);
        function.map_or_else(|_| Vec::new(), |one| one.event_of(BUCKET, &training_key(input), &output))
    }

    /// Has `side` play `arrivals`, which begin at `from_s` of the load.
    pub(super) fn play(&self, side: Side, arrivals: &[Arrival], pace: &Pace<'_>) -> Result<Stretch, LabError> {
        let (handle, name) = (Handle::current(), name_of(&side));
        let events = Events { cast: &self.cast, bucket: BUCKET, side: &name };
        let node = match side {
            Side::Nigh => &self.nigh,
            Side::NighOff => &self.off,
            Side::Swift | Side::Redis => {
                let client = |arrival: &Arrival| {
                    let (tenant, event) = events.of(arrival)?;
                    self.invoke_bare(side, tenant, &event)
                };
                let runs = block_in_place(|| open_loop::play(arrivals, pace, || Ok(client)))?;
                return Ok(Stretch { side, runs, seen: StretchObservation::default(), out_of_memory: 0 });
            }
        };
        let (admin, begin) = (node.endpoints.admin_socket.as_path(), SystemClock::new().wall());
        let over = AtomicBool::new(false);
        let play = || {
            std::thread::scope(|scope| {
                let watch = scope.spawn(|| watch(admin, pace.from_s, &over));
                let client = || Ok(door_client(LambdaClient::connect(node)?, &events, &handle));
                let runs = open_loop::play(arrivals, pace, client);
                over.store(true, Ordering::Release);
                let panicked = |_| Err(LabError::Node("the watch over the node ended early".to_owned()));
                (runs, watch.join().unwrap_or_else(panicked))
            })
        };
        let (runs, seen) = block_in_place(play);
        let mut runs = runs?;
        take_records(&mut runs, admin)?;
        let recorded = activations_while(admin, RECORDS_MAX, |one| one.start >= begin)?;
        let out_of_memory = recorded.iter().filter(|one| one.outcome == Outcome::OutOfMemory).count();
        Ok(Stretch { side, runs, seen: seen?, out_of_memory })
    }
}

fn failed_before(tenant: &Tenant, reason: String) -> LabError {
    LabError::Function { function: tenant.name.clone(), input: "an input before the load".to_owned(), reason }
}

fn training_key(input: &str) -> String {
    format!("training/{input}")
}
