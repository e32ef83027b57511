//! Values between the profiler and the shell that runs the function: a run to make, its end, the outcome of an input,
//! and the cost of the profile.

use std::fmt;
use std::time::Duration;

use nigh_terms::Ways;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::way_search::FoundWays;

/// One run to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// The index of the input.
    pub input: usize,
    /// The number of ways.
    pub ways: Ways,
    /// When to end it.
    pub limit: Duration,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// The handler returned after this time.
    Took(Duration),
    /// It failed with this message of the function.
    Failed(String),
    /// It was stopped at the limit, after this time.
    StillRunning(Duration),
}

/// The outcome of an input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum InputOutcome {
    /// Its need is known.
    Found {
        /// The need.
        #[serde(flatten)]
        found: FoundWays,
        /// The greatest standard error of the medians it rests on.
        error: f64,
    },
    /// Its time varies too much.
    Unstable {
        /// With this many ways.
        ways: Ways,
        /// By this much, over the median.
        spread: f64,
    },
    /// It failed too often.
    Failed {
        /// How often.
        failures: u8,
        /// Its last words.
        reason: String,
    },
    /// It did not end in time.
    NeverEnds {
        /// With this many ways.
        ways: Ways,
        /// Ended after.
        after: Duration,
    },
    /// The runs were used up before.
    NotReached,
}

/// The cost of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProfileCost {
    /// Runs of the function.
    pub runs: u32,
    /// Time they took.
    pub time: Duration,
}

/// When a profile has paid for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BreakEven {
    /// Isolation saves nothing.
    Never,
    /// After so many invocations.
    Invocations(u64),
}

impl fmt::Display for BreakEven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::Invocations(count) => write!(f, "after {count} invocations"),
        }
    }
}

impl ProfileCost {
    /// When the profile has paid for itself, if each invocation saves this much.
    #[must_use]
    pub fn break_even(&self, saved_per_invocation: Duration) -> BreakEven {
        match saved_per_invocation.as_nanos() {
            0 => BreakEven::Never,
            saved => BreakEven::Invocations(self.time.as_nanos().div_ceil(saved) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_says_when_it_pays() {
        let cost = ProfileCost { runs: 60, time: Duration::from_secs(60) };
        assert_eq!(cost.break_even(Duration::from_millis(7)), BreakEven::Invocations(8572));
        assert_eq!(cost.break_even(Duration::ZERO), BreakEven::Never);
    }

    #[test]
    fn programs_read_never_or_a_number() {
        let json = |break_even| serde_json::to_string(&break_even).unwrap();
        assert_eq!(json(BreakEven::Never), r#""never""#);
        assert_eq!(json(BreakEven::Invocations(7)), r#"{"invocations":7}"#);
    }
}
