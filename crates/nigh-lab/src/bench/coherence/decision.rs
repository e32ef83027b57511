//! A placement over many nodes, with its inputs looked up among the hints of many objects.

use std::hint::black_box;
use std::time::Duration;

use nigh_schedule::scheduler::locality_hints::LocalityHints;
use nigh_schedule::scheduler::{
    Fingerprint, Inputs, NodeIndex, NodeRole, NodeView, PerNode, Placement, WarmSandboxes, Weights, schedule,
};
use nigh_sim::llc::SplitMix64;
use nigh_terms::{ByteSize, Incarnation};
use serde::Serialize;

use crate::instrument::cpu_time::of_this_thread;
use crate::instrument::stats::Sample;

const NODES: [u16; 3] = [10, 100, 1_000];
const DECISIONS: usize = 2_000;
const INPUTS: u32 = 4;
/// Nodes that have an idle sandbox of the function: one in so many.
const WARM: u16 = 20;

#[derive(Debug, Serialize)]
pub(super) struct DecisionRow {
    nodes: u16,
    pub(super) objects: u64,
    inputs: u32,
    /// Nodes with an idle sandbox of the function; those of half of the functions are elsewhere, so that they are placed anew.
    warm: u16,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// What an object takes in the index of hints.
    hint_bytes_per_object: f64,
}

fn object(number: u64) -> Fingerprint {
    Fingerprint(SplitMix64::new(number).next_u64())
}

fn view(number: u16, random: &mut SplitMix64) -> NodeView {
    let memory = ByteSize::gib(64);
    NodeView {
        incarnation: Incarnation(1),
        name: Fingerprint::of(&[&format!("node-{number}")]),
        role: NodeRole::Worker,
        shards_behind: u16::from(random.below(50) == 0),
        idle: random.below(40),
        memory,
        memory_free: ByteSize::mib(u64::from(random.below(65_536))),
        memory_idle: ByteSize::mib(u64::from(random.below(4_096))),
        sandboxes_free: random.below(64),
        running: random.below(64),
        invocations_free: random.below(64),
        processors: 32,
        ways_free: random.below(12) as u8,
        evict_us: 0,
        start_us: 0,
    }
}

pub(super) fn run(objects: u64, rounds: usize) -> Vec<DecisionRow> {
    NODES.into_iter().map(|nodes| row(nodes, objects, rounds)).collect()
}

fn row(nodes: u16, objects: u64, rounds: usize) -> DecisionRow {
    let mut random = SplitMix64::new(3);
    let mut hints = LocalityHints::new(objects as usize);
    for number in 0..objects {
        hints.installed(object(number), NodeIndex(random.below(u32::from(nodes)) as u16), 1 << random.below(24));
    }
    let views: Vec<NodeView> = (0..nodes).map(|number| view(number, &mut random)).collect();
    let mut warm: PerNode<WarmSandboxes> = PerNode::default();
    for node in (0..nodes).step_by(usize::from(WARM)) {
        let idle_for = Duration::from_secs(u64::from(random.below(600)));
        *warm.entry(NodeIndex(node)) = WarmSandboxes { sandboxes: 1, granted: ByteSize::mib(128), idle_for };
    }
    let nowhere = PerNode::default();
    let mut inputs = Inputs::default();
    let mut times = Vec::new();
    for at in 0..rounds * DECISIONS {
        let named: Vec<(Fingerprint, u64)> = (0..INPUTS)
            .map(|_| (object(u64::from(random.below(objects as u32))), u64::from(random.below(1 << 24))))
            .collect();
        let function = Fingerprint(random.next_u64());
        let begun = of_this_thread();
        inputs.clear();
        for (object, bytes) in &named {
            inputs.add(*bytes, hints.holders(*object).map(|(node, _)| node));
        }
        let placement = Placement {
            function,
            booked: ByteSize::mib(256),
            expected: ByteSize::mib(100),
            run: Duration::from_millis(80),
            cold_start: Duration::from_millis(20),
            ways: 3,
            warm: if at.is_multiple_of(2) { &warm } else { &nowhere },
            inputs: &inputs,
        };
        black_box(schedule(&Weights::SETTLED, &placement, black_box(&views)));
        times.push((of_this_thread() - begun).as_nanos() as f64 / 1000.0);
    }
    let times = Sample::new(times);
    DecisionRow {
        nodes,
        objects,
        inputs: INPUTS,
        warm: nodes.div_ceil(WARM),
        p50_us: times.median(),
        p99_us: times.percentile(0.99),
        hint_bytes_per_object: hints.bytes() as f64 / objects as f64,
    }
}
