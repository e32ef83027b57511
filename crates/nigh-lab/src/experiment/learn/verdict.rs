//! The targets beside what was measured: ratios to J48 in the same table.

use serde_json::Value;

use super::contenders::{J48_OURS, J48_OURS_NEXT, LINTREE, LINTREE_POINT, MARGINS};
use super::curve::Point;
use super::speed::Speed;
use super::{MeanScore, Score};
use crate::instrument::verdict::Verdict;

pub(super) fn verdicts(
    mean: &[MeanScore],
    curve: &[Point],
    functions: usize,
    speed: &Speed,
    benefit: Option<&Value>,
) -> Vec<Verdict> {
    let of = |model: &str, width: u64| -> Option<Score> {
        mean.iter().find(|mean| mean.model == model && mean.interval_mb == width).map(|mean| mean.score)
    };
    let mut all = Vec::new();
    for baseline in ["weka-j48", J48_OURS] {
        if let Some((ours, theirs)) = of(LINTREE_POINT, 16).zip(of(baseline, 16)) {
            let points = |what: &str| format!("{what} above {baseline} at 16 MB, without margin, points");
            all.push(Verdict::at_least(points("exact"), ours.exact - theirs.exact, 7.0));
            all.push(Verdict::at_least(points("exact or over"), ours.exact_or_over - theirs.exact_or_over, 4.5));
        }
    }
    for baseline in ["weka-j48-next", J48_OURS_NEXT] {
        let safe = |theirs: &Score| {
            let names = [LINTREE_POINT, LINTREE].into_iter().chain(MARGINS.iter().map(|(name, _)| *name));
            let scores = names.filter_map(|name| of(name, 16));
            let safe = scores.filter(|ours| ours.exact_or_over >= theirs.exact_or_over - 1e-9);
            safe.map(|ours| ours.over_mb).min_by(f64::total_cmp)
        };
        if let Some((theirs, over)) = of(baseline, 16).and_then(|theirs| Some((theirs, safe(&theirs)?))) {
            let what = format!("over-allocation over {baseline}'s, at least as safe");
            all.push(Verdict::at_most(what, over / theirs.over_mb, 0.5));
        }
    }
    let point = |rows: usize| curve.iter().find(|point| point.model == LINTREE && point.rows == rows);
    if let Some(point) = point(25) {
        all.push(Verdict::at_least("percent of functions mature at 25 rows", point.mature_percent, 87.0));
    }
    if let Some(point) = point(100) {
        let left = (functions - point.mature_functions) as f64;
        all.push(Verdict::at_most("functions not mature at 100 rows", left, 1.0));
    }
    if let Some(ours) = of(LINTREE_POINT, 16) {
        all.push(Verdict::at_least("stretch: exact at 16 MB, percent", ours.exact, 92.0));
        all.push(Verdict::at_least("stretch: exact or over at 16 MB, percent", ours.exact_or_over, 96.5));
    }
    let safe = MARGINS.iter().filter_map(|(name, _)| of(name, 16)).filter(|score| score.exact_or_over >= 98.5);
    if let Some(over) = safe.map(|score| score.over_mb).min_by(f64::total_cmp) {
        all.push(Verdict::at_most("stretch: over-allocation at 98.5 % exact or over, MB", over, 10.5));
    }
    all.push(Verdict::at_most("prediction, p99, ns", speed.predict_p99_ns, 250.0));
    all.push(Verdict::at_most("prediction with features, p99, ns", speed.with_features_p99_ns, 1000.0));
    all.push(Verdict::at_most("fit of 500 rows with calibration, ms", speed.train500_ms, 5.0));
    if let Some(benefit) = benefit {
        all.push(Verdict::at_least("caching benefit, precision, percent", benefit["precision"].as_f64(), 98.8));
        all.push(Verdict::at_least("caching benefit, recall, percent", benefit["recall"].as_f64(), 98.6));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_j48_of_the_same_table() {
        let mean = |model: &str, exact, exact_or_over, over_mb| MeanScore {
            model: model.to_owned(),
            interval_mb: 16,
            score: Score { exact, exact_or_over, over_mb },
            mature_functions: None,
            mature_at: None,
        };
        let all = [
            mean(J48_OURS, 84.0, 91.0, 8.6),
            mean(J48_OURS_NEXT, 7.0, 98.0, 24.0),
            mean(LINTREE_POINT, 91.5, 95.0, 8.8),
            mean("lintree-q90", 85.0, 98.5, 11.0),
        ];
        let speed = Speed {
            clock_ns: 20.0,
            predict_p50_ns: 100.0,
            predict_p99_ns: 300.0,
            with_features_p50_ns: 200.0,
            with_features_p99_ns: 400.0,
            train500_ms: 4.0,
            train500_ms_most: 5.0,
            j48: Vec::new(),
        };
        let lines = verdicts(&all, &[], 2, &speed, None);
        let find = |what: &str| lines.iter().find(|line| line.what.starts_with(what)).unwrap();
        assert_eq!(find("exact above j48").met, Some(true));
        assert_eq!(find("exact or over above j48").met, Some(false));
        assert!((find("over-allocation over j48-next").measured.unwrap() - 11.0 / 24.0).abs() < 1e-9);
        assert_eq!((find("prediction, p99").met, find("fit of 500").met), (Some(false), Some(true)));
    }
}
