//! Properties of every decision, whatever the nodes.

use std::time::Duration;

use nigh_terms::{ByteSize, Incarnation};
use proptest::prelude::*;

use super::*;

fn node(name: &str) -> NodeView {
    NodeView {
        incarnation: Incarnation(1),
        name: Fingerprint::of(&[name]),
        role: NodeRole::Worker,
        shards_behind: 0,
        idle: 0,
        memory: ByteSize::mib(1024),
        memory_free: ByteSize::mib(512),
        memory_idle: ByteSize::ZERO,
        sandboxes_free: 4,
        running: 0,
        invocations_free: 4,
        processors: 4,
        ways_free: 11,
        evict_us: 0,
        start_us: 0,
    }
}

/// A placement with lists of its own.
#[derive(Clone, Debug, Default)]
struct PlacementCase {
    function: u64,
    mib: u64,
    ways: u8,
    warm: PerNode<WarmSandboxes>,
    inputs: Inputs,
}

impl PlacementCase {
    fn of(mib: u64) -> Self {
        Self { mib, ..Self::default() }
    }

    fn warm(mut self, node: u16, sandboxes: u32) -> Self {
        *self.warm.entry(NodeIndex(node)) =
            WarmSandboxes { sandboxes, granted: ByteSize::mib(self.mib), idle_for: Duration::from_secs(1) };
        self
    }

    fn holding(mut self, bytes: u64, nodes: &[u16]) -> Self {
        self.inputs.add(bytes, nodes.iter().map(|node| NodeIndex(*node)));
        self
    }

    fn view(&self) -> Placement<'_> {
        Placement {
            function: Fingerprint::of(&["tenant", &self.function.to_string()]),
            booked: ByteSize::mib(self.mib),
            expected: ByteSize::mib(self.mib),
            run: Duration::from_millis(200),
            cold_start: Duration::from_millis(100),
            ways: self.ways,
            warm: &self.warm,
            inputs: &self.inputs,
        }
    }

    fn on(&self, nodes: &[NodeView]) -> Decision {
        schedule(&Weights::SETTLED, &self.view(), nodes)
    }

    fn goes(&self, nodes: &[NodeView]) -> Option<(u16, Offer)> {
        self.on(nodes).choice.map(|choice| (choice.node.0, choice.offer))
    }
}

#[test]
fn a_warm_sandbox_goes_before_free_memory_and_before_local_bytes() {
    let full = NodeView { idle: 1, memory_free: ByteSize::ZERO, sandboxes_free: 0, ..node("b") };
    let placed = PlacementCase::of(128).warm(1, 1).holding(100 << 20, &[0]);
    assert_eq!(placed.goes(&[node("a"), full]), Some((1, Offer::Warm)));
    let choice = placed.on(&[node("a"), full]).choice.unwrap();
    assert_eq!((choice.incarnation, choice.terms.start), (Incarnation(1), Cost(0)));
    assert!(choice.terms.fetch > Cost(0));
}

#[test]
fn of_warm_sandboxes_the_one_beside_the_inputs_runs_it() {
    let nodes = [node("a"), node("b"), node("c")];
    for holder in 0..3 {
        let placed = PlacementCase::of(128).warm(0, 1).warm(1, 1).warm(2, 1).holding(8 << 20, &[holder]);
        assert_eq!(placed.goes(&nodes), Some((holder, Offer::Warm)));
    }
}

#[test]
fn a_new_sandbox_goes_to_its_inputs_if_it_fits_there_and_else_down_the_functions_order() {
    let mut nodes: Vec<NodeView> = (0..8).map(|number| node(&format!("n{number}"))).collect();
    let holder = NodeIndex(5);
    let placed = PlacementCase::of(128).holding(64 << 20, &[holder.0]);
    assert_eq!(placed.goes(&nodes), Some((5, Offer::Cold)));
    nodes[5].memory_free = ByteSize::ZERO;
    let mut order: Vec<u16> = (0..8).filter(|node| *node != 5).collect();
    order.sort_by_key(|at| std::cmp::Reverse(nodes[usize::from(*at)].name.affinity(placed.view().function)));
    for next in order {
        assert_eq!(placed.goes(&nodes), Some((next, Offer::Cold)));
        nodes[usize::from(next)].memory_free = ByteSize::ZERO;
    }
    assert_eq!(placed.goes(&nodes), None);
}

#[test]
fn idle_sandboxes_of_others_make_room_only_when_nothing_is_free() {
    let full = NodeView { memory_free: ByteSize::mib(64), memory_idle: ByteSize::mib(128), idle: 1, ..node("a") };
    assert_eq!(PlacementCase::of(128).goes(&[full]), Some((0, Offer::Evict)));
    let crowded = NodeView { sandboxes_free: 0, idle: 1, memory_idle: ByteSize::mib(1), ..node("a") };
    assert_eq!(PlacementCase::of(128).goes(&[crowded]), Some((0, Offer::Evict)));
    assert_eq!(PlacementCase::of(128).goes(&[full, node("b")]), Some((1, Offer::Cold)));
}

