//! What came of one side's turn at one rate, and whether the side kept up. Pure.

use std::time::Duration;

use crate::instrument::stats::Sample;

/// A turn is given up so long after the last moment at which a request could be due.
pub(super) const DRAIN: Duration = Duration::from_secs(1);
/// A side falls behind if requests wait longer and longer for a connection: by more than this share of the time that passes,
/// and by more than this time.
const GROWTH_MAX: f64 = 0.02;
const GROWTH_MAX_S: f64 = 0.01;
const QUARTERS: f64 = 4.0;

/// A request that was sent. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Timed {
    pub(super) number: usize,
    /// From the beginning of the turn.
    pub(super) due_s: f64,
    /// From when it was due until a connection was free.
    pub(super) waited_s: f64,
    /// From when it was due and a connection was free until it was sent.
    pub(super) generator_s: f64,
    /// From when it was due to its answer.
    pub(super) latency_s: f64,
    pub(super) error: Option<String>,
}

/// One turn of one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Round {
    pub(super) timed: Vec<Timed>,
    /// When those were due that had not been sent when the turn was given up.
    pub(super) unsent_due_s: Vec<f64>,
    /// Requests were due for so long.
    pub(super) length_s: f64,
    /// Until the last answer; at least `length_s`.
    pub(super) took_s: f64,
    /// Processor time of the server, where it is known.
    pub(super) cpu_s: Option<f64>,
}

impl Round {
    /// `due` has all requests of the turn, `timed` those that were sent.
    pub(super) fn new(
        timed: Vec<Timed>,
        due: &[Duration],
        length: Duration,
        took: Duration,
        cpu: Option<Duration>,
    ) -> Self {
        let mut is_sent = vec![false; due.len()];
        for one in &timed {
            if let Some(sent) = is_sent.get_mut(one.number) {
                *sent = true;
            }
        }
        let unsent = due.iter().zip(is_sent).filter(|(_, is_sent)| !is_sent);
        Self {
            unsent_due_s: unsent.map(|(due, _)| due.as_secs_f64()).collect(),
            timed,
            length_s: length.as_secs_f64(),
            took_s: took.max(length).as_secs_f64(),
            cpu_s: cpu.map(|cpu| cpu.as_secs_f64()),
        }
    }

    /// All requests that were due.
    pub(super) fn requests(&self) -> usize {
        self.timed.len() + self.unsent_due_s.len()
    }

    pub(super) fn answered(&self) -> usize {
        self.timed.iter().filter(|one| one.error.is_none()).count()
    }

    /// Why requests failed.
    pub(super) fn errors(&self) -> impl Iterator<Item = &String> {
        self.timed.iter().filter_map(|one| one.error.as_ref())
    }

    /// Microseconds from when each request was due to its answer, without those that failed. One that was never sent counts as
    /// late as it was when the turn was given up.
    pub(super) fn latencies_us(&self) -> impl Iterator<Item = f64> {
        let given_up_s = self.length_s + DRAIN.as_secs_f64();
        let answered = self.timed.iter().filter(|one| one.error.is_none()).map(|one| one.latency_s);
        let unsent = self.unsent_due_s.iter().map(move |due_s| given_up_s - due_s);
        answered.chain(unsent).map(|seconds| seconds * 1e6)
    }

    /// True if the backlog would grow without end: requests are left when the turn is given up, or the median wait for a free
    /// connection grows from quarter to quarter. The first quarter is left out: there, a queue that stays grows to its length.
    pub(super) fn is_overloaded(&self) -> bool {
        let median_wait = |quarter: f64| {
            let is_in = |one: &&Timed| (one.due_s / self.length_s * QUARTERS).floor() == quarter;
            Sample::new(self.timed.iter().filter(is_in).map(|one| one.waited_s).collect()).median()
        };
        let [second, third, fourth] = [1.0, 2.0, 3.0].map(median_wait);
        let bound_s = GROWTH_MAX_S.max(GROWTH_MAX * self.length_s * 2.0 / QUARTERS);
        let grows = second < third && third < fourth && fourth - second > bound_s;
        grows || !self.unsent_due_s.is_empty()
    }
}

