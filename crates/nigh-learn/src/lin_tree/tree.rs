//! A regression tree on what the line leaves: least squares, grown on binned columns.

use serde::{Deserialize, Serialize};

use super::terms::{INDICATORS_MAX, Values};
use crate::quantities::QUANTITIES_MAX;

/// Bins of a column at most.
const BINS_MAX: usize = 32;
/// Rows of a leaf at least.
const LEAF_ROWS_MIN: usize = 4;
/// Nodes of a stored tree at most; one grown here has fewer than twice two to its depth.
const NODES_MAX: usize = 1024;

/// A node: a leaf where `column` is [`LEAF`], else `value` is the threshold and the children stand side by side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Node {
    column: u16,
    /// The place of the child for values up to the threshold; the other follows it.
    child: u16,
    value: f64,
}

const LEAF: u16 = u16::MAX;

/// A tree, its root first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Tree(Vec<Node>);

/// The column that holds the prediction of the linear part.
pub(super) const LINE_COLUMN: usize = QUANTITIES_MAX + INDICATORS_MAX;

/// The columns that a tree splits: the quantities, the indicators, and the prediction of the linear part.
pub(super) fn column(values: &Values, linear: f64, at: usize) -> f64 {
    let quantities = values.quantities.len();
    if at < quantities {
        values.quantities[at]
    } else {
        values.indicators.get(at - quantities).copied().unwrap_or(linear)
    }
}

/// Columns in bins, of all rows.
#[derive(Clone, Debug, Default)]
pub(super) struct BinnedTable {
    columns: Vec<BinnedColumn>,
}

#[derive(Clone, Debug)]
struct BinnedColumn {
    /// Which.
    column: usize,
    /// The upper ends of its bins but the last.
    thresholds: Vec<f64>,
    /// The bin of each row.
    bins: Vec<u8>,
}

impl BinnedTable {
    /// Bins a column, given for all rows; one of a single value is left out.
    pub(super) fn add(&mut self, column: usize, values: &[f64]) {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let mut distinct = sorted.clone();
        distinct.dedup();
        let mut thresholds: Vec<f64> = if distinct.len() <= BINS_MAX {
            distinct.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect()
        } else {
            let ends = (1..BINS_MAX).map(|bin| bin * sorted.len() / BINS_MAX);
            let ends = ends.filter(|&at| sorted[at - 1] < sorted[at]);
            ends.map(|at| f64::midpoint(sorted[at - 1], sorted[at])).collect()
        };
        thresholds.dedup();
        if thresholds.is_empty() {
            return;
        }
        let bins = values.iter().map(|value| thresholds.partition_point(|end| end < value) as u8).collect();
        self.columns.push(BinnedColumn { column, thresholds, bins });
    }
}

/// What a bin holds.
#[derive(Clone, Copy, Default)]
struct Bin {
    weight: f64,
    sum: f64,
    rows: u32,
}

impl Tree {
    /// Grows a tree of at most `depth` splits one below the other that says of `rows` what is `left`.
    pub(super) fn grow(binned: &BinnedTable, rows: &[usize], left: &[f64], weights: &[f64], depth: usize) -> Self {
        let leaf = Node { column: LEAF, child: 0, value: 0.0 };
        let mut nodes = vec![leaf];
        let mut rows = rows.to_vec();
        let mut waiting = vec![(0, 0, rows.len(), 0)];
        while let Some((node, from, to, above)) = waiting.pop() {
            let own = &mut rows[from..to];
            let split = if above < depth { split(binned, own, left, weights) } else { None };
            let Some((column, bin)) = split else {
                nodes[node].value = mean(own, left, weights);
                continue;
            };
            let column = &binned.columns[column];
            let middle = from + part(own, |row| usize::from(column.bins[row]) <= bin);
            let child = nodes.len();
            nodes.extend([leaf, leaf]);
            let value = column.thresholds[bin];
            nodes[node] = Node { column: column.column as u16, child: child as u16, value };
            waiting.push((child, from, middle, above + 1));
            waiting.push((child + 1, middle, to, above + 1));
        }
        Self(nodes)
    }

    #[inline]
    pub(super) fn of(&self, values: &Values, line: f64) -> f64 {
        let mut node = &self.0[0];
        while node.column != LEAF {
            let above = usize::from(column(values, line, usize::from(node.column)) > node.value);
            node = &self.0[usize::from(node.child) + above];
        }
        node.value
    }

    /// True if what was read from a store can be walked and ends.
    pub(super) fn is_sound(&self) -> bool {
        let node = |(at, node): (usize, &Node)| {
            let child = usize::from(node.child);
            node.value.is_finite() && (node.column == LEAF || (child > at && child + 1 < self.0.len()))
        };
        (1..=NODES_MAX).contains(&self.0.len()) && self.0.iter().enumerate().all(node)
    }
}

fn mean(rows: &[usize], left: &[f64], weights: &[f64]) -> f64 {
    let add = |(weight, sum): (f64, f64), &row: &usize| (weight + weights[row], sum + weights[row] * left[row]);
    let (weight, sum) = rows.iter().fold((0.0, 0.0), add);
    if weight > 0.0 { sum / weight } else { 0.0 }
}

/// The column and the last bin of the lower part that leave the least, if any part the rows well.
fn split(binned: &BinnedTable, rows: &[usize], left: &[f64], weights: &[f64]) -> Option<(usize, usize)> {
    if rows.len() < 2 * LEAF_ROWS_MIN {
        return None;
    }
    let own: Vec<(f64, f64)> = rows.iter().map(|&row| (weights[row], weights[row] * left[row])).collect();
    let (weight, sum) = own.iter().fold((0.0, 0.0), |(weight, sum), (own, part)| (weight + own, sum + part));
    // A sum of squares falls by the squares of the parts' sums over their weights.
    let mut best = (sum * sum / weight * (1.0 + 1e-9) + 1e-12, None);
    for (at, column) in binned.columns.iter().enumerate() {
        let mut bins = [Bin::default(); BINS_MAX];
        for (&row, (own, part)) in rows.iter().zip(&own) {
            let bin = &mut bins[usize::from(column.bins[row]) % BINS_MAX];
            bin.weight += own;
            bin.sum += part;
            bin.rows += 1;
        }
        let mut below = Bin::default();
        for (last, bin) in bins.iter().enumerate().take(column.thresholds.len()) {
            below.weight += bin.weight;
            below.sum += bin.sum;
            below.rows += bin.rows;
            if (below.rows as usize) < LEAF_ROWS_MIN || bin.rows == 0 {
                continue;
            }
            if rows.len() - (below.rows as usize) < LEAF_ROWS_MIN {
                break;
            }
            let above = sum - below.sum;
            let gained = below.sum * below.sum / below.weight + above * above / (weight - below.weight);
            if gained > best.0 {
                best = (gained, Some((at, last)));
            }
        }
    }
    best.1
}

/// Puts the rows of the lower part first; how many there are.
fn part(rows: &mut [usize], below: impl Fn(usize) -> bool) -> usize {
    let mut count = 0;
    for at in 0..rows.len() {
        if below(rows[at]) {
            rows.swap(at, count);
            count += 1;
        }
    }
    count
}
