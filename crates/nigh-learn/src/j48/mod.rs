//! The paper's own model: a C4.5 tree of intervals (OFC section 5.1), as WEKA's J48 grows and prunes it.
//!
//! Quinlan's C4.5 release 8 with WEKA's defaults: the split of the best gain ratio among those of at least average
//! gain, two rows a branch, a correction of a number's gain by how many thresholds were tried, pruning by the upper
//! end of the error's 25 % confidence interval, subtree raising. It is the baseline that others are judged by;
//! [`LinTree`](crate::LinTree) is the default.

mod grow;
mod prune;
mod split;

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;
use crate::sample::Sample;
use crate::schema::{EncodedRow, Schema};

/// Intervals that a tree tells apart; a larger need counts as the last.
pub(crate) const CLASSES_MAX: usize = 4096;
/// Nodes of a stored tree at most: two for each row that a training set holds, and some.
const NODES_MAX: usize = 1 << 14;

/// A node of the finished tree; children are places in the array, always behind their parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Node {
    Leaf {
        class: u32,
    },
    Number {
        column: u8,
        threshold: f64,
        below: u32,
        above: u32,
    },
    /// By level; `children[0]` is for a word never seen.
    Words {
        column: u8,
        children: Vec<u32>,
    },
}

/// A tree of classes, grown and pruned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ClassTree(Vec<Node>);

impl ClassTree {
    /// Grows and prunes a tree that tells `classes`, one a sample; without samples it says class 0.
    pub(crate) fn fit(schema: &Schema, samples: &[Sample], classes: &[usize]) -> Self {
        let mut tree = grow::grow(schema, samples, classes);
        prune::collapse(&mut tree);
        prune::prune(&mut tree, samples, classes);
        let mut nodes = Vec::new();
        tree.flatten(&mut nodes);
        Self(nodes)
    }

    #[inline]
    pub(crate) fn class(&self, features: &EncodedRow) -> u32 {
        let mut at = 0;
        loop {
            match &self.0[at] {
                Node::Leaf { class } => return *class,
                Node::Number { column, threshold, below, above } => {
                    let value = features.values[usize::from(*column)];
                    at = if value <= *threshold { *below } else { *above } as usize;
                }
                Node::Words { column, children } => {
                    let level = features.values[usize::from(*column)] as usize;
                    at = children.get(level).copied().unwrap_or(children[0]) as usize;
                }
            }
        }
    }

    pub(crate) fn leaves(&self) -> usize {
        self.0.iter().filter(|node| matches!(node, Node::Leaf { .. })).count()
    }

    /// True if what was read from a store can be walked: it ends, inside the array and the columns.
    pub(crate) fn is_sound(&self, columns: usize) -> bool {
        let inside = |at: usize, child: &u32| (*child as usize) > at && (*child as usize) < self.0.len();
        let sound = |(at, node): (usize, &Node)| match node {
            Node::Leaf { class } => (*class as usize) < CLASSES_MAX,
            Node::Number { column, threshold, below, above } => {
                usize::from(*column) < columns && threshold.is_finite() && inside(at, below) && inside(at, above)
            }
            Node::Words { column, children } => {
                usize::from(*column) < columns && !children.is_empty() && children.iter().all(|child| inside(at, child))
            }
        };
        (1..=NODES_MAX).contains(&self.0.len()) && self.0.iter().enumerate().all(sound)
    }
}

/// The tree of intervals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct J48 {
    interval: Interval,
    /// The next interval up from the predicted one is granted (OFC section 5.3.1).
    next_interval_up: bool,
    tree: ClassTree,
}

impl J48 {
    /// Fits a tree; without rows it predicts the first interval.
    #[must_use]
    pub fn fit(schema: &Schema, samples: &[Sample], interval: Interval) -> Self {
        let class = |sample: &Sample| (interval.index(sample.peak) as usize).min(CLASSES_MAX - 1);
        let classes: Vec<usize> = samples.iter().map(class).collect();
        Self { interval, next_interval_up: false, tree: ClassTree::fit(schema, samples, &classes) }
    }

