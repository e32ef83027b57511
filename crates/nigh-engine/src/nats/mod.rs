//! The cluster's engine: JetStream streams of a NATS cluster behind the traits of this crate.
//!
//! Its one reliance is the compare-and-append: a message is taken if the last one of a named subject is the one that its
//! writer expects, and acknowledged when a majority of the servers has it on the disk. No read decides anything: servers
//! may answer from the past. Every message has our checksum. docs/design/cluster-engine.md has the settings, the
//! formats, and what faults did.

mod document_format;
mod documents;
mod envelope;
#[doc(hidden)]
pub mod fuzzing;
mod histories;
mod homes;
mod ledger;
mod link;
mod membership;
mod recovery;
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
pub use self::link::Cluster;
pub use self::membership::{NatsMembership, TTL};
pub use self::registry::{NatsRegistry, VALUE_MAX_BYTES};
pub use self::settings::{ClusterSettings, LedgerSettings, MESSAGE_MAX_BYTES, ServerSettings, server_configuration};
pub use self::taking::Claim;

/// Why something of a cluster cannot be had.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// A name that streams cannot have.
    #[error("a cluster cannot be called {name:?}: take 1 to 32 letters, digits and hyphens")]
    Name {
        /// It.
        name: String,
    },
    /// No server could be reached, or none took this client.
    #[error("no server of {servers} can be reached: {reason}; is NATS running there, and the token right?")]
    Connect {
        /// Those that were tried.
        servers: String,
        /// The client's reason.
        reason: String,
    },
    /// The servers do not answer.
    #[error("could not {what} {of}: {reason}; do most of the NATS servers run, and reach each other?")]
    Unreachable {
        /// What was tried.
        what: &'static str,
        /// On what.
        of: String,
        /// The last reason.
        reason: String,
    },
    /// A stream of this name is kept otherwise.
    #[error(
        "the stream {stream} has {found}, and needs {wanted}; change it with `nats stream edit`, or use another name"
    )]
    Settings {
        /// The stream.
        stream: String,
        /// As it is.
        found: String,
        /// As it must be.
        wanted: String,
    },
    /// A stream that was there is not.
    #[error("the stream {stream} is gone, with what was acknowledged in it; restore it: docs/design/cluster-engine.md")]
    Gone {
        /// The stream.
        stream: String,
    },
    /// A stream holds less than it did.
    #[error(
        "the stream {stream} ends at {found} and had reached {known}: acknowledged writes are gone; restore it, see \
         docs/design/cluster-engine.md"
    )]
    WentBack {
        /// The stream.
        stream: String,
        /// Where it ends.
        found: u64,
        /// Where it has been.
        known: u64,
    },
    /// Another home with a better claim has the shard.
    #[error("shard {shard} belongs to {home}, by claim {claim}")]
    Superseded {
        /// The shard.
        shard: ShardId,
        /// Its home.
        home: NodeId,
        /// That home's claim.
        claim: u64,
    },
    /// Written by a newer Nigh.
    #[error("{stream} has messages of format {found}, this build reads up to {known}: start the newer Nigh")]
    Newer {
        /// The stream.
        stream: String,
        /// The format.
        found: u16,
        /// The newest that this build knows.
        known: u16,
    },
    /// Acknowledged messages are not what was written.
    #[error("{stream} is damaged in {} places, the first: {first}; with `keep_damaged` a home takes what is whole", .damage.len())]
    Damaged {
        /// The stream.
        stream: String,
        /// The first of them.
        first: Box<Damage>,
        /// All of them.
        damage: Vec<Damage>,
    },
    /// A damaged message could not be kept.
    #[error("cannot keep a damaged message in {}: {source}", .path.display())]
    Keep {
        /// The file.
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
