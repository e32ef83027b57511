//! The sides: where a workflow's data is, and what its readers do with copies.

use nigh_node::status::CoherenceProtocol;
use serde::{Deserialize, Serialize};

use super::pipeline::IntermediateMode;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Side {
    /// An S3 server that keeps nothing in memory, by boto3.
    S3,
    /// Redis, by redis-py with hiredis.
    Redis,
    /// Nigh's cluster without copies: each read of another node goes to the object's home.
    None,
    /// Nigh's cluster whose copies are checked at each read, as `Faa$T` does.
    VersionCheck,
    /// Nigh's cluster whose writes wait for all sharers.
    Synchronous,
    /// Nigh's cluster as it is, with what lies between stages as durable as all else.
    NighDurable,
    /// Nigh's cluster as it is.
    Nigh,
}

impl Side {
    pub(super) const ALL: [Self; 7] =
        [Self::S3, Self::Redis, Self::None, Self::VersionCheck, Self::Synchronous, Self::NighDurable, Self::Nigh];

    /// As rows and tables call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Redis => "redis",
            Self::None => "none",
            Self::VersionCheck => "version_check",
            Self::Synchronous => "synchronous",
            Self::NighDurable => "nigh_durable",
            Self::Nigh => "nigh",
        }
    }

    /// The side whose cluster it shares; most have their own, or none.
    pub(super) const fn cluster(self) -> Self {
        match self {
            Self::NighDurable => Self::Nigh,
            own => own,
        }
    }

    /// What becomes of objects that one stage writes and another reads.
    pub(super) const fn between(self) -> IntermediateMode {
        match self {
            Self::NighDurable => IntermediateMode::Durable,
            _ => IntermediateMode::InMemory,
        }
    }

    /// The protocol of the cluster that is started for it, if one is.
    pub(super) const fn protocol(self) -> Option<CoherenceProtocol> {
        match self {
            Self::S3 | Self::Redis | Self::NighDurable => None,
            Self::None => Some(CoherenceProtocol::None),
            Self::VersionCheck => Some(CoherenceProtocol::VersionCheck),
            Self::Synchronous => Some(CoherenceProtocol::Synchronous),
            Self::Nigh => Some(CoherenceProtocol::Nigh),
        }
    }

    /// What stands in for boto3 in its functions.
    pub(super) const fn client(self) -> Option<&'static str> {
        match self {
            Self::Redis => Some(include_str!("../../../peers/redis_client.py")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_tables_call_a_side_the_same() {
        for side in Side::ALL {
            assert_eq!(serde_json::to_value(side).unwrap(), side.name());
        }
    }
}
