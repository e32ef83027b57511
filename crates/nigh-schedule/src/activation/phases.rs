//! Computes the phases extract, transform and load from data calls: pure.
//!
//! Extraction is the time in which at least one read was under way, load the time in which only writes were, and
//! transformation the rest (OFC section 2.1, with overlaps counted once so that the three add up to the duration).
//! A call that failed counts as a read: the function waited for data and got none.

use nigh_data::ServeOutcome;
use nigh_terms::Monotonic;

use super::Phases;

/// The most intervals that are kept separately; beyond it the oldest are summed up.
const INTERVALS_MAX: usize = 64;

/// The length of a union of intervals that arrive in the order of their ends, in bounded memory.
///
/// With more than `INTERVALS_MAX` separate intervals, the oldest is folded into a sum. A later interval that began
/// before the end of a folded one counts from that end: a gap between folded intervals is then missed, and nothing
/// counts twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    apart: std::collections::VecDeque<(u64, u64)>,
    folded_ns: u64,
    folded_end: u64,
}

impl Cover {
    /// Adds the interval from `began` to `ended`.
    pub fn add(&mut self, began: Monotonic, ended: Monotonic) {
        let mut began = began.0.max(self.folded_end);
        let mut ended = ended.0;
        if ended <= began {
            return;
        }
        while let Some(&(earlier, end)) = self.apart.back() {
            if end < began {
                break;
            }
            began = began.min(earlier);
            ended = ended.max(end);
            self.apart.pop_back();
        }
        self.apart.push_back((began, ended));
        if self.apart.len() > INTERVALS_MAX
            && let Some((began, ended)) = self.apart.pop_front()
        {
            self.folded_ns += ended - began;
            self.folded_end = ended;
        }
    }

    /// The length of the union in nanoseconds.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.folded_ns + self.apart.iter().map(|(began, ended)| ended - began).sum::<u64>()
    }
}

/// The phases of one invocation while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseMeter {
    reads: Cover,
    all: Cover,
}

impl PhaseMeter {
    /// Adds a call of an invocation that began at `start`.
    pub fn call(&mut self, served: ServeOutcome, start: Monotonic, began: Monotonic, ended: Monotonic) {
        let began = began.max(start);
        self.all.add(began, ended);
        if !matches!(served, ServeOutcome::Write | ServeOutcome::Delete) {
            self.reads.add(began, ended);
        }
    }

    /// The phases of an invocation that took `duration_us`.
    #[must_use]
    pub fn phases(&self, duration_us: u64) -> Phases {
        let extract_us = (self.reads.nanos() / 1000).min(duration_us);
        let data_us = (self.all.nanos() / 1000).clamp(extract_us, duration_us);
        Phases { extract_us, transform_us: duration_us - data_us, load_us: data_us - extract_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Monotonic {
        Monotonic(n * 1000)
    }

    fn phases(calls: &[(ServeOutcome, u64, u64)], duration_us: u64) -> (u64, u64, u64) {
        let mut meter = PhaseMeter::default();
        for &(served, began, ended) in calls {
            meter.call(served, us(100), us(100 + began), us(100 + ended));
        }
        let phases = meter.phases(duration_us);
        assert_eq!(phases.extract_us + phases.transform_us + phases.load_us, duration_us);
        (phases.extract_us, phases.transform_us, phases.load_us)
    }

    #[test]
    fn reads_are_extraction_writes_are_load_and_the_rest_is_transformation() {
        let calls = [
            (ServeOutcome::Metadata, 0, 5),
            (ServeOutcome::Miss, 10, 40),
            (ServeOutcome::Write, 70, 90),
            (ServeOutcome::Delete, 90, 95),
        ];
        assert_eq!(phases(&calls, 100), (35, 40, 25));
        assert_eq!(phases(&[], 100), (0, 100, 0));
    }

    #[test]
    fn calls_that_overlap_count_once() {
        assert_eq!(
            phases(&[(ServeOutcome::Hit, 10, 30), (ServeOutcome::Miss, 20, 40), (ServeOutcome::Past, 5, 50)], 100),
            (45, 55, 0)
        );
        assert_eq!(phases(&[(ServeOutcome::Miss, 0, 20), (ServeOutcome::Write, 10, 30)], 40), (20, 10, 10));
    }

    #[test]
    fn a_call_that_began_in_the_last_invocation_or_ended_after_this_one_counts_for_its_part_only() {
        let mut meter = PhaseMeter::default();
        meter.call(ServeOutcome::Hit, us(100), us(50), us(120));
        assert_eq!(meter.phases(100).extract_us, 20);
        meter.call(ServeOutcome::Hit, us(100), us(150), us(900));
        assert_eq!(meter.phases(100), Phases { extract_us: 100, transform_us: 0, load_us: 0 });
    }

    #[test]
    fn thousands_of_calls_apart_are_counted_in_bounded_memory() {
        let mut cover = Cover::default();
        for n in 0..10_000 {
            cover.add(us(n * 10), us(n * 10 + 3));
        }
        assert_eq!(cover.nanos(), 30_000 * 1000);
        assert!(cover.apart.len() <= INTERVALS_MAX);
        // An interval that spans all of them adds only its part after the folded ones, so nothing counts twice.
        let before = cover.nanos();
        cover.add(us(0), us(100_000));
        let apart_span = 100_000 * 1000 - cover.folded_end;
        assert_eq!(cover.nanos(), cover.folded_ns + apart_span);
        assert!(cover.nanos() > before && cover.nanos() <= 100_000 * 1000);
    }
}
