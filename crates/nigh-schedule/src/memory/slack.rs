//! How much memory is kept free for grants that are raised: pure (OFC, sections 4.3 and 6.4).
//!
//! Grants are raised at once and the cache shrinks afterwards, so the slack must cover what is granted in between. The
//! churn of a 60 s window is the most that was granted within one second of it. Every 120 s the slack becomes the
//! greater churn of the last two windows, within its bounds. A window without grants counts as zero.

use std::time::Duration;

use nigh_terms::{ByteSize, Monotonic};

/// Grants within this time are added up.
const TOGETHER: Duration = Duration::from_secs(1);
/// The window of one measurement.
const WINDOW: Duration = Duration::from_secs(60);
/// The number of windows between two changes of the slack.
const WINDOWS: usize = 2;

/// The bounds of the slack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlackBounds {
    /// The slack at the start.
    pub first: ByteSize,
    /// The least slack.
    pub min: ByteSize,
    /// The most slack.
    pub max: ByteSize,
}

/// The slack, which follows the churn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slack {
    bounds: SlackBounds,
    now: ByteSize,
    /// The begin of the present second, and the bytes granted in it.
    second: (Monotonic, ByteSize),
    /// The begin of the present window, and the most bytes granted in one of its seconds.
    window: (Monotonic, ByteSize),
    /// The churn of each complete window since the last change.
    measured: Vec<ByteSize>,
}

impl Slack {
    /// The slack at its first value.
    #[must_use]
    pub fn new(bounds: SlackBounds) -> Self {
        Self {
            bounds,
            now: bounded(bounds.first, bounds),
            second: Default::default(),
            window: Default::default(),
            measured: Vec::with_capacity(WINDOWS),
        }
    }

    /// The slack now.
    #[must_use]
    pub const fn now(&self) -> ByteSize {
        self.now
    }

    /// The most that was granted within one second, in this window and in those since the last change.
    #[must_use]
    pub fn churn(&self) -> ByteSize {
        self.measured.iter().copied().fold(self.window.1, ByteSize::max)
    }

    /// A grant was raised by `bytes`.
    pub fn raised(&mut self, bytes: ByteSize, now: Monotonic) {
        self.pass(now);
        if now.since(self.second.0) >= TOGETHER {
            self.second = (now, ByteSize::ZERO);
        }
        self.second.1 += bytes;
        self.window.1 = self.window.1.max(self.second.1);
    }

    /// Ends the seconds and windows that are over at `now`.
    pub fn pass(&mut self, now: Monotonic) {
        while now.since(self.window.0) >= WINDOW {
            let begun = self.window.0;
            self.measured.push(std::mem::take(&mut self.window.1));
            self.window.0 = begun.after(WINDOW);
            if self.measured.len() == WINDOWS {
                self.now = bounded(self.churn(), self.bounds);
                self.measured.clear();
            }
            // Many windows have passed without a grant: they are skipped at once.
            if now.since(self.window.0) >= WINDOW * (2 * WINDOWS as u32) {
                self.window.0 = now;
                self.now = bounded(ByteSize::ZERO, self.bounds);
                self.measured.clear();
            }
        }
    }
}

fn bounded(slack: ByteSize, bounds: SlackBounds) -> ByteSize {
    slack.max(bounds.min).min(bounds.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: SlackBounds =
        SlackBounds { first: ByteSize::mib(100), min: ByteSize::mib(32), max: ByteSize::mib(500) };

    fn at(ms: u64) -> Monotonic {
        Monotonic::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn the_slack_follows_what_is_raised_within_a_second_every_two_minutes() {
        let mut slack = Slack::new(BOUNDS);
        assert_eq!(slack.now(), ByteSize::mib(100));
        for raise in [1_000, 1_400, 1_900, 70_000] {
            slack.raised(ByteSize::mib(80), at(raise));
        }
        assert_eq!((slack.now(), slack.churn()), (ByteSize::mib(100), ByteSize::mib(240)));
        slack.pass(at(119_999));
        assert_eq!(slack.now(), ByteSize::mib(100));
        slack.pass(at(120_000));
        assert_eq!(slack.now(), ByteSize::mib(240));
        slack.pass(at(240_000));
        assert_eq!((slack.now(), slack.churn()), (ByteSize::mib(32), ByteSize::ZERO));
    }

    #[test]
    fn the_slack_stays_within_its_bounds() {
        let mut slack = Slack::new(BOUNDS);
        slack.raised(ByteSize::gib(7), at(10));
        slack.pass(at(120_000));
        assert_eq!(slack.now(), ByteSize::mib(500));
        slack.pass(at(100_000_000));
        assert_eq!(slack.now(), ByteSize::mib(32));
        assert_eq!(Slack::new(SlackBounds { first: ByteSize::gib(9), ..BOUNDS }).now(), ByteSize::mib(500));
    }
}
