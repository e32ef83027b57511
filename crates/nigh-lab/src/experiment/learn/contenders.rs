//! The models that are judged, and the grants of each on a split.

use std::collections::BTreeMap;

use nigh_learn::{Interval, J48, LinTree};

use super::data_set::{FunctionRows, Split};
use super::score::Outcome;

/// The paper's tree, in our code.
pub(super) const J48_OURS: &str = "j48";
/// J48 with the next interval up.
pub(super) const J48_OURS_NEXT: &str = "j48-next";
/// The default without a margin.
pub(super) const LINTREE_POINT: &str = "lintree-point";
/// The default.
pub(super) const LINTREE: &str = "lintree";
/// The default with other margins.
pub(super) const MARGINS: [(&str, f64); 3] = [("lintree-q80", 0.8), ("lintree-q90", 0.9), ("lintree-q95", 0.95)];

/// Grants and needs, by model and width of interval.
pub(super) type GrantOutcomes = BTreeMap<(String, u64), Vec<Outcome>>;

/// Fits our models to one part of a split and lets them grant for the other.
pub(super) fn judge(function: &FunctionRows, split: &Split, widths: &[Interval], into: &mut GrantOutcomes) {
    let (schema, samples) = function.samples(&split.train);
    let lintree = LinTree::fit(&schema, &samples);
    let mut lintrees = vec![(LINTREE_POINT, lintree.clone().without_margin())];
    lintrees.extend(MARGINS.iter().map(|(name, share)| (*name, lintree.clone().with_margin(*share))));
    lintrees.push((LINTREE, lintree));
    let test: Vec<_> =
        split.test.iter().map(|row| &function.rows[*row]).map(|row| (schema.encode(&row.features), row.peak)).collect();
    for &width in widths {
        let mut add = |name: &str, outcomes: Vec<Outcome>| {
            into.entry((name.to_owned(), width.width().bytes())).or_default().extend(outcomes);
        };
        for (name, model) in &lintrees {
            let granted = |(features, peak): &(_, _)| (width.grant(model.predict(features)), *peak);
            add(name, test.iter().map(granted).collect());
        }
        let tree = J48::fit(&schema, &samples, width);
        add(J48_OURS, test.iter().map(|(features, peak)| (tree.predict(features), *peak)).collect());
        let next = tree.with_next_interval_up();
        add(J48_OURS_NEXT, test.iter().map(|(features, peak)| (next.predict(features), *peak)).collect());
    }
}
