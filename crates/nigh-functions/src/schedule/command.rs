//! Which run of a schedule is due now: pure.
//!
//! Of the runs that fell due while no node began them (downtime, a jump of the date forward, a full queue), the latest one
//! is begun, if it is not older than the schedule's greatest age; the earlier ones are not made up. If the date was set
//! back, nothing is due until it is later than the last run, so that no run is begun twice. If it was set back by
//! more than a day, it was wrong before: the schedule goes on from the present date.

use std::time::Duration;

use nigh_terms::Timestamp;

use super::{Schedule, before};

/// A date set back by more than this was wrong before.
pub const DATE_BACK_MAX: Duration = Duration::from_secs(24 * 3600);

/// What to do for a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleCommand {
    /// Begin the run that is due at `due`. So many runs before it are not made up.
    Run {
        /// The date at which the run is due.
        due: Timestamp,
        /// The number of runs that are left out.
        missed: usize,
    },
    /// Nothing is to be begun before this date.
    WaitUntil(Timestamp),
    /// The date was set back by more than a day: set `done_to` to this date.
    GoBackTo(Timestamp),
    /// It is paused.
    Nothing,
    /// It never runs any more.
    Finished,
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp(at.millis().saturating_add(by.as_millis() as u64))
}

fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp(at.millis().saturating_sub(by.as_millis() as u64))
}

impl Schedule {
    /// When the run that is due at `due` is to begin: at once, or at some moment of the flexible window. The moment follows
    /// from the schedule and the date, and is before the next run's.
    #[must_use]
    pub fn begins_at(&self, due: Timestamp) -> Timestamp {
        let window = self.window().as_millis() as u64;
        if window == 0 {
            return due;
        }
        let next = self.timetable.next_after(due).map_or(u64::MAX, |next| next.millis() - due.millis());
        let [a, b, c, d, ..] = self.hash(due);
        Timestamp(due.millis() + u64::from(u32::from_be_bytes([a, b, c, d])) % window.min(next).max(1))
    }

    /// What is to be done now.
    #[must_use]
    pub fn command(&self, now: Timestamp) -> ScheduleCommand {
        if !self.settings.enabled {
            return ScheduleCommand::Nothing;
        }
        if self.progress.done_to > later(now, DATE_BACK_MAX) {
            return ScheduleCommand::GoBackTo(before(now));
        }
        // Runs due before this are too old, wherever in their window they are.
        let oldest = earlier(now, self.run_age_max() + self.window());
        let mut at = self.progress.done_to.max(before(oldest));
        let (mut latest, mut missed) = (None, 0);
        let next = loop {
            let Some(due) = self.timetable.next_after(at) else { break None };
            let begins = self.begins_at(due);
            if begins > now {
                break Some(begins);
            }
            if later(begins, self.run_age_max()) < now {
                missed += 1;
            } else {
                missed += usize::from(latest.replace(due).is_some());
            }
            at = due;
        };
        match (latest, next) {
            (Some(due), _) => ScheduleCommand::Run { due, missed },
            (None, Some(next)) => ScheduleCommand::WaitUntil(next),
            (None, None) => ScheduleCommand::Finished,
        }
    }

