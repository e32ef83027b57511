//! Chooses the class of service with the least predicted loss of all running functions: Nigh's own policy.
//!
//! For each class it predicts from curves the share of the cache that each running function would have, and how much
//! longer the rest of its run would take. The class with the least total wins; a tie goes to fewer ways. A class in
//! which a function would be slower than on an unpartitioned cache by more than the guard is chosen only if no class
//! keeps the guard. Running invocations are never moved. A function without curves is placed by CASY's rule.

use std::time::Duration;

use nigh_terms::Monotonic;

use crate::clos_layout::Clos;
use crate::occupancy::{ALL_CLASSES, Member, SharingProfile};
use crate::placement::{Casy, PlacedBecause, Placement, PlacementDecision};
use crate::time_curve::Tolerance;
use crate::way_loads::{Need, WayLoads};

/// Rounds for the shares of what runs; the start is a guess.
const ROUNDS_FROM_GUESS: usize = 5;

/// Rounds after one function more; the start is settled.
const ROUNDS_FROM_SETTLED: usize = 2;

/// A run that should have ended by now is taken to have this part of its time still ahead.
const REST_LEAST: f32 = 0.1;

/// Losses whose difference is below this part of the time at stake are a tie.
const TIE: f32 = 1e-4;

/// The policy.
#[derive(Debug, Clone)]
pub struct SharedPlacement {
    /// The greatest predicted slowdown over the unpartitioned cache that is allowed.
    pub guard: Tolerance,
    /// The assumed profile of a running function without curves.
    pub unknown: SharingProfile,
}

impl SharedPlacement {
    /// The guard of 1 %, and for functions without curves a stream of 1 GiB/s of a second's length, on a cache with
    /// `lines_per_way` lines of 64 bytes a way.
    #[must_use]
    pub fn new(lines_per_way: f64) -> Self {
        let lines_per_micro = 1.073_741_824e9 / 64.0 / 1e6;
        Self {
            guard: Tolerance::ONE_PERCENT,
            unknown: SharingProfile::streaming((lines_per_micro / lines_per_way.max(1.0)) as f32, 1e6),
        }
    }

    fn profile<'a>(&'a self, need: &'a Need) -> &'a SharingProfile {
        need.sharing.as_deref().unwrap_or(&self.unknown)
    }
}

/// One class weighed.
struct ClassCandidate<'a> {
    class: &'a Clos,
    loss: f32,
    /// The worst time over that without partitioning.
    worst: f32,
}

