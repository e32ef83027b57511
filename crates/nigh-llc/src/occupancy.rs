//! Each running function's share of the cache with overlapping masks, and its slowdown.
//!
//! The model: a function fills its ways at the rate of its misses, and all lines of a way are evicted at one age. So a
//! function's share of a way is its part of the fills there. Its fill rate is the mean over the lifetime of a line,
//! from an empty share to its present share; this protects reused lines, as LRU does. With one mask for all functions
//! this is the equal-age composition of AET (USENIX ATC 2016), with overlapping masks a model like that of DCAPS
//! (EuroSys 2018). The shares are a fixed point, found in a few damped rounds. The curves limit the accuracy, not the
//! rounds.

use nigh_terms::{WayMask, Ways};

use crate::clos_layout::{CLASSES_MAX, ClosLayout};
use crate::miss_curve::{CurveError, FillTime, MissCurve, STEPS_PER_WAY, WAYS_MAX};
use crate::time_curve::TimeCurve;

const WAYS: usize = WAYS_MAX.0 as usize;
const CLASSES: usize = CLASSES_MAX as usize;

/// The least fill rate, in ways per microsecond; avoids divisions by zero.
const FILL_LEAST: f32 = 1e-15;

/// A function's fill rate and slowdown at every quarter of a way, precomputed from its curves.
#[derive(Debug, Clone, PartialEq)]
pub struct SharingProfile {
    points: Vec<Point>,
    best_micros: f32,
}

/// The values at one quarter of a way and their change up to the next quarter, stored together for fast look-up.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    /// The fill rate, in ways per microsecond.
    fill: f32,
    fill_step: f32,
    /// The time of a run, divided by its time with the whole cache.
    slowdown: f32,
    slowdown_step: f32,
}

impl SharingProfile {
    /// Built from the curves of one run on a cache with `lines_per_way` lines in a way.
    pub fn new(misses: &MissCurve, times: &TimeCurve, lines_per_way: f64) -> Result<Self, CurveError> {
        if misses.ways() != times.ways() {
            return Err(CurveError::DifferentCaches { left: misses.ways(), right: times.ways() });
        }
        let misses = misses.monotone();
        let steps = usize::from(misses.ways().0) * STEPS_PER_WAY;
        let share = |step: usize| step as f64 / STEPS_PER_WAY as f64;
        // Below one way no time was measured: a miss is assumed to cost there what it costs between one way and all ways.
        let (one, all) = (Ways(1), times.ways());
        let spared = misses.misses(one) - misses.misses(all);
        let a_miss = if spared > 0.0 { (times.micros(one) - times.micros(all)).max(0.0) / spared } else { 0.0 };
        let micros = |step: usize| {
            if step >= STEPS_PER_WAY {
                return times.micros_at(share(step));
            }
            times.micros(one) + (misses.misses_at(share(step)) - misses.misses(one)) * a_miss
        };
        // The mean is over runs, not over time, since a line's accesses come at the rate of the present share, not at
        // the rates of smaller shares.
        let rate = |step: usize| misses.misses_at(share(step)) / lines_per_way.max(1.0);
        let fill_time = FillTime::of_rates(steps, rate(0), rate);
        let best = times.micros(times.ways());
        let fill = |step: usize| {
            let by_run = if step == 0 { rate(0) } else { share(step) / fill_time.at_step(step) };
            ((by_run / micros(step)) as f32).max(FILL_LEAST)
        };
        let slowdown = |step: usize| (micros(step) / best) as f32;
        let points = (0..=steps).map(|step| {
            let next = (step + 1).min(steps);
            let (here, later) = ((fill(step), slowdown(step)), (fill(next), slowdown(next)));
            Point { fill: here.0, fill_step: later.0 - here.0, slowdown: here.1, slowdown_step: later.1 - here.1 }
        });
        Ok(Self { points: points.collect(), best_micros: best as f32 })
    }

    /// A function of which only the time is estimated: it fills `fill` ways per microsecond and gains nothing from the
    /// cache.
    #[must_use]
    pub fn streaming(fill: f32, micros: f32) -> Self {
        let point = Point { fill: fill.max(FILL_LEAST), fill_step: 0.0, slowdown: 1.0, slowdown_step: 0.0 };
        Self { points: vec![point], best_micros: micros }
    }