    /// The same tree, granting the next interval up.
    #[must_use]
    pub const fn with_next_interval_up(mut self) -> Self {
        self.next_interval_up = true;
        self
    }

    /// The interval predicted.
    #[must_use]
    pub fn predict_interval(&self, features: &EncodedRow) -> u64 {
        u64::from(self.tree.class(features))
    }

    /// The upper end of the predicted interval, or of the next.
    #[must_use]
    pub fn predict(&self, features: &EncodedRow) -> ByteSize {
        self.interval.upper_end(self.predict_interval(features) + u64::from(self.next_interval_up))
    }

    /// The number of its leaves.
    #[must_use]
    pub fn leaves(&self) -> usize {
        self.tree.leaves()
    }

    pub(crate) fn is_sound(&self, columns: usize) -> bool {
        self.tree.is_sound(columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::FeatureRow;

    fn rows(of: impl Fn(usize) -> (f64, &'static str, u64), count: usize) -> (Schema, Vec<Sample>) {
        let given: Vec<_> = (0..count).map(of).collect();
        let row = |(number, word, _): &(f64, &str, u64)| {
            let mut row = FeatureRow::default();
            row.set_number("n", *number).unwrap();
            row.set_word("w", word).unwrap();
            row
        };
        let features: Vec<_> = given.iter().map(row).collect();
        let schema = Schema::learn(features.iter());
        let sample = |(at, row): (usize, &FeatureRow)| Sample {
            features: schema.encode(row),
            peak: ByteSize(given[at].2),
            bound: false,
            weight: 1.0,
            group: at as u64,
        };
        let samples = features.iter().enumerate().map(sample).collect();
        (schema, samples)
    }

    fn width() -> Interval {
        Interval::new(ByteSize(10)).unwrap()
    }

    #[test]
    fn a_threshold_and_a_word_are_found_and_the_upper_end_is_granted() {
        let of = |at: usize| {
            let word = ["a", "b"][at % 2];
            let peak = if word == "b" {
                35
            } else if at < 50 {
                5
            } else {
                15
            };
            (at as f64, word, peak)
        };
        let (schema, samples) = rows(of, 100);
        let tree = J48::fit(&schema, &samples, width());
        for sample in &samples {
            assert_eq!(tree.predict(&sample.features), width().grant(sample.peak));
            let up = tree.clone().with_next_interval_up().predict(&sample.features);
            assert_eq!(up, ByteSize(tree.predict(&sample.features).0 + 10));
        }
        assert_eq!(tree.leaves(), 4, "two words' branches, one split once, and the unseen word's");
        assert!(tree.is_sound(schema.columns.len()));
    }

    #[test]
    fn noise_is_pruned_to_one_leaf() {
        let (schema, samples) = rows(|at| ((at * 7919 % 101) as f64, "a", if at % 10 == 0 { 15 } else { 5 }), 100);
        let tree = J48::fit(&schema, &samples, width());
        assert_eq!(tree.leaves(), 1, "{tree:?}");
    }

    #[test]
    fn without_rows_the_first_interval_is_predicted() {
        let schema = Schema::default();
        let tree = J48::fit(&schema, &[], width());
        let nothing = schema.encode(&FeatureRow::default());
        assert_eq!(tree.predict(&nothing), ByteSize(10));
    }

    #[test]
    fn what_is_weighted_more_decides() {
        let (schema, mut samples) = rows(|at| (1.0, "a", if at % 4 == 0 { 15 } else { 5 }), 40);
        assert_eq!(J48::fit(&schema, &samples, width()).predict_interval(&samples[0].features), 0);
        for sample in samples.iter_mut().step_by(4) {
            sample.weight = 4.0;
        }
        assert_eq!(J48::fit(&schema, &samples, width()).predict_interval(&samples[0].features), 1);
    }
}
