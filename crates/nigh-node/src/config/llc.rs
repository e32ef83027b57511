//! Settings of the last-level cache.

use serde::{Deserialize, Serialize};

/// The policy that assigns cache ways to invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LlcPolicy {
    /// Minimises the predicted loss of all running invocations; uses CASY's rule for functions without curves.
    Nigh,
    /// CASY's algorithm 2.
    Casy,
    /// No cache ways are allocated.
    Off,
}

impl std::fmt::Display for LlcPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nigh => "nigh",
            Self::Casy => "casy",
            Self::Off => "off",
        })
    }
}

/// How an invocation is bound to its class of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LlcBind {
    /// The tasks of the invocation's sandbox are moved into the class.
    Tasks,
    /// The invocation's sandbox gets a core of its own, which is in the class (CASY).
    Cpus,
}

/// The last-level cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlcSettings {
    /// The policy.
    pub policy: LlcPolicy,
    /// The ways for insensitive functions at the start; if absent, 3 of 11.
    pub insensitive_ways: Option<u8>,
    /// Profile functions without a model when no invocation runs.
    pub profile: bool,
    /// How invocations are bound.
    pub bind: LlcBind,
    /// The memory bandwidth of the classes of insensitive functions, in the machine's own unit; if absent, no limit.
    pub insensitive_bandwidth: Option<u32>,
}

impl Default for LlcSettings {
    fn default() -> Self {
        Self {
            policy: LlcPolicy::Nigh,
            insensitive_ways: None,
            profile: true,
            bind: LlcBind::Tasks,
            insensitive_bandwidth: None,
        }
    }
}
