//! What the sides stand on: an S3 server, a Redis, and a cluster for each protocol; and for each workflow its functions there,
//! warm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::Method;
use nigh_node::local_cluster::find_nats_server;
use nigh_node::state_folder::StatePaths;
use tempfile::TempDir;

use super::cluster_side::{self, ClusterSide};
use super::pipeline::Pipeline;
use super::{BUCKET, Side, StageInvocation};
use crate::LabError;
use crate::instrument::bare_pool::BarePool;
use crate::instrument::compared_stores::{REDIS_CLIENT, RedisAndClients};
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{NodeUnderTest, set, settings};
use crate::instrument::parallel::joined;
use crate::instrument::pipeline_inputs::make_inputs;
use crate::instrument::platform::{Deployment, activations_while};
use crate::instrument::report::name_of;
use crate::instrument::s3_door::S3Door;
use crate::instrument::sample_function::measured_code;

const STAGE_HANDLER: &str = "measured.stage";
/// Records that are read to see where stages ran.
const RECORDS_MAX: usize = 200;

/// The servers, the first of them ended first.
pub(super) struct Sides {
    pub(super) clusters: BTreeMap<Side, ClusterSide>,
    s3: NodeUnderTest,
    others: RedisAndClients,
    python: PathBuf,
    inputs: PathBuf,
    pub(super) work: TempDir,
}

impl Sides {
    /// Starts the servers of `wanted` and notes them in `machine`. `say` is told what is not installed and left out; nats-server
    /// must be there.
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
        let others = if wanted.contains(&Side::Redis) {
            RedisAndClients::start(&work.path().join("redis"), &["redis", "hiredis"], machine, &say)?
        } else {
            RedisAndClients::none()
        };
        let mut uncached = settings(None, python);
        let values = [("cache.bytes", "1 MiB"), ("cache.object_max", "0 B"), ("writes.mode", "through")];
        set(&mut uncached, &values);
        let folder = work.path().join("s3");
        std::fs::create_dir(&folder).at(&folder)?;
        let s3 = NodeUnderTest::start(&folder, &uncached)?;
        let mut clusters = BTreeMap::new();
        for &side in wanted {
            if let Some(protocol) = side.protocol() {
                say(format!("starting three nodes under {protocol}"));
                let folder = work.path().join(name_of(&side));
                let set = cluster_side::settings(python);
                clusters.insert(side, ClusterSide::start(protocol, &nats_server, folder, set).await?);
            }
        }
        let sides = Self { clusters, s3, others, python: python.to_owned(), inputs, work };
        sides.s3_door()?.send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
        Ok(sides)
    }

    pub(super) fn present(&self) -> Vec<Side> {
        let is_present = |side: &Side| match side {
            Side::S3 => true,
            Side::Redis => self.others.redis.is_some(),
            on_cluster => self.clusters.contains_key(&on_cluster.cluster()),
        };
        Side::ALL.into_iter().filter(is_present).collect()
    }

    fn s3_door(&self) -> Result<S3Door, LabError> {
        Ok(S3Door { signer: self.s3.signer("s3"), address: self.s3.s3()? })
    }

    /// How many of the workflow's functions each node of a cluster has run, by its last records.
    pub(super) fn functions_by_node(&self, side: Side, pipeline: &Pipeline) -> Result<Option<Vec<usize>>, LabError> {
        let Some(cluster) = self.clusters.get(&side) else { return Ok(None) };
        let names: Vec<String> = pipeline.functions().into_iter().map(|function| pipeline.deployed(function)).collect();
        let mut counts = Vec::new();
        for node in &cluster.nodes {
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
            let code = self.work.path().join("code").join(name_of(&side)).join(&pipeline.name);
            measured_code(&pipeline.folder, &code, (side == Side::Redis).then_some(REDIS_CLIENT))?;
            let Some(cluster) = self.clusters.get(&side) else {
                let environment = match side {
                    Side::Redis => self.others.redis_environment(),
                    _ => self.others.with_clients(self.s3.s3_access().environment()),
                };
                cast.bare.insert(side, (BarePool::new(&self.python, environment), code));
                continue;
            };
            for function in pipeline.functions() {
                let deployment = Deployment {
                    name: &pipeline.deployed(function),
                    code: &code,
                    handler: STAGE_HANDLER,
                    memory_mb: pipeline.memory_mb,
                    timeout_s: pipeline.timeout_s,
                    environment: cluster_side::environment(),
                };
                cluster.lambda()?.deploy(&deployment).await?;
            }
        }
        Ok(cast)
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
    bare: BTreeMap<Side, (BarePool, PathBuf)>,
    /// The sides that have the objects that all runs share.
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
            match (side, self.sides.clusters.get(&side.cluster()), &self.sides.others.redis) {
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
        &self,
        side: Side,
        calls: &[(String, Vec<u8>)],
    ) -> Result<Vec<StageInvocation>, LabError> {
        match (self.bare.get(&side), self.sides.clusters.get(&side.cluster())) {
            (Some((pool, code)), _) => at_once(calls, |(function, event)| {
                let answer = pool.invoke(function, (code, STAGE_HANDLER), event);
                let failure =
                    |reason| LabError::Function { function: function.clone(), input: "its event".to_owned(), reason };
                answer
                    .map_err(failure)
                    .map(|(answer, _)| StageInvocation { payload: answer.payload, took: answer.took })
            }),
            (None, Some(cluster)) => cluster.invoke(calls).await,
            (None, None) => Err(LabError::Node(format!("the side {} was not started", name_of(&side)))),
        }
    }

    /// Removes the functions, so that the next workflow has the machine.
    pub(super) async fn end(self) -> Result<(), LabError> {
        for cluster in self.sides.clusters.values() {
            for function in self.pipeline.functions() {
                cluster.lambda()?.remove(&self.pipeline.deployed(function)).await?;
            }
        }
        Ok(())
    }
}

/// Does `invoke` for all calls at the same time, each in a thread.
pub(super) fn at_once<C: Send>(
    calls: impl IntoIterator<Item = C>,
    invoke: impl Fn(C) -> Result<StageInvocation, LabError> + Sync,
) -> Result<Vec<StageInvocation>, LabError> {
    std::thread::scope(|scope| {
        let invoke = &invoke;
        joined(calls.into_iter().map(|call| scope.spawn(move || invoke(call))).collect())
    })
}
