//! The dates at which a schedule is due: its expression in its time zone, within its start and end. Pure.
//!
//! EventBridge Scheduler user guide, "Schedule types", "Daylight savings time". A cron expression means the local
//! calendar: a time that the clocks leave out in spring is left out, and one that they show twice in autumn counts once,
//! at the first. A rate is counted in hours that have passed, from the start date, or else from the moment when the
//! schedule was made or got its rate. The time zones are those of the IANA database that is built in: all nodes of one
//! build know the same.

use std::sync::LazyLock;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp as Instant};
use nigh_terms::Timestamp;
use serde::{Deserialize, Serialize};

use super::expression::{ExpressionError, ScheduleExpression};

static TIME_ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// When a schedule is to run, in its owner's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleTimes {
    /// The schedule expression.
    pub expression: String,
    /// The name of the time zone in which the expression is read.
    pub time_zone: String,
    /// Not due before this date.
    pub start: Option<Timestamp>,
    /// Not due after this date.
    pub end: Option<Timestamp>,
}

/// The dates at which a schedule is due.
#[derive(Clone, Debug)]
pub struct Timetable {
    expression: ScheduleExpression,
    zone: TimeZone,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    anchor: Timestamp,
}

fn instant(at: Timestamp) -> Option<Instant> {
    Instant::from_millisecond(i64::try_from(at.millis()).ok()?).ok()
}

fn timestamp(at: Instant) -> Option<Timestamp> {
    u64::try_from(at.as_millisecond()).ok().map(Timestamp)
}

/// When the clocks of `zone` show `local`, for the first time; None if they never do.
fn first_shown(zone: &TimeZone, local: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            timestamp(offset.to_timestamp(local).ok()?)
        }
        AmbiguousOffset::Gap { .. } => None,
    }
}

impl Timetable {
    /// The timetable of `times`, whose rate begins at `anchor` unless there is a start date.
    ///
    /// # Errors
    /// What is wrong with the expression or the time zone.
    pub fn of(times: &ScheduleTimes, anchor: Timestamp) -> Result<Self, ExpressionError> {
        let expression = times.expression.parse()?;
        let unknown = |_| ExpressionError::TimeZone(times.time_zone.chars().take(64).collect());
        let zone = TIME_ZONES.get(&times.time_zone).map_err(unknown)?;
        if let ScheduleExpression::At(date) = &expression
            && first_shown(&zone, *date).is_none()
        {
            return Err(ExpressionError::InGap(*date, times.time_zone.clone()));
        }
        Ok(Self { expression, zone, start: times.start, end: times.end, anchor })
    }

