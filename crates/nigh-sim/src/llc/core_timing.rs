//! The time of a core: a number of cycles for each instruction, and a stall for each request to the last level. In
//! order, one stall at a time; the overlap in out-of-order cores is part of the constants, to be calibrated.

use super::replay_trace::ReplayTrace;
use super::sim_time::SimTime;

/// The costs on one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CoreTiming {
    /// Thousandths of a cycle an instruction takes, not counting requests to the last level.
    pub base_cpi_milli: u32,
    /// Cycles of stall for every request to the last level.
    pub hit_cycles: u32,
    /// Cycles more when it misses, without waiting for a busy memory.
    pub miss_cycles: u32,
    /// Cycles more instead, for a miss on a line whose neighbour was asked for shortly before, which a prefetcher would
    /// have asked for; none to charge all misses alike.
    pub neighbour_miss_cycles: Option<u32>,
}

impl CoreTiming {
    /// Cascade Lake at 2.4 GHz without a prefetcher: an instruction in 0.62 cycles, 50 to the last level, 200 (83 ns)
    /// more to memory.
    pub const CASCADE_LAKE: Self =
        Self { base_cpi_milli: 620, hit_cycles: 50, miss_cycles: 200, neighbour_miss_cycles: None };

    /// The same with a prefetcher that hides 140 of the 200 cycles of a miss on a neighbour line.
    pub const CASCADE_LAKE_PREFETCHING: Self = Self { neighbour_miss_cycles: Some(60), ..Self::CASCADE_LAKE };

    /// Broadwell-EP at 2.1 GHz without a prefetcher: an instruction in 0.62 cycles, 50 to the last level, 160 (76 ns)
    /// more to memory.
    pub const BROADWELL_EP: Self = Self { miss_cycles: 160, ..Self::CASCADE_LAKE };

    /// Whether it can only be applied to traces that know neighbours.
    pub const fn needs_neighbours(&self) -> bool {
        self.neighbour_miss_cycles.is_some()
    }

    /// The time of `instructions` without their requests to the last level.
    #[inline]
    pub const fn computing(&self, instructions: u64) -> SimTime {
        SimTime::from_millicycles(instructions.saturating_mul(self.base_cpi_milli as u64))
    }

    /// The stall of a hit.
    #[inline]
    pub const fn hit(&self) -> SimTime {
        SimTime::from_cycles(self.hit_cycles as u64)
    }

    /// The stall of a miss served at once.
    #[inline]
    pub const fn miss(&self, neighbour: bool) -> SimTime {
        let more = match self.neighbour_miss_cycles {
            Some(cycles) if neighbour => cycles,
            _ => self.miss_cycles,
        };
        SimTime::from_cycles(self.hit_cycles as u64 + more as u64)
    }

    /// The time of one whole run with these misses, on a memory that is never busy. Counts are those of the trace: of a
    /// sampled one, of the sample.
    pub fn run(&self, trace: &ReplayTrace, misses: u64, neighbour_misses: u64) -> SimTime {
        let hits = trace.requests() - misses - neighbour_misses;
        let stall = hits * self.hit().millicycles()
            + misses * self.miss(false).millicycles()
            + neighbour_misses * self.miss(true).millicycles();
        let stall = stall * u64::from(trace.rate().one_in());
        SimTime::from_millicycles(self.computing(trace.instructions()).millicycles() + stall)
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::{AccessKind, LlcAccess};
    use super::super::sample_rate::SampleRate;
    use super::*;

    #[test]
    fn a_run_costs_its_instructions_its_requests_and_its_misses() {
        let load = |line| LlcAccess { line, instructions: 100, kind: AccessKind::Load };
        let trace = ReplayTrace::new([1, 2, 9, 20].map(load), 600, SampleRate::ALL).unwrap();
        let time = CoreTiming::CASCADE_LAKE_PREFETCHING.run(&trace, 1, 2);
        assert_eq!(time.cycles(), 1000.0 * 0.62 + 4.0 * 50.0 + 200.0 + 2.0 * 60.0);
        assert_eq!(time.seconds(1e6), time.cycles() / 1e6);
        assert_eq!(CoreTiming::CASCADE_LAKE.run(&trace, 1, 2).cycles(), 1000.0 * 0.62 + 4.0 * 50.0 + 3.0 * 200.0);
    }
}
