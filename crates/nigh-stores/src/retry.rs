//! Decides whether a request to a store is sent again, and after which wait. Pure.
//!
//! Any request is sent again if it was not sent, or if the store was too busy for it. The outcome of a request without an
//! answer is unknown: it is sent again only if it changes no object, because a late write could replace a newer one.
//! Waits double, up to a limit, and are drawn from the upper half of their range, so that clients that failed together do
//! not retry together.

use std::time::Duration;

use http::StatusCode;

/// The number of attempts and the waits between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most attempts at one request. At least one attempt is made.
    pub attempts: u32,
    /// The wait before the second attempt, doubled before each further one.
    pub backoff: Duration,
    /// The longest wait. If a store asks for a longer one (`Retry-After`), the request fails at once.
    pub backoff_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 4, backoff: Duration::from_millis(100), backoff_max: Duration::from_secs(5) }
    }
}

/// Swift's own status for "too many requests" (`swift.common.middleware.ratelimit`).
const RATE_LIMITED: u16 = 498;

/// Returns true if a status asks the client to try again later.
pub(crate) fn is_busy(status: StatusCode) -> bool {
    matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) || status.as_u16() == RATE_LIMITED
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The request was not sent.
    NotSent,
    /// The store answered with this status. `busy` is true if the error code asks for another attempt; `retry_after` is
    /// None if the store named no wait.
    Refused { status: StatusCode, busy: bool, retry_after: Option<Duration> },
    /// The request was sent and got no answer that can be read.
    NoAnswer,
}

/// What the client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Send the request again after this wait.
    Wait(Duration),
    /// Return the error.
    GiveUp,
}

impl Failure {
    /// Returns true if the store rejected the request before it did anything.
    pub(crate) fn is_for_now(self) -> bool {
        match self {
            Self::NotSent => true,
            Self::Refused { status, busy, .. } => busy || is_busy(status),
            Self::NoAnswer => false,
        }
    }

    /// Returns true if the outcome is unknown: there was no answer, or a proxy or server had an internal error.
    pub(crate) fn is_in_doubt(self) -> bool {
        match self {
            Self::NotSent => false,
            Self::Refused { status, .. } => {
                status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED && !self.is_for_now()
            }
            Self::NoAnswer => true,
        }
    }
}

impl RetryPolicy {
    /// Decides what to do after attempt number `attempt` (from 1) failed. `repeatable` is true if the request changes
    /// no object. `chance` is a random number, evenly distributed from 0 to 1.
    pub(crate) fn next(&self, attempt: u32, failure: Failure, repeatable: bool, chance: f64) -> RetryDecision {
        let may = failure.is_for_now() || repeatable && failure.is_in_doubt();
        if attempt >= self.attempts || !may {
            return RetryDecision::GiveUp;
        }
        let doubled = self.backoff.saturating_mul(1u32.checked_shl(attempt - 1).unwrap_or(u32::MAX));
        let wait = doubled.min(self.backoff_max).mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
        match failure {
            Failure::Refused { retry_after: Some(asked), .. } if asked > self.backoff_max => RetryDecision::GiveUp,
            Failure::Refused { retry_after: Some(asked), .. } => RetryDecision::Wait(wait.max(asked)),
            _ => RetryDecision::Wait(wait),
        }
    }
}

/// The wait that `Retry-After` states in seconds. None if the header is absent or states a date.
pub(crate) fn retry_after(value: Option<&http::HeaderValue>) -> Option<Duration> {
    value?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16) -> Failure {
        Failure::Refused { status: StatusCode::from_u16(status).unwrap(), busy: false, retry_after: None }
    }

    fn is_again(failure: Failure, repeatable: bool) -> bool {
        RetryPolicy::default().next(1, failure, repeatable, 0.0) != RetryDecision::GiveUp
    }

    #[test]
    fn what_did_not_happen_is_sent_again_whatever_it_is() {
        let busy = Failure::Refused { status: StatusCode::BAD_REQUEST, busy: true, retry_after: None };
        for failure in [Failure::NotSent, refused(503), refused(429), refused(498), busy] {
            assert!(is_again(failure, false) && is_again(failure, true), "{failure:?}");
        }
    }

    #[test]
    fn what_may_have_happened_is_sent_again_if_it_changes_nothing() {
        for failure in [Failure::NoAnswer, refused(500), refused(502), refused(504)] {
            assert!(!is_again(failure, false) && is_again(failure, true), "{failure:?}");
        }
        for status in [400, 401, 403, 404, 409, 412, 501] {
            assert!(!is_again(refused(status), true), "{status}");
        }
    }

    #[test]
    fn waits_double_to_a_limit_and_attempts_end() {
        let policy =
            RetryPolicy { attempts: 40, backoff: Duration::from_millis(100), backoff_max: Duration::from_millis(300) };
        let wait = |attempt, chance| policy.next(attempt, Failure::NotSent, true, chance);
        for (attempt, millis) in [(1, 100), (2, 200), (3, 300), (4, 300), (39, 300)] {
            assert_eq!(wait(attempt, 1.0), RetryDecision::Wait(Duration::from_millis(millis)));
            assert_eq!(wait(attempt, 0.0), RetryDecision::Wait(Duration::from_millis(millis / 2)));
        }
        assert_eq!(wait(40, 0.5), RetryDecision::GiveUp);
        assert_eq!(RetryPolicy { attempts: 0, ..policy }.next(1, Failure::NotSent, true, 0.5), RetryDecision::GiveUp);
    }

    #[test]
    fn a_store_that_asks_for_time_gets_it_or_is_given_up() {
        let asked = |seconds| Failure::Refused {
            status: StatusCode::TOO_MANY_REQUESTS,
            busy: false,
            retry_after: Some(Duration::from_secs(seconds)),
        };
        let policy = RetryPolicy::default();
        assert_eq!(policy.next(1, asked(2), false, 0.0), RetryDecision::Wait(Duration::from_secs(2)));
        assert_eq!(policy.next(1, asked(3600), false, 0.0), RetryDecision::GiveUp);
        let header = |text: &str| retry_after(Some(&http::HeaderValue::from_str(text).unwrap()));
        assert_eq!((header("7"), header("Fri, 31 Dec 1999 23:59:59 GMT")), (Some(Duration::from_secs(7)), None));
    }
}
