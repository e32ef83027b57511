//! What a member of a cluster publishes about itself.

use std::collections::BTreeSet;
use std::fmt;

use nigh_terms::{Incarnation, NodeId, NodeNumber};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The format version of a presence that this build writes.
const FORMAT: u32 = 1;

/// The roles of a node in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeRole {
    /// The node runs sandboxes.
    Run,
    /// Is the home of shards, and caches objects for others.
    Memory,
    /// Takes invocations and places them.
    Controller,
}

impl fmt::Display for NodeRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run => "run",
            Self::Memory => "memory",
            Self::Controller => "controller",
        })
    }
}

/// What a member publishes about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    format: u32,
    /// The node's number.
    pub number: NodeNumber,
    /// The address at which other nodes call it, `host:port`.
    pub address: String,
    /// The node's roles.
    pub roles: BTreeSet<NodeRole>,
}

impl Presence {
    /// A node with this number and `address`.
    #[must_use]
    pub fn new(number: NodeNumber, address: &str, roles: impl IntoIterator<Item = NodeRole>) -> Self {
        Self { format: FORMAT, number, address: address.to_owned(), roles: roles.into_iter().collect() }
    }

    /// Parses a member's presence.
    ///
    /// # Errors
    /// If the text is no presence, or is of a newer format.
    #[cfg(feature = "cluster")]
    pub(crate) fn decode(told: &[u8]) -> Result<Self, String> {
        let presence: Self = serde_json::from_slice(told).map_err(|error| error.to_string())?;
        if presence.format > FORMAT {
            return Err(format!(
                "the presence record has format {}, and this build reads {FORMAT}: start the newer Nigh",
                presence.format
            ));
        }
        Ok(presence)
    }
}

/// A member with its presence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentMember {
    /// The node's name.
    pub node: NodeId,
    /// The node's incarnation.
    pub incarnation: Incarnation,
    /// The node's presence.
    pub presence: Presence,
}

impl PresentMember {
    /// True if the member has this role.
    #[must_use]
    pub fn has(&self, role: NodeRole) -> bool {
        self.presence.roles.contains(&role)
    }
}
