//! The memory behind the last level, shared by all cores: what a line costs in latency is the core's, here it waits its
//! turn.

use super::access::LINE_BYTES;
use super::sim_time::{MILLI, SimTime};

/// The speed of the memory, which serves one line after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryTiming {
    /// Thousandths of a core cycle for which one line occupies the memory.
    pub line_millicycles: u32,
}

impl MemoryTiming {
    /// Six channels of DDR4-2400, 90 GB/s of them in use at best, seen from 2.4 GHz.
    pub const SIX_CHANNELS: Self = Self { line_millicycles: 1_707 };

    /// A memory of this many bytes a second, seen from cores of `hertz`; at least a thousandth of a cycle a line.
    pub fn of_bandwidth(bytes_per_second: f64, hertz: f64) -> Self {
        let cycles = LINE_BYTES as f64 / bytes_per_second * hertz;
        Self { line_millicycles: ((cycles * MILLI as f64).round() as u32).max(1) }
    }
}

/// A memory that serves requests in the order they come, each for a fixed time: the D of M/D/1.
///
/// A sampled request stands for `weight` real ones. It occupies the memory as long as all of them together and waits as
/// long as all of them: stretching the times of an M/D/1 queue by a factor stretches its waits by the same factor.
#[derive(Debug, Clone)]
pub struct MemoryQueue {
    occupied_by_request: u64,
    free_at: u64,
    busy: u64,
}

impl MemoryQueue {
    /// An idle memory, each of whose requests stands for `weight` lines.
    pub const fn new(timing: MemoryTiming, weight: u64) -> Self {
        Self { occupied_by_request: timing.line_millicycles as u64 * weight, free_at: 0, busy: 0 }
    }

    /// A request at `now`, not earlier than the one before; how long it waits until its turn.
    #[inline]
    pub fn request(&mut self, now: SimTime) -> SimTime {
        let start = self.free_at.max(now.millicycles());
        let wait = start - now.millicycles();
        self.free_at = start + self.occupied_by_request;
        self.busy += self.occupied_by_request;
        SimTime::from_millicycles(wait)
    }

    /// How long it was occupied so far.
    pub const fn busy(&self) -> SimTime {
        SimTime::from_millicycles(self.busy)
    }
}

#[cfg(test)]
mod tests {
    use super::super::split_mix::SplitMix64;
    use super::*;

    #[test]
    fn a_bandwidth_becomes_the_time_of_a_line() {
        assert_eq!(MemoryTiming::of_bandwidth(90e9, 2.4e9), MemoryTiming::SIX_CHANNELS);
    }

    #[test]
    fn requests_wait_for_those_before_them() {
        let mut memory = MemoryQueue::new(MemoryTiming { line_millicycles: 2_000 }, 1);
        let waits = [0, 1, 2, 10].map(|cycle| memory.request(SimTime::from_cycles(cycle)).cycles());
        assert_eq!(waits, [0.0, 1.0, 2.0, 0.0]);
        assert_eq!(memory.busy().cycles(), 8.0);
    }

    #[test]
    fn random_arrivals_wait_as_long_as_queueing_theory_says() {
        // M/D/1: the mean wait is service * load / (2 (1 - load)).
        let (service, load, weight) = (2.0, 0.6, 8);
        let mut memory = MemoryQueue::new(MemoryTiming { line_millicycles: 2_000 }, weight);
        let (mut random, mut now, mut waited, count) = (SplitMix64::new(4), 0.0, 0.0, 200_000);
        for _ in 0..count {
            let uniform = (f64::from(random.below(u32::MAX)) + 1.0) / f64::from(u32::MAX);
            now += -uniform.ln() * service * weight as f64 / load;
            waited += memory.request(SimTime::from_millicycles((now * 1000.0) as u64)).cycles();
        }
        let mean_of_one_real_request = waited / f64::from(count) / weight as f64;
        let expected = service * load / (2.0 * (1.0 - load));
        assert!((mean_of_one_real_request / expected - 1.0).abs() < 0.05, "{mean_of_one_real_request} of {expected}");
    }
}
