//! The last-level cache.

use serde::{Deserialize, Serialize};

/// Who decides which cache ways an invocation gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LlcPolicy {
    /// The least predicted loss of all running invocations; CASY's rule for functions without curves.
    Nigh,
    /// CASY's algorithm 2.
    Casy,
    /// Nobody: cache ways are not allocated.
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

/// How an invocation is bound to its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LlcBind {
    /// Its sandbox's tasks are moved into the class.
    Tasks,
    /// Its sandbox has a core of its own, which is in the class (CASY).
    Cpus,
}

/// The last-level cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlcSettings {
    /// Who decides.
    pub policy: LlcPolicy,
    /// Ways for insensitive functions at the start; 3 of 11 if absent.
    pub insensitive_ways: Option<u8>,
    /// Profile functions without a model when nothing runs.
    pub profile: bool,
    /// How invocations are bound.
    pub bind: LlcBind,
    /// Memory bandwidth of the classes of insensitive functions, in the machine's own unit; no limit if absent.
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
