//! The scenarios: where an application's data is.

use serde::{Deserialize, Serialize};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scenario {
    /// Swift through its S3 API, by boto3: inputs, intermediates and outputs. OFC's OWK-Swift, and what the ceiling is taken
    /// from.
    Swift,
    /// Redis, by redis-py with hiredis. OFC's OWK-Redis.
    Redis,
    /// Nigh in front of that Swift, by boto3; Nigh has never seen the input. OFC's M.
    NighMiss,
    /// The same; the input is in its memory. OFC's LH.
    NighHit,
}

impl Scenario {
    /// All, those first that tell how many tasks an execution has.
    pub(super) const ALL: [Self; 4] = [Self::Swift, Self::Redis, Self::NighMiss, Self::NighHit];

    /// As tables and rows call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Swift => "swift",
            Self::Redis => "redis",
            Self::NighMiss => "nigh_miss",
            Self::NighHit => "nigh_hit",
        }
    }

    /// True if Nigh is in the way.
    pub(super) const fn is_nigh(self) -> bool {
        matches!(self, Self::NighMiss | Self::NighHit)
    }

    /// What stands in for boto3, where the functions do not use it.
    pub(super) const fn client(self) -> Option<&'static str> {
        match self {
            Self::Redis => Some(include_str!("../../../peers/redis_client.py")),
            Self::Swift | Self::NighMiss | Self::NighHit => None,
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