impl Placement for SharedPlacement {
    fn name(&self) -> &'static str {
        "nigh"
    }

    fn place(&self, state: &WayLoads, need: &Need) -> PlacementDecision {
        // Without curves: CASY's rule, by the ways alone.
        let Some(mine) = need.sharing.as_deref() else { return Casy.place(state, need) };
        let regions = state.regions();
        let running = state.running();
        let member = |class, profile| Member { class, profile, count: 1.0 };

        // All functions on all ways, with the new one: the guard compares with this.
        let shared: Vec<_> = running
            .iter()
            .map(|one| member(0, self.profile(&one.need)))
            .chain(std::iter::once(member(0, mine)))
            .collect();
        let mut shares = regions.start(&shared);
        regions.settle(&shared, &mut shares, ROUNDS_FROM_GUESS, ALL_CLASSES);
        let without: Vec<f32> =
            shared.iter().zip(&shares.ways).map(|(one, share)| one.profile.slowdown(*share)).collect();

        let mut members: Vec<_> =
            running.iter().map(|one| member(usize::from(one.clos.0), self.profile(&one.need))).collect();
        let mut settled = regions.start(&members);
        regions.settle(&members, &mut settled, ROUNDS_FROM_GUESS, ALL_CLASSES);
        let newest = members.len();
        members.push(member(0, mine));
        settled.ways.push(0.0);
        let mut rest: Vec<f32> = running
            .iter()
            .zip(members.iter().zip(&settled.ways))
            .map(|(one, (member, share))| rest(member.profile, *share, one.need.at, need.at))
            .collect();
        rest.push(mine.best_micros());
        let at_stake: f32 = rest.iter().sum();
        // Loss and worst of those that a class does not meet are the same for it as before.
        let now: Vec<f32> =
            members.iter().zip(&settled.ways).map(|(one, share)| one.profile.slowdown(*share)).collect();

        let mut shares = settled.clone();
        let weighed = state.layout().classes().iter().map(|class| {
            let at = usize::from(class.id.0);
            let heads = members[..newest].iter().filter(|one| one.class == at).count();
            let met = regions.overlaps(at);
            members[newest].class = at;
            shares.clone_from(&settled);
            shares.ways[newest] = regions.class_ways(at) / (heads + 1) as f32;
            regions.settle(&members, &mut shares, ROUNDS_FROM_SETTLED, met);
            let (mut loss, mut worst) = (0.0, 0.0_f32);
            for (one, member) in members.iter().enumerate() {
                let moved = met >> member.class & 1 != 0;
                let slowdown = if moved { member.profile.slowdown(shares.ways[one]) } else { now[one] };
                loss += rest[one] * (slowdown - 1.0);
                worst = worst.max(slowdown / without[one]);
            }
            ClassCandidate { class, loss, worst }
        });
        self.choose(weighed, at_stake)
            .unwrap_or_else(|| PlacementDecision::in_default(state, PlacedBecause::NoClassOfKind))
    }
}

impl SharedPlacement {
    fn choose<'a>(
        &self,
        weighed: impl Iterator<Item = ClassCandidate<'a>>,
        at_stake: f32,
    ) -> Option<PlacementDecision> {
        let within = |one: &ClassCandidate<'_>| one.worst <= 1.0 + self.guard.0 as f32;
        let fewer =
            |one: &ClassCandidate<'_>, other: &ClassCandidate<'_>| one.class.mask.count() < other.class.mask.count();
        let best = weighed.reduce(|best, next| {
            let better = match (within(&best), within(&next)) {
                (true, true) => {
                    let gain = best.loss - next.loss;
                    gain > TIE * at_stake || (gain > -TIE * at_stake && fewer(&next, &best))
                }
                (true, false) => false,
                (false, true) => true,
                (false, false) => next.worst < best.worst,
            };
            if better { next } else { best }
        })?;
        let because = if within(&best) {
            PlacedBecause::LeastLoss { loss_micros: best.loss }
        } else {
            PlacedBecause::LeastHarm { worst: best.worst }
        };
        Some(PlacementDecision::new(best.class, because))
    }
}

