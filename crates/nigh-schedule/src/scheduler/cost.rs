//! The cost of running an invocation at a node, term by term, in microseconds.
//!
//! Terms that are not a time by themselves (memory that becomes scarce, a sandbox that could expire) have a weight in
//! microseconds. Costs are whole numbers, so equal inputs give equal answers on every machine.

use std::ops::Add;
use std::time::Duration;

use super::node_view::{NodeView, Offer};
use super::placement::{HeldInputs, Placement, WarmSandboxes};

/// Microseconds, or something worth as many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(pub u64);

impl Cost {
    /// A time as a cost.
    #[must_use]
    pub const fn of(time: Duration) -> Self {
        Self(time.as_secs().saturating_mul(1_000_000).saturating_add(time.subsec_micros() as u64))
    }

    /// `part` of `whole` of this cost; all of it if the part is more than the whole, or the whole is zero.
    fn share(self, part: u64, whole: u64) -> Self {
        if part == 0 || self.0 == 0 {
            return Self(0);
        }
        if part >= whole {
            return self;
        }
        // Ten times as fast as an integer division, and just as equal on every machine.
        Self((self.0 as f64 * (part as f64 / whole as f64)) as u64)
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// The weights of the terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Weights {
    /// Percentage of the duration of a cold start that counts.
    pub start_percent: u64,
    /// Cost of a new sandbox: memory and processor time that others lack.
    pub new_sandbox_us: u64,
    /// Cost if idle sandboxes that others would have used must end.
    pub evict_us: u64,
    /// Cost of an object that must be fetched.
    pub fetch_object_us: u64,
    /// Cost of a MiB that must be fetched.
    pub fetch_mib_us: u64,
    /// Percentage of a run's slowdown that counts, if more run than there are processors.
    pub slowdown_percent: u64,
    /// Cost of a node whose processors are all busy, proportionally less otherwise.
    pub spread_us: u64,
    /// Cost of a new sandbox on a node whose memory is all booked, proportionally less otherwise.
    pub memory_us: u64,
    /// Cost of a warm sandbox whose whole grant must change, proportionally less otherwise.
    pub misfit_us: u64,
    /// Cost of a warm sandbox that is about to expire, proportionally less otherwise: so the one used last stays in
    /// use.
    pub staleness_us: u64,
    /// Cost of a node that has none of the wanted cache ways, proportionally less if it has some.
    pub ways_us: u64,
    /// Costs that differ by at most this count as equal: the function's order of nodes decides.
    pub equal_within_us: u64,
    /// If a node runs more than it has processors, and this percentage more than the mean, its cached inputs do not
    /// count and it is last in every function's order.
    pub overload_percent: u64,
}

impl Default for Weights {
    fn default() -> Self {
        Self::SETTLED
    }
}

impl Weights {
    /// The weights that `nigh experiment scheduling` found.
    pub const SETTLED: Self = Self {
        start_percent: 100,
        new_sandbox_us: 10_000_000,
        evict_us: 50_000,
        fetch_object_us: 200,
        fetch_mib_us: 1_000,
        slowdown_percent: 100,
        spread_us: 2_000,
        memory_us: 2_000,
        misfit_us: 100,
        staleness_us: 100,
        ways_us: 2_000,
        equal_within_us: 500,
        overload_percent: 25,
    };
}

/// Idle sandboxes end after about this time (`keep_alive`).
const STALE_AFTER: Duration = Duration::from_secs(3600);

/// The cost of an invocation at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The time until a sandbox runs.
    pub start: Cost,
    /// The inputs that the node does not cache.
    pub fetch: Cost,
    /// The slowdown of the run by others.
    pub slowdown: Cost,
    /// The cost of the node's busy processors.
    pub spread: Cost,
    /// Memory that becomes scarce, or a grant that must change.
    pub memory: Cost,
    /// How near the sandbox is to its end.
    pub staleness: Cost,
    /// The wanted cache ways that the node lacks.
    pub ways: Cost,
}

impl Terms {
    /// The sum of the terms.
    #[must_use]
    pub fn sum(&self) -> Cost {
        self.start + self.fetch + self.slowdown + self.spread + self.memory + self.staleness + self.ways
    }
}

impl Weights {
    /// The terms of a node that makes `offer`. `held` are the cached inputs that count.
    pub(super) fn terms(
        &self,
        placement: &Placement<'_>,
        node: &NodeView,
        offer: Offer,
        warm: Option<&WarmSandboxes>,
        held: HeldInputs,
    ) -> Terms {
        let all = placement.inputs.all();
        let objects = u64::from(all.objects.saturating_sub(held.objects));
        let mib = Cost(self.fetch_mib_us.saturating_mul(all.bytes.saturating_sub(held.bytes)) >> 20);
        let processors = u64::from(node.processors.max(1));
        let beyond = (u64::from(node.running) + 1).saturating_sub(processors);
        let expected = placement.expected.bytes();
        let (memory, staleness) = match (offer, warm) {
            (Offer::Warm, Some(warm)) => {
                let granted = warm.granted.bytes();
                let misfit = Cost(self.misfit_us).share(granted.abs_diff(expected), granted.max(expected));
                (misfit, Cost(self.staleness_us).share(Cost::of(warm.idle_for).0, Cost::of(STALE_AFTER).0))
            }
            _ => {
                let booked = node.memory.saturating_sub(node.memory_free) + placement.booked;
                (Cost(self.memory_us).share(booked.bytes(), node.memory.bytes()), Cost(0))
            }
        };
        let missing = placement.ways.saturating_sub(node.ways_free);
        Terms {
            start: self.start(placement, offer) + Cost(if offer == Offer::Evict { node.evict_us } else { 0 }),
            fetch: Cost(self.fetch_object_us.saturating_mul(objects)) + mib,
            slowdown: if beyond == 0 { Cost(0) } else { self.slowdown(placement, beyond, processors) },
            spread: Cost(self.spread_us).share(u64::from(node.running), processors),
            memory,
            staleness,
            ways: Cost(self.ways_us).share(u64::from(missing), u64::from(placement.ways)),
        }
    }
}

impl Weights {
    /// The time until a sandbox runs.
    pub(super) fn start(&self, placement: &Placement<'_>, offer: Offer) -> Cost {
        let evict = if offer == Offer::Evict { self.evict_us } else { 0 };
        match offer {
            Offer::Warm => Cost(0),
            Offer::Cold | Offer::Evict => {
                percent(Cost::of(placement.cold_start), self.start_percent) + Cost(self.new_sandbox_us) + Cost(evict)
            }
        }
    }

    fn slowdown(&self, placement: &Placement<'_>, beyond: u64, processors: u64) -> Cost {
        let run = percent(Cost::of(placement.run), self.slowdown_percent);
        Cost(run.0.saturating_mul(beyond) / processors)
    }
}

const fn percent(cost: Cost, percent: u64) -> Cost {
    Cost(cost.0.saturating_mul(percent) / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_in_proportion_and_never_more_than_the_whole() {
        assert_eq!(Cost(1000).share(0, 0), Cost(0));
        assert_eq!(Cost(1000).share(1, 0), Cost(1000));
        assert_eq!(Cost(1000).share(9, 4), Cost(1000));
        assert_eq!(Cost(4096).share(1, 4), Cost(1024));
        assert!(Cost(u64::MAX / 2).share(u64::MAX / 2, u64::MAX) <= Cost(u64::MAX / 2));
    }
}
