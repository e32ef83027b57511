//! Which node runs an invocation: a pure function of what is known of the nodes.
//!
//! A warm sandbox first, then memory; never a node that does not cover what the dispatch carries. Among equals the
//! node with more to spare wins, then the lesser name, so that one input has one answer.

use std::cmp::Reverse;

use nigh_terms::{ByteSize, Incarnation, NodeId, Token};

/// What the scheduler knows of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The node.
    pub node: NodeId,
    /// Its life; a dispatch names it.
    pub incarnation: Incarnation,
    /// Idle sandboxes of the function asked for.
    pub warm: usize,
    /// Idle sandboxes of all functions.
    pub idle: usize,
    /// Memory that new sandboxes may book.
    pub memory_free: ByteSize,
    /// Memory of idle sandboxes that may be ended to make room.
    pub memory_idle: ByteSize,
    /// Sandboxes that may be added before the node's limit.
    pub sandboxes_free: usize,
    /// Invocations that may be added before the node's limit.
    pub invocations_free: usize,
    /// What it has shown to have applied.
    pub covered: Token,
}

/// What is to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The memory that a new sandbox would book.
    pub booked: ByteSize,
    /// What the dispatch carries.
    pub token: Token,
}

/// Where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// To an idle sandbox of this node.
    Warm(NodeId, Incarnation),
    /// To a new sandbox of this node.
    Cold(NodeId, Incarnation),
    /// To a new sandbox of this node, once idle ones have made room.
    Evict(NodeId, Incarnation),
    /// Nowhere now: each node with its reason.
    Refused(Vec<(NodeId, &'static str)>),
}

/// What one node can do for a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Offer {
    Evict,
    Cold,
    Warm,
}

fn offer(placement: &Placement, node: &NodeView) -> Result<Offer, &'static str> {
    if !node.covered.covers(&placement.token) {
        return Err("has not applied all that the invocation's caller has seen");
    }
    if node.invocations_free == 0 {
        return Err("runs as many invocations as it may");
    }
    if node.warm > 0 {
        return Ok(Offer::Warm);
    }
    if node.sandboxes_free > 0 && node.memory_free >= placement.booked {
        return Ok(Offer::Cold);
    }
    if node.sandboxes_free == 0 && node.idle == 0 {
        return Err("has as many sandboxes as it may, none of them idle");
    }
    if node.memory_free + node.memory_idle < placement.booked {
        return Err("has not enough memory beside the running sandboxes");
    }
    Ok(Offer::Evict)
}

/// Places one invocation.
#[must_use]
pub fn schedule(placement: &Placement, nodes: &[NodeView]) -> Decision {
    let mut refusals = Vec::new();
    let mut offers = Vec::new();
    for node in nodes {
        match offer(placement, node) {
            Ok(offer) => offers.push((offer, node)),
            Err(why) => refusals.push((node.node.clone(), why)),
        }
    }
    let spare = |offer: Offer, node: &NodeView| match offer {
        Offer::Warm => node.warm as u64,
        Offer::Cold => node.memory_free.bytes(),
        Offer::Evict => (node.memory_free + node.memory_idle).bytes(),
    };
    let best = offers.into_iter().max_by_key(|&(offer, node)| (offer, spare(offer, node), Reverse(&node.node)));
    match best {
        Some((Offer::Warm, node)) => Decision::Warm(node.node.clone(), node.incarnation),
        Some((Offer::Cold, node)) => Decision::Cold(node.node.clone(), node.incarnation),
        Some((Offer::Evict, node)) => Decision::Evict(node.node.clone(), node.incarnation),
        None => Decision::Refused(refusals),
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Sequence, ShardId, Version};

    use super::*;

    fn node(name: &str) -> NodeView {
        NodeView {
            node: NodeId(name.to_owned()),
            incarnation: Incarnation(1),
            warm: 0,
            idle: 0,
            memory_free: ByteSize::mib(512),
            memory_idle: ByteSize::ZERO,
            sandboxes_free: 4,
            invocations_free: 4,
            covered: Token::empty(),
        }
    }

    fn placement(mib: u64) -> Placement {
        Placement { booked: ByteSize::mib(mib), token: Token::empty() }
    }

    fn at(name: &str) -> (NodeId, Incarnation) {
        (NodeId(name.to_owned()), Incarnation(1))
    }

    #[test]
    fn a_warm_sandbox_goes_before_free_memory() {
        let warm = NodeView { warm: 1, idle: 1, memory_free: ByteSize::ZERO, sandboxes_free: 0, ..node("b") };
        let (name, life) = at("b");
        assert_eq!(schedule(&placement(128), &[node("a"), warm]), Decision::Warm(name, life));
    }

    #[test]
    fn a_new_sandbox_goes_where_most_memory_is_free() {
        let roomy = NodeView { memory_free: ByteSize::gib(1), ..node("b") };
        let (name, life) = at("b");
        assert_eq!(schedule(&placement(128), &[node("a"), roomy, node("c")]), Decision::Cold(name, life));
        let (name, life) = at("a");
        assert_eq!(schedule(&placement(128), &[node("c"), node("a")]), Decision::Cold(name, life));
    }

    #[test]
    fn idle_sandboxes_of_others_make_room_only_when_nothing_is_free() {
        let full = NodeView { memory_free: ByteSize::mib(64), memory_idle: ByteSize::mib(128), idle: 1, ..node("a") };
        let (name, life) = at("a");
        assert_eq!(schedule(&placement(128), std::slice::from_ref(&full)), Decision::Evict(name.clone(), life));
        let crowded = NodeView { sandboxes_free: 0, idle: 1, memory_idle: ByteSize::mib(1), ..node("a") };
        assert_eq!(schedule(&placement(128), &[crowded]), Decision::Evict(name, life));
        let (name, life) = at("b");
        assert_eq!(schedule(&placement(128), &[full, node("b")]), Decision::Cold(name, life));
    }

    #[test]
    fn a_node_that_has_not_seen_what_the_caller_has_is_not_chosen() {
        let mut seen = Token::empty();
        seen.see(ShardId(3), Version { epoch: Epoch(1), sequence: Sequence(9) });
        let wanted = Placement { token: seen.clone(), ..placement(128) };
        let behind = NodeView { warm: 5, idle: 5, ..node("a") };
        assert!(matches!(schedule(&wanted, std::slice::from_ref(&behind)), Decision::Refused(why) if why.len() == 1));
        let (name, life) = at("b");
        assert_eq!(schedule(&wanted, &[behind, NodeView { covered: seen, ..node("b") }]), Decision::Cold(name, life));
    }

    #[test]
    fn each_refusing_node_says_why() {
        let nodes = [
            NodeView { invocations_free: 0, warm: 1, idle: 1, ..node("busy") },
            NodeView { sandboxes_free: 0, ..node("crowded") },
            NodeView { memory_free: ByteSize::mib(100), memory_idle: ByteSize::mib(27), idle: 1, ..node("full") },
        ];
        let Decision::Refused(why) = schedule(&placement(128), &nodes) else { panic!("placed") };
        let reasons: Vec<_> = why.iter().map(|(node, why)| (node.0.as_str(), *why)).collect();
        assert_eq!(
            reasons,
            [
                ("busy", "runs as many invocations as it may"),
                ("crowded", "has as many sandboxes as it may, none of them idle"),
                ("full", "has not enough memory beside the running sandboxes"),
            ]
        );
    }
}
