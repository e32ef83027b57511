//! Schedule expressions: `at(yyyy-mm-ddThh:mm:ss)`, `rate(VALUE UNIT)`, `cron(FIELDS)`. Pure.
//!
//! EventBridge Scheduler user guide, "Schedule types".

use jiff::civil::DateTime;
use thiserror::Error;

use super::cron::{CronError, CronExpression};

/// The longest expression (API reference, `ScheduleExpression`).
const EXPRESSION_BYTES_MAX: usize = 256;
/// The longest rate: about ten years.
const RATE_MINUTES_MAX: u64 = 10 * 366 * 24 * 60;
/// The length of the date of `at`.
const DATE_BYTES: usize = "2026-01-31T10:00:00".len();

/// When a schedule runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleExpression {
    /// Once, at this date in the schedule's time zone.
    At(DateTime),
    /// Every so many milliseconds.
    Rate(u64),
    /// Whenever the calendar of the schedule's time zone fits.
    Cron(Box<CronExpression>),
}

/// Why a text is no schedule expression.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum ExpressionError {
    #[error("{0:?} is no schedule expression; write rate(5 minutes), cron(0 10 * * ? *) or at(2026-01-31T10:00:00)")]
    Form(String),
    #[error(
        "rate({0}) is no rate; write a whole number above 0, at most ten years, and minutes, hours or days, for example \
         rate(5 minutes)"
    )]
    Rate(String),
    #[error("at({0}) is no date; write at(yyyy-mm-ddThh:mm:ss), for example at(2026-01-31T10:00:00)")]
    At(String),
    #[error(transparent)]
    Cron(#[from] CronError),
    #[error("there is no time zone {0:?}; write a name of the IANA database, for example Europe/Berlin or UTC")]
    TimeZone(String),
    #[error("{0} does not exist in {1}: the clocks are put forward then; choose another time")]
    InGap(DateTime, String),
}

fn rate(text: &str) -> Option<u64> {
    let (value, unit) = text.split_once(char::is_whitespace)?;
    let minutes = match unit.trim() {
        "minute" | "minutes" => 1,
        "hour" | "hours" => 60,
        "day" | "days" => 24 * 60,
        _ => return None,
    };
    let minutes = value.parse::<u64>().ok()?.checked_mul(minutes)?;
    (1..=RATE_MINUTES_MAX).contains(&minutes).then_some(minutes * 60_000)
}

impl std::str::FromStr for ScheduleExpression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, ExpressionError> {
        let form = || ExpressionError::Form(text.chars().take(EXPRESSION_BYTES_MAX).collect());
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(form());
        }
        let (kind, inner) = text.trim().strip_suffix(')').and_then(|text| text.split_once('(')).ok_or_else(form)?;
        let inner = inner.trim();
        match kind {
            "at" => {
                let date = inner.parse::<DateTime>().ok().filter(|_| inner.len() == DATE_BYTES);
                date.map(Self::At).ok_or_else(|| ExpressionError::At(inner.to_owned()))
            }
            "rate" => rate(inner).map(Self::Rate).ok_or_else(|| ExpressionError::Rate(inner.to_owned())),
            "cron" => Ok(Self::Cron(Box::new(inner.parse()?))),
            _ => Err(form()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_dates_and_crons_are_told_apart() {
        let read = |text: &str| text.parse::<ScheduleExpression>();
        assert_eq!(read("rate(5 minutes)"), Ok(ScheduleExpression::Rate(300_000)));
        assert_eq!(read("rate(1 hour)"), Ok(ScheduleExpression::Rate(3_600_000)));
        assert_eq!(read(" rate( 2  days ) "), Ok(ScheduleExpression::Rate(172_800_000)));
        let date = "2022-11-20T13:00:00".parse().unwrap();
        assert_eq!(read("at(2022-11-20T13:00:00)"), Ok(ScheduleExpression::At(date)));
        assert!(matches!(read("cron(15 10 ? * 6L 2022-2023)"), Ok(ScheduleExpression::Cron(_))));
    }

    #[test]
    fn what_is_no_expression_is_refused_with_the_way_to_write_it() {
        for (text, hint) in [
            ("", "rate(5 minutes)"),
            ("5 minutes", "rate(5 minutes)"),
            ("every(5 minutes)", "rate(5 minutes)"),
            ("rate(0 minutes)", "above 0"),
            ("rate(5 seconds)", "minutes, hours or days"),
            ("rate(5)", "minutes, hours or days"),
            ("rate(99999999999999999999 days)", "ten years"),
            ("rate(4000 days)", "ten years"),
            ("at(2022-11-20)", "yyyy-mm-dd"),
            ("at(2022-11-20T13:00:00.5)", "yyyy-mm-dd"),
            ("at(2022-02-30T13:00:00)", "yyyy-mm-dd"),
            ("cron(*/5 * * * *)", "six fields"),
            (&format!("cron({})", "1,".repeat(200)), "rate(5 minutes)"),
        ] {
            let error = text.parse::<ScheduleExpression>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
