//! The cluster's engine: JetStream streams of a NATS cluster behind the traits of this crate.
//!
//! This engine relies on one operation, compare-and-append: a message is accepted if the last message of a named
//! subject is the one that its writer expects, and acknowledged when a majority of the servers has it on the disk. No
//! read decides anything, because servers may answer with old data. Every message has a checksum that Nigh computes.
//! docs/design/cluster-engine.md has the settings and formats, and the effects of faults.

mod document_format;
mod document_names;
mod documents;
mod envelope;
#[doc(hidden)]
pub mod fuzzing;
mod histories;
mod homes;
mod ledger;
mod link;
mod member_entry;
mod membership;
mod publish_reply;
mod recovery;
mod refusal;
mod registry;
mod roster;
mod settings;
mod shard;
mod stream_index;
mod taking;
mod witness;

use std::path::PathBuf;

use nigh_terms::{NodeId, ShardId};
use thiserror::Error;

use crate::RegistryError;
use crate::journal::Damage;

pub use self::histories::NatsHistories;
pub use self::homes::{Claimant, HomeEntry, NatsHomes, ShardHome};
pub use self::ledger::NatsLedger;
pub use self::link::{Cluster, LinkState};
pub use self::membership::{NatsMembership, TTL};
pub use self::registry::{NatsRegistry, VALUE_MAX_BYTES};
pub use self::settings::{ClusterSettings, LedgerSettings, MESSAGE_MAX_BYTES, ServerSettings, server_configuration};
pub use self::taking::Claim;

/// Why an operation of a cluster failed.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// The name is invalid for streams.
    #[error("{name:?} is not a valid name for a cluster: use 1 to 32 letters, digits and hyphens")]
    Name {
        /// The name.
        name: String,
    },
    /// No server could be reached, or none accepted this client.
    #[error("no server of {servers} can be reached: {reason}; check that NATS runs there and that the token is right")]
    Connect {
        /// The servers that were tried.
        servers: String,
        /// The client's reason.
        reason: String,
    },
    /// The servers do not answer.
    #[error("could not {what} {of}: {reason}; check that most of the NATS servers run and reach each other")]
    Unreachable {
        /// The operation, as a verb.
        what: &'static str,
        /// The object of the operation.
        of: String,
        /// The last reason.
        reason: String,
    },
    /// The stream has other settings than Nigh needs.
    #[error(
        "the stream {stream} has {found}, but Nigh needs {wanted}; change it with `nats stream edit`, or use another name"
    )]
    Settings {
        /// The name of the stream.
        stream: String,
        /// The present setting.
        found: String,
        /// The required setting.
        wanted: String,
    },
    /// A stream is missing that existed before.
    #[error("the stream {stream} is lost with its acknowledged writes; restore it: docs/design/cluster-engine.md")]
    Gone {
        /// The name of the stream.
        stream: String,
    },
    /// A stream is shorter than before.
    #[error(
        "the stream {stream} ends at {found} and had reached {known}: acknowledged writes are gone; restore it, see \
         docs/design/cluster-engine.md"
    )]
    WentBack {
        /// The name of the stream.
        stream: String,
        /// The stream's last place.
        found: u64,
        /// The stream's former last place.
        known: u64,
    },
    /// Another home with a higher claim has the shard.
    #[error("shard {shard} belongs to {home}, by claim {claim}")]
    Superseded {
        /// The id of the shard.
        shard: ShardId,
        /// The home that has the shard.
        home: NodeId,
        /// That home's claim.
        claim: u64,
    },
    /// Another living node has this node's name.
    #[error(
        "another node named {node} is a living member of the cluster, at {address}: give this one a name of its own with \
         --set node=NAME, or stop the other one first"
    )]
    NameTaken {
        /// The name.
        node: NodeId,
        /// The address at which the other node is called.
        address: String,
    },
    /// A message was written by a newer Nigh.
    #[error("{stream} has messages of format {found}; this build reads up to {known}: start the newer Nigh")]
    Newer {
        /// The name of the stream.
        stream: String,
        /// The format version.
        found: u16,
        /// The newest format version that this build knows.
        known: u16,
    },
    /// Acknowledged messages are damaged.
    #[error("{stream} is damaged in {} places, the first: {first}; with `keep_damaged` a home takes the undamaged rest", .damage.len())]
    Damaged {
        /// The name of the stream.
        stream: String,
        /// The first damaged message.
        first: Box<Damage>,
        /// All damage.
        damage: Vec<Damage>,
    },
    /// A damaged message could not be saved.
    #[error("a damaged message cannot be saved in {}: {source}", .path.display())]
    Keep {
        /// The path of the file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl From<ClusterError> for RegistryError {
    fn from(error: ClusterError) -> Self {
        Self::Storage(error.to_string())
    }
}
