//! The paper's figures with this data: figure 2 (memory by input and by argument), figure 5 (errors of predictions), and when
//! functions mature (section 7.1.3). Pure.

use std::collections::BTreeMap;

use nigh_learn::{FeatureValue, Interval};
use serde::Serialize;
use serde_json::{Value, json};

use super::FunctionScore;
use super::contenders::{self, GrantOutcomes};
use super::curve;
use super::data_set::{FunctionRows, Invocation};
use crate::instrument::stats::Sample;

/// An over-prediction of at most this many intervals is near (the paper's word for figure 5).
const NEAR_INTERVALS: i64 = 3;
/// Parts of the invocations, by the size of their input; memory is compared within each.
const PARTS: usize = 10;

/// How many predictions were wrong by `intervals` of 16 MB; a prediction below 0 was too low (figure 5).
#[derive(Debug, Clone, Serialize)]
pub(super) struct ErrorCount {
    pub(super) model: String,
    pub(super) intervals: i64,
    pub(super) predictions: usize,
}

/// Models whose errors are shown.
const SHOWN: [&str; 4] = [contenders::J48_OURS, contenders::LINTREE_POINT, contenders::LINTREE, "weka-j48"];

/// The memory of the paper's function, which blurs, or else of the first.
pub(super) fn figure_2(functions: &[FunctionRows]) -> Vec<Value> {
    let blur = functions.iter().find(|function| function.name == "wand_blur");
    let Some(function) = blur.or(functions.first()) else { return Vec::new() };
    let number = |row: &Invocation| {
        row.features.iter().find_map(|(name, value)| match value {
            FeatureValue::Number(number) if name.as_str().starts_with("arg_") => Some(*number),
            _ => None,
        })
    };
    let point = |row: &Invocation| {
        let (argument, peak_mb) = (number(row).unwrap_or(0.0), row.peak.bytes() as f64 / 1e6);
        json!({ "input_bytes": row.input_bytes, "argument": argument, "peak_mb": peak_mb })
    };
    function.rows.iter().map(point).collect()
}

/// How much the memory of each function varies at one size of its input: the largest peak over the least among invocations of
/// about the same input size, the median of ten parts; and the correlation of input size and peak.
pub(super) fn size_spreads(functions: &[FunctionRows]) -> Vec<Value> {
    functions.iter().map(size_spread).collect()
}

fn size_spread(function: &FunctionRows) -> Value {
    let mut points: Vec<(f64, f64)> =
        function.rows.iter().map(|row| (row.input_bytes, row.peak.bytes() as f64)).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let ratio = |part: &[(f64, f64)]| {
        let (least, most) =
            part.iter().fold((f64::MAX, 0.0_f64), |(low, high), (_, peak)| (low.min(*peak), high.max(*peak)));
        most / least
    };
    let parts = Sample::new(points.chunks(points.len().div_ceil(PARTS).max(1)).map(ratio).collect());
    json!({ "function": function.name, "spread": parts.median(), "correlation": correlation(&points) })
}

/// Pearson's; 0 where one does not vary.
fn correlation(points: &[(f64, f64)]) -> f64 {
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
    let (mut both, mut x_square, mut y_square) = (0.0, 0.0, 0.0);
    for (x, y) in points {
        both += (x - x_mean) * (y - y_mean);
        x_square += (x - x_mean).powi(2);
        y_square += (y - y_mean).powi(2);
    }
    let spread = (x_square * y_square).sqrt();
    if spread > 0.0 { both / spread } else { 0.0 }
}

pub(super) fn figure_5(granted: &[GrantOutcomes]) -> Vec<ErrorCount> {
    let interval = Interval::OFC;
    let mut counts = BTreeMap::<(String, i64), usize>::new();
    for of_function in granted {
        for ((model, width), outcomes) in of_function {
            if *width == interval.width().bytes() && SHOWN.contains(&model.as_str()) {
                for (said, was) in outcomes {
                    let missed = interval.index(*said) as i64 - interval.index(*was) as i64;
                    *counts.entry((model.clone(), missed)).or_default() += 1;
                }
            }
        }
    }
    let count = |((model, intervals), predictions)| ErrorCount { model, intervals, predictions };
    counts.into_iter().map(count).collect()
}

