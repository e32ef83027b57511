//! The results of a scenario: for each function and policy, the mean time with its confidence, the gains and bounds; and the
//! summary of all scenarios.

use nigh_llc::{Tolerance, strict_partition};
use serde::{Deserialize, Serialize};

use super::super::failed;
use super::stage::Play;
use crate::LabError;
use crate::instrument::stats::{Estimate, Sample};

/// The least best gain, as a part of the time, for which a share of it is computed.
const WORTH: f64 = 0.02;

/// One figure per policy.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct ByPolicy<T> {
    pub(super) no_cat: T,
    pub(super) casy: T,
    pub(super) casy_literal: T,
    pub(super) nigh: T,
    pub(super) best: T,
}

impl<T> ByPolicy<T> {
    pub(super) fn map<U>(&self, f: impl Fn(&T) -> U) -> ByPolicy<U> {
        ByPolicy {
            no_cat: f(&self.no_cat),
            casy: f(&self.casy),
            casy_literal: f(&self.casy_literal),
            nigh: f(&self.nigh),
            best: f(&self.best),
        }
    }
}

/// The duration of each invocation in seconds, by repetition.
pub(super) type Runs = Vec<Vec<f64>>;

/// One of table IV's functions in one scenario: seconds of an invocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FunctionOutcome {
    pub(super) function: String,
    pub(super) invocations: usize,
    /// Alone, warm, on the whole cache.
    pub(super) alone: f64,
    #[serde(flatten)]
    pub(super) seconds: ByPolicy<Estimate>,
}

/// Gains that the models predict while all functions of a scenario run at once, without a guard against slowdown.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Bounds {
    /// B1: every invocation has its own ways; none if there are more invocations than ways.
    pub(super) strict: Option<f64>,
    /// B2: groups of invocations have their own ways; there are at most as many groups as classes.
    pub(super) clusters: f64,
    /// B3: classes may overlap.
    pub(super) overlapping: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ScenarioOutcome {
    pub(super) scenario: String,
    pub(super) invocations: Vec<String>,
    pub(super) functions: Vec<FunctionOutcome>,
    pub(super) gain: ByPolicy<f64>,
    /// For each policy, the function that it slows down most: its time, divided by its time without partitioning.
    pub(super) worst: ByPolicy<f64>,
    pub(super) bounds: Bounds,
    pub(super) best_is: String,
    /// How many running invocations Nigh moved to another class, per repetition.
    pub(super) nigh_moves: f64,
}

impl ScenarioOutcome {
    pub(super) fn new(
        play: &Play<'_>,
        runs: &ByPolicy<Runs>,
        best_is: String,
        nigh_moves: f64,
    ) -> Result<Self, LabError> {
        let functions = play.present().map(|kind| FunctionOutcome {
            function: play.stage.kinds[kind].acronym.clone(),
            invocations: play.counts[kind],
            alone: play.stage.kinds[kind].alone_s,
            seconds: runs.map(|runs| {
                let by_repetition = runs.iter().map(|run| {
                    let mine = play.seconds_of(std::slice::from_ref(run), kind);
                    mine.iter().sum::<f64>() / mine.len() as f64
                });
                Sample::new(by_repetition.collect()).mean_estimate(play.scenario.draw)
            }),
        });
        let functions: Vec<FunctionOutcome> = functions.collect();
        let total = |runs: &Runs| runs.iter().flatten().sum::<f64>();
        let worst =
            functions.iter().map(|function| function.seconds.map(|time| time.value / function.seconds.no_cat.value));
        let worst = worst.reduce(|left, right| ByPolicy {
            no_cat: left.no_cat.max(right.no_cat),
            casy: left.casy.max(right.casy),
            casy_literal: left.casy_literal.max(right.casy_literal),
            nigh: left.nigh.max(right.nigh),
            best: left.best.max(right.best),
        });
        let nobody = || failed(&play.scenario.name, &"nobody runs");
        Ok(Self {
            scenario: play.scenario.name.clone(),
            invocations: play.invocations.iter().map(|&kind| play.stage.kinds[kind].acronym.clone()).collect(),
            gain: runs.map(|policy| 1.0 - total(policy) / total(&runs.no_cat)),
            worst: worst.ok_or_else(nobody)?,
            functions,
            bounds: bounds(play)?,
            best_is,
            nigh_moves,
        })
    }
}

