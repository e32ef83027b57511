//! Cron expressions in EventBridge's dialect: minutes, hours, day of month, month, day of week, year. Pure.
//!
//! EventBridge Scheduler user guide, "Cron-based schedules". One of the two fields for days is `?`. `L` is the last day
//! of the month or week, `5L` the last Thursday of the month, `3W` the weekday nearest to the third, `LW` the last weekday,
//! `3#2` the second Tuesday. A day whose number the month does not have is left out.

use jiff::civil::{Date, DateTime, Weekday};
use thiserror::Error;

use super::cron_field::{CronFieldError, DAY_OF_MONTH, DAY_OF_WEEK, HOURS, MINUTES, MONTH, ValueSet, YEAR};

/// Why a text is no cron expression.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum CronError {
    #[error(
        "a cron expression has six fields here, and this one has {0}: minutes hours day-of-month month day-of-week year, \
         with ? for one of the two days; for example cron(0/5 * * * ? *) for every five minutes"
    )]
    Fields(usize),
    #[error(
        "of day-of-month and day-of-week one must be ?: cron(0 10 * * ? *) is every day at 10:00, cron(0 10 ? * MON *) \
         every Monday"
    )]
    Days,
    #[error(transparent)]
    Field(#[from] CronFieldError),
}

/// On which days of a month.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DayRule {
    OfMonth {
        days: ValueSet,
        last: bool,
        last_weekday: bool,
        /// The weekdays nearest to these days.
        near: ValueSet,
    },
    OfWeek {
        days: ValueSet,
        /// The last such day of the month.
        last: ValueSet,
        /// A day of the week, and which one of the month.
        nth: Option<(u16, i8)>,
    },
}

/// A cron expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronExpression {
    minutes: ValueSet,
    hours: ValueSet,
    days: DayRule,
    months: ValueSet,
    years: ValueSet,
}

fn day_of_month(text: &str) -> Result<DayRule, CronFieldError> {
    let (mut days, mut near) = (DAY_OF_MONTH.none(), DAY_OF_MONTH.none());
    let (mut last, mut last_weekday) = (false, false);
    for part in text.split(',') {
        match (part, part.strip_suffix('W')) {
            ("L", _) => last = true,
            ("LW", _) => last_weekday = true,
            (_, Some(day)) => {
                DAY_OF_MONTH.value(day)?;
                DAY_OF_MONTH.add(day, &mut near)?;
            }
            _ => DAY_OF_MONTH.add(part, &mut days)?,
        }
    }
    Ok(DayRule::OfMonth { days, last, last_weekday, near })
}

fn day_of_week(text: &str) -> Result<DayRule, CronFieldError> {
    let (mut days, mut last) = (DAY_OF_WEEK.none(), DAY_OF_WEEK.none());
    if let Some((day, which)) = text.split_once('#') {
        let which = which.parse::<i8>().ok().filter(|which| (1..=5).contains(which));
        let which = which.ok_or_else(|| DAY_OF_WEEK.error(text, "write one day, #, and a number from 1 to 5"))?;
        return Ok(DayRule::OfWeek { days, last, nth: Some((DAY_OF_WEEK.value(day)?, which)) });
    }
    for part in text.split(',') {
        match (part, part.strip_suffix('L')) {
            // The last day of the week.
            ("L", _) => DAY_OF_WEEK.add("7", &mut days)?,
            (_, Some(day)) => {
                DAY_OF_WEEK.value(day)?;
                DAY_OF_WEEK.add(day, &mut last)?;
            }
            _ => DAY_OF_WEEK.add(part, &mut days)?,
        }
    }
    Ok(DayRule::OfWeek { days, last, nth: None })
}

impl std::str::FromStr for CronExpression {
    type Err = CronError;

    /// Reads the six fields, without `cron(` and `)`.
    fn from_str(text: &str) -> Result<Self, CronError> {
        let text = text.to_ascii_uppercase();
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, of_month, month, of_week, year] = fields.as_slice() else {
            return Err(CronError::Fields(fields.len()));
        };
        let days = match (*of_month, *of_week) {
            ("?", "?") => return Err(CronError::Days),
            (of_month, "?") => day_of_month(of_month)?,
            ("?", of_week) => day_of_week(of_week)?,
            _ => return Err(CronError::Days),
        };
        Ok(Self {
            minutes: MINUTES.values(minutes)?,
            hours: HOURS.values(hours)?,
            days,
            months: MONTH.values(month)?,
            years: YEAR.values(year)?,
        })
    }
}

