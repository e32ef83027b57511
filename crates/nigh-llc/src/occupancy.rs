//! How much of the cache each running function holds when masks overlap, and what that costs it.
//!
//! The model: a function fills its ways at the rate of its misses; lines leave a way at one age, so a function's share
//! of a way is its part of what is filled there. Its fill rate is taken over the time a line lives (the mean over the
//! shares from nothing to its own), which protects what is used again as LRU does; with one mask for all this is the
//! equal-age composition of [`crate::MissCurve::compose`], with overlapping masks it is DCAPS' kind of model (EuroSys
//! 2018). The shares are a fixed point, found by a few damped rounds; accuracy is bounded by the curves, not by the rounds.

use nigh_terms::Ways;

use crate::clos_layout::{CLASSES_MAX, ClosLayout};
use crate::miss_curve::{CurveError, FillTime, MissCurve, STEPS_PER_WAY, WAYS_MAX};
use crate::time_curve::TimeCurve;

const WAYS: usize = WAYS_MAX.0 as usize;
const CLASSES: usize = CLASSES_MAX as usize;

/// A function's fill rate and slowdown at every quarter of a way: what sharing asks of its curves, ready to be looked up.
#[derive(Debug, Clone, PartialEq)]
pub struct SharingProfile {
    points: Vec<Point>,
    best_micros: f32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    /// Ways a microsecond.
    fill: f32,
    /// Time over time with the whole cache.
    slowdown: f32,
}

impl SharingProfile {
    /// From the curves of one run on a cache of `lines_per_way` lines a way.
    pub fn new(misses: &MissCurve, times: &TimeCurve, lines_per_way: f64) -> Result<Self, CurveError> {
        if misses.ways() != times.ways() {
            return Err(CurveError::DifferentCaches { left: misses.ways(), right: times.ways() });
        }
        let misses = misses.monotone();
        let steps = usize::from(misses.ways().0) * STEPS_PER_WAY;
        let share = |step: usize| step as f64 / STEPS_PER_WAY as f64;
        let rate = |step: usize| misses.misses_at(share(step)) / times.micros_at(share(step)) / lines_per_way.max(1.0);
        let fill_time = FillTime::of_rates(steps, rate(0), rate);
        let best = times.micros(times.ways());
        let points = (0..=steps).map(|step| {
            let fill = if step == 0 { rate(0) } else { share(step) / fill_time.at_step(step) };
            Point { fill: (fill as f32).max(f32::MIN_POSITIVE), slowdown: (times.micros_at(share(step)) / best) as f32 }
        });
        Ok(Self { points: points.collect(), best_micros: best as f32 })
    }

    /// A function of which only a time is guessed: it streams `fill` ways a microsecond and gains nothing from the cache.
    #[must_use]
    pub fn streaming(fill: f32, micros: f32) -> Self {
        let point = Point { fill: fill.max(f32::MIN_POSITIVE), slowdown: 1.0 };
        Self { points: vec![point; 2], best_micros: micros }
    }

    /// Microseconds with the whole cache.
    #[must_use]
    pub const fn best_micros(&self) -> f32 {
        self.best_micros
    }

    /// Time over time with the whole cache, at a share of ways.
    #[must_use]
    pub fn slowdown(&self, share: f32) -> f32 {
        let (low, high, part) = self.around(share);
        low.slowdown + (high.slowdown - low.slowdown) * part
    }

    fn fill(&self, share: f32) -> f32 {
        let (low, high, part) = self.around(share);
        low.fill + (high.fill - low.fill) * part
    }

    #[inline]
    fn around(&self, share: f32) -> (Point, Point, f32) {
        let last = self.points.len() - 1;
        let at = (share * STEPS_PER_WAY as f32).clamp(0.0, last as f32);
        let low = (at as usize).min(last - 1);
        (self.points[low], self.points[low + 1], at - low as f32)
    }
}

/// One function that runs, or a number of equal ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<'a> {
    /// Its class, by index.
    pub(crate) class: usize,
    /// Its curves.
    pub(crate) profile: &'a SharingProfile,
    /// How many run, on average; each gets the share computed.
    pub(crate) count: f32,
}

/// The masks of a layout, cut into regions of ways that the same classes have.
#[derive(Debug, Clone)]
pub(crate) struct Regions {
    /// Ways of each region.
    ways: Vec<f32>,
    /// By class: one over its ways, and its regions.
    classes: Vec<(f32, Vec<u8>)>,
}

