//! The need of an input by interpolation between its profiled neighbours: of ways, or of whole curves.
//!
//! Along the logarithm of one quantity. Ways are rounded up, as too few cost more than too many; the rising form first
//! makes the rows monotone (pool adjacent violators), which takes noise out where a need only grows. Curves are
//! interpolated in their logarithms, so that times and misses keep their proportions; the need is then read from the
//! curve, which also finds that an input has outgrown the cache.

use nigh_terms::Ways;

use crate::miss_curve::MissCurve;
use crate::time_curve::TimeCurve;
use crate::training_rows::{Axis, RunCurves, TrainingRow};

/// The position among sorted places: two indices, and the fraction from the first to the second.
fn between(places: impl ExactSizeIterator<Item = f64>, at: f64) -> Option<(usize, usize, f64)> {
    let last = places.len().checked_sub(1)?;
    let mut before = None;
    for (index, place) in places.enumerate() {
        if place >= at {
            return Some(match before {
                Some((low, from)) if place > at => (low, index, (at - from) / (place - from)),
                _ => (index, index, 0.0),
            });
        }
        before = Some((index, place));
    }
    Some((last, last, 0.0))
}

/// Ways along one quantity.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WayLine {
    /// Places, ascending, with the ways there.
    knots: Vec<(f64, f64)>,
}

impl WayLine {
    pub(crate) fn fit<'a>(rows: impl Iterator<Item = &'a TrainingRow>, axis: Axis, rising: bool) -> Option<Self> {
        let place = |row: &TrainingRow| Some((row.input.along(axis)?, f64::from(row.ways.0)));
        let mut sorted = rows.map(place).collect::<Option<Vec<_>>>()?;
        sorted.sort_by(|left, right| left.0.total_cmp(&right.0));
        // Blocks of (place, sum, rows): equal places share one, and rising merges each block into a greater one before.
        let mut blocks: Vec<Vec<(f64, f64)>> = Vec::new();
        let mean = |block: &[(f64, f64)]| block.iter().map(|row| row.1).sum::<f64>() / block.len() as f64;
        for row in sorted {
            match blocks.last_mut() {
                Some(block) if block[0].0 == row.0 => block.push(row),
                _ => blocks.push(vec![row]),
            }
            while rising && blocks.len() > 1 && mean(&blocks[blocks.len() - 2]) > mean(&blocks[blocks.len() - 1]) {
                let last = blocks.pop().unwrap_or_default();
                if let Some(block) = blocks.last_mut() {
                    block.extend(last);
                }
            }
        }
        let mut knots: Vec<(f64, f64)> = Vec::new();
        for block in &blocks {
            // A merged block is flat from its first place to its last.
            let ways = mean(block);
            knots.push((block[0].0, ways));
            let end = block[block.len() - 1].0;
            if end > block[0].0 {
                knots.push((end, ways));
            }
        }
        (!knots.is_empty()).then_some(Self { knots })
    }

    pub(crate) fn predict(&self, at: f64) -> Ways {
        let ways = between(self.knots.iter().map(|knot| knot.0), at)
            .map_or(1.0, |(low, high, part)| self.knots[low].1 + (self.knots[high].1 - self.knots[low].1) * part);
        // A need of 4.0000001 is one of 4.
        Ways((ways - 1e-6).ceil().max(1.0) as u8)
    }
}

/// Curves along one quantity, all of one cache.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CurveLine {
    /// Places, ascending, each once; at least one.
    knots: Vec<(f64, RunCurves)>,
}

