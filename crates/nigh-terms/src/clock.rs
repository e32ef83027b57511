//! Time as an argument: the shell passes it to the pure core.

use std::sync::Mutex;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// RFC 3339 with three digits of the second; `time`'s own format leaves out trailing zeros.
const RFC3339_MILLIS: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// A point on a clock that never goes back: nanoseconds since the clock was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// The time since `earlier`; zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The point `later` after this one.
    #[must_use]
    pub const fn after(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later.as_nanos() as u64))
    }
}

/// A date: milliseconds since 1970 UTC. It may jump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Milliseconds since 1970 UTC.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// The whole second, as in HTTP dates.
    #[must_use]
    pub const fn whole_second(self) -> Self {
        Self(self.0 / 1000 * 1000)
    }

    /// As a calendar date.
    #[must_use]
    pub fn date(self) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::from_millis(self.0)
    }

    /// RFC 3339 text in UTC, always with milliseconds: all texts have one length and sort by time.
    #[must_use]
    pub fn rfc3339(self) -> String {
        self.date().format(RFC3339_MILLIS).unwrap_or_default()
    }
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// For durations and deadlines.
    fn monotonic(&self) -> Monotonic;
    /// For dates that people read.
    fn wall(&self) -> Timestamp;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    origin: std::time::Instant,
}

impl SystemClock {
    /// A monotonic clock that starts now, and the machine's date.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Monotonic {
        Monotonic(self.origin.elapsed().as_nanos() as u64)
    }

    fn wall(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp(since.map_or(0, |since| since.as_millis() as u64))
    }
}

/// A clock that a test moves.
#[derive(Debug, Default)]
pub struct ManualClock(Mutex<(Monotonic, Timestamp)>);

impl ManualClock {
    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        now.0 = now.0.after(by);
        now.1 = Timestamp(now.1.0 + by.as_millis() as u64);
    }

    /// Sets the date back, and leaves the monotonic clock.
    pub fn turn_date_back(&self, by: Duration) {
        let mut now = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        now.1 = Timestamp(now.1.0.saturating_sub(by.as_millis() as u64));
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Monotonic {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    fn wall(&self) -> Timestamp {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_one_form_whatever_their_milliseconds_are() {
        let texts = [1_700_000_000_000, 1_700_000_000_120, 1_700_000_001_007].map(|ms| Timestamp(ms).rfc3339());
        assert_eq!(texts, ["2023-11-14T22:13:20.000Z", "2023-11-14T22:13:20.120Z", "2023-11-14T22:13:21.007Z"]);
    }
}
