//! How many requests a second a namespace may send: a token bucket. Pure.
//!
//! The bucket holds the requests of one second, and at least one, so that a burst of that size passes at once.

use nigh_terms::Monotonic;

/// A bucket that is full at first.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    tokens: f64,
    /// When `tokens` was right.
    at: Monotonic,
}

impl TokenBucket {
    pub(super) const fn full() -> Self {
        Self { tokens: f64::MAX, at: Monotonic(0) }
    }

    /// Takes a token, if there is one. `rate` is the number of tokens that are added a second; it may change.
    pub(super) fn take(&mut self, rate: f64, now: Monotonic) -> bool {
        let gained = now.since(self.at).as_secs_f64() * rate;
        self.tokens = (self.tokens + gained).min(rate.max(1.0));
        self.at = self.at.max(now);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Monotonic {
        Monotonic(millis * 1_000_000)
    }

    fn taken(bucket: &mut TokenBucket, rate: f64, now: Monotonic) -> usize {
        (0..1000).filter(|_| bucket.take(rate, now)).count()
    }

    #[test]
    fn a_second_brings_as_many_requests_as_the_rate_says_and_no_more_are_saved() {
        let mut bucket = TokenBucket::full();
        assert_eq!(taken(&mut bucket, 10.0, at(0)), 10, "a burst of one second");
        assert_eq!(taken(&mut bucket, 10.0, at(499)), 4);
        assert_eq!(taken(&mut bucket, 10.0, at(990)), 5, "what 0.491 s bring, and the rest of before");
        assert_eq!(taken(&mut bucket, 10.0, at(3_600_000)), 10, "an hour of silence saves no more than a second's");
    }

    #[test]
    fn a_rate_below_one_a_second_lets_one_pass_at_a_time() {
        let mut bucket = TokenBucket::full();
        assert_eq!(taken(&mut bucket, 0.5, at(0)), 1);
        assert_eq!(taken(&mut bucket, 0.5, at(1999)), 0);
        assert_eq!(taken(&mut bucket, 0.5, at(2001)), 1);
    }

    #[test]
    fn a_clock_that_seems_to_go_back_brings_nothing_twice() {
        let mut bucket = TokenBucket::full();
        assert_eq!(taken(&mut bucket, 1.0, at(5000)), 1);
        assert_eq!(taken(&mut bucket, 1.0, at(4000)), 0);
        assert_eq!(taken(&mut bucket, 1.0, at(5000)), 0);
        assert_eq!(taken(&mut bucket, 1.0, at(6000)), 1);
    }
}
