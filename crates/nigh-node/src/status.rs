//! A node's status in the admin API, which `nigh status` shows.

use nigh_engine::{Availability, NodeRole};
use nigh_invoke::invoker::RuntimePrewarmed;
pub use nigh_invoke::node_memory::MemoryStatus;
pub use nigh_objects::cluster::CoherenceProtocol;
use nigh_sizing::object_features::recorder::FeaturesStatus;
use nigh_terms::{ByteSize, ShardId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoints::Endpoints;

/// A feature of Nigh on this machine: on, or off with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// The feature's name: `isolation`, `python`.
    pub name: String,
    /// True if it is on.
    pub on: bool,
    /// How the feature works, or why it does not and how to fix that.
    pub detail: String,
}

/// The memory for cached objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheStatus {
    /// The most bytes of cached copies.
    pub budget: ByteSize,
    /// The bytes of the cached copies.
    pub kept: ByteSize,
    /// The bytes of pages that wait for another object.
    #[serde(default)]
    pub pooled: ByteSize,
    /// Number of cached objects.
    pub objects: u64,
    /// Number of reads served from memory.
    pub hits: u64,
    /// Number of reads that fetched an object and cached it.
    pub misses: u64,
    /// Number of reads of objects that were not cached.
    pub past: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of evicted copies.
    pub evictions: u64,
}

/// The sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxStatus {
    /// Number of sandboxes.
    pub alive: usize,
    /// Number of idle sandboxes.
    pub idle: usize,
    /// The most sandboxes.
    pub max: usize,
    /// The bookings of sandboxes that start, run, or are not frozen yet.
    pub booked: ByteSize,
    /// The memory in use by idle sandboxes.
    #[serde(default)]
    pub idle_held: ByteSize,
    /// The bookings of idle sandboxes.
    #[serde(default)]
    pub idle_booked: ByteSize,
    /// The most memory that may be booked at a time.
    pub memory: ByteSize,
    /// Number of pre-warmed sandboxes, not counted above.
    #[serde(default)]
    pub prewarmed: usize,
    /// The bookings of pre-warmed sandboxes.
    #[serde(default)]
    pub prewarmed_booked: ByteSize,
    /// Number of invocations that run.
    pub running: usize,
    /// Number of invocations that wait.
    pub waiting: usize,
}

/// Writes that are acknowledged before the store has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WritesStatus {
    /// Number of objects and deletions that the store does not have yet.
    pub waiting: usize,
    /// Number of pushed objects and deletions that are watched, because an earlier push may still be carried out and
    /// replace them.
    #[serde(default)]
    pub watched: usize,
    /// The bytes of the objects in `waiting`.
    #[serde(default)]
    pub waiting_bytes: ByteSize,
    /// The bytes of all unpushed, watched and ephemeral objects.
    pub bytes: ByteSize,
    /// Number of ephemeral objects, which never go to the store.
    pub ephemeral: usize,
    /// Number of ephemeral objects that were evicted; reads of them fail.
    #[serde(default)]
    pub lost: usize,
    /// Number of unpushed writes whose push has failed.
    pub failing: usize,
    /// How long the oldest unpushed write has waited, in milliseconds.
    pub oldest_ms: u64,
    /// Number of writes stored under a conflict key since the start, because the object was written from outside.
    pub conflicts: u64,
    /// Number of unpushed writes whose bucket was removed from the store from outside (`nigh objects unpushed`).
    #[serde(default)]
    pub homeless: usize,
    /// The bytes of the journal on disk.
    pub journal: ByteSize,
    /// The most bytes of the journal.
    pub journal_max: ByteSize,
    /// Number of commits since the start.
    pub commits: u64,
    /// Number of disk syncs for commits.
    pub syncs: u64,
}

/// The fast path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FastPathStatus {
    /// Number of connections now.
    pub connections: u64,
    /// Number of sandboxes, and of keys outside of sandboxes, that hold bytes or are connected.
    pub holders: u64,
    /// Number of held bytes.
    pub held: ByteSize,
    /// Number of held segments.
    pub held_segments: u64,
    /// Number of holders whose last request exceeded their limit or their booking.
    pub over: u64,
    /// Number of answers by a segment since the start.
    pub segments: u64,
    /// Number of answers with a small object in the packet.
    pub inline: u64,
    /// Number of answers by copy of a large object.
    pub copies: u64,
    /// Number of requests that the client had to send over HTTP.
    pub for_http: u64,
}

/// A draining node: it rejects new requests, and ends when its invocations have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainStatus {
    /// Number of invocations that still run or wait.
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

/// A member of a cluster, as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberStatus {
    /// The member's name.
    pub node: String,
    /// The member's number.
    pub number: u32,
    /// The member's incarnation.
    pub incarnation: u64,
    /// The address at which other nodes call it.
    pub address: String,
    /// The member's roles.
    pub roles: Vec<NodeRole>,
    /// The version of its program; empty if the program does not tell it.
    #[serde(default)]
    pub version: String,
    /// Whether it takes work.
    #[serde(default)]
    pub availability: Availability,
}

