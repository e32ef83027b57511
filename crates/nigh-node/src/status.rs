//! A node's status, as the admin API gives it and `nigh status` shows it.

use nigh_engine::NodeRole;
use nigh_invoke::invoker::RuntimePrewarmed;
pub use nigh_invoke::node_memory::MemoryStatus;
pub use nigh_objects::cluster::CoherenceProtocol;
use nigh_sizing::object_features::recorder::FeaturesStatus;
use nigh_terms::{ByteSize, ShardId};
use serde::{Deserialize, Serialize};

use crate::endpoints::Endpoints;

/// A feature of Nigh on this machine: on, or off with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// Its name: `isolation`, `python`.
    pub name: String,
    /// True if it works here.
    pub on: bool,
    /// How it works, or why it does not work and how to mend that.
    pub detail: String,
}

/// The memory for cached objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Bytes that cached copies may take.
    pub budget: ByteSize,
    /// Bytes that they take.
    pub kept: ByteSize,
    /// How many there are.
    pub objects: u64,
    /// Reads served from memory.
    pub hits: u64,
    /// Reads that fetched an object and cached it.
    pub misses: u64,
    /// Reads of objects that were not cached.
    pub past: u64,
    /// Writes.
    pub writes: u64,
    /// Copies that were evicted.
    pub evictions: u64,
}

/// The sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// How many there are.
    pub alive: usize,
    /// How many of them are idle.
    pub idle: usize,
    /// How many there may be.
    pub max: usize,
    /// The booking of sandboxes that start, run, or are not frozen yet.
    pub booked: ByteSize,
    /// Memory that idle sandboxes use.
    #[serde(default)]
    pub idle_held: ByteSize,
    /// The booking of idle sandboxes.
    #[serde(default)]
    pub idle_booked: ByteSize,
    /// The most that may be booked at once.
    pub memory: ByteSize,
    /// Pre-warmed sandboxes, not counted above.
    #[serde(default)]
    pub prewarmed: usize,
    /// The booking of pre-warmed sandboxes.
    #[serde(default)]
    pub prewarmed_booked: ByteSize,
    /// Invocations that run.
    pub running: usize,
    /// Invocations that wait.
    pub waiting: usize,
}

/// Writes that were acknowledged before the store had them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WritesStatus {
    /// Objects and deletions that the store does not have yet.
    pub waiting: usize,
    /// Pushed objects and deletions that are watched, because an earlier push may still arrive and replace them.
    #[serde(default)]
    pub watched: usize,
    /// Their bytes.
    #[serde(default)]
    pub waiting_bytes: ByteSize,
    /// Bytes of all unpushed, watched and ephemeral objects.
    pub bytes: ByteSize,
    /// Objects that never go to the store.
    pub ephemeral: usize,
    /// Ephemeral objects that were dropped for room; reads of them fail.
    #[serde(default)]
    pub lost: usize,
    /// Unpushed writes whose push has failed.
    pub failing: usize,
    /// How long the oldest has waited, in milliseconds.
    pub oldest_ms: u64,
    /// Writes stored under a conflict key since the start, because an outsider wrote the object.
    pub conflicts: u64,
    /// Unpushed writes whose bucket an outsider removed from the store (`nigh objects unpushed`).
    #[serde(default)]
    pub homeless: usize,
    /// Bytes of the journal on disk.
    pub journal: ByteSize,
    /// The most that it may take.
    pub journal_max: ByteSize,
    /// Commits since the start.
    pub commits: u64,
    /// Syncs of the disk for commits.
    pub syncs: u64,
}

/// The fast path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastPathStatus {
    /// Connections now.
    pub connections: u64,
    /// Sandboxes, and keys outside of sandboxes, that hold bytes or are connected.
    pub holders: u64,
    /// Held bytes.
    pub held: ByteSize,
    /// Held segments.
    pub held_segments: u64,
    /// Holders whose last request exceeded their cap or their booking.
    pub over: u64,
    /// Answers since the start by a segment.
    pub segments: u64,
    /// Answers with a small object in the packet.
    pub inline: u64,
    /// Answers by copy of a large object.
    pub copies: u64,
    /// Requests that the client had to send over HTTP.
    pub for_http: u64,
}

/// A draining node: it rejects new requests, and ends when its invocations have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainStatus {
    /// Invocations that still run or wait.
    pub invocations: usize,
    /// Seconds until running invocations are stopped.
    pub left_s: u64,
}

impl std::fmt::Display for DrainStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { invocations, left_s } = self;
        match invocations {
            0 => write!(f, "no invocation runs; open requests have {left_s} s to finish"),
            1 => write!(f, "waits for 1 invocation, at most {left_s} s"),
            more => write!(f, "waits for {more} invocations, at most {left_s} s"),
        }
    }
}

/// A member of a cluster, as a node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub node: String,
    /// Its number.
    pub number: u32,
    /// Its incarnation.
    pub incarnation: u64,
    /// Where other nodes call it.
    pub address: String,
    /// What it does.
    pub roles: Vec<NodeRole>,
}

/// A shard that this node should serve and cannot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeTrouble {
    /// The shard.
    pub shard: ShardId,
    /// Why.
    pub why: String,
    /// Attempts so far.
    pub attempts: u32,
}

/// The homes of a cluster, as one node sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomesStatus {
    /// The cluster's shards.
    pub shards: u16,
    /// Shards that this node serves.
    pub own: Vec<ShardId>,
    /// Shards that have no living home.
    pub without: Vec<ShardId>,
    /// Shards that this node should serve and cannot.
    pub troubles: Vec<HomeTrouble>,
}

/// A node's cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Its name.
    pub name: String,
    /// How its nodes keep copies coherent.
    #[serde(default)]
    pub coherence: CoherenceProtocol,
    /// The living members.
    pub members: Vec<MemberStatus>,
    /// The homes; none if this node is never a home.
    pub homes: Option<HomesStatus>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub node: String,
    /// Its incarnation.
    pub incarnation: u64,
    /// The version of this program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// When it started, RFC 3339.
    pub started: String,
    /// For how many seconds it has run.
    pub uptime_s: u64,
    /// Where it listens.
    pub endpoints: Endpoints,
    /// What it waits for, while it drains.
    #[serde(default)]
    pub draining: Option<DrainStatus>,
    /// The features, on or off.
    pub levels: Vec<Level>,
    /// Its cluster; none on one machine.
    #[serde(default)]
    pub cluster: Option<ClusterStatus>,
    /// Functions of the namespace made at the first start.
    pub functions: usize,
    /// The memory kept for objects.
    pub cache: CacheStatus,
    /// Writes that the store does not have yet.
    #[serde(default)]
    pub writes: WritesStatus,
    /// The fast path; none if it is off.
    #[serde(default)]
    pub fast_path: Option<FastPathStatus>,
    /// The recorded features of objects; none if headers are not read.
    #[serde(default)]
    pub features: Option<FeaturesStatus>,
    /// The sandboxes.
    pub sandboxes: SandboxStatus,
    /// How sandboxes and the cache share memory; none if they do not.
    #[serde(default)]
    pub memory: Option<MemoryStatus>,
    /// Pre-warmed sandboxes by runtime.
    #[serde(default)]
    pub stems: Vec<RuntimePrewarmed>,
    /// Resident memory of the node's process, cached objects included where they are mapped.
    pub resident: ByteSize,
    /// Activation records lost because the disk could not keep up.
    pub records_dropped: u64,
}
