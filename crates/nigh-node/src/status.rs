//! What a node says of itself, as the admin API gives it and `nigh status` shows it.

use nigh_engine::NodeRole;
use nigh_invoke::invoker::RuntimeStems;
pub use nigh_invoke::node_memory::MemoryStatus;
pub use nigh_objects::cluster::CoherenceProtocol;
use nigh_sizing::object_features::recorder::FeaturesStatus;
use nigh_terms::{ByteSize, ShardId};
use serde::{Deserialize, Serialize};

use crate::endpoints::Endpoints;

/// One level of what Nigh does on this machine: on, or off with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// Its name: `isolation`, `python`.
    pub name: String,
    /// True if it works here.
    pub on: bool,
    /// How it works, or why it does not and what mends it.
    pub detail: String,
}

/// The memory kept for objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// What the copies may take.
    pub budget: ByteSize,
    /// What they take.
    pub kept: ByteSize,
    /// How many there are.
    pub objects: u64,
    /// Reads served from memory.
    pub hits: u64,
    /// Reads for which an object was brought into memory.
    pub misses: u64,
    /// Reads past the cache.
    pub past: u64,
    /// Writes.
    pub writes: u64,
    /// Copies dropped to make room.
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
    /// What those have booked that are being made, run, or are not frozen yet.
    pub booked: ByteSize,
    /// What those take that stand still,
    #[serde(default)]
    pub idle_held: ByteSize,
    /// and what they have booked, which they take when they run.
    #[serde(default)]
    pub idle_booked: ByteSize,
    /// What may be booked at once.
    pub memory: ByteSize,
    /// Beside them, those in which a runtime waits for a function.
    #[serde(default)]
    pub prewarmed: usize,
    /// What these book.
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
    /// Objects and deletions that the store has, and that are watched for an earlier push that may land over them yet.
    #[serde(default)]
    pub watched: usize,
    /// Their bytes.
    #[serde(default)]
    pub waiting_bytes: ByteSize,
    /// The bytes of all objects that are not only in the store, watched and ephemeral ones included.
    pub bytes: ByteSize,
    /// Objects that never go to the store.
    pub ephemeral: usize,
    /// Ephemeral objects whose memory was needed: who reads them is told.
    #[serde(default)]
    pub lost: usize,
    /// How many of those that wait have failed to be pushed.
    pub failing: usize,
    /// How long the oldest has waited, in milliseconds.
    pub oldest_ms: u64,
    /// Writes kept under another key since the start, because somebody else had written theirs.
    pub conflicts: u64,
    /// Objects and deletions whose bucket somebody else has removed from the store (`nigh objects unpushed`).
    #[serde(default)]
    pub homeless: usize,
    /// What the journal takes on its disk.
    pub journal: ByteSize,
    /// What it may take.
    pub journal_max: ByteSize,
    /// Commits since the start.
    pub commits: u64,
    /// Times that the disk was synced for them.
    pub syncs: u64,
}

/// The fast path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastPathStatus {
    /// Connections now.
    pub connections: u64,
    /// Sandboxes, and keys outside, that hold something or are connected.
    pub holders: u64,
    /// What they hold of the node's memory.
    pub held: ByteSize,
    /// The same in segments.
    pub held_segments: u64,
    /// How many of them found no room for what they asked for last: over their cap, or over what they booked.
    pub over: u64,
    /// Answers since the start: segments,
    pub segments: u64,
    /// small objects in the packet,
    pub inline: u64,
    /// large ones by copy,
    pub copies: u64,
    /// and those that were left to HTTP.
    pub for_http: u64,
}

/// A node that takes nothing new, and ends when what it awaits has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainStatus {
    /// Invocations that still run or wait.
    pub invocations: usize,
    /// Seconds until those that still run are ended.
    pub left_s: u64,
}

impl std::fmt::Display for DrainStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { invocations, left_s } = self;
        match invocations {
            0 => write!(f, "no invocation runs; open requests have {left_s} s to end"),
            1 => write!(f, "awaits 1 invocation for at most {left_s} s"),
            more => write!(f, "awaits {more} invocations for at most {left_s} s"),
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
    /// Its life.
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
    /// The members that live.
    pub members: Vec<MemberStatus>,
    /// How homes stand; none where this node keeps none.
    pub homes: Option<HomesStatus>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub node: String,
    /// Its life.
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
    /// What it still awaits, if it has begun to end.
    #[serde(default)]
    pub draining: Option<DrainStatus>,
    /// What works here, and what does not.
    pub levels: Vec<Level>,
    /// Its cluster; none where it is alone.
    #[serde(default)]
    pub cluster: Option<ClusterStatus>,
    /// Functions of the namespace made at the first start.
    pub functions: usize,
    /// The memory kept for objects.
    pub cache: CacheStatus,
    /// Writes that the store does not have yet.
    #[serde(default)]
    pub writes: WritesStatus,
    /// Objects without HTTP; none where that is off.
    #[serde(default)]
    pub fast_path: Option<FastPathStatus>,
    /// What is known of objects beside their sizes; none where their headers are not looked at.
    #[serde(default)]
    pub features: Option<FeaturesStatus>,
    /// The sandboxes.
    pub sandboxes: SandboxStatus,
    /// How sandboxes and the cache share the memory; none where each has its own.
    #[serde(default)]
    pub memory: Option<MemoryStatus>,
    /// The waiting runtimes; none where sandboxes are not prewarmed.
    #[serde(default)]
    pub stems: Vec<RuntimeStems>,
    /// Resident memory of the node's process, cached objects included where they are mapped.
    pub resident: ByteSize,
    /// Activation records lost because the disk could not keep up.
    pub records_dropped: u64,
}
