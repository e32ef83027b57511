//! How a function is used, and the restart cost of its idle sandboxes: pure.
//!
//! It records the mean gap between the function's invocations, the means of its runs and of its starts, and the time
//! that its invocations have spent waiting for a sandbox. `start_rule` decides.

use std::time::Duration;

use nigh_terms::{ByteSize, Monotonic};

/// Within this time an invocation that waits may still be served (`functions.queue` is about as long by default). A
/// function that is invoked more often counts as certain to need a new start.
pub(super) const HORIZON: Duration = Duration::from_secs(10);
/// The assumed gap of a function that has been invoked once.
const GAP_UNKNOWN: Duration = Duration::from_secs(60);
/// The assumed duration of a start, before any was measured.
pub(super) const START_UNKNOWN: Duration = Duration::from_millis(250);
/// The half-life of waits: after this time a wait counts half.
const WAITED_HALF_LIFE: Duration = Duration::from_secs(60);
/// The weight of a new measurement in a mean is one over this.
const MEMORY: u32 = 8;

/// How a function is used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Demand {
    last: Option<Monotonic>,
    gap: Option<Duration>,
    run: Option<Duration>,
    run_mean: Option<Duration>,
    start: Option<Duration>,
    /// The seconds waited since the last start began, as of `waited_at`.
    waited_s: f64,
    waited_at: Monotonic,
}

fn mean(known: Option<Duration>, new: Duration) -> Duration {
    known.map_or(new, |known| (known * (MEMORY - 1) + new) / MEMORY)
}

/// A mean of logarithms: runs of one function differ by orders of magnitude, and a few long ones must not hide the many
/// short ones.
fn logarithmic_mean(known: Duration, new: Duration) -> Duration {
    let logarithm = |of: Duration| of.as_secs_f64().max(1e-6).ln();
    let memory = f64::from(MEMORY);
    Duration::from_secs_f64(((logarithm(known) * (memory - 1.0) + logarithm(new)) / memory).exp())
}

impl Demand {
    /// Records an invocation of the function.
    pub(super) fn arrived(&mut self, now: Monotonic) {
        if let Some(last) = self.last {
            self.gap = Some(mean(self.gap, now.since(last)));
        }
        self.last = Some(now);
    }

    /// Records how long a run occupied its sandbox.
    pub(super) fn ran(&mut self, took: Duration) {
        self.run = Some(self.run.map_or(took, |known| logarithmic_mean(known, took)));
        self.run_mean = Some(mean(self.run_mean, took));
    }

    /// The usual duration of a run; None if none has ended.
    pub(super) const fn run(&self) -> Option<Duration> {
        self.run
    }

    /// The arithmetic mean of its runs, in which a few long ones count.
    pub(super) const fn run_mean(&self) -> Option<Duration> {
        self.run_mean
    }

    /// Records how long a start took.
    pub(super) fn started(&mut self, took: Duration) {
        self.start = Some(mean(self.start, took));
    }

    /// The duration of a start; `usual` if none was measured.
    pub(super) fn start(&self, usual: Duration) -> Duration {
        self.start.unwrap_or(usual)
    }

    /// Records how long one of the function's invocations waited.
    pub(super) fn waited(&mut self, wait: Duration, now: Monotonic) {
        self.waited_s = self.waited_s(now) + wait.as_secs_f64();
        self.waited_at = now;
    }

    /// The seconds that the function's invocations have waited since the last start began; older waits count less.
    pub(super) fn waited_s(&self, now: Monotonic) -> f64 {
        let halves = now.since(self.waited_at).as_secs_f64() / WAITED_HALF_LIFE.as_secs_f64();
        self.waited_s * 0.5f64.powf(halves)
    }

    /// A start begins: waits before it no longer count.
    pub(super) fn start_begins(&mut self, now: Monotonic) {
        (self.waited_s, self.waited_at) = (0.0, now);
    }

    /// The probability that an idle sandbox is used again within the horizon. `warmer` other sandboxes are used before
    /// it, and it has been idle since `since`.
    pub(super) fn returns(&self, warmer: usize, since: Monotonic, now: Monotonic) -> f64 {
        let gap = self.gap.unwrap_or(GAP_UNKNOWN).as_secs_f64() * (warmer + 1) as f64;
        let due = gap.max(now.since(since).as_secs_f64());
        (HORIZON.as_secs_f64() / due).min(1.0)
    }
}

/// The restart cost of an idle sandbox.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loss {
    /// The duration of a start in seconds, times the probability that the start is needed.
    pub(super) seconds: f64,
    /// The memory that ending the sandbox frees.
    pub(super) frees: ByteSize,
}

impl Loss {
    /// The restart cost in seconds for each MiB.
    pub(super) fn a_mib(&self) -> f64 {
        self.seconds / (self.frees.bytes().max(1) as f64 / f64::from(1 << 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn a_function_that_is_called_often_comes_back_for_sure_and_a_forgotten_one_hardly() {
        let mut often = Demand::default();
        (0..10).for_each(|second| often.arrived(at(second * 1000)));
        assert!((often.returns(0, at(9_000), at(9_500)) - 1.0).abs() < 1e-9);
        assert!(often.returns(0, at(9_000), at(9_000 + 100_000)) < 0.11, "it has not come back for long");
        assert!(often.returns(29, at(9_000), at(9_500)) < 0.4, "the thirtieth sandbox is hardly used");
        let mut once = Demand::default();
        once.arrived(at(0));
        assert!(once.returns(0, at(0), at(100)) < 0.2);
    }

    #[test]
    fn waits_add_up_until_a_start_begins_and_are_forgotten_by_halves() {
        let mut demand = Demand::default();
        demand.waited(Duration::from_secs(2), at(0));
        demand.waited(Duration::from_secs(2), at(0));
        assert!((demand.waited_s(at(60_000)) - 2.0).abs() < 1e-9);
        demand.start_begins(at(60_000));
        assert!(demand.waited_s(at(60_000)) < 1e-9);
    }

    #[test]
    fn measurements_follow_slowly() {
        let mut demand = Demand::default();
        assert_eq!((demand.run(), demand.start(START_UNKNOWN)), (None, START_UNKNOWN));
        demand.ran(Duration::from_millis(80));
        demand.ran(Duration::from_millis(160));
        let run = demand.run().unwrap().as_secs_f64();
        assert!((run - 0.0872).abs() < 1e-3, "{run}");
    }
}
