//! How often an address may give a wrong key. Pure.
//!
//! After `FAILURES_MAX` failures within a window no key of that address is looked at until the window is over, so that
//! guesses are few whoever sends them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Failures of one address in a window.
const FAILURES_MAX: u32 = 10;
/// A window begins with the first failure.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered; then the one whose window began first is forgotten.
const ADDRESSES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Failures {
    since: Instant,
    count: u32,
}

/// The addresses that gave wrong keys lately.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    failures: HashMap<IpAddr, Failures>,
}

impl Attempts {
    /// How long keys from `address` are not looked at; none if the next one is.
    pub(super) fn wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let failures = self.failures.get(&address).filter(|failures| failures.count >= FAILURES_MAX)?;
        let left = (failures.since + WINDOW).saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// A key from `address` was wrong.
    pub(super) fn failed(&mut self, address: IpAddr, now: Instant) {
        let is_over = |failures: &Failures| failures.since + WINDOW <= now;
        if !self.failures.contains_key(&address) && self.failures.len() >= ADDRESSES_MAX {
            self.failures.retain(|_, failures| !is_over(failures));
            let first = self.failures.iter().min_by_key(|(_, failures)| failures.since).map(|(address, _)| *address);
            if let Some(first) = first.filter(|_| self.failures.len() >= ADDRESSES_MAX) {
                self.failures.remove(&first);
            }
        }
        let failures = self.failures.entry(address).or_insert(Failures { since: now, count: 0 });
        if is_over(failures) {
            *failures = Failures { since: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn after_ten_wrong_keys_an_address_waits_and_others_do_not() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..FAILURES_MAX {
            assert_eq!(attempts.wait(address(1), now), None);
            attempts.failed(address(1), now);
        }
        assert_eq!(attempts.wait(address(1), now + Duration::from_secs(20)), Some(Duration::from_secs(40)));
        assert_eq!(attempts.wait(address(2), now), None);
        assert_eq!(attempts.wait(address(1), now + WINDOW), None);
        attempts.failed(address(1), now + WINDOW);
        assert_eq!(attempts.wait(address(1), now + WINDOW), None, "a new window counts from one");
    }

    #[test]
    fn no_more_addresses_are_remembered_than_there_is_room_for() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for number in 0..ADDRESSES_MAX as u32 + 10 {
            attempts.failed(address(number), now + Duration::from_millis(u64::from(number)));
        }
        assert_eq!(attempts.failures.len(), ADDRESSES_MAX);
        assert!(!attempts.failures.contains_key(&address(0)), "the oldest is forgotten");
        attempts.failed(address(u32::MAX), now + 2 * WINDOW);
        assert_eq!(attempts.failures.len(), 1, "windows that are over make room first");
    }
}
