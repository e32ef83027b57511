//! Misses at every number of ways from one pass over a stream (Mattson et al., IBM Systems Journal 1970).
//!
//! LRU keeps, in w ways, the w lines of a set used last; so a line found at place d of the set's list of use hits in
//! every cache of more than d ways. Exact for LRU in a set-associative cache where a class has w ways to itself.

use nigh_terms::Ways;

use super::address_space::PhysicalLine;
use super::geometry::LlcGeometry;

/// The misses of one stream at 1, 2, ... ways.
#[derive(Debug, Clone, PartialEq)]
pub struct WayCurve {
    accesses: f64,
    /// Misses at `index + 1` ways.
    misses: Vec<f64>,
}

impl WayCurve {
    /// The curve of `accesses` accesses of which `found[d]` were at place d of their set's list, `found.len()` being
    /// the most ways.
    pub(super) fn from_places(accesses: f64, found: &[f64]) -> Self {
        let mut left = accesses;
        let misses = found.iter().map(|hits| {
            left -= hits;
            left.max(0.0)
        });
        Self { accesses, misses: misses.collect() }
    }

    /// The most ways the curve knows.
    pub fn ways_max(&self) -> Ways {
        Ways(self.misses.len() as u8)
    }

    /// Accesses in all; a whole number for an exact curve, an estimate for a sampled one.
    pub fn accesses(&self) -> f64 {
        self.accesses
    }

    /// Misses at `ways` ways; without a way everything misses, beyond [`Self::ways_max`] nothing changes.
    pub fn misses(&self, ways: Ways) -> f64 {
        let known = usize::from(ways.0).min(self.misses.len());
        known.checked_sub(1).map_or(self.accesses, |index| self.misses[index])
    }

    /// Misses an access at `ways` ways; 0 for a stream of no access.
    pub fn miss_ratio(&self, ways: Ways) -> f64 {
        if self.accesses > 0.0 { self.misses(ways) / self.accesses } else { 0.0 }
    }

    /// The mean over all numbers of ways of the difference between the two miss ratios, without sign.
    pub fn mean_absolute_error(&self, other: &Self) -> f64 {
        let ways = self.ways_max().0.max(other.ways_max().0);
        let error = |way| (self.miss_ratio(Ways(way)) - other.miss_ratio(Ways(way))).abs();
        (1..=ways).map(error).sum::<f64>() / f64::from(ways.max(1))
    }
}

/// Lists of use of every set, and how often each place was hit.
#[derive(Debug, Clone)]
pub struct StackDistances {
    geometry: LlcGeometry,
    /// Newest first, `ways` places a set; `u32::MAX` where none is.
    lines: Vec<u32>,
    found: Vec<u64>,
    accesses: u64,
}

impl StackDistances {
    /// No access so far, for all numbers of ways up to the geometry's.
    pub fn new(geometry: LlcGeometry) -> Self {
        let ways = usize::from(geometry.ways().0);
        Self { geometry, lines: vec![u32::MAX; geometry.sets() * ways], found: vec![0; ways], accesses: 0 }
    }

    /// Takes one access in. Gives the fewest ways at which it would have hit; none if more than the geometry has.
    #[inline]
    pub fn access(&mut self, line: PhysicalLine) -> Option<Ways> {
        let ways = self.found.len();
        let first = self.geometry.set_of(line) * ways;
        let set = &mut self.lines[first..first + ways];
        self.accesses += 1;
        let found = set.iter().position(|&held| held == line.number());
        // The lines before it move back one place; a new line pushes the last one out.
        set.copy_within(..found.unwrap_or(ways - 1), 1);
        set[0] = line.number();
        found.map(|place| {
            self.found[place] += 1;
            Ways(place as u8 + 1)
        })
    }

    /// Forgets what was counted and keeps the lines: what follows is counted as in a warm cache.
    pub fn restart_counts(&mut self) {
        self.accesses = 0;
        self.found.fill(0);
    }

    /// The misses counted so far.
    pub fn curve(&self) -> WayCurve {
        let found: Vec<f64> = self.found.iter().map(|&hits| hits as f64).collect();
        WayCurve::from_places(self.accesses as f64, &found)
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{ClosId, WayMask};
    use proptest::prelude::*;

    use super::super::cache::WayPartitionedCache;
    use super::super::replacement::ReplacementPolicy;
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn one_pass_gives_the_misses_of_a_simulation_at_each_number_of_ways(
            slices in 1u32..4,
            set_bits in 0u32..4,
            ways in 1u8..=20,
            stream in prop::collection::vec(0u32..400, 0..800),
            warm in 0usize..400,
        ) {
            let geometry = LlcGeometry::new(slices, 1 << set_bits, Ways(ways)).unwrap();
            let stream: Vec<_> = stream.iter().map(|&number| PhysicalLine::new(number * 7).unwrap()).collect();
            let warm = warm.min(stream.len());
            let mut distances = StackDistances::new(geometry);
            for &line in &stream[..warm] {
                distances.access(line);
            }
            distances.restart_counts();
            for &line in &stream[warm..] {
                distances.access(line);
            }
            let curve = distances.curve();
            for count in 1..=ways {
                let mut cache = WayPartitionedCache::new(geometry, ReplacementPolicy::Lru);
                cache.set_mask(ClosId(1), WayMask::contiguous(ways - count, Ways(count))).unwrap();
                let misses = (0..)
                    .zip(&stream)
                    .filter(|&(index, &line)| !cache.access(ClosId(1), line).is_hit() && index >= warm)
                    .count();
                prop_assert_eq!(curve.misses(Ways(count)), misses as f64, "{} ways", count);
            }
            prop_assert_eq!(curve.accesses(), (stream.len() - warm) as f64);
        }
    }

    #[test]
    fn a_curve_never_rises_and_ends_where_its_ways_end() {
        let curve = WayCurve::from_places(10.0, &[4.0, 0.0, 3.0]);
        assert_eq!([0, 1, 2, 3, 4].map(|ways| curve.misses(Ways(ways))), [10.0, 6.0, 6.0, 3.0, 3.0]);
        assert_eq!(curve.miss_ratio(Ways(3)), 0.3);
        assert_eq!(WayCurve::from_places(0.0, &[0.0]).miss_ratio(Ways(1)), 0.0);
        let other = WayCurve::from_places(10.0, &[4.0, 0.0, 6.0]);
        assert!((curve.mean_absolute_error(&other) - 0.1).abs() < 1e-12);
    }
}