    /// The first date after `after` at which the schedule is due.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let due = match &self.expression {
            // EventBridge ignores start and end of a schedule that runs once.
            ScheduleExpression::At(date) => return first_shown(&self.zone, *date).filter(|due| *due > after),
            ScheduleExpression::Rate(every) => {
                let first = self.start.unwrap_or(self.anchor).millis();
                let passed = after.millis().checked_sub(first).map_or(0, |since| since / every + 1);
                Timestamp(passed.checked_mul(*every)?.checked_add(first)?)
            }
            ScheduleExpression::Cron(cron) => {
                let before_start = self.start.map(|start| Timestamp(start.millis().saturating_sub(1)));
                let after = before_start.map_or(after, |start| start.max(after));
                let shown = self.zone.to_datetime(instant(after)?);
                let minute = SignedDuration::from_mins(1);
                let mut from = shown.date().at(shown.hour(), shown.minute(), 0, 0).checked_add(minute).ok()?;
                loop {
                    let local = cron.at_or_after(from)?;
                    match first_shown(&self.zone, local) {
                        Some(due) if due > after => break due,
                        // Left out by the clocks, or shown for the second time.
                        _ => from = local.checked_add(minute).ok()?,
                    }
                }
            }
        };
        Some(due).filter(|due| self.end.is_none_or(|end| *due <= end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        timestamp(text.parse().unwrap()).unwrap()
    }

    fn times(expression: &str, time_zone: &str) -> ScheduleTimes {
        let (expression, time_zone) = (expression.to_owned(), time_zone.to_owned());
        ScheduleTimes { expression, time_zone, start: None, end: None }
    }

    /// The first dates after `after`, in UTC.
    fn due(times: &ScheduleTimes, after: &str, count: usize) -> Vec<String> {
        let table = Timetable::of(times, at("2026-01-01T00:00:30Z")).unwrap();
        let mut last = at(after);
        let mut found = Vec::new();
        while found.len() < count
            && let Some(next) = table.next_after(last)
        {
            assert!(next > last);
            found.push(next.rfc3339().replace(":00.000Z", ""));
            last = next;
        }
        found
    }

    #[test]
    fn a_time_that_the_clocks_leave_out_is_left_out() {
        // In Berlin 02:00 is followed by 03:00 on 29 March 2026, at 01:00 UTC.
        let daily = times("cron(30 2 * * ? *)", "Europe/Berlin");
        let expected = ["2026-03-28T01:30", "2026-03-30T00:30", "2026-03-31T00:30"];
        assert_eq!(due(&daily, "2026-03-28T00:00:00Z", 3), expected);
        let often = times("cron(0/30 * * * ? *)", "Europe/Berlin");
        let expected = ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30"];
        assert_eq!(due(&often, "2026-03-29T00:00:00Z", 3), expected, "real time has no gap");
        let error = Timetable::of(&times("at(2026-03-29T02:30:00)", "Europe/Berlin"), at("2026-01-01T00:00:00Z"));
        assert!(error.unwrap_err().to_string().contains("put forward"));
    }

    #[test]
    fn a_time_that_the_clocks_show_twice_counts_once_at_the_first() {
        // In Berlin 03:00 is followed by 02:00 on 25 October 2026, at 01:00 UTC.
        let daily = times("cron(30 2 * * ? *)", "Europe/Berlin");
        let expected = ["2026-10-25T00:30", "2026-10-26T01:30"];
        assert_eq!(due(&daily, "2026-10-25T00:00:00Z", 2), expected);
        let often = times("cron(0/20 * * * ? *)", "Europe/Berlin");
        let expected = ["2026-10-25T00:40", "2026-10-25T02:00", "2026-10-25T02:20"];
        assert_eq!(due(&often, "2026-10-25T00:20:00Z", 3), expected);
        // From within the second time, too.
        assert_eq!(due(&daily, "2026-10-25T01:10:00Z", 1), ["2026-10-26T01:30"]);
        assert_eq!(due(&times("at(2026-10-25T02:30:00)", "Europe/Berlin"), "2026-01-01T00:00:00Z", 9).len(), 1);
    }

    #[test]
    fn zones_of_both_hemispheres_and_odd_offsets_are_known() {
        for (zone, expected) in [
            ("America/New_York", "2026-07-01T14:00"),
            ("Australia/Sydney", "2026-07-01T00:00"),
            ("Asia/Kathmandu", "2026-07-01T04:15"),
            ("Pacific/Apia", "2026-07-01T21:00"),
            ("utc", "2026-07-01T10:00"),
        ] {
            assert_eq!(due(&times("cron(0 10 * * ? *)", zone), "2026-06-30T23:59:00Z", 1), [expected], "{zone}");
        }
        let unknown = Timetable::of(&times("rate(1 day)", "Europe/Bonn"), Timestamp(0)).unwrap_err().to_string();
        assert!(unknown.contains("Europe/Bonn") && unknown.contains("IANA"), "{unknown}");
    }

    #[test]
    fn a_rate_begins_at_its_start_or_when_it_was_made_and_goes_by_passed_hours() {
        let hourly = times("rate(1 hour)", "UTC");
        let table = Timetable::of(&hourly, at("2026-01-01T00:00:30Z")).unwrap();
        assert_eq!(table.next_after(at("2025-01-01T00:00:00Z")), Some(at("2026-01-01T00:00:30Z")));
        assert_eq!(table.next_after(at("2026-01-01T00:00:30Z")), Some(at("2026-01-01T01:00:30Z")));
        assert_eq!(table.next_after(at("2026-01-01T05:30:00Z")), Some(at("2026-01-01T06:00:30Z")));
        let start = Some(at("2026-03-28T12:00:00Z"));
        let daily = ScheduleTimes { start, ..times("rate(1 day)", "Europe/Berlin") };
        let expected = ["2026-03-28T12:00", "2026-03-29T12:00", "2026-03-30T12:00"];
        assert_eq!(due(&daily, "2026-01-01T00:00:00Z", 3), expected, "24 hours, whatever the clocks do");
    }

    #[test]
    fn start_and_end_bound_what_recurs() {
        let (start, end) = (Some(at("2026-02-01T10:00:00Z")), Some(at("2026-02-03T10:00:00Z")));
        let daily = ScheduleTimes { start, end, ..times("cron(0 10 * * ? *)", "UTC") };
        let expected = ["2026-02-01T10:00", "2026-02-02T10:00", "2026-02-03T10:00"];
        assert_eq!(due(&daily, "2026-01-01T00:00:00Z", 9), expected, "both included");
        let once = ScheduleTimes { start, end, ..times("at(2027-01-01T00:00:00)", "UTC") };
        assert_eq!(due(&once, "2026-01-01T00:00:00Z", 9), ["2027-01-01T00:00"]);
        assert!(due(&once, "2027-01-01T00:00:00Z", 9).is_empty());
    }
}
