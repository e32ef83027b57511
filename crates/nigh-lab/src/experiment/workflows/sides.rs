//! What the sides stand on: an S3 server, a Redis, and a cluster for each protocol; and for each workflow its functions there,
//! warm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::Method;
use nigh_node::local_cluster::find_nats_server;
use nigh_node::state_folder::StatePaths;
use tempfile::TempDir;

use super::bare_side::{BareSide, STAGE_HANDLER};
use super::cluster_side::{self, ClusterSide};
use super::pipeline::Pipeline;
use super::side::Side;
use super::{BUCKET, StageInvocation};
use crate::LabError;
use crate::experiment::single::left_out;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, settings};
use crate::instrument::peer::installed::{client_version, python_clients};
use crate::instrument::peer::redis::Redis;
use crate::instrument::pipeline_inputs::{make_inputs, measured_code};
use crate::instrument::platform::{Deployment, activations_while, runtime_name};
use crate::instrument::s3_door::S3Door;

/// Records that are looked at to see where stages ran.
const RECORDS_MAX: usize = 200;

/// The servers. What comes first is ended first.
pub(super) struct Sides {
    pub(super) clusters: BTreeMap<Side, ClusterSide>,
    s3: NodeUnderTest,
    redis: Option<Redis>,
    /// The Python client of Redis, if it is installed.
    clients: Option<PathBuf>,
    python: PathBuf,
    inputs: PathBuf,
    work: TempDir,
}

impl Sides {
    /// Starts the servers and notes them in `machine`; what is not installed is told to `say` and left out, but for
    /// nats-server. `wanted` are the sides that take part.
    pub(super) async fn start(
        python: &Path,
        wanted: &[Side],
        machine: &mut Machine,
        say: impl Fn(String),
    ) -> Result<Self, LabError> {
        let work = tempfile::tempdir().at(std::env::temp_dir())?;
        let inputs = work.path().join("inputs");
        make_inputs(python, &inputs, &[])?;
        let nats_server = find_nats_server().ok_or_else(|| LabError::Missing {
            missing: "nats-server".to_owned(),
            hint: "run `NIGH_PEERS=nats scripts/install-peers.sh`, or have it in PATH",
        })?;
        let clients = left_out(python_clients(&runtime_name()?), &say)?;
        let redis = match &clients {
            Some(_) if wanted.contains(&Side::Redis) => left_out(Redis::start(&work.path().join("redis")), &say)?,
            _ => None,
        };
        if let Some(redis) = &redis {
            machine.add_peer(redis);
            for package in ["redis", "hiredis"] {
                machine.peers.insert(package.to_owned(), client_version(package).to_owned());
            }
        }
        let mut uncached = settings(None, python);
        for (section, values) in
            [("cache", &[("bytes", "1 MiB"), ("object_max", "0 B")][..]), ("writes", &[("mode", "through")][..])]
        {
            let table: toml::Table = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
            uncached.insert(section.to_owned(), table.into());
        }
        let folder = work.path().join("s3");
        std::fs::create_dir(&folder).at(&folder)?;
        let s3 = NodeUnderTest::start(&folder, &uncached)?;
        let mut clusters = BTreeMap::new();
        for &side in wanted {
            if let Some(protocol) = side.protocol() {
                say(format!("starting three nodes under {protocol}"));
                let folder = work.path().join(side.name());
                let set = cluster_side::settings(python);
                clusters.insert(side, ClusterSide::start(protocol, &nats_server, folder, set).await?);
            }
        }
        let sides = Self { clusters, s3, redis, clients, python: python.to_owned(), inputs, work };
        sides.s3_door()?.send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
        Ok(sides)
    }

    /// Those that take part.
    pub(super) fn present(&self) -> Vec<Side> {
        let is_present = |side: &Side| match side {
            Side::S3 => true,
            Side::Redis => self.redis.is_some(),
            on_cluster => self.clusters.contains_key(&on_cluster.cluster()),
        };
        Side::ALL.into_iter().filter(is_present).collect()
    }

    pub(super) fn work(&self) -> &Path {
        self.work.path()
    }

    fn s3_door(&self) -> Result<S3Door, LabError> {
        Ok(S3Door { signer: self.s3.signer("s3"), address: self.s3.s3()? })
    }

