//! Misses at every number of ways from a sample of the lines (SHARDS: Waldspurger et al., FAST'15).
//!
//! Only lines with a hash below a threshold are followed, in as many times fewer sets; each access to a followed line
//! stands for as many as the rate leaves out. The bounded form starts with all lines and halves its rate whenever it
//! follows too many: a small working set is counted exactly, and a large one needs no more memory. The error in the
//! number of accesses is corrected at the nearest distance (SHARDS-adj, section 4.2 there): whether a sample includes
//! the busiest lines is chance.

use super::address_space::PhysicalLine;
use super::geometry::{GeometryError, LlcGeometry};
use super::sample_rate::SampleRate;
use super::stack_distance::WayCurve;

/// Every other line.
const HALF: SampleRate = match SampleRate::ALL.halved() {
    Some(half) => half,
    None => panic!("there are thinner samples than the whole"),
};

/// A line that is followed and when it was used last.
#[derive(Debug, Clone, Copy)]
struct FollowedLine {
    line: u32,
    used: u64,
}

/// The sampled lists of use, and how often each place was hit, weighted by the rate of the time.
#[derive(Debug, Clone)]
pub struct SampledCurve {
    /// Of now, and of the whole stream.
    scaled: LlcGeometry,
    rate: SampleRate,
    rate_max: SampleRate,
    lines_max: usize,
    /// Newest first; one list for as many neighbouring sets as the rate leaves lines out.
    sets: Vec<Vec<FollowedLine>>,
    followed: usize,
    accesses: u64,
    /// Accesses that only warmed the lists.
    warming: u64,
    sampled: u64,
    found: Vec<u64>,
}

impl SampledCurve {
    /// Follows one line in `rate`.
    pub fn at_rate(geometry: LlcGeometry, rate: SampleRate) -> Result<Self, GeometryError> {
        Ok(Self::new(geometry.scaled_down(rate)?, rate, rate, usize::MAX))
    }

    /// Follows all lines at first and at most `lines_max` at any time; but never less than a list of the geometry's
    /// ways for each slice.
    pub fn bounded(geometry: LlcGeometry, lines_max: usize) -> Self {
        let mut rate_max = SampleRate::ALL;
        while let Some(next) = rate_max.halved()
            && next.one_in() <= geometry.sets_per_slice()
        {
            rate_max = next;
        }
        Self::new(geometry, SampleRate::ALL, rate_max, lines_max)
    }

    fn new(scaled: LlcGeometry, rate: SampleRate, rate_max: SampleRate, lines_max: usize) -> Self {
        let (sets, found) = (vec![Vec::new(); scaled.sets()], vec![0; usize::from(scaled.ways().0)]);
        Self { scaled, rate, rate_max, lines_max, sets, followed: 0, accesses: 0, warming: 0, sampled: 0, found }
    }

    /// The rate of now.
    pub const fn rate(&self) -> SampleRate {
        self.rate
    }

    /// Lines followed now.
    pub const fn followed(&self) -> usize {
        self.followed
    }

    /// Takes one access in; what is not sampled costs a hash.
    #[inline]
    pub fn access(&mut self, line: PhysicalLine) {
        self.accesses += 1;
        if self.rate.keeps(line.number()) {
            self.follow(line);
        }
    }

    fn follow(&mut self, line: PhysicalLine) {
        let weight = u64::from(self.rate.one_in());
        self.sampled += weight;
        let set = &mut self.sets[self.scaled.set_of(line)];
        let newest = FollowedLine { line: line.number(), used: self.accesses };
        if let Some(place) = set.iter().position(|held| held.line == line.number()) {
            self.found[place] += weight;
            set[..=place].rotate_right(1);
            set[0] = newest;
            return;
        }
        if set.len() == self.found.len() {
            set.pop();
        } else {
            self.followed += 1;
        }
        set.insert(0, newest);
        while self.followed > self.lines_max && self.rate < self.rate_max {
            self.halve();
        }
    }

    /// Follows half as many lines from now on: two neighbouring lists become one, in order of use.
    fn halve(&mut self) {
        let Some(rate) = self.rate.halved() else { return };
        let Ok(scaled) = self.scaled.scaled_down(HALF) else { return };
        (self.rate, self.scaled) = (rate, scaled);
        let ways = self.found.len();
        let merged = self.sets.chunks(2).map(|pair| {
            let mut kept: Vec<_> = pair.iter().flatten().copied().filter(|held| rate.keeps(held.line)).collect();
            kept.sort_unstable_by_key(|held| std::cmp::Reverse(held.used));
            kept.truncate(ways);
            kept
        });
        self.sets = merged.collect();
        self.followed = self.sets.iter().map(Vec::len).sum();
    }

    /// Counts from here on only; the lines that were used stay in the lists. A run that follows another of the same
    /// kind is a warm one.
    pub fn count_anew(&mut self) {
        (self.warming, self.sampled) = (self.accesses, 0);
        self.found.fill(0);
    }

