//! The clock of one machine: it may run too fast or too slowly, and it may jump ahead. It never goes back.

use nigh_terms::Monotonic;

/// The nanoseconds in a millisecond.
pub(super) const MS: u64 = 1_000_000;
/// The rate of an exact clock, in millionths.
const WHOLE: u64 = 1_000_000;

/// The clock of one machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostClock {
    /// The storm's time when the clock was last set, in nanoseconds.
    set_at: u64,
    said: u64,
    /// The clock's rate, in millionths.
    rate: u64,
}

impl HostClock {
    pub(super) const TRUE: Self = Self { set_at: 0, said: 0, rate: WHOLE };

    /// The clock's value at `now` of the storm's time, in nanoseconds.
    pub(super) const fn read(&self, now: u64) -> Monotonic {
        Monotonic(self.said + (now - self.set_at) / 1000 * self.rate / 1000)
    }

    pub(super) const fn jump(&mut self, now: u64, ahead: u64) {
        *self = Self { set_at: now, said: self.read(now).0 + ahead, rate: self.rate };
    }

    /// Sets the drift in millionths: a positive one runs fast.
    pub(super) const fn run(&mut self, now: u64, gains: i64) {
        *self = Self { set_at: now, said: self.read(now).0, rate: WHOLE.saturating_add_signed(gains) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_fast_and_jumps_never_goes_back() {
        let mut clock = HostClock::TRUE;
        assert_eq!(clock.read(7 * MS), Monotonic(7 * MS));
        clock.run(10 * MS, 100_000);
        assert_eq!(clock.read(20 * MS), Monotonic(21 * MS));
        clock.jump(20 * MS, 5 * MS);
        assert_eq!(clock.read(20 * MS), Monotonic(26 * MS));
        clock.run(20 * MS, -100_000);
        assert_eq!(clock.read(30 * MS), Monotonic(35 * MS));
    }
}