/// The number of a part of a date, which is never negative here.
fn number(part: impl TryInto<u16>) -> u16 {
    part.try_into().unwrap_or_default()
}

/// The weekday of the month of `date` that is nearest to `day`, within the month.
fn nearest_weekday(date: Date, day: i8) -> Option<i8> {
    let last = date.days_in_month();
    let there = Date::new(date.year(), date.month(), day).ok()?;
    Some(match there.weekday() {
        Weekday::Saturday if day == 1 => 3,
        Weekday::Saturday => day - 1,
        Weekday::Sunday if day == last => day - 2,
        Weekday::Sunday => day + 1,
        _ => day,
    })
}

impl DayRule {
    fn holds_on(&self, date: Date) -> bool {
        let day = date.day();
        let is_in_last_week = day + 7 > date.days_in_month();
        match self {
            Self::OfMonth { days, last, last_weekday, near } => {
                let is_near = || {
                    let around = (day - 2).max(1)..=(day + 2).min(31);
                    around
                        .filter(|other| near.contains(number(*other)))
                        .any(|other| nearest_weekday(date, other) == Some(day))
                };
                days.contains(number(day))
                    || *last && day == date.days_in_month()
                    || *last_weekday && nearest_weekday(date, date.days_in_month()) == Some(day)
                    || is_near()
            }
            Self::OfWeek { days, last, nth } => {
                let weekday = number(date.weekday().to_sunday_one_offset());
                days.contains(weekday)
                    || is_in_last_week && last.contains(weekday)
                    || *nth == Some((weekday, (day - 1) / 7 + 1))
            }
        }
    }
}

impl CronExpression {
    /// The first minute of the calendar at or after `from` at which this expression holds, whatever the clocks show then.
    #[must_use]
    pub fn at_or_after(&self, from: DateTime) -> Option<DateTime> {
        let mut date = from.date();
        let mut time = (number(from.hour()), number(from.minute()));
        // Each round goes on by a day at least, and no year after 2199 holds.
        loop {
            let year = self.years.at_least(number(date.year()))?;
            let begins = match self.months.at_least(number(date.month())) {
                _ if number(date.year()) < year => Some((year, 1)),
                None => Some((year + 1, 1)),
                Some(month) if month > number(date.month()) => Some((year, month)),
                Some(_) => None,
            };
            if let Some((year, month)) = begins {
                date = Date::new(year.try_into().ok()?, month.try_into().ok()?, 1).ok()?;
                time = (0, 0);
                continue;
            }
            if self.days.holds_on(date)
                && let Some((hour, minute)) = self.time_at_or_after(time)
            {
                return Some(date.at(hour, minute, 0, 0));
            }
            date = date.tomorrow().ok()?;
            time = (0, 0);
        }
    }