/// The rest of a run, in microseconds with the whole cache.
fn rest(profile: &SharingProfile, share: f32, started: Monotonic, now: Monotonic) -> f32 {
    let elapsed: Duration = now.since(started);
    let done = elapsed.as_secs_f32() * 1e6 / profile.slowdown(share);
    (profile.best_micros() - done).max(REST_LEAST * profile.best_micros())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nigh_terms::ClosId;

    use super::*;
    use crate::clos_layout::{CasyRequest, ClosKind, ClosLayout};
    use crate::occupancy::tests::{LINES_PER_WAY, SHAPE, blur, speech, stream};
    use crate::way_loads::UnknownNeed;

    fn loads() -> WayLoads {
        let layout = ClosLayout::casy(&CasyRequest::of(SHAPE, nigh_terms::Ways(3))).unwrap();
        WayLoads::new(Arc::new(layout), UnknownNeed::LITERAL)
    }

    fn need(profile: Arc<SharingProfile>, at_ms: u64) -> Need {
        Need { predicted: None, sharing: Some(profile), at: Monotonic(at_ms * 1_000_000) }
    }

    fn place(loads: &mut WayLoads, profile: Arc<SharingProfile>) -> PlacementDecision {
        let need = need(profile, 0);
        let placed = SharedPlacement::new(LINES_PER_WAY).place(loads, &need);
        loads.commit(placed.clos, need).unwrap();
        placed
    }

    #[test]
    fn alone_the_sensitive_gets_every_way_and_the_stream_one() {
        assert_eq!(place(&mut loads(), speech()).clos, ClosId::DEFAULT);
        let placed = place(&mut loads(), stream());
        assert_eq!(placed.mask.count().0, 1, "it gains nothing from more: {placed:?}");
    }

    #[test]
    fn a_stream_is_kept_away_from_what_runs() {
        let mut loads = loads();
        let sensitive = place(&mut loads, speech());
        let placed = place(&mut loads, stream());
        assert_eq!(loads.layout().class(placed.clos).unwrap().kind, ClosKind::Insensitive, "{placed:?}");
        assert!(sensitive.mask.count() > placed.mask.count());
    }

    #[test]
    fn beside_streams_the_sensitive_goes_where_they_are_not() {
        let mut loads = loads();
        for _ in 0..3 {
            place(&mut loads, stream());
        }
        let placed = place(&mut loads, speech());
        assert!(placed.mask.count().0 >= 8, "{placed:?}");
        assert!(matches!(placed.because, PlacedBecause::LeastLoss { .. }), "{placed:?}");
    }

    #[test]
    fn nobody_is_predicted_slower_than_without_by_more_than_the_guard() {
        let mut loads = loads();
        for profile in [blur(), stream(), speech(), stream(), blur(), stream()] {
            let placed = place(&mut loads, profile);
            if let PlacedBecause::LeastHarm { worst } = placed.because {
                assert!(worst < 1.05, "{placed:?}");
            }
        }
    }

    #[test]
    fn the_rounds_allowed_come_near_the_fixed_point() {
        let regions = crate::occupancy::Regions::of(loads().layout());
        let (speech, blur, stream) = (speech(), blur(), stream());
        let placed =
            [(0, &speech), (7, &speech), (6, &blur), (5, &blur), (7, &stream), (1, &stream), (4, &blur), (0, &stream)];
        let members: Vec<_> = placed.iter().map(|&(class, profile)| Member { class, profile, count: 1.0 }).collect();
        let mut exact = regions.start(&members);
        regions.settle(&members, &mut exact, 200, ALL_CLASSES);
        let mut quick = regions.start(&members);
        regions.settle(&members, &mut quick, ROUNDS_FROM_GUESS, ALL_CLASSES);
        for (member, (quick, exact)) in members.iter().zip(quick.ways.iter().zip(&exact.ways)) {
            let ratio = member.profile.slowdown(*quick) / member.profile.slowdown(*exact);
            assert!((ratio - 1.0).abs() < 0.02, "{quick} ways after the rounds, {exact} in the end: {ratio}");
        }
    }

    #[test]
    fn without_curves_the_ways_decide_and_without_those_the_default_class() {
        let policy = SharedPlacement::new(LINES_PER_WAY);
        let known = crate::way_loads::tests::need(4);
        assert_eq!(policy.place(&loads(), &known), Casy.place(&loads(), &known));
        let placed = policy.place(&loads(), &crate::way_loads::tests::unknown());
        assert_eq!((placed.clos, placed.because), (ClosId::DEFAULT, PlacedBecause::NoModel));
    }

    #[test]
    fn the_rest_of_a_run_shrinks_to_a_tenth() {
        let blur = blur();
        let whole = blur.best_micros();
        assert_eq!(rest(&blur, 11.0, Monotonic(0), Monotonic(0)), whole);
        let half = Monotonic((whole * 500.0) as u64);
        assert!((rest(&blur, 11.0, Monotonic(0), half) / whole - 0.5).abs() < 0.01);
        assert_eq!(rest(&blur, 11.0, Monotonic(0), Monotonic(u64::MAX)), whole * REST_LEAST);
    }
}