#[test]
fn each_refusing_node_says_why_and_no_node_that_is_behind_or_lends_memory_is_chosen() {
    let nodes = [
        NodeView { role: NodeRole::MemoryOnly, ..node("lender") },
        NodeView { role: NodeRole::Draining, ..node("leaver") },
        NodeView { shards_behind: 1, ..node("behind") },
        NodeView { invocations_free: 0, ..node("busy") },
        NodeView { sandboxes_free: 0, ..node("crowded") },
        NodeView { memory_free: ByteSize::mib(100), memory_idle: ByteSize::mib(27), idle: 1, ..node("full") },
    ];
    let placed = (0..4).fold(PlacementCase::of(128).holding(1 << 30, &[0, 1, 2]), |placed, node| placed.warm(node, 3));
    let reasons: Vec<Option<Refusal>> =
        explain(&Weights::SETTLED, &placed.view(), &nodes).iter().map(|judgement| judgement.offer.err()).collect();
    let expected =
        [Refusal::RunsNothing, Refusal::RunsNothing, Refusal::Behind, Refusal::Busy, Refusal::Crowded, Refusal::Full];
    assert_eq!(reasons, expected.map(Some));
    let decision = placed.on(&nodes);
    assert_eq!((decision.choice, decision.refusals.commonest()), (None, Some(Refusal::RunsNothing)));
    assert!(Refusal::Behind.reason().contains("has not applied"));
}

#[test]
fn a_node_without_the_cache_ways_is_second_choice() {
    let nodes = [NodeView { ways_free: 2, ..node("a") }, node("b")];
    for function in 0..20 {
        assert_eq!(PlacementCase { function, ways: 6, ..PlacementCase::of(64) }.goes(&nodes), Some((1, Offer::Cold)));
    }
}

#[test]
fn a_popular_object_does_not_pile_the_work_onto_its_holder() {
    let large = |name: &str| NodeView {
        memory_free: ByteSize::gib(64),
        invocations_free: 1000,
        sandboxes_free: 1000,
        ..node(name)
    };
    let mut nodes: Vec<NodeView> = (0..10).map(|number| large(&format!("n{number}"))).collect();
    for _ in 0..200 {
        // The run is so short that its slowdown weighs nothing against the bytes.
        let placed = PlacementCase::of(64).holding(1 << 30, &[3]);
        let placement = Placement { run: Duration::ZERO, ..placed.view() };
        let choice = schedule(&Weights::SETTLED, &placement, &nodes).choice.unwrap();
        nodes[usize::from(choice.node.0)].running += 1;
    }
    let most = nodes.iter().map(|node| node.running).max().unwrap();
    assert!(nodes[3].running >= 20 && most <= 26, "{:?}", nodes.iter().map(|node| node.running).collect::<Vec<_>>());
}

fn any_node() -> impl Strategy<Value = NodeView> {
    let role = prop_oneof![8 => Just(NodeRole::Worker), 1 => Just(NodeRole::MemoryOnly), 1 => Just(NodeRole::Draining)];
    let gate = prop_oneof![4 => Just(0u16), 1 => 1u16..4];
    let counts = (0u32..3, 0u32..3, 0u32..6, 0u32..3);
    (role, gate, counts, 0u64..300, 0u64..300, any::<u64>()).prop_map(
        |(role, shards_behind, counts, free, idle, name)| {
            let (idle_count, sandboxes_free, running, invocations_free) = counts;
            NodeView {
                role,
                shards_behind,
                idle: idle_count,
                memory_free: ByteSize::mib(free),
                memory_idle: ByteSize::mib(idle),
                sandboxes_free,
                running,
                invocations_free,
                name: Fingerprint(name),
                ..node("any")
            }
        },
    )
}

proptest! {
    #[test]
    fn whoever_is_chosen_can_run_it_and_nobody_is_chosen_only_if_nobody_can(
        nodes in prop::collection::vec(any_node(), 0..12),
        warm in prop::collection::btree_map(0u16..12, 0u32..3, 0..6),
        held in prop::collection::vec((0u64..(1 << 30), prop::collection::btree_set(0u16..12, 0..4)), 0..4),
        mib in 1u64..300,
        function in any::<u64>(),
    ) {
        let mut placed = PlacementCase { function, ..PlacementCase::of(mib) };
        for (node, sandboxes) in warm {
            placed = placed.warm(node, sandboxes);
        }
        for (bytes, nodes) in held {
            placed.inputs.add(bytes, nodes.into_iter().map(NodeIndex));
        }
        let decision = placed.on(&nodes);
        prop_assert_eq!(decision, placed.on(&nodes), "one input has one answer");
        let judged = explain(&Weights::SETTLED, &placed.view(), &nodes);
        let able = judged.iter().filter(|judgement| judgement.offer.is_ok()).count();
        prop_assert_eq!(decision.choice.is_some(), able > 0);
        let refused: u32 = Refusal::ALL.into_iter().map(|reason| decision.refusals.count(reason)).sum();
        prop_assert_eq!(refused as usize + able, nodes.len());
        if let Some(Choice { node, offer, terms, .. }) = decision.choice {
            let view = &nodes[usize::from(node.0)];
            prop_assert!(view.role == NodeRole::Worker && view.shards_behind == 0 && view.invocations_free > 0);
            prop_assert_eq!(judged[usize::from(node.0)].offer, Ok((offer, terms)), "the reasons are those of the choice");
            let is_warm = placed.warm.get(node).is_some_and(|warm| warm.sandboxes > 0);
            match offer {
                Offer::Warm => prop_assert!(is_warm),
                Offer::Cold => prop_assert!(!is_warm && view.memory_free >= ByteSize::mib(mib) && view.sandboxes_free > 0),
                Offer::Evict => prop_assert!(view.memory_free + view.memory_idle >= ByteSize::mib(mib)),
            }
            let least = judged.iter().filter_map(|one| one.offer.ok()).map(|(_, terms)| terms.sum()).min().unwrap();
            prop_assert!(terms.sum().0 <= least.0 + Weights::SETTLED.equal_within_us);
        }
    }
}
