//! What a member of a cluster publishes about itself.

use std::collections::BTreeSet;
use std::fmt;

use nigh_terms::{Incarnation, NodeId, NodeNumber};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::FormatRange;

/// The format version of a presence in a cluster of format 1, and the newest that this build writes.
const FIRST_FORMAT: u32 = 1;
const FORMAT: u32 = 2;

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

/// Whether a node takes work, as an operator has set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Availability {
    /// It takes invocations and homes.
    #[default]
    Available,
    /// It takes no new invocations and no new homes. It keeps the homes that it has, and its doors answer.
    Cordoned,
    /// As `Cordoned`; it also gives its homes to other nodes.
    Draining,
}

impl Availability {
    /// True if the node takes work.
    #[must_use]
    pub const fn takes_work(&self) -> bool {
        matches!(self, Self::Available)
    }
}

impl fmt::Display for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Available => "available",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
        })
    }
}

/// What a member publishes about itself.
///
/// A node that takes no work withholds the role `memory`, so that no member places a home on it. In format 1 `roles` lacks
/// the role, for older programs know nothing of `availability`; in format 2 `roles` is whole, and readers withhold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    format: u32,
    /// The node's number.
    pub number: NodeNumber,
    /// The address at which other nodes call it, `host:port`.
    pub address: String,
    /// The roles that the node fills now.
    pub roles: BTreeSet<NodeRole>,
    /// The roles that it has and does not fill, because it takes no work.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub withheld: BTreeSet<NodeRole>,
    /// Whether it takes work.
    #[serde(default, skip_serializing_if = "Availability::takes_work")]
    pub availability: Availability,
    /// The version of its program; empty if the program does not tell it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The cluster formats that its program can use.
    #[serde(default)]
    pub formats: FormatRange,
}

impl Presence {
    /// A node with this number and `address`, which takes work, and whose program tells nothing.
    #[must_use]
    pub fn new(number: NodeNumber, address: &str, roles: impl IntoIterator<Item = NodeRole>) -> Self {
        Self {
            format: FIRST_FORMAT,
            number,
            address: address.to_owned(),
            roles: roles.into_iter().collect(),
            withheld: BTreeSet::new(),
            availability: Availability::Available,
            version: String::new(),
            formats: FormatRange::FIRST,
        }
    }

    /// The presence of a program of this version and range.
    #[must_use]
    pub fn of_program(self, version: &str, formats: FormatRange) -> Self {
        Self { version: version.to_owned(), formats, ..self }
    }

    /// The presence in a cluster of `format`.
    #[must_use]
    pub fn in_format(self, format: u32) -> Self {
        Self { format: format.clamp(FIRST_FORMAT, FORMAT), ..self }
    }

    /// The presence while the node has this `availability`.
    #[must_use]
    pub fn with_availability(self, availability: Availability) -> Self {
        let mut roles: BTreeSet<NodeRole> = self.roles.union(&self.withheld).copied().collect();
        let mut withheld = BTreeSet::new();
        if !availability.takes_work() && roles.remove(&NodeRole::Memory) {
            withheld.insert(NodeRole::Memory);
        }
        Self { roles, withheld, availability, ..self }
    }

    /// The record that other members read.
    #[cfg(feature = "cluster")]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let whole = || Self {
            roles: self.roles.union(&self.withheld).copied().collect(),
            withheld: BTreeSet::new(),
            ..self.clone()
        };
        let written = if self.format == FIRST_FORMAT { self.clone() } else { whole() };
        // This cannot fail: numbers, texts and lists always have a JSON form.
        serde_json::to_vec(&written).unwrap_or_default()
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
        if presence.format == FIRST_FORMAT {
            return Ok(presence);
        }
        let availability = presence.availability;
        Ok(presence.with_availability(availability))
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

    /// True if the member has this role, filled or withheld.
    #[must_use]
    pub fn could(&self, role: NodeRole) -> bool {
        self.has(role) || self.presence.withheld.contains(&role)
    }

    /// True if the member takes work.
    #[must_use]
    pub const fn takes_work(&self) -> bool {
        self.presence.availability.takes_work()
    }

    /// True if the member, one of `present`, runs new invocations: it has the role `run` and takes work, or no member that
    /// has the role takes work.
    #[must_use]
    pub fn takes_runs(&self, present: &[Self]) -> bool {
        let runs = |member: &Self| member.has(NodeRole::Run);
        runs(self) && (self.takes_work() || !present.iter().any(|other| runs(other) && other.takes_work()))
    }
}

