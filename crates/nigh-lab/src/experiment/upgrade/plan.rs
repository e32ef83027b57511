//! In which order the nodes of a cluster are replaced by a newer program. Pure: a seed in, a list of steps out.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Downgrades of one plan, and restarts without another program, at most.
const DOWNGRADES_MAX: usize = 2;
const RESTARTS_MAX: usize = 2;
/// How often a node that is restarted with the newer program is drained before.
const DRAINED: f64 = 0.5;

/// The program that a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    Older,
    Newer,
}

/// What is done to a cluster next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A node ends in order, and starts with this program. If `drains`, it is drained before.
    Replace { node: usize, with: Release, drains: bool },
    /// The cluster's format is raised.
    Finalize,
    /// A node ends in order, and starts with the older program, which must refuse; then it starts with the newer one.
    TryOlder { node: usize },
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Replace { node, with, drains } => {
                let drained = if *drains { "drained, then " } else { "" };
                let with = if *with == Release::Older { "older" } else { "newer" };
                write!(f, "node-{}: {drained}started with the {with} program", node + 1)
            }
            Self::Finalize => f.write_str("the format is raised"),
            Self::TryOlder { node } => write!(f, "node-{}: the older program is refused", node + 1),
        }
    }
}

/// The steps from a cluster of `nodes` nodes with the older program to one with the newer program and its format.
pub(super) fn plan(seed: u64, nodes: usize) -> Vec<Step> {
    let mut draw = StdRng::seed_from_u64(seed);
    let (mut runs, mut steps) = (vec![Release::Older; nodes], Vec::new());
    let (mut downgrades, mut restarts) = (draw.random_range(0..=DOWNGRADES_MAX), draw.random_range(0..=RESTARTS_MAX));
    loop {
        let of = |release: Release| (0..nodes).filter(|node| runs[*node] == release).collect::<Vec<_>>();
        let (older, newer) = (of(Release::Older), of(Release::Newer));
        if older.is_empty() && downgrades + restarts == 0 {
            break;
        }
        let (node, with) = if restarts > 0 && draw.random_bool(0.3) {
            restarts -= 1;
            let node = draw.random_range(0..nodes);
            (node, runs[node])
        } else if downgrades > 0 && !newer.is_empty() && (older.is_empty() || draw.random_bool(0.4)) {
            downgrades -= 1;
            (newer[draw.random_range(0..newer.len())], Release::Older)
        } else if older.is_empty() {
            continue;
        } else {
            (older[draw.random_range(0..older.len())], Release::Newer)
        };
        // Only a newer program follows the order to drain, and the order to work again.
        let drains = (runs[node], with) == (Release::Newer, Release::Newer) && draw.random_bool(DRAINED);
        steps.push(Step::Replace { node, with, drains });
        runs[node] = with;
    }
    let first = draw.random_range(0..nodes);
    steps.push(Step::Finalize);
    steps.push(Step::TryOlder { node: first });
    let node = (first + draw.random_range(1..nodes)) % nodes;
    steps.push(Step::Replace { node, with: Release::Newer, drains: true });
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_plan_ends_with_all_nodes_newer_and_raises_the_format_only_then() {
        let mut plans = BTreeSet::new();
        for seed in 0..500 {
            let steps = plan(seed, 3);
            let mut runs = [Release::Older; 3];
            let mut is_raised = false;
            for step in &steps {
                match step {
                    Step::Replace { node, with, drains } => {
                        assert!(!is_raised || *with == Release::Newer, "{seed}: {steps:?}");
                        let is_newer = (runs[*node], *with) == (Release::Newer, Release::Newer);
                        assert!(!drains || is_newer, "{seed}: an older program does not drain");
                        runs[*node] = *with;
                    }
                    Step::Finalize => {
                        assert_eq!(runs, [Release::Newer; 3], "{seed}: {steps:?}");
                        is_raised = true;
                    }
                    Step::TryOlder { .. } => assert!(is_raised),
                }
            }
            assert!(is_raised && steps.len() <= 3 + 2 * DOWNGRADES_MAX + RESTARTS_MAX + 3, "{seed}: {steps:?}");
            assert_eq!(steps, plan(seed, 3), "a seed is one plan");
            plans.insert(steps.iter().map(ToString::to_string).collect::<Vec<_>>());
        }
        assert!(plans.len() > 100, "{} plans", plans.len());
        let has = |words: &str| plans.iter().flatten().any(|step| step.contains(words));
        assert!(has("started with the older program") && has("drained, then started with the newer program"));
    }
}
