//! The growing of a tree, and its nodes while it is grown and pruned.

use super::Node;
use super::split::{Split, best_split};
use crate::sample::Sample;
use crate::schema::{EncodedRow, Schema};

/// Weights of the classes among some rows.
#[derive(Clone, Debug)]
pub(super) struct Distribution {
    pub(super) of_class: Vec<f64>,
    pub(super) total: f64,
}

impl Distribution {
    pub(super) fn of(rows: &[usize], samples: &[Sample], classes: &[usize], count: usize) -> Self {
        let mut of_class = vec![0.0; count];
        for &row in rows {
            of_class[classes[row]] += samples[row].weight;
        }
        Self { total: of_class.iter().sum(), of_class }
    }

    /// The heaviest class, the first of those.
    pub(super) fn majority(&self) -> usize {
        let heaviest =
            |best: usize, class: usize| if self.of_class[class] > self.of_class[best] { class } else { best };
        (0..self.of_class.len()).fold(0, heaviest)
    }

    /// The weight of the rows that are not of the majority.
    pub(super) fn errors(&self) -> f64 {
        self.total - self.of_class.get(self.majority()).copied().unwrap_or(0.0)
    }
}

/// A node with all that pruning asks for.
#[derive(Clone, Debug)]
pub(super) struct GrowingNode {
    pub(super) distribution: Distribution,
    /// The rows it was grown from.
    pub(super) rows: Vec<usize>,
    pub(super) split: Option<(Split, Vec<GrowingNode>)>,
}

impl GrowingNode {
    pub(super) fn make_leaf(&mut self) {
        self.split = None;
    }

    /// Writes it, parents first.
    pub(super) fn flatten(&self, nodes: &mut Vec<Node>) -> u32 {
        let at = nodes.len();
        let leaf = |distribution: &Distribution| Node::Leaf { class: distribution.majority() as u32 };
        nodes.push(leaf(&self.distribution));
        let Some((split, children)) = &self.split else { return at as u32 };
        // A branch without rows says what its parent would.
        let mut child = |child: &Self| {
            if child.distribution.total > 0.0 {
                child.flatten(nodes)
            } else {
                nodes.push(leaf(&self.distribution));
                nodes.len() as u32 - 1
            }
        };
        let places: Vec<u32> = children.iter().map(&mut child).collect();
        nodes[at] = match split {
            Split::Number { column, threshold } => {
                Node::Number { column: *column as u8, threshold: *threshold, below: places[0], above: places[1] }
            }
            Split::Words { column, .. } => {
                let unseen = nodes.len() as u32;
                nodes.push(leaf(&self.distribution));
                let children = std::iter::once(unseen).chain(places).collect();
                Node::Words { column: *column as u8, children }
            }
        };
        at as u32
    }
}

/// Grows a whole tree.
pub(super) fn grow(schema: &Schema, samples: &[Sample], classes: &[usize]) -> GrowingNode {
    let count = classes.iter().max().map_or(1, |last| last + 1);
    let rows: Vec<usize> = (0..samples.len()).collect();
    grow_node(schema, samples, classes, count, rows)
}

fn grow_node(schema: &Schema, samples: &[Sample], classes: &[usize], count: usize, rows: Vec<usize>) -> GrowingNode {
    let distribution = Distribution::of(&rows, samples, classes, count);
    let Some(split) = best_split(schema, samples, classes, &rows, &distribution) else {
        return GrowingNode { distribution, rows, split: None };
    };
    let mut branches = vec![Vec::new(); split.branches()];
    for &row in &rows {
        branches[split.branch(&samples[row].features)].push(row);
    }
    let children = branches.into_iter().map(|branch| grow_node(schema, samples, classes, count, branch)).collect();
    GrowingNode { distribution, rows, split: Some((split, children)) }
}

impl Split {
    pub(super) fn branches(&self) -> usize {
        match self {
            Self::Number { .. } => 2,
            Self::Words { levels, .. } => *levels,
        }
    }

    /// The branch of a row that was seen.
    pub(super) fn branch(&self, features: &EncodedRow) -> usize {
        match self {
            Self::Number { column, threshold } => usize::from(features.values[*column] > *threshold),
            // Level 0, a row without the word, goes with the first.
            Self::Words { column, levels } => (features.values[*column] as usize).clamp(1, *levels) - 1,
        }
    }
}
