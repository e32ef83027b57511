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
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clos_layout::{BeyondChunk, CacheShape, ClosKind};
    use crate::miss_curve::tests::compose;
    use crate::time_curve::{CpiModel, Work};

    pub(crate) const LINES_PER_WAY: f64 = 20_480.0;

    /// A profile of one run: millions of instructions, thousands of accesses and of misses by way.
    pub(crate) fn profile(minstr: f64, accesses: f64, misses: &[f64]) -> Arc<SharingProfile> {
        let curve = MissCurve::new(accesses * 1e3, misses.iter().map(|misses| misses * 1e3).collect()).unwrap();
        let model = CpiModel {
            cycles_per_instruction: 0.5,
            hit_cycles: 20.0,
            miss_cycles: 200.0,
            neighbour_miss_cycles: None,
            megahertz: 2400.0,
        };
        let work = Work { instructions: minstr * 1e6, neighbour_share: 0.0 };
        let times = TimeCurve::from_misses(&curve, &work, &model).unwrap();
        Arc::new(SharingProfile::new(&curve, &times, LINES_PER_WAY).unwrap())
    }

    /// Curves of the shapes that traced functions have: a recogniser that wants all, a blur that wants seven ways, a
    /// stream.
    pub(crate) fn speech() -> Arc<SharingProfile> {
        let misses = [44391., 34369., 25065., 18001., 13035., 9585., 7128., 5338., 4005., 3010., 2268.];
        profile(3044.0, 51100.0, &misses)
    }

    pub(crate) fn blur() -> Arc<SharingProfile> {
        profile(1762.0, 1069.0, &[1043., 981., 879., 744., 600., 466., 354., 263., 194., 142., 102.])
    }

    pub(crate) fn stream() -> Arc<SharingProfile> {
        profile(114.0, 14717.0, &[14717.; 11])
    }

    pub(crate) const SHAPE: CacheShape =
        CacheShape { ways: Ways(11), classes: 8, min_ways: Ways(1), shareable: WayMask::from_bits(0x600) };

    fn shares(masks: &[u32], members: &[(usize, &SharingProfile)]) -> Vec<f32> {
        let classes = masks.iter().map(|&bits| (ClosKind::Cluster, WayMask::from_bits(bits)));
        let layout = ClosLayout::new(SHAPE, classes, BeyondChunk::DefaultClass).unwrap();
        let regions = Regions::of(&layout);
        let members: Vec<_> = members.iter().map(|&(class, profile)| Member { class, profile, count: 1.0 }).collect();
        let mut shares = regions.start(&members);
        regions.settle(&members, &mut shares, 40, ALL_CLASSES);
        shares.ways
    }

    #[test]
    fn alone_a_function_holds_its_class() {
        for profile in [speech(), blur(), stream()] {
            assert!((shares(&[0x7ff, 0xf], &[(2, &profile)])[0] - 4.0).abs() < 1e-3);
        }
    }

    #[test]
    fn who_is_seldom_there_still_holds_its_class_when_it_is() {
        let (blur, stream) = (blur(), stream());
        let regions = Regions::whole(Ways(6));
        let seldom = |count| {
            let members =
                [Member { class: 0, profile: &blur, count: 1.0 }, Member { class: 0, profile: &stream, count }];
            let mut shares = regions.start(&members);
            regions.settle(&members, &mut shares, 40, ALL_CLASSES);
            shares.ways
        };
        let alone = [Member { class: 0, profile: &blur, count: 0.1 }];
        let mut share = regions.start(&alone);
        regions.settle(&alone, &mut share, 40, ALL_CLASSES);
        assert!((share.ways[0] - 6.0).abs() < 1e-3, "{:?}", share.ways);
        assert!(seldom(0.1)[0] > seldom(1.0)[0], "a rare neighbour takes less on average");
    }

    #[test]
    fn a_class_that_does_not_move_goes_on_filling() {
        let (speech, stream) = (speech(), stream());
        let layout =
            ClosLayout::new(SHAPE, [(ClosKind::Cluster, WayMask::from_bits(0x7f))], BeyondChunk::DefaultClass).unwrap();
        let regions = Regions::of(&layout);
        let members: Vec<_> =
            [(0, &speech), (1, &stream)].map(|(class, profile)| Member { class, profile, count: 1.0 }).into();
        let mut shares = regions.start(&members);
        regions.settle(&members, &mut shares, 40, ALL_CLASSES);
        let mut again = shares.clone();
        regions.settle(&members, &mut again, 5, 0b01);
        assert_eq!(again.ways[1], shares.ways[1]);
        assert!((again.ways[0] - shares.ways[0]).abs() < 1e-3, "it was settled with the stream there");
        assert_eq!((regions.overlaps(0), regions.overlaps(1)), (0b11, 0b11));
    }

    #[test]
    fn disjoint_classes_do_not_meet() {
        let found = shares(&[0x0ff, 0x700], &[(1, &speech()), (2, &stream()), (2, &stream())]);
        assert!((found[0] - 8.0).abs() < 1e-3 && (found[1] - 1.5).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn a_stream_takes_more_of_a_shared_cache_than_what_it_disturbs() {
        let (speech, stream) = (speech(), stream());
        let found = shares(&[], &[(0, &speech), (0, &stream)]);
        assert!((found[0] + found[1] - 11.0).abs() < 0.01, "the cache is full: {found:?}");
        let apart = shares(&[0x0ff, 0x700], &[(1, &speech), (2, &stream)]);
        assert!(speech.slowdown(apart[0]) < speech.slowdown(found[0]), "{found:?} {apart:?}");
    }

    #[test]
    fn one_shared_mask_is_the_equal_age_composition() {
        // The composed misses at the shares found are those that the curves' own composition gives.
        let curve = |misses: &[f64]| MissCurve::new(1000.0, misses.to_vec()).unwrap();
        let curves = [curve(&[900., 500., 100., 50.]), curve(&[990.; 4])];
        let flat = TimeCurve::new(vec![1000.0; 4]).unwrap();
        let profiles: Vec<_> = curves.iter().map(|c| SharingProfile::new(c, &flat, 100.0).unwrap()).collect();
        let layout = ClosLayout::unpartitioned(CacheShape { ways: Ways(4), ..SHAPE }).unwrap();
        let members: Vec<_> = profiles.iter().map(|profile| Member { class: 0, profile, count: 1.0 }).collect();
        let regions = Regions::of(&layout);
        let mut shares = regions.start(&members);
        regions.settle(&members, &mut shares, 60, ALL_CLASSES);
        let mine: f64 = curves.iter().zip(&shares.ways).map(|(curve, share)| curve.misses_at(f64::from(*share))).sum();
        let composed = compose(&curves).misses(Ways(4));
        assert!((mine - composed).abs() < 0.02 * composed, "{mine} {composed} {:?}", shares.ways);
    }

    #[test]
    fn an_overlapping_class_loses_only_where_it_overlaps() {
        let (speech, stream) = (speech(), stream());
        // The recogniser may use every way, the stream two of them: it keeps more than the nine that are its own.
        let found = shares(&[0x600], &[(0, &speech), (1, &stream)]);
        assert!(found[0] > 9.0 && found[0] < 11.0 && found[0] + found[1] < 11.01, "{found:?}");
    }
}
