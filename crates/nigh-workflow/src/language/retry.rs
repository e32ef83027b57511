//! `Retry` and `Catch`: whether a failed state is tried again, when, and which state its error leads to. Pure.

use std::time::Duration;

use super::definition::{Catcher, Retrier};
use super::error_names;

/// The longest wait between tries, whatever the back-off rate.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

fn covers(errors: &[String], error: &str) -> bool {
    errors.iter().any(|name| error_names::names(name, error))
}

/// The index of the first rule that applies to `error`.
pub(crate) fn retrier(retry: &[Retrier], error: &str) -> Option<usize> {
    retry.iter().position(|retrier| covers(&retrier.errors, error))
}

pub(crate) fn catcher<'a>(catch: &'a [Catcher], error: &str) -> Option<&'a Catcher> {
    catch.iter().find(|catcher| covers(&catcher.errors, error))
}

impl Retrier {
    /// The wait before the next try, after `times` retries by this rule; none if there is no further try.
    pub(crate) fn wait(&self, times: u32, chance: impl FnOnce() -> f64) -> Option<Duration> {
        if times >= self.attempts_max {
            return None;
        }
        let grown = self.interval.as_secs_f64() * self.rate.powi(times.min(10_000) as i32);
        let most = self.wait_max.unwrap_or(WAIT_MAX).min(WAIT_MAX).as_secs_f64();
        let wait = grown.min(most);
        Some(Duration::from_secs_f64(if self.full_jitter { wait * chance() } else { wait }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(errors: &[&str]) -> Retrier {
        Retrier {
            errors: errors.iter().map(|error| (*error).to_owned()).collect(),
            interval: Duration::from_secs(2),
            attempts_max: 3,
            rate: 3.0,
            wait_max: Some(Duration::from_secs(10)),
            full_jitter: false,
        }
    }

    #[test]
    fn waits_grow_by_the_rate_up_to_the_most_and_end() {
        let rule = rule(&["States.ALL"]);
        let waits: Vec<_> = (0..4).map(|times| rule.wait(times, || 0.5).map(|wait| wait.as_secs())).collect();
        assert_eq!(waits, [Some(2), Some(6), Some(10), None]);
        let jitter = Retrier { full_jitter: true, ..rule };
        assert_eq!(jitter.wait(1, || 0.5), Some(Duration::from_secs(3)));
        let wild = Retrier { rate: 1e300, wait_max: None, attempts_max: u32::MAX, ..jitter };
        assert_eq!(wild.wait(9_999, || 1.0), Some(WAIT_MAX));
    }

    #[test]
    fn the_first_rule_that_names_the_error_holds() {
        let rules = [rule(&["ValueError"]), rule(&["States.TaskFailed"]), rule(&["States.ALL"])];
        let of = |error| retrier(&rules, error);
        assert_eq!((of("ValueError"), of("KeyError"), of("States.Timeout")), (Some(0), Some(1), Some(2)));
        assert_eq!((of("States.Runtime"), of("States.DataLimitExceeded")), (None, None));
    }
}
