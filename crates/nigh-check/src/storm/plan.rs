//! The plan of a seed: the size of the cluster, the machines' time-outs, the load, and the faults with their times.
//!
//! Seeds differ widely on purpose: each storm has some kinds of faults and lacks others, so that frequent faults do not
//! always interrupt rare sequences.

use std::time::Duration;

use nigh_objects::behind::DirtyLimits;
use nigh_protocol::{CacheLimits, GateLimits, HomeLimits};

use super::dice::Dice;
use super::fault::{Fault, FaultKind};
use super::observer::OBJECTS_MAX;
use crate::ghost::Object;

/// The time after which a push without an answer can have no more effect: two time-outs, each on a paused machine, the
/// longest transfer, the latest execution, and clocks that run fast and jump meanwhile.
const LANDS_WITHIN: Duration = Duration::from_secs(40);
/// The time after which a push without an answer can have no more effect, if there are no faults: only the time-outs.
const LANDS_PROMPTLY: Duration = Duration::from_secs(5);
/// The faults that cannot happen if pushes are executed promptly.
const DELAYS: [FaultKind; 5] =
    [FaultKind::Pause, FaultKind::ClockJump, FaultKind::ClockSkew, FaultKind::StoreLate, FaultKind::MessageLate];

/// The plan of a storm.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) nodes: u8,
    pub(super) shards: u16,
    pub(super) namespaces: u8,
    pub(super) objects: u8,
    /// True if every fourth object is written only from outside.
    pub(super) outsiders: bool,
    /// Number of clients, with one request under way each.
    pub(super) actors: u8,
    /// The longest pause of a client between requests, in milliseconds.
    pub(super) think_ms: u64,
    /// True if homes are within nodes.
    pub(super) residents: bool,
    /// The longest transfer of a message without faults, in milliseconds.
    pub(super) jitter_ms: u64,
    /// The longest time until a node knows the home of a shard, in milliseconds.
    pub(super) news_ms: u64,
    /// True if pushes without an answer are executed soon or never.
    pub(super) prompt: bool,
    /// The end of the last fault, after which no new work starts.
    pub(super) storm_ms: u64,
    pub(super) home: HomeLimits,
    pub(super) cache: CacheLimits,
    pub(super) gate: GateLimits,
    pub(super) dirty: DirtyLimits,
    /// How often a home asks the ledger whether its epoch is valid.
    pub(super) heartbeat: Duration,
    pub(super) faults: Vec<Fault>,
}

/// A node that sends a request again after `resend`, and later up to eight times as rarely.
const fn cache_limits(resend: Duration) -> CacheLimits {
    CacheLimits { resend, resend_max: resend.saturating_mul(8), requests_max: 65_536 }
}

