//! What a function pays whose input is in the memory of another node of the three, beside one whose input is in its own.
//!
//! For each pair an object is put by the door of its home, which is not the node that has the function's sandbox. The first
//! invocation on it fetches it from there, the second finds it at home; an object of an earlier pair, which is here already,
//! is read before or after them in turns. What the node itself counts must say so, or the run is not taken.

use std::path::Path;

use nigh_node::state_folder::StatePaths;
use serde::{Deserialize, Serialize};

use super::cluster_side::{self, ClusterSide};
use super::side::Side;
use super::sides::Sides;
use crate::LabError;
use crate::instrument::platform::{Deployment, admin_document};
use crate::instrument::sample_function::{MEASURED_HANDLER, SampleFunction};

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
/// How often a pair is begun anew because the function ran elsewhere.
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
    /// Of those, waiting for the input.
    pub(super) local_extract_ms: f64,
    pub(super) remote_extract_ms: f64,
}

/// What `measured.handler` returns.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Figures {
    total_us: f64,
    extract_us: f64,
}

/// Reads that a node has answered from its memory, and by fetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReadCounts {
    hits: u64,
    fetched: u64,
}

/// Plays `rounds` of all functions, or of a `few`.
pub(super) async fn play(
    sides: &Sides,
    functions: &[SampleFunction],
    inputs: &Path,
    (rounds, few): (usize, Option<usize>),
    keep_on: impl Fn() -> bool,
) -> Result<Vec<Distance>, LabError> {
    let Some(cluster) = sides.clusters.get(&Side::Nigh) else { return Ok(Vec::new()) };
    let mut distances = Vec::new();
    for (name, input) in PLAYED.into_iter().take(few.unwrap_or(PLAYED.len())) {
        let missing = |missing: String| LabError::Missing { missing, hint: "run `make deps` in the project's folder" };
        let function = functions.iter().find(|function| function.name == name);
        let function = function.ok_or_else(|| missing(format!("the sample function {name}")))?;
        let body = std::fs::read(inputs.join(input)).map_err(|_| missing(inputs.join(input).display().to_string()))?;
        let code = sides.work().join("code").join(super::REMOTE_HIT).join(name);
        function.measured(&code, None)?;
        let deployed = format!("far-{}", name.replace('_', "-"));
        let deployment = Deployment {
            name: &deployed,
            code: &code,
            handler: MEASURED_HANDLER,
            memory_mb: function.memory_mb,
            timeout_s: function.timeout_s,
            environment: cluster_side::environment(),
        };
        cluster.deploy(&deployment).await?;
        let mut one = RemoteHitFunction { cluster, function, deployed, body, keys: 0 };
        let pairs = one.pairs(rounds * PAIRS, &keep_on).await?;
        cluster.remove(&one.deployed).await?;
        distances.push(Distance { function: name.to_owned(), bytes: one.body.len() as u64, pairs });
    }
    Ok(distances)
}

/// One function on the cluster.
struct RemoteHitFunction<'c> {
    cluster: &'c ClusterSide,
    function: &'c SampleFunction,
    deployed: String,
    body: Vec<u8>,
    /// How many keys have been tried.
    keys: usize,
}

impl RemoteHitFunction<'_> {
    async fn pairs(&mut self, count: usize, keep_on: impl Fn() -> bool) -> Result<Vec<Pair>, LabError> {
        let mut at = self.find().await?;
        for _ in 0..WARM_UPS {
            let key = self.far_from(at).await?;
            self.invoke(&key).await?;
        }
        let mut near = self.far_from(at).await?;
        self.invoke(&near).await?;
        let (mut pairs, mut attempts) = (Vec::new(), 0);
        while pairs.len() < count {
            if !keep_on() {
                let kept = "what is done is kept if --progress was given: run the same command again";
                return Err(LabError::Interrupted { kept });
            }
            let far = self.far_from(at).await?;
            let local_first = pairs.len() % 2 == 0;
            let mut local = if local_first { self.counted(at, &near).await? } else { None };
            let remote = self.counted(at, &far).await?;
            if !local_first {
                local = self.counted(at, &near).await?;
            }
            near = far;
            match (local, remote) {
                (Some((near, ReadCounts { hits: 1, fetched: 0 })), Some((far, ReadCounts { hits: 0, fetched: 1 }))) => {
                    pairs.push(Pair {
                        local_ms: near.total_us / 1e3,
                        remote_ms: far.total_us / 1e3,
                        local_extract_ms: near.extract_us / 1e3,
                        remote_extract_ms: far.extract_us / 1e3,
                    });
                }
                _ if attempts < ATTEMPTS => {
                    attempts += 1;
                    at = self.find().await?;
                }
                other => {
                    let reason = format!("{other:?} was served where a hit and a fetch were to be measured");
                    return Err(self.failure(&near, reason));
                }
            }
        }
        Ok(pairs)
    }

    fn failure(&self, key: &str, reason: String) -> LabError {
        LabError::Function { function: self.deployed.clone(), input: key.to_owned(), reason }
    }

    /// The node that has its sandbox: the one whose count of reads grows.
    async fn find(&mut self) -> Result<usize, LabError> {
        let key = self.far_from(0).await?;
        // Its first invocation makes the sandbox, wherever that is.
        self.invoke(&key).await?;
        let reads = |served: ReadCounts| served.hits + served.fetched;
        let before: Vec<u64> = self.served_by_all()?.into_iter().map(reads).collect();
        self.invoke(&key).await?;
        let after: Vec<u64> = self.served_by_all()?.into_iter().map(reads).collect();
        let grown = after.iter().zip(&before).position(|(after, before)| after > before);
        grown.ok_or_else(|| self.failure(&key, "no node has read its input".to_owned()))
    }

    fn served_by_all(&self) -> Result<Vec<ReadCounts>, LabError> {
        (0..self.cluster.nodes().len()).map(|node| self.served(node)).collect()
    }

    fn served(&self, node: usize) -> Result<ReadCounts, LabError> {
        let status = admin_document(&StatePaths::new(&self.cluster.nodes()[node].state).admin_socket(), "/status")?;
        let of = |name: &str| status["cache"][name].as_u64().unwrap_or(0);
        Ok(ReadCounts { hits: of("hits"), fetched: of("misses") + of("past") })
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
    async fn invoke(&self, key: &str) -> Result<Figures, LabError> {
        let event = self.function.event_of(super::BUCKET, key, &format!("far/{}/out", self.deployed));
        let played = self.cluster.invoke(&[(self.deployed.clone(), event)]).await?;
        let payload = played.first().map(|played| played.payload.as_slice()).unwrap_or_default();
        serde_json::from_slice(payload).map_err(|error| self.failure(key, error.to_string()))
    }

    /// An invocation, and how `node` served it; none if it ran elsewhere.
    async fn counted(&self, node: usize, key: &str) -> Result<Option<(Figures, ReadCounts)>, LabError> {
        let before = self.served(node)?;
        let figures = self.invoke(key).await?;
        let after = self.served(node)?;
        let served = ReadCounts { hits: after.hits - before.hits, fetched: after.fetched - before.fetched };
        Ok((served.hits + served.fetched > 0).then_some((figures, served)))
    }
}