    /// Of a cluster's nodes, how many of the workflow's functions each has run in its last records.
    pub(super) fn functions_by_node(&self, side: Side, pipeline: &Pipeline) -> Result<Option<Vec<usize>>, LabError> {
        let Some(cluster) = self.clusters.get(&side) else { return Ok(None) };
        let names: Vec<String> = pipeline.functions().into_iter().map(|function| pipeline.deployed(function)).collect();
        let mut counts = Vec::new();
        for node in cluster.nodes() {
            let admin = StatePaths::new(&node.state).admin_socket();
            let records = activations_while(&admin, RECORDS_MAX, |_| true)?;
            let ran = |name: &&String| records.iter().any(|record| record.function.as_str() == name.as_str());
            counts.push(names.iter().filter(ran).count());
        }
        Ok(Some(counts))
    }

    /// Deploys a workflow's functions on every side.
    pub(super) async fn cast<'s>(&'s self, pipeline: &'s Pipeline) -> Result<Cast<'s>, LabError> {
        let mut inputs = BTreeMap::new();
        for input in &pipeline.inputs {
            let path = self.inputs.join(&input.file);
            inputs.insert(input.name.clone(), std::fs::read(&path).at(&path)?);
        }
        let mut cast = Cast { sides: self, pipeline, inputs, bare: BTreeMap::new(), furnished: Vec::new() };
        for side in self.present().into_iter().filter(|side| side.cluster() == *side) {
            let code = self.work.path().join("code").join(side.name()).join(&pipeline.name);
            measured_code(&pipeline.folder, &code, side.client())?;
            match self.clusters.get(&side) {
                Some(cluster) => {
                    for function in pipeline.functions() {
                        let deployment = Deployment {
                            name: &pipeline.deployed(function),
                            code: &code,
                            handler: STAGE_HANDLER,
                            memory_mb: pipeline.memory_mb,
                            timeout_s: pipeline.timeout_s,
                            environment: cluster_side::environment(),
                        };
                        cluster.deploy(&deployment).await?;
                    }
                }
                None => {
                    let bare = BareSide::start(&self.python, pipeline, &code, &self.environment(side))?;
                    cast.bare.insert(side, bare);
                }
            }
        }
        Ok(cast)
    }

    fn environment(&self, side: Side) -> BTreeMap<String, String> {
        let mut environment: BTreeMap<String, String> = match side {
            Side::Redis => self.redis.iter().flat_map(Redis::environment).collect(),
            _ => self.s3.s3_access().environment(),
        };
        // The same search path for both, though one of them alone needs it.
        environment.extend(self.clients.iter().map(|path| ("PYTHONPATH".to_owned(), path.display().to_string())));
        environment
    }

    /// Ends all processes in order.
    pub(super) fn end(self) {
        self.clusters.into_values().for_each(ClusterSide::end);
    }
}

/// One workflow's functions on every side, and its inputs.
pub(super) struct Cast<'s> {
    sides: &'s Sides,
    pipeline: &'s Pipeline,
    inputs: BTreeMap<String, Vec<u8>>,
    bare: BTreeMap<Side, BareSide>,
    /// Those that have what all runs share.
    furnished: Vec<Side>,
}

impl Cast<'_> {
    /// Puts the inputs of one run where `side` reads them.
    pub(super) async fn furnish(&mut self, side: Side, run: &str) -> Result<(), LabError> {
        let is_first = !self.furnished.contains(&side);
        for input in self.pipeline.inputs.iter().filter(|input| is_first || !input.shared) {
            let (key, Some(body)) =
                (self.pipeline.key((run, side.between()), &input.name), self.inputs.get(&input.name))
            else {
                continue;
            };
            match (side, self.sides.clusters.get(&side.cluster()), &self.sides.redis) {
                (_, Some(cluster), _) => cluster.put(&key, body).await?,
                (Side::Redis, None, Some(redis)) => redis.set(&format!("{BUCKET}/{key}"), body)?,
                _ => self.sides.s3_door()?.send(Method::PUT, &format!("/{BUCKET}/{key}"), body).await?,
            }
        }
        if is_first {
            self.furnished.push(side);
        }
        Ok(())
    }

    /// Invokes functions of `side` at the same time.
    pub(super) async fn invoke(
        &mut self,
        side: Side,
        calls: &[(String, Vec<u8>)],
    ) -> Result<Vec<StageInvocation>, LabError> {
        match (self.bare.get_mut(&side), self.sides.clusters.get(&side.cluster())) {
            (Some(bare), _) => bare.invoke(calls),
            (None, Some(cluster)) => cluster.invoke(calls).await,
            (None, None) => Err(LabError::Node(format!("{} takes no part", side.name()))),
        }
    }

    /// Takes the functions away, so that the next workflow has the machine.
    pub(super) async fn end(self) -> Result<(), LabError> {
        for cluster in self.sides.clusters.values() {
            for function in self.pipeline.functions() {
                cluster.remove(&self.pipeline.deployed(function)).await?;
            }
        }
        Ok(())
    }
}
