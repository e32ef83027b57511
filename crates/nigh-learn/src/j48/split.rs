//! The choice of a split: among those that gain at least the average, the one of the best gain ratio.

use super::grow::Distribution;
use crate::sample::Sample;
use crate::schema::{ColumnKind, Schema};

/// Rows that at least two branches of a split have.
pub(super) const BRANCH_ROWS_MIN: f64 = 2.0;
/// A number's branches have a tenth of the mean rows of a class, at most this many.
const NUMBER_BRANCH_ROWS_MAX: f64 = 25.0;
/// Two numbers that differ by less are one.
const SAME_NUMBER: f64 = 1e-5;
/// Gains that differ by less are one.
const SAME_GAIN: f64 = 1e-3;

/// How a node parts its rows.
#[derive(Clone, Debug)]
pub(super) enum Split {
    /// At most the threshold, or above.
    Number { column: usize, threshold: f64 },
    /// One branch a level.
    Words { column: usize, levels: usize },
}

struct Candidate {
    split: Split,
    gain: f64,
    ratio: f64,
}

/// The best split of `rows`, if one gains.
pub(super) fn best_split(
    schema: &Schema,
    samples: &[Sample],
    classes: &[usize],
    rows: &[usize],
    distribution: &Distribution,
) -> Option<Split> {
    if distribution.total < 2.0 * BRANCH_ROWS_MIN || distribution.errors() <= 0.0 {
        return None;
    }
    let before = entropy_sum(&distribution.of_class, distribution.total);
    let of_column = |(column, of): (usize, &crate::schema::Column)| match &of.kind {
        ColumnKind::Number { .. } => number_split(column, samples, classes, rows, distribution, before),
        kind => words_split(column, kind.levels(), samples, classes, rows, distribution, before),
    };
    let candidates: Vec<Candidate> = schema.columns.iter().enumerate().filter_map(of_column).collect();
    let average = candidates.iter().map(|candidate| candidate.gain).sum::<f64>() / candidates.len().max(1) as f64;
    let good =
        candidates.into_iter().filter(|candidate| candidate.gain >= average - SAME_GAIN && candidate.ratio > 0.0);
    let better = |best: Candidate, next: Candidate| if next.ratio > best.ratio { next } else { best };
    let mut split = good.reduce(better)?.split;
    if let Split::Number { column, threshold } = &mut split {
        // A value that was seen anywhere, not one between.
        let values = samples.iter().map(|sample| sample.features.values[*column]);
        *threshold = values.filter(|value| value <= threshold).fold(f64::NEG_INFINITY, f64::max);
    }
    Some(split)
}

fn number_split(
    column: usize,
    samples: &[Sample],
    classes: &[usize],
    rows: &[usize],
    distribution: &Distribution,
    before: f64,
) -> Option<Candidate> {
    let value = |row: usize| samples[row].features.values[column];
    let mut sorted = rows.to_vec();
    sorted.sort_by(|one, other| value(*one).total_cmp(&value(*other)));
    let present = distribution.of_class.len().max(1) as f64;
    let least = (0.1 * distribution.total / present).clamp(BRANCH_ROWS_MIN, NUMBER_BRANCH_ROWS_MAX);
    let mut below = vec![0.0; distribution.of_class.len()];
    let mut above = distribution.of_class.clone();
    let (mut below_total, mut tried) = (0.0, 0_u32);
    let mut best: Option<(f64, f64, f64)> = None;
    for pair in sorted.windows(2) {
        let (row, next) = (pair[0], pair[1]);
        let weight = samples[row].weight;
        below[classes[row]] += weight;
        above[classes[row]] -= weight;
        below_total += weight;
        let above_total = distribution.total - below_total;
        if value(row) + SAME_NUMBER >= value(next) || below_total < least || above_total < least {
            continue;
        }
        tried += 1;
        let after = entropy_sum(&below, below_total) + entropy_sum(&above, above_total);
        let gain = (before - after) / distribution.total;
        if best.is_none_or(|(most, ..)| gain > most + 1e-6) {
            best = Some((gain, f64::midpoint(value(row), value(next)), below_total));
        }
    }
    let (gain, threshold, below_total) = best?;
    // Many thresholds to choose from make chance look like gain.
    let gain = gain - f64::from(tried).log2() / distribution.total;
    if gain <= 1e-6 {
        return None;
    }
    let cost = split_cost(&[below_total, distribution.total - below_total], distribution.total);
    Some(Candidate { split: Split::Number { column, threshold }, gain, ratio: gain / cost })
}

fn words_split(
    column: usize,
    levels: usize,
    samples: &[Sample],
    classes: &[usize],
    rows: &[usize],
    distribution: &Distribution,
    before: f64,
) -> Option<Candidate> {
    if levels < 2 {
        return None;
    }
    let split = Split::Words { column, levels };
    let mut bags = vec![vec![0.0; distribution.of_class.len()]; levels];
    for &row in rows {
        bags[split.branch(&samples[row].features)][classes[row]] += samples[row].weight;
    }
    let totals: Vec<f64> = bags.iter().map(|bag| bag.iter().sum()).collect();
    if totals.iter().filter(|total| **total >= BRANCH_ROWS_MIN).count() < 2 {
        return None;
    }
    let after: f64 = bags.iter().zip(&totals).map(|(bag, total)| entropy_sum(bag, *total)).sum();
    let gain = (before - after) / distribution.total;
    if gain <= 1e-6 {
        return None;
    }
    let cost = split_cost(&totals, distribution.total);
    Some(Candidate { split, gain, ratio: gain / cost })
}

/// The entropy of rows in bits, times their weight.
fn entropy_sum(of_class: &[f64], total: f64) -> f64 {
    x_log_x(total) - of_class.iter().map(|&weight| x_log_x(weight)).sum::<f64>()
}

/// The entropy of the branches' sizes in bits.
fn split_cost(totals: &[f64], total: f64) -> f64 {
    entropy_sum(totals, total) / total
}

fn x_log_x(x: f64) -> f64 {
    if x <= 1e-9 { 0.0 } else { x * x.log2() }
}
