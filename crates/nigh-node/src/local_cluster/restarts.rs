//! When an ended process restarts: soon after its first end, later and later while it keeps ending. Pure.

use std::time::Duration;

/// The wait before the first restart.
const FIRST: Duration = Duration::from_millis(500);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(30);
/// After a run of this length, the next end counts as the first.
const WELL_AFTER: Duration = Duration::from_secs(60);

/// The ends of one process. Times count from any fixed moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Restarts {
    started: Duration,
    /// Number of ends without a long run between them.
    in_a_row: u32,
    /// Number of restarts.
    pub(super) count: u64,
    /// When it restarts; none while it runs.
    pub(super) due: Option<Duration>,
}

impl Restarts {
    /// Records an end at `now`. Returns the wait before the restart.
    pub(super) fn ended(&mut self, now: Duration) -> Duration {
        if now.saturating_sub(self.started) >= WELL_AFTER {
            self.in_a_row = 0;
        }
        let wait = FIRST.saturating_mul(1 << self.in_a_row.min(16)).min(LONGEST);
        self.in_a_row += 1;
        self.due = Some(now + wait);
        wait
    }

    /// True if it must restart now.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Records a restart at `now`.
    pub(super) fn started(&mut self, now: Duration) {
        (self.started, self.due) = (now, None);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_ending_is_started_ever_later_and_who_was_well_soon() {
        let mut restarts = Restarts::default();
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..9 {
            let wait = restarts.ended(now);
            assert!(!restarts.is_due(now));
            now += wait;
            assert!(restarts.is_due(now));
            restarts.started(now);
            assert!(!restarts.is_due(now));
            waits.push(wait.as_millis());
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        assert_eq!(restarts.count, 9);
        now += WELL_AFTER;
        assert_eq!(restarts.ended(now), FIRST);
    }
}
