//! The cost of an input that another node caches, beside one that the function's own node caches.
//!
//! For each pair an object is put by the door of its home, which is not the node of the function's sandbox. The invocation on it
//! fetches it from its home; the invocation on the object of the pair before, which is cached here, comes before or after it in
//! turns. A pair counts only if the node's own counts confirm a hit and a fetch.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use nigh_node::state_folder::StatePaths;
use nigh_node::status::Status;
use serde::{Deserialize, Serialize};

use super::Side;
use super::cluster_side::{self, ClusterSide};
use super::sides::Sides;
use crate::LabError;
use crate::instrument::platform::{Deployment, Reads, admin_api};
use crate::instrument::progress::{PARTS_KEPT, unless_stopped};
use crate::instrument::sample_function::{SampleFunction, read_input};
use crate::load::run::InvocationTimes;

/// The functions and an input of each: from those that hardly work to those that hardly read.
const PLAYED: [(&str, &str); 7] = [
    ("wordcount", "text/kjv-40k.txt"),
    ("csv_summary", "csv/flights-1000.csv"),
    ("compress", "text/kjv-400k.txt"),
    ("sepia", "images/coffee.png"),
    ("thumbnail", "images/hubble-1024k.jpg"),
    ("matrix_product", "matrices/astronaut-512.npy"),
    ("audio_compress", "audio/music-15s.wav"),
];
/// Pairs of a round: single functions are fast.
const PAIRS: usize = 4;
const WARM_UPS: usize = 3;
/// How often a function is deployed anew because it ran on another node.
const ATTEMPTS: usize = 5;

/// One function: the handler's time with the input near and far, milliseconds, pair by pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Distance {
    pub(super) function: String,
    pub(super) bytes: u64,
    pub(super) pairs: Vec<Pair>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pair {
    pub(super) local_ms: f64,
    pub(super) remote_ms: f64,
    /// The wait for the input in it.
    pub(super) local_extract_ms: f64,
    pub(super) remote_extract_ms: f64,
}

/// Plays `rounds` of all functions, or of a `few`.
pub(super) async fn play(
    sides: &Sides,
    functions: &[SampleFunction],
    inputs: &Path,
    (rounds, few): (usize, Option<usize>),
    stop: &AtomicBool,
) -> Result<Vec<Distance>, LabError> {
    let Some(cluster) = sides.clusters.get(&Side::Nigh) else { return Ok(Vec::new()) };
    let mut distances = Vec::new();
    for (name, input) in PLAYED.into_iter().take(few.unwrap_or(PLAYED.len())) {
        let (function, body) = (SampleFunction::find(functions, name)?, read_input(inputs, input)?);
        let code = sides.work.path().join("code").join(super::REMOTE_HIT).join(name);
        function.measured(&code, None)?;
        let mut one = RemoteHitFunction { cluster, function, code, deployed: String::new(), body, keys: 0 };
        let pairs = one.pairs(rounds * PAIRS, stop).await?;
        cluster.lambda()?.remove(&one.deployed).await?;
        distances.push(Distance { function: name.to_owned(), bytes: one.body.len() as u64, pairs });
    }
    Ok(distances)
}

/// One function on the cluster.
struct RemoteHitFunction<'c> {
    cluster: &'c ClusterSide,
    function: &'c SampleFunction,
    code: PathBuf,
    /// The name that it has on the cluster.
    deployed: String,
    body: Vec<u8>,
    /// How many keys have been tried.
    keys: usize,
}