#[cfg(test)]
#[cfg(feature = "cluster")]
mod tests {
    use super::*;

    const OLD: &str = r#"{"format":1,"number":7,"address":"h:1","roles":["run","memory"]}"#;

    fn presence() -> Presence {
        let roles = [NodeRole::Run, NodeRole::Memory];
        Presence::new(NodeNumber(7), "h:1", roles).of_program("0.9.0", FormatRange::OWN)
    }

    /// The fields that programs before the cordon know.
    fn seen_by_older(record: &[u8]) -> (u64, Vec<String>) {
        let record: serde_json::Value = serde_json::from_slice(record).unwrap();
        let roles = record["roles"].as_array().unwrap().iter().map(|role| role.as_str().unwrap().to_owned());
        (record["format"].as_u64().unwrap(), roles.collect())
    }

    #[test]
    fn the_record_of_an_older_program_is_of_an_available_node_and_tells_no_version() {
        let old = Presence::decode(OLD.as_bytes()).unwrap();
        assert_eq!(old, Presence::new(NodeNumber(7), "h:1", [NodeRole::Run, NodeRole::Memory]));
        assert!(old.availability.takes_work() && old.version.is_empty() && old.formats == FormatRange::FIRST);
    }

    #[test]
    fn cordoned_nodes_run_nothing_new_unless_all_nodes_that_run_functions_are_cordoned() {
        let member = |roles: &[NodeRole], availability| {
            let presence = Presence::new(NodeNumber(1), "h:1", roles.iter().copied()).with_availability(availability);
            PresentMember { node: NodeId("n".to_owned()), incarnation: Incarnation(1), presence }
        };
        let cordoned = member(&[NodeRole::Run], Availability::Cordoned);
        let available = member(&[NodeRole::Run], Availability::Available);
        let controller = member(&[NodeRole::Controller], Availability::Available);
        let both = [cordoned.clone(), available.clone()];
        assert!(!cordoned.takes_runs(&both) && available.takes_runs(&both));
        assert!(!controller.takes_runs(&both));
        assert!(cordoned.takes_runs(&[cordoned.clone(), controller]));
    }

    #[test]
    fn in_format_1_an_older_program_sees_no_home_in_a_cordoned_node_and_this_one_sees_why() {
        for availability in [Availability::Cordoned, Availability::Draining] {
            let cordoned = presence().with_availability(availability);
            assert_eq!(seen_by_older(&cordoned.encode()), (1, vec!["run".to_owned()]));
            assert_eq!(Presence::decode(&cordoned.encode()), Ok(cordoned.clone()));
            assert_eq!(cordoned.with_availability(Availability::Available), presence(), "it is reversible");
        }
    }

    #[test]
    fn in_format_2_the_roles_are_whole_and_are_withheld_by_the_reader() {
        let cordoned = presence().in_format(2).with_availability(Availability::Cordoned);
        assert_eq!(seen_by_older(&cordoned.encode()), (2, vec!["run".to_owned(), "memory".to_owned()]));
        let read = Presence::decode(&cordoned.encode()).unwrap();
        assert_eq!(read, cordoned);
        assert!(!read.roles.contains(&NodeRole::Memory) && read.withheld.contains(&NodeRole::Memory));
        assert_eq!(Presence::decode(&presence().in_format(2).encode()), Ok(presence().in_format(2)));
        let newer = r#"{"format":3,"number":7,"address":"h:1","roles":[]}"#;
        assert!(Presence::decode(newer.as_bytes()).unwrap_err().contains("newer Nigh"));
    }
}
