//! The sides: where a workflow's data is, and what its readers do with copies.

use nigh_node::status::CoherenceProtocol;
use serde::{Deserialize, Serialize};

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
    /// Nigh's cluster as it is.
    Nigh,
}

impl Side {
    pub(super) const ALL: [Self; 6] =
        [Self::S3, Self::Redis, Self::None, Self::VersionCheck, Self::Synchronous, Self::Nigh];

    /// As rows and tables call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Redis => "redis",
            Self::None => "none",
            Self::VersionCheck => "version_check",
            Self::Synchronous => "synchronous",
            Self::Nigh => "nigh",
        }
    }

    /// The protocol of its cluster, if it is one.
    pub(super) const fn protocol(self) -> Option<CoherenceProtocol> {
        match self {
            Self::S3 | Self::Redis => None,
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
