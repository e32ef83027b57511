//! Which traces are recorded: the caller's decision, or a share of the traces that begin here. Pure.

use crate::context::TraceId;

/// The random bits of a trace id by which it is chosen: the rightmost 56, as W3C Trace Context level 2 says, so that all
/// processes choose the same traces.
const BITS: u32 = 56;

/// The share of traces that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling(u64);

impl Sampling {
    /// Every trace.
    pub const ALL: Self = Self(1 << BITS);

    /// This share of all traces, from 0 to 1.
    #[must_use]
    pub fn of_ratio(ratio: f64) -> Self {
        // The cast makes zero of what is no number.
        Self((ratio.clamp(0.0, 1.0) * (1u64 << BITS) as f64) as u64)
    }

    pub(crate) const fn of_threshold(threshold: u64) -> Self {
        Self(threshold)
    }

    pub(crate) const fn threshold(self) -> u64 {
        self.0
    }

    /// True if a trace that begins here is recorded.
    #[must_use]
    pub const fn samples(self, trace: TraceId) -> bool {
        (trace.bits() as u64 & ((1 << BITS) - 1)) < self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(ratio: f64) -> usize {
        (0..10_000).filter(|_| Sampling::of_ratio(ratio).samples(TraceId::random())).count()
    }

    #[test]
    fn the_share_of_sampled_traces_is_the_ratio() {
        assert_eq!((sampled(0.0), sampled(-1.0), sampled(f64::NAN)), (0, 0, 0));
        assert_eq!((sampled(1.0), sampled(7.0)), (10_000, 10_000));
        // Twenty standard deviations of slack.
        assert!((2_000..4_000).contains(&sampled(0.3)));
        assert_eq!(Sampling::of_ratio(1.0), Sampling::ALL);
    }

    #[test]
    fn a_trace_that_a_smaller_share_has_is_in_every_larger_one() {
        for _ in 0..1000 {
            let trace = TraceId::random();
            let chosen = [0.1, 0.5, 0.9].map(|ratio| Sampling::of_ratio(ratio).samples(trace));
            assert!(chosen.is_sorted(), "{trace}: {chosen:?}");
        }
    }
}
