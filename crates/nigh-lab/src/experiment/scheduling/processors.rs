//! Processors that the runs of a node share evenly: which ends when.
//!
//! All run at one pace, so work is counted on a clock of its own that runs at that pace; ends lie in its order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug)]
pub(super) struct Processors {
    count: f64,
    /// Microseconds of work that each run has had since the beginning.
    done_ns: u64,
    at_us: f64,
    /// By the work at which they end, in nanoseconds.
    running: BinaryHeap<Reverse<(u64, usize)>>,
    /// Microseconds for which processors have worked.
    pub(super) busy_us: f64,
}

impl Processors {
    pub(super) const fn new(count: u16) -> Self {
        Self { count: count as f64, done_ns: 0, at_us: 0.0, running: BinaryHeap::new(), busy_us: 0.0 }
    }

    fn pace(&self) -> f64 {
        (self.count / self.running.len() as f64).min(1.0)
    }

    fn advance(&mut self, now_us: u64) {
        let passed = now_us as f64 - self.at_us;
        self.at_us = now_us as f64;
        if !self.running.is_empty() {
            self.done_ns += (passed * self.pace() * 1000.0) as u64;
            self.busy_us += passed * (self.running.len() as f64).min(self.count);
        }
    }

    /// `job` begins, with so much work.
    pub(super) fn begin(&mut self, now_us: u64, job: usize, work_us: u64) {
        self.advance(now_us);
        self.running.push(Reverse((self.done_ns + work_us * 1000, job)));
    }

    /// A job that has ended by now.
    pub(super) fn take_ended(&mut self, now_us: u64) -> Option<usize> {
        self.advance(now_us);
        // A microsecond's part is lost to rounding at each look.
        let Reverse((end, job)) = *self.running.peek()?;
        (end <= self.done_ns + 1000).then(|| {
            self.running.pop();
            job
        })
    }

    /// The jobs and the microseconds of work that each has before it now.
    pub(super) fn left(&self, now_us: u64) -> impl Iterator<Item = (usize, f64)> {
        let passed_us = now_us as f64 - self.at_us;
        let done_us = self.done_ns as f64 / 1000.0 + passed_us * self.pace();
        self.running.iter().map(move |Reverse((end, job))| (*job, (*end as f64 / 1000.0 - done_us).max(0.0)))
    }

    /// When the next one ends, if no other begins.
    pub(super) fn next_end(&self) -> Option<u64> {
        let Reverse((end, _)) = self.running.peek()?;
        let left_us = end.saturating_sub(self.done_ns) as f64 / 1000.0 / self.pace();
        Some((self.at_us + left_us).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_share_the_processors_evenly() {
        let mut processors = Processors::new(2);
        processors.begin(0, 1, 100);
        processors.begin(0, 2, 100);
        assert_eq!(processors.next_end(), Some(100));
        // Four runs on two processors: at half the pace.
        processors.begin(50, 3, 100);
        processors.begin(50, 4, 200);
        assert_eq!(processors.next_end(), Some(150));
        let mut left: Vec<(usize, f64)> = processors.left(100).collect();
        left.sort_by_key(|(job, _)| *job);
        assert_eq!(left, [(1, 25.0), (2, 25.0), (3, 75.0), (4, 175.0)]);
        let mut ends: Vec<(u64, usize)> = Vec::new();
        while let Some(at) = processors.next_end() {
            while let Some(job) = processors.take_ended(at) {
                ends.push((at, job));
            }
        }
        let jobs: Vec<usize> = ends.iter().map(|(_, job)| *job).collect();
        assert_eq!(jobs.len(), 4);
        assert!(ends[..2].iter().all(|(at, _)| (149..=152).contains(at)), "{ends:?}");
        assert_eq!((jobs[2], jobs[3]), (3, 4));
        assert!((199..=203).contains(&ends[2].0) && (299..=304).contains(&ends[3].0), "{ends:?}");
        assert!((processors.busy_us - 500.0).abs() < 8.0, "{}", processors.busy_us);
    }
}