fn bounds(play: &Play<'_>) -> Result<Bounds, LabError> {
    let free = Tolerance(f64::from(u8::MAX));
    let (present, [clusters, overlapping]) = play.proposed(free)?;
    let ways = play.stage.shape.ways;
    let without = present
        .iter()
        .zip(&clusters.slowdowns)
        .map(|(&kind, slowdown)| play.counts[kind] as f64 * f64::from(slowdown.without));
    let without: f64 = without.sum();
    let costs: Option<Vec<Vec<f64>>> = play
        .invocations
        .iter()
        .map(|&kind| {
            let profile = play.stage.kinds[kind].need.sharing.as_deref()?;
            Some((1..=ways.0).map(|ways| f64::from(profile.slowdown(f32::from(ways)))).collect())
        })
        .collect();
    let strict = costs.and_then(|costs| strict_partition(&costs, ways, play.stage.shape.min_ways));
    Ok(Bounds {
        strict: strict.map(|found| 1.0 - found.cost / without),
        clusters: clusters.gain,
        overlapping: overlapping.gain,
    })
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct WorstFunction {
    pub(super) scenario: String,
    pub(super) function: String,
    /// Its time under Nigh, divided by its time without partitioning.
    pub(super) ratio: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Summary {
    pub(super) gain_casy: f64,
    pub(super) gain_casy_literal: f64,
    pub(super) gain_nigh: f64,
    pub(super) gain_best: f64,
    /// Nigh's gain, divided by the best gain, where the best gain is at least 2 %; none if it never is.
    pub(super) share_of_best: Option<f64>,
    /// The least of these scenarios' shares.
    pub(super) share_of_best_least: Option<f64>,
    pub(super) worst_function: Option<WorstFunction>,
    /// The same for CASY.
    pub(super) worst_function_casy: Option<WorstFunction>,
}

impl Summary {
    pub(super) fn of(outcomes: &[ScenarioOutcome]) -> Self {
        let mean = |gain: fn(&ByPolicy<f64>) -> f64| {
            outcomes.iter().map(|outcome| gain(&outcome.gain)).sum::<f64>() / outcomes.len().max(1) as f64
        };
        let worth: Vec<_> = outcomes.iter().map(|outcome| outcome.gain).filter(|gain| gain.best >= WORTH).collect();
        let best: f64 = worth.iter().map(|gain| gain.best).sum();
        let least = worth.iter().map(|gain| gain.nigh / gain.best).reduce(f64::min);
        Self {
            gain_casy: mean(|gain| gain.casy),
            gain_casy_literal: mean(|gain| gain.casy_literal),
            gain_nigh: mean(|gain| gain.nigh),
            gain_best: mean(|gain| gain.best),
            share_of_best: (best > 0.0).then(|| worth.iter().map(|gain| gain.nigh).sum::<f64>() / best),
            share_of_best_least: least,
            worst_function: worst(outcomes, |seconds| seconds.nigh.value),
            worst_function_casy: worst(outcomes, |seconds| seconds.casy.value),
        }
    }
}

fn worst(outcomes: &[ScenarioOutcome], time: fn(&ByPolicy<Estimate>) -> f64) -> Option<WorstFunction> {
    let all = outcomes.iter().flat_map(|outcome| outcome.functions.iter().map(move |function| (outcome, function)));
    let ratio = |function: &FunctionOutcome| time(&function.seconds) / function.seconds.no_cat.value;
    let (outcome, function) = all.max_by(|left, right| ratio(left.1).total_cmp(&ratio(right.1)))?;
    Some(WorstFunction {
        scenario: outcome.scenario.clone(),
        function: function.function.clone(),
        ratio: ratio(function),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An outcome of one function, with this gain under Nigh and under the best.
    pub(in super::super) fn made_up(scenario: &str, gain: f64) -> ScenarioOutcome {
        let estimate = |value| Estimate { value, low: value, high: value };
        let all = |nigh: f64| ByPolicy { no_cat: 0.0, casy: 0.0, casy_literal: 0.0, nigh, best: nigh };
        let seconds = all(gain).map(|gain| estimate(1.0 - gain));
        let function = FunctionOutcome { function: "Bl_1".to_owned(), invocations: 1, alone: 0.5, seconds };
        ScenarioOutcome {
            scenario: scenario.to_owned(),
            invocations: vec!["Bl_1".to_owned()],
            functions: vec![function],
            gain: all(gain),
            worst: all(0.0).map(|_| 1.0),
            bounds: Bounds { strict: None, clusters: 0.0, overlapping: 0.0 },
            best_is: "Nigh".to_owned(),
            nigh_moves: 0.0,
        }
    }

    #[test]
    fn the_share_of_the_best_counts_where_that_is_worth_it() {
        let mut worth = made_up("a", 0.03);
        worth.gain.best = 0.04;
        let summary = Summary::of(&[worth, made_up("b", 0.01)]);
        assert_eq!((summary.share_of_best, summary.share_of_best_least), (Some(0.75), Some(0.75)));
        assert_eq!(summary.gain_nigh, 0.02);
        assert_eq!(Summary::of(&[made_up("b", 0.01)]).share_of_best, None);
    }
}
