//! The scenarios: where a function's data is, and by which client it gets there.

use serde::{Deserialize, Serialize};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scenario {
    /// Nigh in front of Swift, by boto3; the input is in Nigh's memory. OFC's LH.
    NighHit,
    /// The same; Nigh has never seen the input. OFC's M.
    NighMiss,
    /// As `NighHit`, the function deployed on Nigh: in a sandbox, through the Lambda door.
    NighHitSandboxed,
    /// Swift through its S3 API, by boto3. OFC's OWK-Swift, and what the ceiling is taken from.
    SwiftS3api,
    /// Swift through its own API, by python-swiftclient.
    SwiftClient,
    /// Redis, by redis-py with hiredis. OFC's OWK-Redis.
    Redis,
}

impl Scenario {
    pub(super) const ALL: [Self; 6] =
        [Self::NighHit, Self::NighMiss, Self::NighHitSandboxed, Self::SwiftS3api, Self::SwiftClient, Self::Redis];

    /// As tables and rows call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NighHit => "nigh_hit",
            Self::NighMiss => "nigh_miss",
            Self::NighHitSandboxed => "nigh_hit_sandboxed",
            Self::SwiftS3api => "swift_s3api",
            Self::SwiftClient => "swift_client",
            Self::Redis => "redis",
        }
    }

    /// True if Nigh is in the way.
    pub(super) const fn is_nigh(self) -> bool {
        matches!(self, Self::NighHit | Self::NighMiss | Self::NighHitSandboxed)
    }

    /// What OFC's paper says that is saved of Swift's time where most is (EuroSys 2021, section 7.2.1).
    pub(super) const fn ofc_saved_most(self) -> Option<f64> {
        match self {
            Self::NighHit | Self::NighHitSandboxed => Some(0.82),
            Self::NighMiss => Some(0.75),
            Self::SwiftS3api | Self::SwiftClient | Self::Redis => None,
        }
    }

    /// What stands in for boto3, where the function does not use it.
    pub(super) const fn client(self) -> Option<&'static str> {
        match self {
            Self::Redis => Some(include_str!("../../../peers/redis_client.py")),
            Self::SwiftClient => Some(include_str!("../../../peers/swift_client.py")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_tables_call_a_scenario_the_same() {
        for scenario in Scenario::ALL {
            assert_eq!(serde_json::to_value(scenario).unwrap(), scenario.name());
        }
    }
}