impl Plan {
    pub(super) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 1);
        let ms = |dice: &mut Dice, low, high| Duration::from_millis(dice.between(low, high));
        let (shards, namespaces) = (1 + dice.below(3) as u16, 1 + dice.below(2) as u8);
        let groups = shards as u8 * namespaces;
        let objects = groups * (1 + dice.below(3) as u8);
        let storm_ms = dice.between(5_000, 18_000);
        let (few, prompt) = (dice.chance(300), dice.chance(150));
        let mut plan = Self {
            seed,
            nodes: 2 + dice.below(4) as u8,
            shards,
            namespaces,
            objects: objects.min(OBJECTS_MAX as u8),
            outsiders: dice.chance(250) && objects >= 4,
            actors: 3 + dice.below(8) as u8,
            think_ms: dice.between(5, 400),
            residents: dice.chance(400),
            jitter_ms: [1, 1, 4, 20, 80][dice.below(5) as usize],
            news_ms: [200, 2_000, 8_000][dice.below(3) as usize],
            prompt,
            storm_ms,
            home: HomeLimits {
                resend: ms(&mut dice, 50, 400),
                give_up: ms(&mut dice, 500, 6_000),
                owed_max: if few { 4 } else { 65_536 },
                puts_max: if few { 2 } else { 4_096 },
                loads_max: if few { 2 } else { 4_096 },
                directory_max: if dice.chance(300) { 2 } else { 16_000_000 },
            },
            cache: cache_limits(ms(&mut dice, 100, 800)),
            gate: GateLimits { wait: ms(&mut dice, 200, 2_000), waiting_max: if few { 2 } else { 4_096 } },
            dirty: DirtyLimits {
                bytes: if dice.chance(200) { 4_000 } else { 1 << 30 },
                objects: 100_000,
                delay: ms(&mut dice, 1, 500),
                back_off: ms(&mut dice, 50, 400),
                back_off_max: Duration::from_secs(2),
                lands_within: if prompt { LANDS_PROMPTLY } else { LANDS_WITHIN },
            },
            heartbeat: ms(&mut dice, 500, 10_000),
            faults: Vec::new(),
        };
        plan.draw_faults(&mut dice);
        plan
    }

    fn draw_faults(&mut self, dice: &mut Dice) {
        let share = [150, 300, 600][dice.below(3) as usize];
        for kind in FaultKind::ALL {
            let fits = match kind {
                FaultKind::OutsideWrite => self.outsiders,
                _ => !(self.prompt && DELAYS.contains(&kind)),
            };
            if !dice.chance(share) || !fits {
                continue;
            }
            let (times, lasts) = match kind {
                FaultKind::Kill | FaultKind::Eviction | FaultKind::Forgetting | FaultKind::OutsideWrite => (24, 0),
                FaultKind::NodeCrash
                | FaultKind::HomeCrash
                | FaultKind::ZombieHome
                | FaultKind::SchedulerCrash
                | FaultKind::Suspicion
                | FaultKind::FalseLoss => (6, 0),
                FaultKind::ClockJump => (4, 0),
                FaultKind::LedgerTorn => (5, 300),
                FaultKind::Pause => (5, 3_000),
                FaultKind::Partition | FaultKind::OneWayPartition => (5, 9_000),
                FaultKind::StoreDown => (5, 4_000),
                FaultKind::MessageLost
                | FaultKind::MessageDoubled
                | FaultKind::MessageLate
                | FaultKind::ClockSkew
                | FaultKind::LedgerSilent
                | FaultKind::LedgerFull
                | FaultKind::LedgerLate
                | FaultKind::StoreRefuses
                | FaultKind::StoreSilent
                | FaultKind::StoreLate => (3, 6_000),
            };
            for _ in 0..=dice.below(times) {
                let at_ms = dice.between(50, self.storm_ms);
                let lasts_ms = if lasts > 0 { dice.between(lasts / 20, lasts).min(self.storm_ms - at_ms) } else { 0 };
                self.faults.push(Fault { at_ms, lasts_ms, kind, pick: dice.number() });
            }
        }
        self.faults.sort_by_key(|fault| fault.at_ms);
    }

    /// True if `object` is written only from outside.
    pub(super) const fn is_theirs(&self, object: Object) -> bool {
        self.outsiders && object % 4 == 3
    }

    /// The objects that are written only from outside.
    pub(super) fn theirs(&self) -> Vec<Object> {
        (0..self.objects).filter(|object| self.is_theirs(*object)).collect()
    }

    /// The namespace of `object`.
    pub(super) const fn namespace_of(&self, object: Object) -> u8 {
        (object as u16 / self.shards) as u8 % self.namespaces
    }

    /// The shard of `object`.
    pub(super) const fn shard_of(&self, object: Object) -> u16 {
        object as u16 % self.shards
    }

    /// The objects of a namespace.
    pub(super) fn objects_of(&self, namespace: u8) -> Vec<Object> {
        (0..self.objects).filter(|object| self.namespace_of(*object) == namespace).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_as_their_seeds_and_every_kind_of_fault_is_in_some() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let plan = Plan::of(seed);
            assert_eq!(plan.faults, Plan::of(seed).faults);
            assert!((1..=OBJECTS_MAX as u8).contains(&plan.objects));
            assert!(plan.faults.iter().all(|fault| fault.at_ms + fault.lasts_ms <= plan.storm_ms));
            kinds.extend(plan.faults.iter().map(|fault| fault.kind));
        }
        assert_eq!(kinds.len(), FaultKind::ALL.len());
    }
}
