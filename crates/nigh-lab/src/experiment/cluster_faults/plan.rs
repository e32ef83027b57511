//! Which faults strike, when, and whom. Pure: a seed in, a list of blows out.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng, SeedableRng};
use serde::Serialize;

pub(super) const SERVERS: usize = 3;
/// How many faults a blow has, drawn from these: two of one class never strike together.
const TOGETHER: [usize; 6] = [1, 1, 2, 2, 3, 4];
/// How long after the first fault of a blow the others begin, at most.
const BEGINS_WITHIN_S: f64 = 1.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// A node is killed, and started again.
    KillNode,
    /// A node is stopped for less than its lease.
    PauseNode,
    /// A node is stopped for longer: others take its shards, and it goes on and does not know.
    StopNode,
    /// Two nodes are killed at once, and started again,
    KillTwoNodes,
    /// or all are.
    KillAllNodes,
    /// Two nodes are stopped at once for longer than their lease: one has all shards until they go on.
    StopTwoNodes,
    /// A node is killed, and another while it takes the first one's shards.
    #[serde(rename = "kill_during_takeover")]
    KillAtTakeover,
    /// A node's link is down.
    CutNode,
    /// Two nodes do not reach each other.
    SeparateNodes,
    /// What one node sends does not come to another.
    #[serde(rename = "one_way_partition")]
    MuteNode,
    /// A node does not reach the NATS servers, and all else.
    #[serde(rename = "separate_node_from_nats")]
    SeparateFromServers,
    /// One NATS server is killed, and started again,
    #[serde(rename = "kill_nats_server")]
    KillServer,
    /// stopped,
    #[serde(rename = "stop_nats_server")]
    StopServer,
    /// stopped for less than the others take to elect another leader,
    #[serde(rename = "pause_nats_server")]
    PauseServer,
    /// or its link is down.
    #[serde(rename = "cut_nats_server")]
    CutServer,
    /// Two of three are killed,
    #[serde(rename = "kill_two_nats_servers")]
    KillTwoServers,
    /// stopped,
    #[serde(rename = "stop_two_nats_servers")]
    StopTwoServers,
    /// or their links are down.
    #[serde(rename = "cut_two_nats_servers")]
    CutTwoServers,
    /// All NATS servers are killed at once, and started again.
    #[serde(rename = "kill_all_nats_servers")]
    KillAllServers,
    /// The store is killed, and started again.
    KillStore,
    /// The store answers nothing.
    StopStore,
    /// The store is stopped, a node is killed, and the store answers when others have its shards.
    #[serde(rename = "late_store_after_failover")]
    LateStore,
    /// A node's disk is full.
    FullDisk,
    /// The kernel delays, loses, doubles and reorders a node's packets.
    BadPackets,
    /// Calls to a node, and its answers, are late.
    SlowCalls,
    /// Calls to a node do not come.
    HoldCalls,
    /// Its answers do not come.
    HoldAnswers,
    /// Connections to a node are reset, again and again.
    ResetCalls,
    /// Connections to a node are half open.
    #[serde(rename = "half_open_calls")]
    ForgetCalls,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wiring {
    /// Directly: the kernel can part them.
    Direct,
    /// By relays.
    Relayed,
}

impl Kind {
    /// Those that strike in any wiring.
    const ANYWHERE: [Self; 22] = [
        Self::KillNode,
        Self::PauseNode,
        Self::StopNode,
        Self::KillTwoNodes,
        Self::KillAllNodes,
        Self::StopTwoNodes,
        Self::KillAtTakeover,
        Self::CutNode,
        Self::SeparateFromServers,
        Self::KillServer,
        Self::StopServer,
        Self::PauseServer,
        Self::CutServer,
        Self::KillTwoServers,
        Self::StopTwoServers,
        Self::CutTwoServers,
        Self::KillAllServers,
        Self::KillStore,
        Self::StopStore,
        Self::LateStore,
        Self::FullDisk,
        Self::KillNode,
    ];
    const DIRECT: [Self; 3] = [Self::SeparateNodes, Self::MuteNode, Self::BadPackets];
    const RELAYED: [Self; 5] =
        [Self::SlowCalls, Self::HoldCalls, Self::HoldAnswers, Self::ResetCalls, Self::ForgetCalls];

    /// What it strikes: two of one class do not strike at once.
    const fn class(self) -> u8 {
        match self {
            Self::KillNode | Self::PauseNode | Self::StopNode | Self::FullDisk => 0,
            Self::KillTwoNodes | Self::KillAllNodes | Self::StopTwoNodes | Self::KillAtTakeover => 0,
            Self::CutNode | Self::SeparateNodes | Self::MuteNode | Self::SeparateFromServers | Self::BadPackets => 1,
            Self::KillServer | Self::StopServer | Self::KillTwoServers | Self::StopTwoServers => 2,
            Self::PauseServer | Self::KillAllServers => 2,
            // Links of servers are links too.
            Self::CutServer | Self::CutTwoServers => 1,
            Self::KillStore | Self::StopStore => 3,
            Self::LateStore => 0,
            Self::SlowCalls | Self::HoldCalls | Self::HoldAnswers | Self::ResetCalls | Self::ForgetCalls => 4,
        }
    }