/// The paper's figures about figure 5, of predictions that were too high at 16 MB: the percent of them within three intervals,
/// and their mean excess in million bytes.
pub(super) fn over_predictions(errors: &[ErrorCount]) -> Vec<Value> {
    let width_mb = Interval::OFC.width().bytes() as f64 / 1e6;
    let of_model = |model: &&str| {
        let over = || errors.iter().filter(|error| error.model == **model && error.intervals > 0);
        let all: usize = over().map(|error| error.predictions).sum();
        let near: usize = over().filter(|error| error.intervals <= NEAR_INTERVALS).map(|error| error.predictions).sum();
        let intervals: i64 = over().map(|error| error.intervals * error.predictions as i64).sum();
        let near_percent = 100.0 * near as f64 / all as f64;
        let mean_mb = width_mb * intervals as f64 / all as f64;
        (all > 0).then(|| json!({ "model": model, "near_percent": near_percent, "mean_mb": mean_mb }))
    };
    SHOWN.iter().filter_map(of_model).collect()
}

/// For each model, the number of training rows after which 50 %, 75 % and 95 % of the functions are mature; null if they need
/// more rows than were tried. The JSON field `functions` has the number of mature functions after each number of rows.
pub(super) fn maturation(scores: &[FunctionScore], functions: usize) -> Vec<Value> {
    let mut by_model = BTreeMap::<&str, Vec<usize>>::new();
    for score in scores.iter().filter(|score| score.interval_mb == 16) {
        by_model.entry(&score.model).or_default().extend(score.mature_at);
    }
    by_model.retain(|_, rows| !rows.is_empty());
    let of_model = |(model, mut rows): (&str, Vec<usize>)| {
        rows.sort_unstable();
        let share = |percent: usize| rows.get((functions * percent).div_ceil(100).max(1) - 1).copied();
        let until = |size: &usize| (*size, rows.iter().filter(|row| *row <= size).count());
        json!({
            "model": model,
            "median_rows": share(50),
            "p75_rows": share(75),
            "p95_rows": share(95),
            "functions": curve::SIZES.iter().map(until).collect::<Vec<_>>(),
        })
    };
    by_model.into_iter().map(of_model).collect()
}

#[cfg(test)]
mod tests {
    use super::super::score::Score;
    use super::*;

    #[test]
    fn over_predictions_are_counted_alone_as_the_paper_does() {
        let count = |intervals, predictions| ErrorCount { model: "j48".to_owned(), intervals, predictions };
        let over = over_predictions(&[count(-5, 9), count(0, 80), count(1, 6), count(2, 2), count(10, 2)]);
        assert_eq!(over.len(), 1, "no other model erred");
        let near = |field: &str, figure: f64| (over[0][field].as_f64().unwrap() - figure).abs() < 1e-9;
        assert!(near("near_percent", 80.0) && near("mean_mb", 16.0 * 30.0 / 10.0), "{over:?}");
    }

    #[test]
    fn shares_of_functions_mature_at_rows_and_those_that_do_not_are_counted_too() {
        let score = |function: &str, mature_at| FunctionScore {
            function: function.to_owned(),
            model: "lintree".to_owned(),
            interval_mb: 16,
            score: Score { exact: 90.0, exact_or_over: 95.0, over_mb: 8.0 },
            mature_at,
        };
        let scores = [score("a", Some(25)), score("b", Some(50)), score("c", Some(250)), score("d", None)];
        let all = maturation(&scores, 4);
        let of = |field: &str| all[0][field].clone();
        assert_eq!([of("median_rows"), of("p75_rows"), of("p95_rows")], [json!(50), json!(250), Value::Null]);
        assert_eq!(of("functions").as_array().unwrap()[..2], [json!([25, 1]), json!([50, 2])]);
    }

    #[test]
    fn a_line_correlates_wholly_and_what_does_not_vary_not_at_all() {
        let line: Vec<(f64, f64)> = (0..9).map(|at| (f64::from(at), f64::from(3 * at + 1))).collect();
        assert!((correlation(&line) - 1.0).abs() < 1e-9);
        assert_eq!(correlation(&[(1.0, 5.0), (2.0, 5.0)]), 0.0);
    }
}