/// A shard that this node should serve and cannot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HomeTrouble {
    /// The id of the shard.
    pub shard: ShardId,
    /// Why it cannot.
    pub why: String,
    /// Number of attempts so far.
    pub attempts: u32,
}

/// The homes of a cluster, as this node sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HomesStatus {
    /// The number of the cluster's shards.
    pub shards: u16,
    /// The shards that this node serves.
    pub own: Vec<ShardId>,
    /// The shards without a living home.
    pub without: Vec<ShardId>,
    /// The shards that this node should serve and cannot.
    pub troubles: Vec<HomeTrouble>,
}

/// A node's connection to the cluster's NATS servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServersStatus {
    /// The number of addresses in `cluster.servers`.
    pub configured: usize,
    /// The name of the server that the node is connected to. None if it is connected to none.
    pub connected: Option<String>,
    /// Since when the servers have confirmed no write of the node, RFC 3339. None while they confirm its writes: there is
    /// one every second, which renews the node's lease.
    pub silent_since: Option<String>,
}

impl ServersStatus {
    /// What is wrong with the servers, and what to do. None if they confirm this node's writes.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let since = self.silent_since.as_ref()?;
        Some(format!(
            "the NATS servers have confirmed nothing since {since}, and this node is {}: check that most of them run and \
             reach each other and this node",
            self.connection()
        ))
    }

    /// The connection, in words.
    #[must_use]
    pub fn connection(&self) -> String {
        match &self.connected {
            Some(server) => format!("connected to {server}, one of {}", self.configured),
            None => format!("connected to none of {}", self.configured),
        }
    }
}

/// A node's cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterStatus {
    /// The cluster's name.
    pub name: String,
    /// The coherence protocol of its nodes.
    #[serde(default)]
    pub coherence: CoherenceProtocol,
    /// The NATS servers. None in the status of a node of an older version.
    #[serde(default)]
    pub servers: Option<ServersStatus>,
    /// The living members.
    pub members: Vec<MemberStatus>,
    /// The homes; none if this node is never a home.
    pub homes: Option<HomesStatus>,
    /// The cluster's format; 0 in the status of a node of an older version.
    #[serde(default)]
    pub format: u32,
}

impl ClusterStatus {
    /// What keeps the node from its part in the cluster. None if nothing does.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let servers = self.servers.as_ref().and_then(ServersStatus::trouble);
        let homes = || {
            let homes = self.homes.as_ref()?;
            let first = homes.troubles.first()?;
            Some(format!("it cannot serve {} shards, first shard {}: {}", homes.troubles.len(), first.shard, first.why))
        };
        servers.or_else(homes)
    }
}

/// The status of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The node's name.
    pub node: String,
    /// The node's incarnation.
    pub incarnation: u64,
    /// The version of this program.
    pub version: String,
    /// The id of its process.
    pub pid: u32,
    /// When it started, RFC 3339.
    pub started: String,
    /// The seconds since it started.
    pub uptime_s: u64,
    /// The addresses of its doors.
    pub endpoints: Endpoints,
    /// What the node waits for. None unless it drains.
    #[serde(default)]
    pub draining: Option<DrainStatus>,
    /// The features, on or off.
    pub levels: Vec<Level>,
    /// The node's cluster. None if the node is alone.
    #[serde(default)]
    pub cluster: Option<ClusterStatus>,
    /// The names of the runtimes that a function may have here. Empty in the status of a node of an older version.
    #[serde(default)]
    pub runtimes: Vec<String>,
    /// Number of functions of the namespace that the first start created.
    pub functions: usize,
    /// The cache of objects.
    pub cache: CacheStatus,
    /// Writes that the store does not have yet.
    #[serde(default)]
    pub writes: WritesStatus,
    /// Why the node refuses writes now, and what to do; none if it takes them.
    #[serde(default)]
    pub refused_writes: Option<String>,
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
    /// The pre-warmed sandboxes of each runtime.
    #[serde(default)]
    pub stems: Vec<RuntimePrewarmed>,
    /// The resident memory of the node's process, including cached objects where they are mapped.
    pub resident: ByteSize,
    /// Number of activation records lost because the disk could not keep up.
    pub records_dropped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_servers_are_told_with_the_time_and_the_connection() {
        let well = ServersStatus { configured: 3, connected: Some("nats-1".to_owned()), silent_since: None };
        assert_eq!((well.trouble(), well.connection()), (None, "connected to nats-1, one of 3".to_owned()));
        let since = Some("2026-11-26T06:00:00.000Z".to_owned());
        let silent = ServersStatus { silent_since: since, connected: None, ..well };
        let told = silent.trouble().unwrap();
        for part in ["since 2026-11-26T06:00:00.000Z", "connected to none of 3", "check that"] {
            assert!(told.contains(part), "{told}");
        }
    }
}
