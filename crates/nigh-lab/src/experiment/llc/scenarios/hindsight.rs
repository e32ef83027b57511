//! The best that could have been: layouts searched in the very simulator that the policies are judged in.
//!
//! Candidates are fixed classes for a whole scenario (one for each kind of function, masks free to overlap), annealed from
//! what the models propose, and Nigh's own refitting with other guards. Of those under which no function is slower than
//! without partitioning by more than the promise, the fastest wins. It knows the arrivals; no policy does.

use nigh_llc::Tolerance;
use nigh_terms::{ClosId, WayMask, Ways};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::refit_binder::FittedLayouts;
use super::stage::{FixedClasses, Play};
use crate::LabError;

pub(super) const PROMISE: f64 = 1.01;

/// Repetitions that each candidate of the search is judged by.
const JUDGED_BY: usize = 2;

/// Guards that Nigh's refitting is tried with.
const GUARDS: [f64; 4] = [0.005, 0.01, 0.015, 0.02];

/// How much worse a step may be at first and at last, in parts of the total time.
const HEAT: (f64, f64) = (0.01, 0.0005);

#[derive(Debug, Clone)]
pub(super) enum BestPartition {
    Unpartitioned,
    Fixed(FixedClasses),
    Refitted(Tolerance),
}

#[derive(Debug, Clone, Copy)]
struct CandidateScore {
    /// Time over that without partitioning, in all.
    total: f64,
    /// The same of the function that is hit worst.
    worst: f64,
}

impl CandidateScore {
    /// Lower is better; whoever breaks the promise counts ten times by how much.
    fn cost(self) -> f64 {
        self.total + 10.0 * (self.worst - PROMISE).max(0.0)
    }
}

/// Searches with so many simulated candidates; `without` are the repetitions without partitioning.
pub(super) fn search(play: &Play<'_>, without: &[Vec<f64>], steps: usize) -> Result<BestPartition, LabError> {
    let judged_by = JUDGED_BY.min(without.len());
    let judge = |run: &dyn Fn(usize) -> Result<Vec<f64>, LabError>| {
        let runs = (0..judged_by).map(run).collect::<Result<Vec<_>, _>>()?;
        let total = |runs: &[Vec<f64>]| runs.iter().flatten().sum::<f64>();
        let by_kind = |runs: &[Vec<f64>], kind| play.seconds_of(runs, kind).iter().sum::<f64>();
        let ratios = play.present().map(|kind| by_kind(&runs, kind) / by_kind(&without[..judged_by], kind));
        Ok::<_, LabError>(CandidateScore {
            total: total(&runs) / total(&without[..judged_by]),
            worst: ratios.fold(0.0, f64::max),
        })
    };
    let mut best = (1.0, BestPartition::Unpartitioned);
    let mut consider = |cost: f64, found: BestPartition| {
        if cost < best.0 {
            best = (cost, found);
        }
    };
    for guard in GUARDS.map(Tolerance) {
        let fitted = FittedLayouts::default();
        let judged = judge(&|repetition| Ok(play.run_refitted(repetition, guard, &fitted)?.0))?;
        consider(judged.cost(), BestPartition::Refitted(guard));
    }
    let mut now: Option<(f64, FixedClasses)> = None;
    for start in play.proposals()? {
        let cost = judge(&|repetition| play.run_fixed(repetition, &start))?.cost();
        consider(cost, BestPartition::Fixed(start.clone()));
        if now.as_ref().is_none_or(|(least, _)| cost < *least) {
            now = Some((cost, start));
        }
    }
    let Some((mut cost, mut at)) = now else { return Ok(best.1) };
    let mut random = StdRng::seed_from_u64(play.stage.plan.seed(&play.scenario, usize::MAX));
    let classes = usize::from(play.stage.shape.classes);
    let present: Vec<usize> = play.present().collect();
    for step in 0..steps {
        let next = neighbour(&at, play.stage.shape.ways, classes, &present, &mut random);
        let next_cost = judge(&|repetition| play.run_fixed(repetition, &next))?.cost();
        consider(next_cost, BestPartition::Fixed(next.clone()));
        let part = step as f64 / steps as f64;
        let heat = HEAT.0 * (HEAT.1 / HEAT.0).powf(part);
        if next_cost < cost || random.random::<f64>() < ((cost - next_cost) / heat).exp() {
            (cost, at) = (next_cost, next);
        }
    }
    Ok(best.1)
}

/// One random change: a class's mask, or the class of one kind.
fn neighbour(
    from: &FixedClasses,
    cache: Ways,
    classes_max: usize,
    present: &[usize],
    random: &mut StdRng,
) -> FixedClasses {
    let mut next = from.clone();
    let mask = |random: &mut StdRng| {
        let first = random.random_range(0..cache.0);
        WayMask::contiguous(first, Ways(random.random_range(1..=cache.0 - first)))
    };
    let kind = present[random.random_range(0..present.len())];
    let choice = random.random_range(0..3);
    if choice == 0 && next.masks.len() > 1 {
        let class = random.random_range(1..next.masks.len());
        next.masks[class] = mask(random);
    } else if choice == 1 && next.masks.len() < classes_max {
        next.classes[kind] = ClosId(next.masks.len() as u8);
        next.masks.push(mask(random));
    } else {
        next.classes[kind] = ClosId(random.random_range(0..next.masks.len()) as u8);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_stays_within_the_hardware_and_changes_only_who_is_present() {
        let mut random = StdRng::seed_from_u64(1);
        let mut at = FixedClasses { masks: vec![WayMask::contiguous(0, Ways(11))], classes: vec![ClosId(0); 5] };
        for _ in 0..500 {
            at = neighbour(&at, Ways(11), 8, &[0, 2, 4], &mut random);
            assert!(at.masks.len() <= 8 && at.masks[0] == WayMask::contiguous(0, Ways(11)));
            assert!(at.masks.iter().all(|mask| mask.is_contiguous() && !mask.is_empty() && mask.bits() < 1 << 11));
            assert!(at.classes.iter().all(|class| usize::from(class.0) < at.masks.len()));
            assert_eq!((at.classes[1], at.classes[3]), (ClosId(0), ClosId(0)));
        }
    }

    #[test]
    fn who_breaks_the_promise_is_not_best_by_being_fast() {
        let kept = CandidateScore { total: 0.96, worst: 1.01 };
        let broken = CandidateScore { total: 0.94, worst: 1.02 };
        assert!(kept.cost() < broken.cost());
    }
}
