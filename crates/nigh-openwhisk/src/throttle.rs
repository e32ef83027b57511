//! Limits of a namespace: invocations and fired triggers a minute, and activations under way. Pure.
//!
//! Counts as OpenWhisk's controller does: minutes begin at the same time for all namespaces, rejected calls count too, and
//! each node counts for itself.

use std::collections::HashMap;

use nigh_terms::{Monotonic, Namespace};

use super::error::WhiskError;

const MINUTE_SECONDS: u64 = 60;

/// The limits of each namespace; none means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceLimits {
    /// Invocations a minute: calls of actions (a sequence counts once) and calls by rules.
    pub invocations_per_minute: Option<u32>,
    /// Triggers fired a minute.
    pub fires_per_minute: Option<u32>,
    /// Activations under way; components of sequences and compositions do not count.
    pub concurrent_invocations: Option<u32>,
}

/// Counts of this minute, by namespace.
#[derive(Debug, Default)]
struct Minute {
    number: u64,
    counts: HashMap<Namespace, u32>,
}

impl Minute {
    /// Counts one more for `namespace`; rejects it above `limit`.
    fn count(&mut self, namespace: &Namespace, limit: Option<u32>, now: Monotonic) -> Result<(), WhiskError> {
        let Some(limit) = limit else { return Ok(()) };
        let number = now.since(Monotonic::default()).as_secs() / MINUTE_SECONDS;
        if number != self.number {
            *self = Self { number, counts: HashMap::new() };
        }
        let count = self.counts.entry(namespace.clone()).or_default();
        *count = count.saturating_add(1);
        if *count > limit {
            return Err(WhiskError::too_many(format!(
                "Too many requests in the last minute (count: {count}, allowed: {limit})."
            )));
        }
        Ok(())
    }
}

/// The counts of all namespaces.
#[derive(Debug)]
pub(super) struct Throttle {
    limits: NamespaceLimits,
    invocations: Minute,
    fires: Minute,
    /// Activations under way; a namespace without any has no entry.
    under_way: HashMap<Namespace, u32>,
}

impl Throttle {
    pub(super) fn new(limits: NamespaceLimits) -> Self {
        Self { limits, invocations: Minute::default(), fires: Minute::default(), under_way: HashMap::new() }
    }

    /// The limits.
    pub(super) const fn limits(&self) -> &NamespaceLimits {
        &self.limits
    }

    /// From now on these limits hold; what was counted counts on.
    pub(super) fn set_limits(&mut self, limits: NamespaceLimits) {
        self.limits = limits;
    }

    /// An action is called.
    pub(super) fn invoked(&mut self, namespace: &Namespace, now: Monotonic) -> Result<(), WhiskError> {
        self.invocations.count(namespace, self.limits.invocations_per_minute, now)
    }

    /// A trigger is fired.
    pub(super) fn fired(&mut self, namespace: &Namespace, now: Monotonic) -> Result<(), WhiskError> {
        self.fires.count(namespace, self.limits.fires_per_minute, now)
    }

    /// An activation begins.
    pub(super) fn begun(&mut self, namespace: &Namespace) -> Result<(), WhiskError> {
        let count = self.under_way.get(namespace).copied().unwrap_or(0);
        match self.limits.concurrent_invocations {
            Some(limit) if count >= limit => Err(WhiskError::too_many_at_once(count as usize, limit as usize)),
            _ => {
                self.under_way.insert(namespace.clone(), count.saturating_add(1));
                Ok(())
            }
        }
    }

    /// An activation ends.
    pub(super) fn ended(&mut self, namespace: &Namespace) {
        if let Some(count) = self.under_way.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn a_minute_has_so_many_and_the_next_one_as_many_again() {
        let limits = NamespaceLimits {
            invocations_per_minute: Some(2),
            fires_per_minute: Some(0),
            ..NamespaceLimits::default()
        };
        let mut throttle = Throttle::new(limits);
        let (one, other) = (Namespace::new("one").unwrap(), Namespace::new("other").unwrap());
        for second in [3, 59] {
            throttle.invoked(&one, at(second)).unwrap();
        }
        let refused = throttle.invoked(&one, at(59)).unwrap_err();
        assert_eq!(refused.status.as_u16(), 429);
        assert_eq!(refused.message, "Too many requests in the last minute (count: 3, allowed: 2).");
        let again = throttle.invoked(&one, at(59)).unwrap_err();
        assert_eq!(again.message, "Too many requests in the last minute (count: 4, allowed: 2).");
        throttle.invoked(&other, at(59)).unwrap();
        throttle.invoked(&one, at(60)).unwrap();
        assert!(throttle.fired(&one, at(60)).is_err(), "a limit of none");
        // Other limits hold at once, for what was counted, too.
        throttle.set_limits(NamespaceLimits { invocations_per_minute: Some(1), ..NamespaceLimits::default() });
        assert!(throttle.invoked(&one, at(60)).is_err());
        throttle.fired(&one, at(60)).unwrap();
    }

    #[test]
    fn so_many_are_under_way_and_one_that_ended_makes_room() {
        let limits = NamespaceLimits { concurrent_invocations: Some(1), ..NamespaceLimits::default() };
        let mut throttle = Throttle::new(limits);
        let (one, other) = (Namespace::new("one").unwrap(), Namespace::new("other").unwrap());
        throttle.begun(&one).unwrap();
        throttle.begun(&other).unwrap();
        let refused = throttle.begun(&one).unwrap_err();
        assert_eq!(refused.message, "Too many concurrent requests in flight (count: 1, allowed: 1).");
        throttle.ended(&one);
        throttle.begun(&one).unwrap();
        for namespace in [&one, &other] {
            throttle.ended(namespace);
        }
        assert!(throttle.under_way.is_empty(), "nothing is remembered of who runs nothing");
    }

    #[test]
    fn without_limits_nobody_is_counted() {
        let mut throttle = Throttle::new(NamespaceLimits::default());
        let one = Namespace::new("one").unwrap();
        for _ in 0..1000 {
            throttle.invoked(&one, at(1)).unwrap();
            throttle.fired(&one, at(1)).unwrap();
        }
        assert!(throttle.invocations.counts.is_empty() && throttle.fires.counts.is_empty());
    }
}
