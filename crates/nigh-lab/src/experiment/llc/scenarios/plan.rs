//! What is run: the machine, the load and the scenarios of `experiments/llc-scenarios/scenarios.toml`.
//!
//! As in CASY VI-C, start times come from a Poisson process and which function runs on which file is drawn at random from
//! table IV's eight. What is drawn, and each repetition's arrivals and page frames, follow from numbers in the file.

use std::collections::BTreeMap;
use std::path::Path;

use nigh_sim::llc::SimTime;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::instrument::cache_sizing::HERTZ;
use crate::instrument::error::Tried;

/// Invocations of one scenario: each has a core.
const INVOCATIONS_MAX: usize = 64;

/// What the quick form runs.
const QUICK_REPETITIONS: usize = 2;
const QUICK_SECONDS: f64 = 0.2;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Plan {
    pub(super) machine: MachinePlan,
    pub(super) load: Load,
    /// Table IV: its acronyms, and the recording that stands for each.
    pub(super) functions: BTreeMap<String, String>,
    pub(super) training: BTreeMap<String, Vec<String>>,
    pub(super) scenario: Vec<Scenario>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachinePlan {
    /// Which of the paper's two sockets is simulated: a name, for the report.
    pub(super) l3_domain: u32,
    pub(super) classes: u8,
    /// Ways that devices write to.
    pub(super) shareable: u32,
    /// N_CI of CASY's layout.
    pub(super) casy_insensitive: u8,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    pub(super) arrivals_per_second: f64,
    /// What each invocation runs is cut or repeated to about this long, alone.
    pub(super) seconds_alone: f64,
    pub(super) repetitions: usize,
    pub(super) seed: u64,
    /// One line in so many is simulated.
    pub(super) sampling: u32,
}

/// So many invocations, drawn by a number.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) invocations: usize,
    pub(super) draw: u64,
}

impl Plan {
    pub(in super::super) fn read(path: &Path) -> Result<Self, LabError> {
        let hint = "run this in the project's folder";
        let text = std::fs::read_to_string(path)
            .map_err(|_| LabError::Missing { missing: path.display().to_string(), hint })?;
        let plan: Self = toml::from_str(&text).at(path)?;
        plan.check().map_err(|reason| LabError::file(path, &reason))?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), String> {
        let positive = |value: f64, name: &str| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(format!("{name} = {value}: expected more than 0"))
            }
        };
        positive(self.load.arrivals_per_second, "load.arrivals_per_second")?;
        positive(self.load.seconds_alone, "load.seconds_alone")?;
        if self.load.repetitions == 0 || self.functions.is_empty() || self.scenario.is_empty() {
            return Err("give at least one repetition, one function and one scenario".to_owned());
        }
        match self.scenario.iter().find(|scenario| scenario.invocations == 0 || scenario.invocations > INVOCATIONS_MAX)
        {
            Some(wrong) => Err(format!("scenario {}: expected 1 to {INVOCATIONS_MAX} invocations", wrong.name)),
            None => Ok(()),
        }
    }

    /// The first scenario alone, of short runs.
    pub(super) fn shorten(&mut self) {
        self.scenario.truncate(1);
        self.load.repetitions = QUICK_REPETITIONS;
        self.load.seconds_alone = self.load.seconds_alone.min(QUICK_SECONDS);
    }

    /// The acronyms that a scenario's invocations run, in the order they arrive.
    pub(super) fn drawn(&self, scenario: &Scenario) -> Vec<&str> {
        let mut random = StdRng::seed_from_u64(scenario.draw);
        let names: Vec<&str> = self.functions.keys().map(String::as_str).collect();
        (0..scenario.invocations).map(|_| names[random.random_range(0..names.len())]).collect()
    }

    /// When the invocations of one repetition arrive: a Poisson process.
    pub(super) fn arrivals(&self, scenario: &Scenario, repetition: usize) -> Vec<SimTime> {
        let mut random = StdRng::seed_from_u64(self.seed(scenario, repetition));
        let mut seconds = 0.0;
        let mut next = || {
            seconds += -(1.0 - random.random::<f64>()).ln() / self.load.arrivals_per_second;
            SimTime::from_cycles((seconds * HERTZ) as u64)
        };
        (0..scenario.invocations).map(|_| next()).collect()
    }

    /// The seed of a repetition's arrivals and page frames.
    pub(super) const fn seed(&self, scenario: &Scenario, repetition: usize) -> u64 {
        // Odd factors keep the seeds of a few thousand repetitions and draws apart.
        self.load
            .seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(scenario.draw.wrapping_mul(0xbf58_476d_1ce4_e5b9))
            .wrapping_add(repetition as u64)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn kept() -> Plan {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        Plan::read(&root.join("experiments/llc-scenarios/scenarios.toml")).unwrap()
    }

    #[test]
    fn equal_numbers_draw_equal_scenarios_and_repetitions_arrive_differently() {
        let plan = kept();
        let scenario = &plan.scenario[0];
        assert_eq!(plan.drawn(scenario), plan.drawn(scenario));
        assert_eq!(plan.drawn(scenario).len(), scenario.invocations);
        assert_eq!(plan.arrivals(scenario, 3), plan.arrivals(scenario, 3));
        assert_ne!(plan.arrivals(scenario, 3), plan.arrivals(scenario, 4));
        assert!(plan.arrivals(scenario, 3).is_sorted());
        assert_eq!(plan.functions.len(), 8, "table IV has eight");
    }

    #[test]
    fn arrivals_have_the_rate_asked_for() {
        let plan = kept();
        let many = Scenario { name: "many".to_owned(), invocations: 4000, draw: 9 };
        let last = plan.arrivals(&many, 0).last().unwrap().seconds(HERTZ);
        let rate = 4000.0 / last;
        assert!((rate / plan.load.arrivals_per_second - 1.0).abs() < 0.05, "{rate}");
    }

    #[test]
    fn a_plan_that_cannot_be_run_is_refused() {
        let mut plan = kept();
        plan.load.arrivals_per_second = f64::NAN;
        assert!(plan.check().unwrap_err().contains("arrivals_per_second"));
        let mut plan = kept();
        plan.scenario[0].invocations = 0;
        assert!(plan.check().unwrap_err().contains("invocations"));
    }
}