    /// The time of a run with the whole cache, in microseconds.
    #[must_use]
    pub const fn best_micros(&self) -> f32 {
        self.best_micros
    }

    /// The time of a run with a share of `ways`, divided by its time with the whole cache.
    #[must_use]
    pub fn slowdown(&self, share: f32) -> f32 {
        let (point, part) = self.at(share);
        point.slowdown + point.slowdown_step * part
    }

    fn fill(&self, share: f32) -> f32 {
        let (point, part) = self.at(share);
        point.fill + point.fill_step * part
    }

    #[inline]
    fn at(&self, share: f32) -> (&Point, f32) {
        let steps = share * STEPS_PER_WAY as f32;
        // A cast to an integer saturates: negative shares and NaN are 0.
        let low = (steps as usize).min(self.points.len() - 1);
        (&self.points[low], (steps - low as f32).clamp(0.0, 1.0))
    }
}

/// A running function, or several equal ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<'a> {
    /// Its class, by index.
    pub(crate) class: usize,
    /// Its curves.
    pub(crate) profile: &'a SharingProfile,
    /// The average number of running invocations; each gets the computed share.
    pub(crate) count: f32,
}

/// Regions computed side by side.
const LANES: usize = 8;

/// The masks of a layout, cut into regions of ways that the same classes have.
#[derive(Debug, Clone)]
pub(crate) struct Regions {
    /// Ways of each region, in rows of lanes.
    ways: Vec<[f32; LANES]>,
    /// 1 / ways of each class.
    per_way: Vec<f32>,
    /// For each row of lanes and each class: 1 in each region of the class.
    holds: Vec<[f32; LANES]>,
    /// For each class, the bits of the classes that share a way with it, itself included.
    overlaps: Vec<u32>,
}

/// The shares of all running functions, and the fill rate of each class that follows from them.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    /// The share of each member, in ways.
    pub(crate) ways: Vec<f32>,
    /// The fill rate of each class, in ways per microsecond.
    fills: [f32; CLASSES],
}

/// The bits of all classes.
pub(crate) const ALL_CLASSES: u32 = u32::MAX;

impl Regions {
    pub(crate) fn of(layout: &ClosLayout) -> Self {
        let masks: Vec<_> = layout.classes().iter().map(|class| class.mask).collect();
        Self::of_masks(layout.shape().ways, &masks)
    }

    /// Classes of these masks, by index.
    pub(crate) fn of_masks(cache: Ways, masks: &[WayMask]) -> Self {
        let mut kinds: Vec<(u32, f32)> = Vec::new();
        for way in 0..cache.0 {
            let users = masks.iter().enumerate().filter(|(_, mask)| mask.holds(way));
            let users = users.fold(0_u32, |bits, (at, _)| bits | 1 << at);
            match kinds.iter_mut().find(|(known, _)| *known == users) {
                Some((_, ways)) => *ways += 1.0,
                None => kinds.push((users, 1.0)),
            }
        }
        let overlaps = masks.iter().map(|mask| {
            let met = masks.iter().enumerate().filter(|(_, other)| other.overlaps(*mask));
            met.fold(0_u32, |bits, (at, _)| bits | 1 << at)
        });
        let mut ways = vec![[0.0; LANES]; kinds.len().div_ceil(LANES)];
        let mut holds = vec![[0.0; LANES]; ways.len() * masks.len()];
        for (region, (users, count)) in kinds.into_iter().enumerate() {
            let (row, lane) = (region / LANES, region % LANES);
            ways[row][lane] = count;
            for class in (0..masks.len()).filter(|class| users >> class & 1 != 0) {
                holds[row * masks.len() + class][lane] = 1.0;
            }
        }
        let per_way = masks.iter().map(|mask| 1.0 / f32::from(mask.count().0)).collect();
        Self { overlaps: overlaps.collect(), ways, per_way, holds }
    }