impl CurveLine {
    /// `None` if a row has no curves, or if curves are of different caches.
    pub(crate) fn fit<'a>(rows: impl Iterator<Item = &'a TrainingRow>, axis: Axis) -> Option<Self> {
        let place = |row: &TrainingRow| Some((row.input.along(axis)?, row.curves.clone()?));
        let mut knots = rows.map(place).collect::<Option<Vec<_>>>()?;
        let ways = knots.first()?.1.times.ways();
        let same_cache = |curves: &RunCurves| curves.times.ways() == ways && curves.misses.ways() == ways;
        if !knots.iter().all(|(_, curves)| same_cache(curves)) {
            return None;
        }
        // The most sensitive row represents all rows at one place.
        knots.sort_by(|left, right| {
            left.0.total_cmp(&right.0).then(right.1.times.sensitivity().total_cmp(&left.1.times.sensitivity()))
        });
        knots.dedup_by(|later, kept| later.0 == kept.0);
        Some(Self { knots })
    }

    /// The least and the greatest place.
    pub(crate) fn range(&self) -> (f64, f64) {
        (self.knots[0].0, self.knots[self.knots.len() - 1].0)
    }

    /// The curves at a place; beyond the rows, those of the last one.
    pub(crate) fn predict(&self, at: f64) -> Option<RunCurves> {
        let (low, high, part) = between(self.knots.iter().map(|knot| knot.0), at)?;
        let (from, to) = (&self.knots[low].1, &self.knots[high].1);
        if low == high {
            return Some(from.clone());
        }
        let blend = |from: f64, to: f64| ((from + 1.0).ln() * (1.0 - part) + (to + 1.0).ln() * part).exp() - 1.0;
        let ways = || (1..=from.times.ways().0).map(Ways);
        let accesses = blend(from.misses.accesses(), to.misses.accesses());
        let misses = ways().map(|ways| blend(from.misses.misses(ways), to.misses.misses(ways)).clamp(0.0, accesses));
        let times = ways().map(|ways| blend(from.times.micros(ways), to.times.micros(ways)));
        // The interpolation of two curves is a curve. The clamp corrects rounding, and times stay above zero.
        Some(RunCurves {
            misses: MissCurve::new(accesses, misses.collect()).ok()?,
            times: TimeCurve::new(times.collect()).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time_curve::Tolerance;
    use crate::training_rows::tests::{row, rows};

    fn line(given: &[(u64, u8)], rising: bool) -> WayLine {
        WayLine::fit(rows(given).iter(), Axis::Size, rising).unwrap()
    }

    fn at(kib: u64) -> f64 {
        ((kib * 1024) as f64).log2()
    }

    #[test]
    fn between_two_rows_the_need_is_rounded_up() {
        let line = line(&[(256, 1), (512, 4), (1024, 7)], false);
        assert_eq!(line.predict(at(512)), Ways(4));
        assert_eq!(line.predict(at(362)), Ways(3), "2.5 on the line");
        assert_eq!(line.predict(at(1)), Ways(1));
        assert_eq!(line.predict(at(9000)), Ways(7));
    }

    #[test]
    fn the_rising_form_takes_a_dip_out() {
        let noisy = [(100, 1), (200, 5), (400, 3), (800, 9)];
        let rising = line(&noisy, true);
        assert_eq!((rising.predict(at(200)), rising.predict(at(400))), (Ways(4), Ways(4)));
        assert_eq!(line(&noisy, false).predict(at(400)), Ways(3));
    }

    fn curves(slowdowns: [f64; 3]) -> RunCurves {
        RunCurves {
            misses: MissCurve::new(1000.0, slowdowns.iter().map(|slowdown| (slowdown - 1.0) * 500.0).collect())
                .unwrap(),
            times: TimeCurve::new(slowdowns.iter().map(|slowdown| slowdown * 1e4).collect()).unwrap(),
        }
    }

    #[test]
    fn a_curve_between_two_lies_between_them() {
        let mut given: Vec<_> = [(256, [1.02, 1.0, 1.0]), (1024, [1.5, 1.2, 1.0])]
            .map(|(kib, slowdowns)| TrainingRow { curves: Some(curves(slowdowns)), ..row(kib, 1) })
            .into();
        let line = CurveLine::fit(given.iter(), Axis::Size).unwrap();
        let middle = line.predict(at(512)).unwrap();
        assert!((middle.times.slowdown(Ways(1)) - (1.02_f64 * 1.5).sqrt()).abs() < 1e-3);
        assert_eq!(middle.times.ways_needed(Tolerance::FIVE_PERCENT), Ways(3));
        assert_eq!(line.predict(at(4096)).unwrap(), curves([1.5, 1.2, 1.0]));
        given[0].curves = None;
        assert_eq!(CurveLine::fit(given.iter(), Axis::Size), None);
    }

    proptest! {
        #[test]
        fn the_rising_line_rises_and_stays_within_the_rows(given in proptest::collection::vec((1_u64..5000, 1_u8..=11), 1..20)) {
            let line = line(&given, true);
            let (least, greatest) = (given.iter().map(|row| row.1).min().unwrap(), given.iter().map(|row| row.1).max().unwrap());
            let mut before = Ways(0);
            for kib in (1..6000).step_by(97) {
                let ways = line.predict(at(kib));
                prop_assert!(ways >= before && ways.0 >= least && ways.0 <= greatest);
                before = ways;
            }
        }
    }
}
