//! How many rows models need to mature: OFC's criterion on the last quarter of a shuffle.

use std::collections::BTreeMap;

use nigh_learn::Interval;
use serde::Serialize;

use super::contenders::{self, GrantOutcomes};
use super::data_set::{FunctionRows, Split};
use super::score::{Outcome, Score, matured};

/// Rows that models are fitted to.
pub(super) const SIZES: [usize; 7] = [25, 50, 75, 100, 150, 200, 250];

/// A point of a model's learning curve, all functions together.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Point {
    pub(super) model: String,
    pub(super) rows: usize,
    pub(super) exact_or_over: f64,
    pub(super) over_mb: f64,
    /// Percent of functions and shuffles that meet the criterion.
    pub(super) mature_percent: f64,
    /// Functions that meet it in most shuffles.
    pub(super) mature_functions: usize,
}

/// The splits of a function, by rows and shuffle.
pub(super) type Splits = BTreeMap<(usize, u64), Split>;

/// By model, rows and shuffle.
#[derive(Debug, Default)]
pub(super) struct Curve(pub(super) BTreeMap<(String, usize, u64), Vec<Outcome>>);

pub(super) fn splits(function: &FunctionRows, sizes: &[usize], shuffles: u64) -> Splits {
    let keys = sizes.iter().flat_map(|&rows| (0..shuffles).map(move |shuffle| (rows, shuffle)));
    keys.map(|(rows, shuffle)| ((rows, shuffle), function.first(rows, shuffle))).collect()
}

impl Curve {
    /// Ours.
    pub(super) fn of(function: &FunctionRows, splits: &Splits) -> Self {
        let mut curve = Self::default();
        for (&(rows, shuffle), split) in splits {
            let mut granted = GrantOutcomes::new();
            contenders::judge(function, split, &[Interval::OFC], &mut granted);
            curve.0.extend(granted.into_iter().map(|((model, _), outcomes)| ((model, rows, shuffle), outcomes)));
        }
        curve
    }

    /// The rows at which a model first meets the criterion: the median of the shuffles, none if it never does in most.
    pub(super) fn mature_at(&self, model: &str) -> Option<usize> {
        let mut first: BTreeMap<u64, usize> = BTreeMap::new();
        for ((name, rows, shuffle), outcomes) in &self.0 {
            if name == model {
                let first = first.entry(*shuffle).or_insert(usize::MAX);
                if matured(outcomes, Interval::OFC) {
                    *first = (*first).min(*rows);
                }
            }
        }
        let mut all: Vec<usize> = first.into_values().collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().filter(|rows| *rows != usize::MAX)
    }

    fn models(&self) -> Vec<&str> {
        let mut models: Vec<&str> = self.0.keys().map(|(model, ..)| model.as_str()).collect();
        models.dedup();
        models
    }
}

pub(super) fn points(curves: &[Curve], sizes: &[usize]) -> Vec<Point> {
    let models = curves.first().map(Curve::models).unwrap_or_default();
    let point = |model: &str, rows: usize| {
        let of_function = |curve: &Curve| {
            let of_point = |(name, size, _): &(String, usize, u64)| name == model && *size == rows;
            let all: Vec<&Vec<Outcome>> =
                curve.0.iter().filter(|(key, _)| of_point(key)).map(|(_, outcomes)| outcomes).collect();
            let mature = all.iter().filter(|outcomes| matured(outcomes, Interval::OFC)).count();
            let scores: Vec<Score> = all.iter().map(|outcomes| Score::of(outcomes, Interval::OFC)).collect();
            (Score::mean(scores.iter()), mature, all.len())
        };
        let all: Vec<(Score, usize, usize)> = curves.iter().map(of_function).collect();
        let mean = Score::mean(all.iter().map(|(score, ..)| score));
        let (mature, tried) = all.iter().fold((0, 0), |(mature, tried), one| (mature + one.1, tried + one.2));
        Point {
            model: model.to_owned(),
            rows,
            exact_or_over: mean.exact_or_over,
            over_mb: mean.over_mb,
            mature_percent: 100.0 * mature as f64 / tried.max(1) as f64,
            mature_functions: all.iter().filter(|(_, mature, tried)| mature * 2 > *tried).count(),
        }
    };
    models.iter().flat_map(|model| sizes.iter().map(move |rows| point(model, *rows))).collect()
}

#[cfg(test)]
mod tests {
    use nigh_terms::ByteSize;

    use super::*;

    #[test]
    fn a_function_matures_at_the_median_of_its_shuffles() {
        let (good, bad) = ((ByteSize(16_000_000), ByteSize(1)), (ByteSize(16_000_000), ByteSize(60_000_000)));
        let mut curve = Curve::default();
        for (shuffle, first) in [(0, 25), (1, 50), (2, 100)] {
            for rows in SIZES {
                let outcome = if rows >= first { good } else { bad };
                curve.0.insert(("m".to_owned(), rows, shuffle), vec![outcome; 4]);
            }
        }
        assert_eq!(curve.mature_at("m"), Some(50));
        assert_eq!(curve.mature_at("other"), None);
        let points = points(&[curve], &SIZES);
        assert_eq!((points[0].mature_functions, points[1].mature_functions), (0, 1));
        assert!((points[1].mature_percent - 66.7).abs() < 0.1);
    }
}
