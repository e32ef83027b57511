//! The sides of the mixed load: the same load, where the functions' data is and what the platform does about it.

use serde::{Deserialize, Serialize};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Side {
    /// Nigh in front of Swift, as it is.
    Nigh,
    /// Nigh in front of the same Swift that keeps no object, writes through, sizes nothing and lends nothing.
    NighOff,
    /// The functions as bare processes, directly against Swift by its S3 API: the floor (OFC's OWK-Swift).
    Swift,
    /// The same against Redis: the ceiling (OFC's OWK-Redis).
    Redis,
}

impl Side {
    pub(super) const ALL: [Self; 4] = [Self::Nigh, Self::NighOff, Self::Swift, Self::Redis];

    /// As rows and outputs call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nigh => "nigh",
            Self::NighOff => "nigh_off",
            Self::Swift => "swift",
            Self::Redis => "redis",
        }
    }

    /// What stands in for boto3 in the functions.
    pub(super) const fn client(self) -> Option<&'static str> {
        match self {
            Self::Redis => Some(include_str!("../../../peers/redis_client.py")),
            Self::Nigh | Self::NighOff | Self::Swift => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_outputs_call_a_side_the_same() {
        for side in Side::ALL {
            assert_eq!(serde_json::to_value(side).unwrap(), side.name());
        }
    }
}