    fn time_at_or_after(&self, (hour, minute): (u16, u16)) -> Option<(i8, i8)> {
        let first = self.hours.at_least(hour)?;
        let in_this = if first == hour { self.minutes.at_least(minute) } else { self.minutes.at_least(0) };
        let (hour, minute) = match in_this {
            Some(minute) => (first, minute),
            None => (self.hours.at_least(hour + 1)?, self.minutes.at_least(0)?),
        };
        Some((hour.try_into().ok()?, minute.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first minutes at which `text` holds from `from` on.
    fn first(text: &str, from: &str, count: usize) -> Vec<String> {
        let cron: CronExpression = text.parse().unwrap();
        let mut from: DateTime = from.parse().unwrap();
        let mut found = Vec::new();
        while found.len() < count
            && let Some(at) = cron.at_or_after(from)
        {
            found.push(at.to_string());
            from = at.checked_add(jiff::SignedDuration::from_mins(1)).unwrap();
        }
        found
    }

    /// The examples of the user guides of EventBridge and EventBridge Scheduler.
    #[test]
    fn the_documented_examples_hold_when_they_are_said_to() {
        for (text, from, expected) in [
            ("0 10 * * ? *", "2026-02-28T10:01:00", &["2026-03-01T10:00:00", "2026-03-02T10:00:00"][..]),
            ("15 12 * * ? *", "2026-01-01T00:00:00", &["2026-01-01T12:15:00"]),
            ("0 18 ? * MON-FRI *", "2026-01-02T18:01:00", &["2026-01-05T18:00:00", "2026-01-06T18:00:00"]),
            ("0 8 1 * ? *", "2026-01-02T00:00:00", &["2026-02-01T08:00:00", "2026-03-01T08:00:00"]),
            ("0/15 * * * ? *", "2026-01-01T23:46:00", &["2026-01-02T00:00:00", "2026-01-02T00:15:00"]),
            ("0/10 * ? * MON-FRI *", "2026-01-02T23:51:00", &["2026-01-05T00:00:00"]),
            ("0/5 8-17 ? * MON-FRI *", "2026-01-02T17:55:00", &["2026-01-02T17:55:00", "2026-01-05T08:00:00"]),
            ("0/30 20-2 ? * MON-FRI *", "2026-01-05T02:30:00", &["2026-01-05T02:30:00", "2026-01-05T20:00:00"]),
            (
                "15 10 ? * 6L 2022-2023",
                "2022-11-26T00:00:00",
                &["2022-12-30T10:15:00", "2023-01-27T10:15:00", "2023-02-24T10:15:00"],
            ),
            ("0 10 ? * 3#2 *", "2026-01-01T00:00:00", &["2026-01-13T10:00:00", "2026-02-10T10:00:00"]),
            ("0 9 3W * ? *", "2026-01-01T00:00:00", &["2026-01-02T09:00:00", "2026-02-03T09:00:00"]),
        ] {
            assert_eq!(first(text, from, expected.len()), expected, "{text}");
        }
    }

    #[test]
    fn last_days_and_nearest_weekdays_stay_within_their_month() {
        let days = |text: &str, from: &str, count| -> Vec<String> {
            first(text, from, count).into_iter().map(|at| at[..10].to_owned()).collect()
        };
        let year = "2026-01-01T00:00:00";
        assert_eq!(days("0 0 L * ? *", year, 3), ["2026-01-31", "2026-02-28", "2026-03-31"]);
        assert_eq!(days("0 0 L 2 ? *", "2028-01-01T00:00:00", 1), ["2028-02-29"]);
        assert_eq!(days("0 0 LW * ? *", year, 3), ["2026-01-30", "2026-02-27", "2026-03-31"]);
        // The first of August 2026 is a Saturday, the last of May a Sunday.
        assert_eq!(days("0 0 1W 8 ? *", year, 1), ["2026-08-03"]);
        assert_eq!(days("0 0 31W 5 ? *", year, 1), ["2026-05-29"]);
        assert_eq!(days("0 0 31W * ? *", "2026-06-01T00:00:00", 1), ["2026-07-31"], "June has no 31st");
        assert_eq!(days("0 0 15,L * ? *", year, 4), ["2026-01-15", "2026-01-31", "2026-02-15", "2026-02-28"]);
        assert_eq!(days("0 0 ? * L *", year, 2), ["2026-01-03", "2026-01-10"], "Saturday ends the week");
        assert_eq!(days("0 0 ? * FRIL *", year, 2), ["2026-01-30", "2026-02-27"]);
        assert_eq!(days("0 0 ? * TUE#5 *", year, 2), ["2026-03-31", "2026-06-30"]);
        assert_eq!(days("0 0 29 2 ? *", year, 2), ["2028-02-29", "2032-02-29"]);
    }

    #[test]
    fn what_never_comes_is_found_to_never_come() {
        assert!(first("0 0 30 2 ? *", "2026-01-01T00:00:00", 1).is_empty());
        assert!(first("0 0 1 1 ? 2025", "2025-01-01T00:01:00", 1).is_empty());
        assert_eq!(first("59 23 31 12 ? *", "2199-12-31T00:00:00", 2), ["2199-12-31T23:59:00"]);
    }

    #[test]
    fn what_is_no_cron_expression_is_refused_with_the_way_to_write_it() {
        for (text, why) in [
            ("*/5 * * * *", "six fields"),
            ("", "six fields"),
            ("0 10 * * * *", "one must be ?"),
            ("0 10 ? * ? *", "one must be ?"),
            ("0 10 1 * MON *", "one must be ?"),
            ("0 10 ? * 3#1,6#3 *", "a number from 1 to 5"),
            ("0 10 ? * 3#6 *", "a number from 1 to 5"),
            ("0 10 ? * 8 *", "day-of-week"),
            ("0 10 W * ? *", "day-of-month"),
            ("0 10 1-5W * ? *", "day-of-month"),
            ("0 24 * * ? *", "hours"),
        ] {
            let error = text.parse::<CronExpression>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert_eq!("0 10 ? * mon *".parse::<CronExpression>(), "0 10 ? * 2 *".parse());
    }
}