    /// The date at which the next run will be due, if the schedule is not paused and one will be.
    #[must_use]
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let after = self.progress.done_to.max(before(now));
        self.settings.enabled.then(|| self.timetable.next_after(after)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::NodeId;

    use super::super::tests::{NOW, schedule, settings};
    use super::super::{ScheduleSettings, ScheduleTimes};
    use super::*;

    const MINUTE: u64 = 60_000;
    const HOUR: u64 = 60 * MINUTE;

    fn after(millis: u64) -> Timestamp {
        Timestamp(NOW.0 + millis)
    }

    /// Begins what is due at each of these moments; gives the runs, in minutes after `NOW`.
    fn runs(schedule: &mut Schedule, moments: impl IntoIterator<Item = Timestamp>) -> Vec<u64> {
        let node = NodeId("n".to_owned());
        let mut begun = Vec::new();
        for now in moments {
            for _ in 0..2 {
                match schedule.command(now) {
                    ScheduleCommand::Run { due, .. } => {
                        begun.push((due.0 - NOW.0) / MINUTE);
                        schedule.progress = schedule.progress.with_run(&node, due);
                    }
                    ScheduleCommand::GoBackTo(date) => schedule.progress.done_to = date,
                    _ => {}
                }
            }
        }
        begun
    }

    #[test]
    fn each_run_is_begun_once_and_the_wait_ends_when_the_next_is_due() {
        let mut often = schedule(settings("rate(5 minutes)"));
        assert_eq!(runs(&mut often, (0..200).map(|step| after(step * 7_000))), [0, 5, 10, 15, 20]);
        assert_eq!(often.command(after(24 * MINUTE)), ScheduleCommand::WaitUntil(after(25 * MINUTE)));
        assert_eq!(often.next_due(after(24 * MINUTE)), Some(after(25 * MINUTE)));
        let mut once = schedule(settings("at(2026-01-01T00:10:00)"));
        assert_eq!(once.command(NOW), ScheduleCommand::WaitUntil(after(10 * MINUTE)));
        assert_eq!(runs(&mut once, [after(10 * MINUTE), after(11 * MINUTE)]), [10]);
        assert_eq!((once.command(after(HOUR)), once.next_due(after(HOUR))), (ScheduleCommand::Finished, None));
        let past = schedule(settings("at(2025-12-31T23:59:59)"));
        assert_eq!(past.command(NOW), ScheduleCommand::Finished, "a date that has passed before it was made");
    }

    #[test]
    fn of_missed_runs_the_latest_is_begun_if_it_is_young_enough() {
        let mut hourly = schedule(settings("cron(0 * * * ? *)"));
        assert_eq!(runs(&mut hourly, [after(0)]), [0]);
        let command = hourly.command(after(5 * HOUR + MINUTE));
        assert_eq!(command, ScheduleCommand::Run { due: after(5 * HOUR), missed: 4 });
        let strict = ScheduleSettings { run_age_s: Some(60), ..settings("cron(0 * * * ? *)") };
        let mut strict = schedule(strict);
        runs(&mut strict, [after(0)]);
        assert_eq!(strict.command(after(5 * HOUR + MINUTE)), ScheduleCommand::Run { due: after(5 * HOUR), missed: 0 });
        let next = ScheduleCommand::WaitUntil(after(6 * HOUR));
        assert_eq!(strict.command(after(5 * HOUR + MINUTE + 1)), next, "the latest is too old");
        let mut weekly = schedule(settings("rate(7 days)"));
        assert_eq!(runs(&mut weekly, [after(0), after((7 * 24 + 25) * HOUR)]), [0], "a day is the greatest age");
        assert_eq!(weekly.command(after((7 * 24 + 25) * HOUR)), ScheduleCommand::WaitUntil(after(14 * 24 * HOUR)));
    }

    #[test]
    fn years_of_downtime_are_passed_over_quickly() {
        let mut often = schedule(settings("cron(* * * * ? *)"));
        runs(&mut often, [after(0)]);
        let now = after(5 * 365 * 24 * HOUR + 30_000);
        assert!(matches!(often.command(now), ScheduleCommand::Run { due, missed: 1439 } if due.0 == now.0 - 30_000));
    }

    #[test]
    fn a_date_that_jumps_begins_no_run_twice() {
        let mut often = schedule(settings("rate(5 minutes)"));
        let minute = |minute: u64| after(minute * MINUTE);
        // Forward by three hours: one run for all that were passed over.
        assert_eq!(runs(&mut often, [minute(0), minute(5), minute(186)]), [0, 5, 185]);
        // Back by the same: nothing until it is later than the last run.
        assert_eq!(runs(&mut often, (6..190).map(minute)), [] as [u64; 0]);
        assert_eq!(often.command(minute(10)), ScheduleCommand::WaitUntil(minute(190)));
        assert_eq!(runs(&mut often, (190..200).map(minute)), [190, 195]);
        // It was years ahead, and is right again: it goes on.
        let ahead = 3 * 365 * 24 * 60;
        assert_eq!(runs(&mut often, [minute(ahead)]), [ahead]);
        assert_eq!(often.command(minute(201)), ScheduleCommand::GoBackTo(before(minute(201))));
        assert_eq!(runs(&mut often, (201..211).map(minute)), [205, 210]);
    }

    #[test]
    fn a_flexible_run_begins_within_its_window_and_before_the_next() {
        let flexible = |expression: &str, minutes| {
            schedule(ScheduleSettings { window_minutes: Some(minutes), ..settings(expression) })
        };
        let daily = flexible("rate(1 day)", 15);
        let begins: Vec<u64> =
            (0..20).map(|day| daily.begins_at(after(day * 24 * HOUR)).0 - NOW.0 - day * 24 * HOUR).collect();
        assert!(begins.iter().all(|begins| *begins < 15 * MINUTE), "{begins:?}");
        assert!(begins.iter().any(|begins| *begins > 5 * MINUTE) && begins.iter().any(|begins| *begins < 10 * MINUTE));
        assert_eq!(daily.command(before(daily.begins_at(NOW))), ScheduleCommand::WaitUntil(daily.begins_at(NOW)));
        assert_eq!(daily.command(daily.begins_at(NOW)), ScheduleCommand::Run { due: NOW, missed: 0 });
        // A window that is longer than the pause between two runs loses none and doubles none.
        let mut often = flexible("rate(1 minute)", 1440);
        let begun = runs(&mut often, (0..=600).map(|second| after(second * 1000)));
        assert_eq!(begun[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let late = ScheduleSettings { run_age_s: Some(60), window_minutes: Some(600), ..settings("rate(1 day)") };
        let late = schedule(late);
        assert_eq!(late.command(late.begins_at(NOW)), ScheduleCommand::Run { due: NOW, missed: 0 });
    }

    #[test]
    fn what_is_paused_or_over_waits_for_nothing() {
        let paused = schedule(ScheduleSettings { enabled: false, ..settings("rate(1 minute)") });
        assert_eq!((paused.command(after(HOUR)), paused.next_due(NOW)), (ScheduleCommand::Nothing, None));
        let mut ending = settings("rate(5 minutes)");
        ending.times = ScheduleTimes { end: Some(after(12 * MINUTE)), ..ending.times };
        let mut ending = schedule(ending);
        assert_eq!(runs(&mut ending, (0..60).map(|minute| after(minute * MINUTE))), [0, 5, 10]);
        assert_eq!(ending.command(after(HOUR)), ScheduleCommand::Finished);
    }
}