    /// One class over a whole cache.
    pub(crate) fn whole(ways: Ways) -> Self {
        let lane = |value: f32| vec![[value, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]];
        let count = f32::from(ways.0.max(1));
        Self { ways: lane(count), per_way: vec![1.0 / count], holds: lane(1.0), overlaps: vec![1] }
    }

    /// Ways of a class.
    pub(crate) fn class_ways(&self, class: usize) -> f32 {
        1.0 / self.per_way[class]
    }

    /// The classes that share a way with this one, itself too, as bits.
    pub(crate) fn overlaps(&self, class: usize) -> u32 {
        self.overlaps[class]
    }

    /// The shares to start from: the ways of a class are divided equally among its functions.
    pub(crate) fn start(&self, members: &[Member<'_>]) -> Shares {
        let mut heads = [0.0_f32; CLASSES];
        for member in members {
            heads[member.class] += member.count;
        }
        let part = |member: &Member<'_>| self.class_ways(member.class) / heads[member.class].max(1.0);
        Shares { ways: members.iter().map(part).collect(), fills: [0.0; CLASSES] }
    }

    /// Moves the shares `rounds` steps towards the fixed point; only those of the classes in `moving`, the others stay
    /// as they are and go on filling as they did.
    pub(crate) fn settle(&self, members: &[Member<'_>], shares: &mut Shares, rounds: usize, moving: u32) {
        let moves = |member: &Member<'_>| moving >> member.class & 1 != 0;
        for _ in 0..rounds {
            let fills = &mut shares.fills;
            for (class, fill) in fills.iter_mut().enumerate().take(self.per_way.len()) {
                if moving >> class & 1 != 0 {
                    *fill = 0.0;
                }
            }
            for (member, share) in members.iter().zip(&shares.ways).filter(|(member, _)| moves(member)) {
                fills[member.class] += member.count * member.profile.fill(*share);
            }
            let classes = self.per_way.len();
            let mut pressure = [[0.0_f32; LANES]; WAYS / LANES];
            // The ways held, divided by the fill rate: the age of lines when they are evicted, in microseconds.
            let mut age = [0.0_f32; CLASSES];
            for ((ways, pressure), holds) in self.ways.iter().zip(&mut pressure).zip(self.holds.chunks_exact(classes)) {
                for ((fill, per_way), holds) in shares.fills.iter().zip(&self.per_way).zip(holds) {
                    for (pressure, holds) in pressure.iter_mut().zip(holds) {
                        *pressure += fill * per_way * holds;
                    }
                }
                let mut ages = [0.0_f32; LANES];
                for ((age, ways), pressure) in ages.iter_mut().zip(ways).zip(&*pressure) {
                    // The age of a region without fills is not used, but must be a number.
                    *age = ways / pressure.max(FILL_LEAST * FILL_LEAST);
                }
                for ((age, per_way), holds) in age.iter_mut().zip(&self.per_way).zip(holds) {
                    let mut lanes = ages;
                    for (lane, holds) in lanes.iter_mut().zip(holds) {
                        *lane *= holds;
                    }
                    let [a, b, c, d, e, f, g, h] = lanes;
                    *age += per_way * (((a + b) + (c + d)) + ((e + f) + (g + h)));
                }
            }
            for (member, share) in members.iter().zip(&mut shares.ways).filter(|(member, _)| moves(member)) {
                let fill = member.profile.fill(*share);
                let held = if member.count >= 1.0 {
                    fill * age[member.class]
                } else {
                    // A function that seldom runs weighs little on others, but fully on itself.
                    let mine = fill * self.per_way[member.class];
                    let mut held = 0.0;
                    for (row, (ways, pressure)) in self.ways.iter().zip(&pressure).enumerate() {
                        let holds = &self.holds[row * classes + member.class];
                        for ((ways, pressure), holds) in ways.iter().zip(pressure).zip(holds) {
                            held += holds * ways * mine / ((pressure - member.count * mine).max(0.0) + mine);
                        }
                    }
                    held
                };
                // The geometric mean of old and new: fill rates fall as shares grow, so the plain step would swing.
                *share = (*share * held).sqrt();
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