/// The percentile, if at least one measurement lies beyond it.
pub(super) fn percentile(sample: &Sample, share: f64) -> Option<f64> {
    // A share like 0.9 is not exact.
    let beyond = sample.len() as f64 * (1.0 - share) + 1e-6;
    sample.known_percentile(share).filter(|_| beyond >= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(2);

    /// A server that needs `service_s` for each request, one at a time, in a turn with requests at equal intervals.
    fn turn(per_second: u32, service_s: f64) -> Round {
        let due: Vec<Duration> = (0..2 * per_second).map(|number| LENGTH * number / (2 * per_second)).collect();
        let (mut free_s, mut timed) = (0.0_f64, Vec::new());
        for (number, due) in due.iter().enumerate() {
            let due_s = due.as_secs_f64();
            let begin_s = free_s.max(due_s);
            if begin_s < (LENGTH + DRAIN).as_secs_f64() {
                free_s = begin_s + service_s;
                let (waited_s, latency_s) = (begin_s - due_s, free_s - due_s);
                timed.push(Timed { number, due_s, waited_s, latency_s, ..Timed::default() });
            }
        }
        Round::new(timed, &due, LENGTH, Duration::from_secs_f64(free_s), None)
    }

    #[test]
    fn a_side_that_answers_more_slowly_than_requests_come_is_overloaded_by_little_or_by_much() {
        for (service_s, is_overloaded) in
            [(0.0001, false), (0.0099, false), (0.0104, true), (0.011, true), (0.02, true), (0.5, true)]
        {
            assert_eq!(turn(100, service_s).is_overloaded(), is_overloaded, "{service_s}");
        }
        assert!(!Round { length_s: 2.0, ..Round::default() }.is_overloaded(), "nothing was due");
    }

    #[test]
    fn a_stall_that_ends_is_no_overload_although_requests_waited() {
        let mut round = turn(100, 0.001);
        for one in round.timed.iter_mut().filter(|one| (0.5..0.8).contains(&one.due_s)) {
            one.waited_s = 0.8 - one.due_s;
        }
        assert!(!round.is_overloaded());
    }

    #[test]
    fn a_queue_that_grows_in_the_beginning_and_stays_is_no_overload() {
        let mut round = turn(100, 0.001);
        for one in &mut round.timed {
            one.waited_s = one.due_s.min(0.4);
        }
        assert!(!round.is_overloaded());
    }

    #[test]
    fn latency_counts_from_when_a_request_was_due_also_where_it_was_never_sent() {
        let round = turn(100, 0.02);
        // In three seconds 150 of 200 are answered; the n-th was due at n/100 and has its answer at (n + 1)/50.
        assert_eq!((round.timed.len(), round.unsent_due_s.len(), round.requests()), (150, 50, 200));
        let latencies: Vec<f64> = round.latencies_us().collect();
        assert!((latencies[100] - 1_020_000.0).abs() < 1.0, "{}", latencies[100]);
        // The last was due at 1.99 s, and the turn was given up after 3 s.
        assert!((latencies[199] - 1_010_000.0).abs() < 1.0, "{}", latencies[199]);
        assert!(round.took_s >= 3.0, "{}", round.took_s);
    }

    #[test]
    fn a_request_that_failed_is_counted_and_its_time_is_no_latency() {
        let mut round = turn(100, 0.001);
        round.timed[7].error = Some("503".to_owned());
        assert_eq!((round.answered(), round.latencies_us().count(), round.requests()), (199, 199, 200));
        assert_eq!(round.errors().collect::<Vec<_>>(), ["503"]);
    }

    #[test]
    fn a_percentile_is_told_if_a_measurement_lies_beyond_it() {
        let of = |count: u32, share: f64| percentile(&Sample::new((1..=count).map(f64::from).collect()), share);
        assert_eq!((of(1000, 0.999), of(999, 0.999)), (Some(999.0), None));
        assert_eq!((of(10, 0.9), of(9, 0.9)), (Some(9.0), None));
        assert_eq!((of(2, 0.5), of(1, 0.5), of(0, 0.5)), (Some(1.0), None, None));
    }
}