impl Regions {
    pub(crate) fn of(layout: &ClosLayout) -> Self {
        let mut kinds: Vec<(u32, f32)> = Vec::new();
        for way in 0..layout.shape().ways.0 {
            let users = layout.classes().iter().enumerate();
            let users = users.filter(|(_, class)| class.mask.holds(way)).fold(0_u32, |bits, (at, _)| bits | 1 << at);
            match kinds.iter_mut().find(|(known, _)| *known == users) {
                Some((_, ways)) => *ways += 1.0,
                None => kinds.push((users, 1.0)),
            }
        }
        let classes = layout.classes().iter().enumerate().map(|(at, class)| {
            let mine = (0..kinds.len()).filter(|&region| kinds[region].0 & (1 << at) != 0).map(|region| region as u8);
            (1.0 / f32::from(class.mask.count().0), mine.collect())
        });
        Self { classes: classes.collect(), ways: kinds.iter().map(|(_, ways)| *ways).collect() }
    }

    /// One class over a whole cache.
    pub(crate) fn whole(ways: Ways) -> Self {
        Self { ways: vec![f32::from(ways.0)], classes: vec![(1.0 / f32::from(ways.0.max(1)), vec![0])] }
    }

    /// Ways of a class.
    pub(crate) fn class_ways(&self, class: usize) -> f32 {
        1.0 / self.classes[class].0
    }

    /// Shares to start from: each function its part of its class's ways, by head.
    pub(crate) fn start(&self, members: &[Member<'_>]) -> Vec<f32> {
        let mut heads = [0.0_f32; CLASSES];
        for member in members {
            heads[member.class] += member.count;
        }
        members.iter().map(|member| 1.0 / (self.classes[member.class].0 * heads[member.class].max(1.0))).collect()
    }

    /// Moves the shares `rounds` steps towards the fixed point.
    pub(crate) fn settle(&self, members: &[Member<'_>], shares: &mut [f32], rounds: usize) {
        for _ in 0..rounds {
            let mut fills = [0.0_f32; CLASSES];
            for (member, share) in members.iter().zip(&*shares) {
                fills[member.class] += member.count * member.profile.fill(*share);
            }
            let mut pressure = [0.0_f32; WAYS];
            for (fill, (per_way, regions)) in fills.iter().zip(&self.classes) {
                for &region in regions {
                    pressure[usize::from(region)] += fill * per_way;
                }
            }
            // Ways a class holds for each way a microsecond it fills: the age of its lines when they leave.
            let mut age = [0.0_f32; CLASSES];
            for (age, (per_way, regions)) in age.iter_mut().zip(&self.classes) {
                let ages = regions.iter().map(|&region| self.ways[usize::from(region)] / pressure[usize::from(region)]);
                *age = per_way * ages.sum::<f32>();
            }
            for (member, share) in members.iter().zip(&mut *shares) {
                let fill = member.profile.fill(*share);
                let held = if member.count >= 1.0 {
                    fill * age[member.class]
                } else {
                    // Who is seldom there weighs little on others, but meets itself whole.
                    let (per_way, regions) = &self.classes[member.class];
                    let mine = fill * per_way;
                    let held = regions.iter().map(|&region| {
                        let others = pressure[usize::from(region)] - member.count * mine;
                        self.ways[usize::from(region)] * mine / (others.max(0.0) + mine)
                    });
                    held.sum()
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

    use nigh_terms::WayMask;

    use super::*;
    use crate::clos_layout::{BeyondChunk, CacheShape, ClosKind};
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
        regions.settle(&members, &mut shares, 40);
        shares
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
            regions.settle(&members, &mut shares, 40);
            shares
        };
        let alone = [Member { class: 0, profile: &blur, count: 0.1 }];
        let mut share = regions.start(&alone);
        regions.settle(&alone, &mut share, 40);
        assert!((share[0] - 6.0).abs() < 1e-3, "{share:?}");
        assert!(seldom(0.1)[0] > seldom(1.0)[0], "a rare neighbour takes less on average");
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
        regions.settle(&members, &mut shares, 60);
        let mine: f64 = curves.iter().zip(&shares).map(|(curve, share)| curve.misses_at(f64::from(*share))).sum();
        let composed = MissCurve::compose(&curves).unwrap().misses(Ways(4));
        assert!((mine - composed).abs() < 0.02 * composed, "{mine} {composed} {shares:?}");
    }

    #[test]
    fn an_overlapping_class_loses_only_where_it_overlaps() {
        let (speech, stream) = (speech(), stream());
        // The recogniser may use every way, the stream two of them: it keeps more than the nine that are its own.
        let found = shares(&[0x600], &[(0, &speech), (1, &stream)]);
        assert!(found[0] > 9.0 && found[0] < 11.0 && found[0] + found[1] < 11.01, "{found:?}");
    }
}
