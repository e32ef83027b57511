//! What an invocation costs: the GB-seconds that its owner is billed for, and those that it used. Pure.
//!
//! Billed, as on Lambda, is the booked memory for the handler's duration, rounded up to a millisecond. Used is the peak of the
//! memory for the exact duration: what a platform that knew the peak beforehand would bill. The memory in use from moment to
//! moment, which nobody records, is less. A GB is 1024 MB of 2^20 bytes, as on Lambda.

use nigh_terms::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Activation;

/// GB-seconds of one invocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// Booked memory for the billed time.
    pub billed_gb_s: f64,
    /// Peak memory for the time that it ran; None if the peak was not measured.
    pub used_gb_s: Option<f64>,
}

impl Cost {
    /// The cost of a recorded invocation.
    #[must_use]
    pub fn of(activation: &Activation) -> Self {
        Self::new(activation.booked, activation.peak_memory, activation.duration_us)
    }

    fn new(booked: ByteSize, peak: Option<ByteSize>, duration_us: u64) -> Self {
        let billed_s = duration_us.div_ceil(1000) as f64 / 1e3;
        let used = peak.map(|peak| gb_seconds(peak, duration_us as f64 / 1e6));
        Self { billed_gb_s: gb_seconds(booked, billed_s), used_gb_s: used }
    }

    /// The used percentage of what is billed; None if the peak was not measured or nothing is billed.
    #[must_use]
    pub fn used_percent(&self) -> Option<f64> {
        self.used_gb_s.filter(|_| self.billed_gb_s > 0.0).map(|used| 100.0 * used / self.billed_gb_s)
    }
}

/// The GB-seconds of `memory` over `seconds`.
#[must_use]
pub fn gb_seconds(memory: ByteSize, seconds: f64) -> f64 {
    memory.bytes() as f64 / ByteSize::gib(1).bytes() as f64 * seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_booked_is_billed_by_the_millisecond_begun_and_the_peak_is_what_was_used() {
        let cost = Cost::new(ByteSize::mib(512), Some(ByteSize::mib(128)), 1_999_001);
        assert_eq!(cost.billed_gb_s, 1.0);
        assert!((cost.used_gb_s.unwrap() - 0.249_875).abs() < 1e-6);
        assert!((cost.used_percent().unwrap() - 24.99).abs() < 0.01);
    }

    #[test]
    fn nothing_is_said_of_a_peak_that_is_not_measured_or_of_an_invocation_without_a_length() {
        assert_eq!(Cost::new(ByteSize::mib(512), None, 1000).used_percent(), None);
        assert_eq!(Cost::new(ByteSize::mib(512), Some(ByteSize::mib(1)), 0).used_percent(), None);
    }
}