    fn lasts(self, draw: &mut StdRng) -> Duration {
        let (from, to) = match self {
            Self::PauseNode => (0.2, 2.0),
            Self::PauseServer => (0.1, 1.0),
            Self::StopNode | Self::CutNode | Self::LateStore | Self::StopTwoNodes | Self::KillAtTakeover => (3.5, 6.0),
            Self::KillTwoServers | Self::StopTwoServers | Self::CutTwoServers | Self::KillAllServers => (1.0, 5.0),
            Self::ResetCalls | Self::ForgetCalls => (0.5, 1.5),
            _ => (0.5, 5.0),
        };
        Duration::from_secs_f64(draw.random_range(from..to))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Strike {
    pub(super) kind: Kind,
    /// The node that it strikes,
    pub(super) node: usize,
    /// another one, which is the second where two are struck,
    pub(super) other: usize,
    /// and the NATS server; of two, this and the next.
    pub(super) server: usize,
    /// When it begins, from the beginning of its blow on,
    pub(super) begins: Duration,
    /// and for how long it lasts.
    pub(super) lasts: Duration,
}

/// What is done to a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Begin,
    End,
}

/// Faults that overlap; then nothing for a while.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Blow {
    pub(super) strikes: Vec<Strike>,
    pub(super) quiet: Duration,
}

impl Blow {
    /// When each fault begins and ends, from the blow's beginning on, in the order of time.
    pub(super) fn turns(&self) -> Vec<(Duration, Turn, Strike)> {
        let both = |strike: &Strike| {
            [(strike.begins, Turn::Begin, *strike), (strike.begins + strike.lasts, Turn::End, *strike)]
        };
        let mut turns: Vec<_> = self.strikes.iter().flat_map(both).collect();
        turns.sort_by_key(|(at, ..)| *at);
        turns
    }
}

/// So many faults, of every kind in turn that strikes in this wiring and that `is_possible` here.
pub(super) fn plan(
    seed: u64,
    faults: usize,
    nodes: usize,
    wiring: Wiring,
    is_possible: impl Fn(Kind) -> bool,
) -> Vec<Blow> {
    let mut draw = StdRng::seed_from_u64(seed);
    let own: &[Kind] = match wiring {
        Wiring::Direct => &Kind::DIRECT,
        Wiring::Relayed => &Kind::RELAYED,
    };
    let kinds: Vec<Kind> = Kind::ANYWHERE.iter().chain(own).copied().filter(|kind| is_possible(*kind)).collect();
    let mut deck: Vec<Kind> = Vec::new();
    let (mut blows, mut struck) = (Vec::new(), 0);
    while struck < faults {
        let mut strikes: Vec<Strike> = Vec::new();
        let wanted = TOGETHER[draw.random_range(0..TOGETHER.len())].min(faults - struck);
        while strikes.len() < wanted {
            if deck.is_empty() {
                deck.clone_from(&kinds);
                deck.shuffle(&mut draw);
            }
            let free = |kind: &Kind| strikes.iter().all(|strike| strike.kind.class() != kind.class());
            // A deck of one class alone has no second one.
            let Some(at) = deck.iter().position(free) else { break };
            let kind = deck.swap_remove(at);
            let node = draw.random_range(0..nodes);
            let other = (node + draw.random_range(1..nodes)) % nodes;
            let (server, lasts) = (draw.random_range(0..SERVERS), kind.lasts(&mut draw));
            let begins = if strikes.is_empty() { 0.0 } else { draw.random_range(0.0..BEGINS_WITHIN_S) };
            let begins = Duration::from_secs_f64(begins);
            strikes.push(Strike { kind, node, other, server, begins, lasts });
        }
        struck += strikes.len();
        let quiet = Duration::from_secs_f64(draw.random_range(0.3..1.5));
        blows.push(Blow { strikes, quiet });
    }
    blows
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_one_plan_with_every_kind_and_no_two_of_a_class_at_once() {
        for wiring in [Wiring::Direct, Wiring::Relayed] {
            let blows = plan(7, 60, 3, wiring, |_| true);
            assert_eq!(blows, plan(7, 60, 3, wiring, |_| true));
            assert_ne!(blows, plan(8, 60, 3, wiring, |_| true));
            assert_eq!(blows.iter().map(|blow| blow.strikes.len()).sum::<usize>(), 60);
            let kinds: BTreeSet<Kind> = blows.iter().flat_map(|blow| &blow.strikes).map(|strike| strike.kind).collect();
            let own: &[Kind] = if wiring == Wiring::Direct { &Kind::DIRECT } else { &Kind::RELAYED };
            assert!(Kind::ANYWHERE.iter().chain(own).all(|kind| kinds.contains(kind)), "{kinds:?}");
            for Blow { strikes, .. } in &blows {
                assert!(strikes.iter().all(|strike| strike.node != strike.other));
                let classes: BTreeSet<u8> = strikes.iter().map(|strike| strike.kind.class()).collect();
                assert_eq!(classes.len(), strikes.len());
            }
            assert!(blows.iter().any(|blow| blow.strikes.len() > 2));
        }
        let without = plan(7, 60, 3, Wiring::Direct, |kind| kind != Kind::BadPackets);
        assert!(without.iter().flat_map(|blow| &blow.strikes).all(|strike| strike.kind != Kind::BadPackets));
    }

    #[test]
    fn every_fault_of_a_blow_begins_and_ends_once_in_the_order_of_time() {
        let blows = plan(7, 60, 3, Wiring::Direct, |_| true);
        for blow in &blows {
            let turns = blow.turns();
            assert!(turns.is_sorted_by_key(|(at, ..)| *at));
            let of = |turn| turns.iter().filter(move |one| one.1 == turn).map(|(at, _, strike)| (*at, *strike));
            assert_eq!(of(Turn::Begin).count(), blow.strikes.len());
            for (at, strike) in of(Turn::End) {
                assert!(of(Turn::Begin).any(|(began, same)| same == strike && began + strike.lasts == at));
            }
        }
        let overlap =
            |blow: &Blow| blow.turns().windows(2).any(|two| two[0].1 == Turn::Begin && two[1].1 == Turn::Begin);
        assert!(blows.iter().filter(|blow| blow.strikes.len() > 1).any(overlap));
    }
}
