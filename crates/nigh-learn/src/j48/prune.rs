//! Pruning: a subtree goes where a leaf, or its own largest branch in its place, would by a careful estimate err no
//! more.

use super::grow::{Distribution, GrowingNode};
use crate::sample::Sample;

/// The normal deviate of C4.5's confidence of 25 %.
const DEVIATE: f64 = 0.674_489_750_196_081_7;
const CONFIDENCE: f64 = 0.25;
/// A subtree must be better than a leaf by more than this many rows.
const WORTH: f64 = 0.1;

/// Makes a leaf of every node whose subtree errs on its own rows no less than a leaf.
pub(super) fn collapse(node: &mut GrowingNode) {
    if node.split.is_none() {
        return;
    }
    if training_errors(node) >= node.distribution.errors() - 1e-3 {
        node.make_leaf();
    } else if let Some((_, children)) = &mut node.split {
        children.iter_mut().for_each(collapse);
    }
}

fn training_errors(node: &GrowingNode) -> f64 {
    match &node.split {
        None => node.distribution.errors(),
        Some((_, children)) => children.iter().map(training_errors).sum(),
    }
}

/// Prunes, leaves first, with subtree raising.
pub(super) fn prune(node: &mut GrowingNode, samples: &[Sample], classes: &[usize]) {
    let Some((_, children)) = &mut node.split else { return };
    for child in children.iter_mut() {
        prune(child, samples, classes);
    }
    let heavier = |best: usize, at: usize| {
        if children[at].distribution.total > children[best].distribution.total { at } else { best }
    };
    let largest = (0..children.len()).fold(0, heavier);
    let as_branch = estimated_on(&children[largest], &node.rows, samples, classes);
    let as_leaf = estimated_errors(&node.distribution);
    let as_tree = estimated(node);
    if as_leaf <= as_tree + WORTH && as_leaf <= as_branch + WORTH {
        node.make_leaf();
    } else if as_branch <= as_tree + WORTH {
        raise(node, largest, samples, classes);
        prune(node, samples, classes);
    }
}

/// Puts a child in its parent's place, with the parent's rows.
fn raise(node: &mut GrowingNode, child: usize, samples: &[Sample], classes: &[usize]) {
    let Some((_, mut children)) = node.split.take() else { return };
    let raised = children.swap_remove(child);
    node.split = raised.split;
    distribute(node, samples, classes);
}

/// Parts a node's rows among its children again.
fn distribute(node: &mut GrowingNode, samples: &[Sample], classes: &[usize]) {
    let count = node.distribution.of_class.len();
    let Some((split, children)) = &mut node.split else { return };
    for child in children.iter_mut() {
        child.rows.clear();
    }
    for &row in &node.rows {
        children[split.branch(&samples[row].features)].rows.push(row);
    }
    for child in children {
        child.distribution = Distribution::of(&child.rows, samples, classes, count);
        distribute(child, samples, classes);
    }
}

fn estimated(node: &GrowingNode) -> f64 {
    match &node.split {
        None => estimated_errors(&node.distribution),
        Some((_, children)) => children.iter().map(estimated).sum(),
    }
}

/// What a subtree would err on other rows than its own.
fn estimated_on(node: &GrowingNode, rows: &[usize], samples: &[Sample], classes: &[usize]) -> f64 {
    let Some((split, children)) = &node.split else {
        return estimated_errors(&Distribution::of(rows, samples, classes, node.distribution.of_class.len()));
    };
    let branch = |at: usize| -> Vec<usize> {
        rows.iter().copied().filter(|row| split.branch(&samples[*row].features) == at).collect()
    };
    children.iter().enumerate().map(|(at, child)| estimated_on(child, &branch(at), samples, classes)).sum()
}

fn estimated_errors(distribution: &Distribution) -> f64 {
    if distribution.total <= 0.0 {
        return 0.0;
    }
    distribution.errors() + added_errors(distribution.total, distribution.errors())
}

/// How far above the errors seen the upper end of their confidence interval lies, in rows.
fn added_errors(rows: f64, errors: f64) -> f64 {
    if errors < 1.0 {
        let none = rows * (1.0 - CONFIDENCE.powf(1.0 / rows));
        return if errors <= 0.0 { none } else { none + errors * (added_errors(rows, 1.0) - none) };
    }
    if errors + 0.5 >= rows {
        return (rows - errors).max(0.0);
    }
    let (square, share) = (DEVIATE * DEVIATE, (errors + 0.5) / rows);
    let spread = DEVIATE * (share / rows - share * share / rows + square / (4.0 * rows * rows)).sqrt();
    rows * (share + square / (2.0 * rows) + spread) / (1.0 + square / rows) - errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_quinlans() {
        // C4.5's book, chapter 4: U(0, 6) = 0.206, U(0, 9) = 0.143, U(1, 16) = 0.157, as shares; its code, and this,
        // goes by the normal distribution instead of the binomial.
        for (errors, rows, share) in [(0.0, 6.0, 0.206), (0.0, 9.0, 0.143), (1.0, 16.0, 0.157)] {
            let upper: f64 = (errors + added_errors(rows, errors)) / rows;
            assert!((upper - share).abs() < 0.003, "U({errors},{rows}) = {upper}");
        }
    }

    #[test]
    fn a_row_that_is_half_wrong_lies_between_none_and_one() {
        let [none, half, one] = [0.0, 0.5, 1.0].map(|errors| errors + added_errors(10.0, errors));
        assert!(none < half && half < one);
    }
}
