//! When each schedule is to be looked at next: pure.

use std::collections::{BTreeSet, HashMap};

use nigh_functions::schedule_store::ScheduleKey;
use nigh_terms::Timestamp;

/// The next look at each schedule that needs one.
#[derive(Default)]
pub(super) struct Agenda {
    by_date: BTreeSet<(Timestamp, ScheduleKey)>,
    dates: HashMap<ScheduleKey, Timestamp>,
}

impl Agenda {
    /// The next look at `key` is at this date, or there is none.
    pub(super) fn set(&mut self, key: &ScheduleKey, at: Option<Timestamp>) {
        let before = match at {
            Some(at) => self.dates.insert(key.clone(), at),
            None => self.dates.remove(key),
        };
        if let Some(before) = before {
            self.by_date.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.by_date.insert((at, key.clone()));
        }
    }

    /// The date of the next look.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.by_date.first().map(|(at, _)| *at)
    }

    /// Removes and returns a schedule that is to be looked at now.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<ScheduleKey> {
        self.next().filter(|next| *next <= now)?;
        let (_, key) = self.by_date.pop_first()?;
        self.dates.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use nigh_functions::schedule::ScheduleName;
    use nigh_terms::Namespace;

    use super::*;

    #[test]
    fn each_schedule_is_looked_at_once_and_at_its_last_date() {
        let key = |name: &str| ScheduleKey {
            namespace: Namespace::new("tenant").unwrap(),
            name: ScheduleName::new(name).unwrap(),
        };
        let mut agenda = Agenda::default();
        for (name, at) in [("a", 5), ("b", 3), ("a", 9), ("c", 1)] {
            agenda.set(&key(name), Some(Timestamp(at)));
        }
        agenda.set(&key("c"), None);
        assert_eq!((agenda.next(), agenda.take_due(Timestamp(2))), (Some(Timestamp(3)), None));
        assert_eq!(agenda.take_due(Timestamp(20)), Some(key("b")));
        assert_eq!((agenda.take_due(Timestamp(20)), agenda.take_due(Timestamp(20))), (Some(key("a")), None));
        assert_eq!(agenda.next(), None);
    }
}