impl RemoteHitFunction<'_> {
    async fn pairs(&mut self, count: usize, stop: &AtomicBool) -> Result<Vec<Pair>, LabError> {
        let (mut pairs, mut attempts) = (Vec::new(), 0);
        let (mut at, mut near) = self.start(attempts).await?;
        while pairs.len() < count {
            unless_stopped(stop, PARTS_KEPT)?;
            let far = self.far_from(at).await?;
            let local_first = pairs.len() % 2 == 0;
            let mut local = if local_first { self.counted(at, &near).await? } else { None };
            let remote = self.counted(at, &far).await?;
            if !local_first {
                local = self.counted(at, &near).await?;
            }
            near = far;
            match (local, remote) {
                (Some((near, Reads { hits: 1, misses: 0 })), Some((far, Reads { hits: 0, misses: 1 }))) => {
                    pairs.push(Pair {
                        local_ms: near.total_ms,
                        remote_ms: far.total_ms,
                        local_extract_ms: near.extract_ms,
                        remote_extract_ms: far.extract_ms,
                    });
                }
                _ if attempts < ATTEMPTS => {
                    // It has sandboxes on several nodes now, and runs where its input is.
                    attempts += 1;
                    self.cluster.lambda()?.remove(&self.deployed).await?;
                    (at, near) = self.start(attempts).await?;
                }
                other => {
                    let reason = format!("{other:?} was served where a hit and a fetch were to be measured");
                    return Err(self.failure(&near, reason));
                }
            }
        }
        Ok(pairs)
    }

    /// Deploys it under a name of its own, so that it has no sandbox yet. Returns the node of the first, and an object that
    /// this node caches.
    async fn start(&mut self, attempt: usize) -> Result<(usize, String), LabError> {
        let name = self.function.name.replace('_', "-");
        self.deployed = format!("far-{name}-{attempt}");
        let deployment = Deployment {
            environment: cluster_side::environment(),
            ..self.function.deployment(&self.deployed, &self.code, self.function.memory_mb)
        };
        self.cluster.lambda()?.deploy(&deployment).await?;
        let at = self.find().await?;
        for _ in 0..WARM_UPS {
            let key = self.far_from(at).await?;
            self.invoke(&key).await?;
        }
        let near = self.far_from(at).await?;
        self.invoke(&near).await?;
        Ok((at, near))
    }

    fn failure(&self, key: &str, reason: String) -> LabError {
        LabError::Function { function: self.deployed.clone(), input: key.to_owned(), reason }
    }

    /// The node of its sandbox: the one whose count of reads grows.
    async fn find(&mut self) -> Result<usize, LabError> {
        let key = self.far_from(0).await?;
        // The first invocation starts the sandbox.
        self.invoke(&key).await?;
        let reads = |served: Reads| served.hits + served.misses;
        let before: Vec<u64> = self.served_by_all()?.into_iter().map(reads).collect();
        self.invoke(&key).await?;
        let after: Vec<u64> = self.served_by_all()?.into_iter().map(reads).collect();
        let grown = after.iter().zip(&before).position(|(after, before)| after > before);
        grown.ok_or_else(|| self.failure(&key, "no node has read its input".to_owned()))
    }

    fn served_by_all(&self) -> Result<Vec<Reads>, LabError> {
        (0..self.cluster.nodes.len()).map(|node| self.served(node)).collect()
    }

    /// Reads that a node has answered from its cache, and by fetching.
    fn served(&self, node: usize) -> Result<Reads, LabError> {
        let admin = StatePaths::new(&self.cluster.nodes[node].state).admin_socket();
        let cache = admin_api::<Status>(&admin, "/status")?.cache;
        Ok(Reads { hits: cache.hits, misses: cache.misses + cache.past })
    }

    /// Puts the input under a key of its own whose home is not `node`.
    async fn far_from(&mut self, node: usize) -> Result<String, LabError> {
        loop {
            self.keys += 1;
            let key = format!("far/{}/{}", self.deployed, self.keys);
            if self.cluster.home_of(&key)? != node {
                self.cluster.put(&key, &self.body).await?;
                return Ok(key);
            }
        }
    }

    /// The output goes to the same object each time.
    async fn invoke(&self, key: &str) -> Result<InvocationTimes, LabError> {
        let event = self.function.event_of(super::BUCKET, key, &format!("far/{}/out", self.deployed));
        let played = self.cluster.invoke(&[(self.deployed.clone(), event)]).await?;
        let payload = played.first().map(|played| played.payload.as_slice()).unwrap_or_default();
        InvocationTimes::read(payload).map_err(|reason| self.failure(key, reason))
    }

    /// An invocation, and how `node` served it; none if it ran elsewhere.
    async fn counted(&self, node: usize, key: &str) -> Result<Option<(InvocationTimes, Reads)>, LabError> {
        let before = self.served(node)?;
        let figures = self.invoke(key).await?;
        let served = self.served(node)?.since(before);
        Ok((served != Reads::default()).then_some((figures, served)))
    }
}