    /// The estimate so far.
    pub fn curve(&self) -> WayCurve {
        let mut found: Vec<f64> = self.found.iter().map(|&hits| hits as f64).collect();
        let accesses = (self.accesses - self.warming) as f64;
        let missing = accesses - self.sampled as f64;
        if let Some(nearest) = found.first_mut() {
            *nearest = (*nearest + missing).max(0.0);
        }
        WayCurve::from_places(accesses, &found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::address_space::{FrameAllocator, PagedLine};
    use super::super::split_mix::SplitMix64;
    use super::super::stack_distance::StackDistances;
    use super::*;

    /// A smaller cache of the 4210R's kind, so that streams are short: 1.4 MiB, 11 ways.
    fn geometry() -> LlcGeometry {
        LlcGeometry::new(2, 1024, nigh_terms::Ways(11)).unwrap()
    }

    /// Streams over `lines` lines of random frames.
    fn streams() -> Vec<(&'static str, Vec<PhysicalLine>)> {
        let lines = 40_000;
        let space = FrameAllocator::new(5).allocate(lines / 64).unwrap();
        let at = |line: u32| space.physical(PagedLine::new(line / 64, line % 64));
        let mut random = SplitMix64::new(9);
        let mut uniform = move || f64::from(random.below(1 << 24)) / f64::from(1 << 24);
        let skewed = (0..300_000).map(|_| at((f64::from(lines) * uniform().powi(4)) as u32)).collect();
        let loops = (0..300_000).map(|step| at(step % 16_000)).collect();
        let mut position = 0;
        let phases = (0..300_000).map(|step| {
            position = if uniform() < 0.02 { (uniform() * 20_000.0) as u32 } else { position + 1 };
            at((position + step / 100_000 * 5_000) % lines)
        });
        vec![("skewed", skewed), ("loop", loops), ("phases", phases.collect())]
    }

    #[test]
    fn sampled_curves_are_within_one_percent_of_the_exact_one() {
        for (name, stream) in streams() {
            let mut exact = StackDistances::new(geometry());
            let mut fixed = SampledCurve::at_rate(geometry(), SampleRate::new(4).unwrap()).unwrap();
            let mut bounded = SampledCurve::bounded(geometry(), 8_000);
            for &line in &stream {
                exact.access(line);
                fixed.access(line);
                bounded.access(line);
            }
            for (kind, sampled) in [("fixed", &fixed), ("bounded", &bounded)] {
                let error = sampled.curve().mean_absolute_error(&exact.curve());
                assert!(error <= 0.01, "{name}, {kind} at 1 in {}: {error}", sampled.rate());
            }
        }
    }

    #[test]
    fn the_bounded_form_keeps_its_bound_and_its_accesses() {
        for (_, stream) in streams() {
            let mut sampled = SampledCurve::bounded(geometry(), 2_000);
            for &line in &stream {
                sampled.access(line);
                assert!(sampled.followed() <= 2_000);
            }
            assert!(sampled.rate() > SampleRate::ALL);
            assert_eq!(sampled.curve().accesses(), stream.len() as f64);
        }
    }

    #[test]
    fn a_working_set_within_the_bound_is_counted_exactly() {
        let (_, stream) = streams().swap_remove(0);
        let mut exact = StackDistances::new(geometry());
        let mut sampled = SampledCurve::bounded(geometry(), 40_000);
        for &line in &stream {
            exact.access(line);
            sampled.access(line);
        }
        assert_eq!(sampled.curve(), exact.curve());
    }

    #[test]
    fn a_warm_run_counts_what_the_run_before_it_left() {
        let lines = 4000;
        let space = FrameAllocator::new(5).allocate(lines / 64 + 1).unwrap();
        let run = (0..lines).map(|line| space.physical(PagedLine::new(line / 64, line % 64)));
        let mut sampled = SampledCurve::bounded(geometry(), 40_000);
        run.clone().for_each(|line| sampled.access(line));
        let cold = sampled.curve();
        sampled.count_anew();
        run.for_each(|line| sampled.access(line));
        let warm = sampled.curve();
        let whole = nigh_terms::Ways(11);
        assert_eq!((cold.misses(whole), cold.accesses()), (4000.0, 4000.0));
        assert_eq!((warm.misses(whole), warm.accesses()), (0.0, 4000.0), "all of it fits into the cache");
    }

    #[test]
    fn no_rate_leaves_a_slice_without_a_set() {
        let small = LlcGeometry::new(3, 4, nigh_terms::Ways(2)).unwrap();
        let mut sampled = SampledCurve::bounded(small, 0);
        for number in 0..1000 {
            sampled.access(PhysicalLine::new(number).unwrap());
        }
        assert_eq!(sampled.rate().one_in(), 4);
        assert!(sampled.followed() <= 6);
    }
}
