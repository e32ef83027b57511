//! When a caller's calls are due, and when a cell is measured. Pure.

use std::time::{Duration, Instant};

use super::cell::Cell;

/// A sandbox takes so long to start where all of them start at once beside the load, with a margin: 64 of them on two
/// processors.
const START: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    first: Duration,
    period: Duration,
}

impl Schedule {
    /// The schedule of `caller`, the first being 0: the callers of a cell begin one after the other within a period, so
    /// that their calls do not come in bursts.
    pub(super) fn of_caller(caller: u32, cell: &Cell, period: Duration) -> Self {
        Self { first: period.mul_f64(f64::from(caller) / f64::from(cell.callers)), period }
    }

    pub(super) fn due(&self, number: u32) -> Duration {
        self.first + self.period * number
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Phases {
    pub(super) begin: Instant,
    pub(super) measured: Instant,
    pub(super) end: Instant,
}

impl Phases {
    pub(super) fn of(begin: Instant, warmup: Duration, length: Duration) -> Self {
        let measured = begin + warmup;
        Self { begin, measured, end: measured + length }
    }

    pub(super) fn measures(&self, at: Instant) -> bool {
        (self.measured..self.end).contains(&at)
    }
}

/// The warm-up of a cell: at least `asked`, and as long as all its sandboxes take to start.
pub(super) fn warmup(cell: &Cell, asked: Duration) -> Duration {
    asked.max(START * u32::try_from(cell.sandboxes_max()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(25);

    #[test]
    fn callers_take_turns_within_a_period_and_each_keeps_to_its_own() {
        let cell: Cell = "1,2GiB,3,5".parse().unwrap();
        let schedules: Vec<_> = (0..5).map(|caller| Schedule::of_caller(caller, &cell, PERIOD)).collect();
        for number in [0, 1, 1000] {
            let due: Vec<_> = schedules.iter().map(|schedule| schedule.due(number)).collect();
            for (caller, due) in (0..).zip(due) {
                assert_eq!(due, PERIOD * number + Duration::from_millis(5) * caller);
            }
        }
    }

    #[test]
    fn only_what_lies_between_the_warm_up_and_the_end_is_measured() {
        let begin = Instant::now();
        let second = Duration::from_secs(1);
        let phases = Phases::of(begin, second * 3, second * 6);
        let measured = |seconds: u32| phases.measures(begin + second * seconds);
        assert_eq!([0, 2, 3, 8, 9].map(measured), [false, false, true, true, false]);
    }

    #[test]
    fn a_warm_up_lasts_until_all_sandboxes_can_have_started() {
        let asked = Duration::from_secs(3);
        let of = |text: &str| warmup(&text.parse().unwrap(), asked);
        assert_eq!(of("1,2GiB,3,64"), asked);
        assert_eq!(of("1,16GiB,50,200"), START * 64);
        assert_eq!(of("1,16GiB,1,1"), asked);
    }
}
