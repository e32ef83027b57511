//! The lives of one state folder: load and a kill, a start and a look at every key, at last what the store holds.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::Store;
use super::service::Service;
use crate::LabError;
use crate::experiment::client_calls::{Caller, Door};
use crate::experiment::judged_clients::client::Client;
use crate::experiment::judged_clients::fast_calls::FastDoor;
use crate::experiment::judged_clients::history::ReadFinding;
use crate::experiment::judged_clients::recorded_run::{Findings, PUSHED_WITHIN, RecordedRun, wait_until_held};
use crate::experiment::judged_clients::store_behind::BackingStore;
use crate::experiment::judged_clients::{BUCKET, DETAILS_MAX};
use crate::instrument::fault_proxy::plan::{Fault, Plan, Rule};
use crate::instrument::node_under_test::{NodeUnderTest, configure, set, socket_address};
use crate::instrument::parallel::joined;
use crate::instrument::platform::until_pushed;

/// Small, so that objects leave the cache, and segments of the journal are used again.
const CACHE: &str = "16 MiB";
const JOURNAL: &str = "64 MiB";

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Totals {
    pub(super) kills: u32,
    /// Kills of the store, in some of the lives.
    pub(super) store_kills: u32,
    #[serde(flatten)]
    pub(super) findings: Findings,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PartOutcome {
    pub(super) totals: Totals,
    pub(super) restarts_ms: Vec<f64>,
    pub(super) violations: Vec<String>,
}

impl PartOutcome {
    pub(super) fn add(&mut self, other: Self) {
        let (sum, more) = (&mut self.totals, other.totals);
        sum.kills += more.kills;
        sum.store_kills += more.store_kills;
        sum.findings.add(more.findings);
        self.restarts_ms.extend(other.restarts_ms);
        self.violations.extend(other.violations);
        self.violations.truncate(DETAILS_MAX);
    }
}

pub(super) struct Lives {
    folder: PathBuf,
    service: Option<Service>,
    handle: Handle,
    draw: StdRng,
    /// None only while it is being changed.
    node: Option<NodeUnderTest>,
    /// The present life is one in which a repeated call is known again.
    remembers: bool,
    run: RecordedRun,
    totals: Totals,
    restarts_ms: Vec<f64>,
}

impl Lives {
    /// Starts a node on a new state in `folder`, with its bucket.
    pub(super) fn begin(folder: &Path, store: Store, seed: u64, handle: &Handle) -> Result<Self, LabError> {
        let service = Service::start(store, folder, handle)?;
        let mut lives = Self {
            folder: folder.to_owned(),
            service,
            handle: handle.clone(),
            draw: StdRng::seed_from_u64(seed),
            node: None,
            remembers: true,
            run: RecordedRun::new(seed),
            totals: Totals::default(),
            restarts_ms: Vec::new(),
        };
        lives.start()?;
        let made = Caller::new(&lives.door()?).call(&Method::PUT, &format!("/{BUCKET}"), &[], b"")?;
        made.expect_done("make the bucket")?;
        Ok(lives)
    }

    /// Load until a moment that is drawn, the kill, a start, and a look at all keys.
    pub(super) fn play_and_kill(&mut self, longest: Duration) -> Result<(), LabError> {
        let load = longest.mul_f64(self.draw.random_range(0.02..1.0));
        let (plan, dies_at) = self.weather();
        if let Some(service) = &self.service {
            service.set_plan(plan);
        }
        let (door, fast, stop, remembers) = (self.door()?, self.fast_door()?, AtomicBool::new(false), self.remembers);
        let (node, service, clients) = (&mut self.node, &mut self.service, &mut self.run.clients);
        std::thread::scope(|scope| {
            let live = |client| {
                let (doors, stop) = ((&door, fast.as_ref()), &stop);
                scope.spawn(move || Client::live(client, doors, remembers, stop))
            };
            let threads: Vec<_> = clients.iter_mut().map(live).collect();
            std::thread::sleep(load.mul_f64(dies_at.unwrap_or(1.0)));
            if let (Some(at), Some(service)) = (dies_at, service) {
                service.kill();
                std::thread::sleep(load.mul_f64(1.0 - at));
            }
            if let Some(mut node) = node.take() {
                node.kill();
            }
            stop.store(true, Ordering::Relaxed);
            joined(threads)
        })?;
        self.totals.kills += 1;
        if let Some(service) = &self.service {
            service.set_plan(Plan::default());
        }
        // The node comes back first, and finds no store.
        self.start()?;
        if let (Some(_), Some(service)) = (dies_at, &mut self.service) {
            service.start_again()?;
            self.totals.store_kills += 1;
        }
        // A request under way ends with the process; what went to a service may land at any time.
        if self.service.is_none() {
            self.run.give_up();
        }
        self.look().map(drop)
    }

    /// Waits until the store has everything, ends the node, and compares. What all lives came to.
    pub(super) fn end(mut self) -> Result<PartOutcome, LabError> {
        let behind = self.behind()?;
        // Nobody writes any more: what Nigh gives now is what must come to the store.
        let through_nigh = self.look()?;
        match &behind {
            BackingStore::Directory(_) => {
                self.handle.block_on(until_pushed(&self.node()?.endpoints.admin_socket, PUSHED_WITHIN))?;
            }
            BackingStore::Service(_) => wait_until_held(&behind, &through_nigh)?,
        }
        drop(self.node.take());
        let differ = self.run.compare(&behind, through_nigh)?;
        let (findings, violations) = self.run.judge(differ);
        let totals = Totals { findings, ..self.totals };
        Ok(PartOutcome { totals, restarts_ms: self.restarts_ms, violations })
    }

    fn behind(&self) -> Result<BackingStore, LabError> {
        let Some(service) = &self.service else {
            let namespace = self.node()?.endpoints.namespace.as_str();
            return Ok(BackingStore::directory(&self.folder.join("state"), namespace));
        };
        let access = service.access();
        let (server, handle) = (socket_address(&access.endpoint)?, self.handle.clone());
        Ok(BackingStore::Service(Box::new(Door { server, signer: access.signer(), handle })))
    }

    fn node(&self) -> Result<&NodeUnderTest, LabError> {
        self.node.as_ref().ok_or_else(|| LabError::Node("it does not run".to_owned()))
    }

    fn door(&self) -> Result<Door, LabError> {
        let node = self.node()?;
        Ok(Door { server: node.s3()?, signer: node.signer("s3"), handle: self.handle.clone() })
    }

    /// The same node without HTTP, if it has that.
    fn fast_door(&self) -> Result<Option<FastDoor>, LabError> {
        let node = self.node()?;
        Ok(node.endpoints.fast_socket.clone().map(|socket| FastDoor { socket, access: node.s3_access() }))
    }

    /// A life that begins: mostly lazy, with pushes sooner or later after their write.
    fn start(&mut self) -> Result<(), LabError> {
        self.remembers = self.draw.random_bool(0.75);
        let mut settings = self.service.as_ref().map(Service::settings).unwrap_or_default();
        let mode = if self.remembers { "lazy" } else { "through" };
        let delay = format!("{} ms", self.draw.random_range(1..800));
        set(&mut settings, &[("writes.mode", mode), ("writes.delay", &delay), ("writes.journal_max", JOURNAL)]);
        // The cache is to stay that small.
        set(&mut settings, &[("cache.bytes", CACHE), ("memory.grants", "off")]);
        configure(&self.folder, &settings)?;
        let began = Instant::now();
        self.node = Some(NodeUnderTest::start_again(&self.folder)?);
        if self.totals.kills > 0 {
            self.restarts_ms.push(began.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(())
    }

    /// What the service does in a life: nothing, or it is dead, hangs now and then, is unwell, lies, or is killed: then at this
    /// share of the load, and it is back only after the node.
    fn weather(&mut self) -> (Plan, Option<f64>) {
        let seed = self.draw.random();
        let refuse = |status| Fault::Refuse { status, retry_after_s: None };
        // A login that is refused is not tried again for seconds, longer than most lives.
        let some = |chance, fault| Rule { lacks: "/auth/".to_owned(), ..Rule::of_all(chance, fault) };
        let mut dies_at = None;
        let rules = match self.draw.random_range(0..8) {
            0 => vec![some(1.0, refuse(503))],
            1 => vec![some(0.2, Fault::Hang)],
            2 => vec![some(0.1, refuse(500)), some(0.1, Fault::Close), some(0.1, Fault::Break { status: 503 })],
            3 => vec![some(0.2, Fault::WrongEtag), some(0.2, Fault::HalfBody)],
            4 => {
                let mortal = self.service.as_ref().is_some_and(Service::is_mortal);
                dies_at = mortal.then(|| self.draw.random_range(0.2..0.9));
                Vec::new()
            }
            _ => Vec::new(),
        };
        (Plan { seed, rules, ..Plan::default() }, dies_at)
    }

    /// Reads and lists all keys while nobody writes; what is seen, in the keys' order.
    fn look(&mut self) -> Result<Vec<ReadFinding>, LabError> {
        let door = self.door()?;
        self.run.look(&door, &format!("kill {}", self.totals.kills))
    }
}
