//! The choice of a node: offers and refusals, then costs, then the function's order among equals.

use std::cmp::Reverse;

use nigh_terms::Incarnation;

use super::cost::{Terms, Weights};
pub use super::node_view::Offer;
use super::node_view::{NodeIndex, NodeRole, NodeView, Refusal};
use super::placement::{HeldInputs, Placement, WarmSandboxes};

/// The highest cost.
const COST_MAX: u64 = u64::MAX - 1;

/// The chosen node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The node.
    pub node: NodeIndex,
    /// The node's incarnation, which the dispatch names.
    pub incarnation: Incarnation,
    /// How the node will run the invocation.
    pub offer: Offer,
    /// The expected cost there.
    pub terms: Terms,
}

/// How many nodes refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u32; Refusal::ALL.len()]);

impl Refusals {
    /// The number of nodes with this reason.
    #[must_use]
    pub const fn count(&self, reason: Refusal) -> u32 {
        self.0[reason as usize]
    }

    /// The most frequent reason; of equally frequent ones the last in `Refusal::ALL`, because such a node is nearest to
    /// running it.
    #[must_use]
    pub fn commonest(&self) -> Option<Refusal> {
        Refusal::ALL.into_iter().max_by_key(|reason| self.count(*reason)).filter(|reason| self.count(*reason) > 0)
    }
}

/// A decision with its reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The chosen node; None if every node refused.
    pub choice: Option<Choice>,
    /// Number of nodes of equal cost, the chosen one included: the function's order decided among them.
    pub equals: u32,
    /// The refusals of the other nodes.
    pub refusals: Refusals,
}

/// One node's evaluation for a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The offer with its cost, or the refusal.
    pub offer: Result<(Offer, Terms), Refusal>,
    /// True if the node is so busy that its cached inputs do not count.
    pub overloaded: bool,
}

/// The load above which a node gets no preference.
#[derive(Clone, Copy)]
struct LoadBound {
    running: u64,
    processors: u64,
    percent: u64,
}

impl LoadBound {
    fn of(nodes: &[NodeView], overload_percent: u64) -> Self {
        let workers = nodes.iter().filter(|node| node.role == NodeRole::Worker);
        let (running, processors) = workers.fold((1, 0), |(running, processors), node| {
            (running + u64::from(node.running), processors + u64::from(node.processors.max(1)))
        });
        Self { running, processors, percent: overload_percent.saturating_add(100) }
    }

    /// True if one more invocation would bring `node` above both its own processors and its part of the mean load.
    const fn is_reached(&self, node: &NodeView) -> bool {
        let (running, processors) = (node.running as u64, node.processors as u64);
        let mean_part = self.running.saturating_mul(processors).saturating_mul(self.percent);
        running >= processors && running.saturating_mul(self.processors).saturating_mul(100) >= mean_part
    }
}

/// The values that are the same for all nodes.
#[derive(Clone, Copy)]
struct Judge<'a> {
    weights: &'a Weights,
    placement: &'a Placement<'a>,
    bound: LoadBound,
    /// The start cost of each offer: the least among the nodes that make the offer.
    starts: [u64; 3],
}

impl<'a> Judge<'a> {
    fn new(weights: &'a Weights, placement: &'a Placement<'a>, nodes: &[NodeView]) -> Self {
        let starts = [Offer::Warm, Offer::Cold, Offer::Evict].map(|offer| weights.start(placement, offer).0);
        Self { weights, placement, bound: LoadBound::of(nodes, weights.overload_percent), starts }
    }

    /// The cost of a node, and whether it is overloaded. None if the start cost alone is above `most`.
    fn cost(
        &self,
        node: &NodeView,
        warm: Option<&WarmSandboxes>,
        held: Option<&HeldInputs>,
        most: u64,
    ) -> Result<Option<(u64, bool)>, Refusal> {
        let offer = node.offer(self.placement, warm)?;
        if self.starts[offer as usize] > most {
            return Ok(None);
        }
        let overloaded = self.bound.is_reached(node);
        let counts = held.copied().filter(|_| !overloaded).unwrap_or_default();
        let terms = self.weights.terms(self.placement, node, offer, warm, counts);
        Ok(Some((terms.sum().0.min(COST_MAX), overloaded)))
    }

    fn judge(&self, node: &NodeView, warm: Option<&WarmSandboxes>, held: Option<&HeldInputs>) -> Judgement {
        let overloaded = self.bound.is_reached(node);
        let counts = held.copied().filter(|_| !overloaded).unwrap_or_default();
        let offer = node.offer(self.placement, warm);
        let terms = |offer| (offer, self.weights.terms(self.placement, node, offer, warm, counts));
        Judgement { offer: offer.map(terms), overloaded }
    }

    /// The evaluation of all nodes in order. Facts by node are in the same order, so each node costs one step.
    fn all(self, nodes: &[NodeView]) -> impl Iterator<Item = Judgement> {
        let (mut warm, mut held) = (self.placement.warm.walk(), self.placement.inputs.by_node().walk());
        nodes
            .iter()
            .zip(0..)
            .map(move |(node, index)| self.judge(node, warm.at(NodeIndex(index)), held.at(NodeIndex(index))))
    }
}

fn looked_at(nodes: &[NodeView]) -> &[NodeView] {
    &nodes[..nodes.len().min(usize::from(u16::MAX) - 1)]
}

/// Places one invocation. Nodes beyond the 65,534th are ignored.
#[must_use]
pub fn schedule(weights: &Weights, placement: &Placement<'_>, nodes: &[NodeView]) -> Decision {
    let nodes = looked_at(nodes);
    let judge = Judge::new(weights, placement, nodes);
    let mut refusals = Refusals::default();
    let mut least = COST_MAX;
    let (mut warm, mut held) = (placement.warm.walk(), placement.inputs.by_node().walk());
    let cost = |(index, node): (u16, &NodeView)| {
        let (warm, held) = (warm.at(NodeIndex(index)), held.at(NodeIndex(index)));
        match judge.cost(node, warm, held, least.saturating_add(weights.equal_within_us)) {
            Ok(cost) => {
                least = least.min(cost.map_or(COST_MAX, |(cost, _)| cost));
                cost
            }
            Err(refusal) => {
                refusals.0[refusal as usize] += 1;
                None
            }
        }
    };
    let costs: Vec<Option<(u64, bool)>> = (0..).zip(nodes).map(cost).collect();
    let most = least.saturating_add(weights.equal_within_us);
    let mut equals = 0;
    let mut first = None;
    for ((index, node), cost) in (0..).zip(nodes).zip(costs) {
        let Some((_, overloaded)) = cost.filter(|(cost, _)| *cost <= most) else { continue };
        equals += 1;
        let rank = (!overloaded, node.name.affinity(placement.function), Reverse(index));
        if first.is_none_or(|(best, _)| rank > best) {
            first = Some((rank, index));
        }
    }
    let choice = first.and_then(|(_, index)| {
        let (index, node) = (NodeIndex(index), nodes.get(usize::from(index))?);
        let judgement = judge.judge(node, placement.warm.get(index), placement.inputs.by_node().get(index));
        let (offer, terms) = judgement.offer.ok()?;
        Some(Choice { node: index, incarnation: node.incarnation, offer, terms })
    });
    Decision { choice, equals, refusals }
}

/// Every node's evaluation for a placement, in order: the base of `schedule`.
#[must_use]
pub fn explain(weights: &Weights, placement: &Placement<'_>, nodes: &[NodeView]) -> Vec<Judgement> {
    let nodes = looked_at(nodes);
    Judge::new(weights, placement, nodes).all(nodes).collect()
}
