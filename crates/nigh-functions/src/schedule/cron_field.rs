//! One field of a cron expression: a set of small numbers, from lists, ranges, steps and names. Pure.

use thiserror::Error;

/// Why a text is no field of a cron expression.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the field {field} of the cron expression is {text:?}: {why}")]
pub struct CronFieldError {
    field: &'static str,
    text: String,
    why: String,
}

/// What a field may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct CronField {
    /// Its name in messages.
    pub(super) name: &'static str,
    /// The least value.
    pub(super) least: u16,
    /// The greatest value.
    pub(super) most: u16,
    /// Names of values, from the least on.
    pub(super) names: &'static [&'static str],
}

pub(super) const MINUTES: CronField = CronField { name: "minutes", least: 0, most: 59, names: &[] };
pub(super) const HOURS: CronField = CronField { name: "hours", least: 0, most: 23, names: &[] };
pub(super) const DAY_OF_MONTH: CronField = CronField { name: "day-of-month", least: 1, most: 31, names: &[] };
pub(super) const MONTH: CronField = CronField {
    name: "month",
    least: 1,
    most: 12,
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
};
/// 1 is Sunday.
pub(super) const DAY_OF_WEEK: CronField =
    CronField { name: "day-of-week", least: 1, most: 7, names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"] };
pub(super) const YEAR: CronField = CronField { name: "year", least: 1970, most: 2199, names: &[] };

/// Some of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueSet {
    least: u16,
    /// A bit a value; the years are the most, 230.
    bits: [u64; 4],
}

impl ValueSet {
    const fn new(least: u16) -> Self {
        Self { least, bits: [0; 4] }
    }

    fn insert(&mut self, value: u16) {
        let bit = usize::from(value - self.least);
        self.bits[bit / 64] |= 1 << (bit % 64);
    }

    pub(super) fn contains(&self, value: u16) -> bool {
        let Some(bit) = value.checked_sub(self.least).map(usize::from) else { return false };
        self.bits.get(bit / 64).is_some_and(|bits| bits & (1 << (bit % 64)) != 0)
    }

    /// The least value that is `value` or greater.
    pub(super) fn at_least(&self, value: u16) -> Option<u16> {
        let from = value.max(self.least);
        (from..self.least + 256).find(|value| self.contains(*value))
    }
}

impl CronField {
    pub(super) fn error(self, text: &str, why: impl Into<String>) -> CronFieldError {
        CronFieldError { field: self.name, text: text.to_owned(), why: why.into() }
    }

    pub(super) const fn none(self) -> ValueSet {
        ValueSet::new(self.least)
    }

    /// A single value: a number or a name.
    pub(super) fn value(self, text: &str) -> Result<u16, CronFieldError> {
        let named = self.names.iter().position(|name| *name == text);
        let value = match named {
            Some(place) => Some(self.least + place as u16),
            None if text.bytes().all(|digit| digit.is_ascii_digit()) => text.parse().ok(),
            None => None,
        };
        value.filter(|value| (self.least..=self.most).contains(value)).ok_or_else(|| {
            let names = match (self.names.first(), self.names.last()) {
                (Some(first), Some(last)) => format!(", or {first} to {last}"),
                _ => String::new(),
            };
            self.error(text, format!("write a number from {} to {}{names}", self.least, self.most))
        })
    }

    /// Adds the values of one part of a list: `*`, `V`, `V-W`, each also with `/STEP`.
    pub(super) fn add(self, part: &str, to: &mut ValueSet) -> Result<(), CronFieldError> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let (first, last) = match (range, range.split_once('-')) {
            ("*", _) => (self.least, self.most),
            (_, Some((first, last))) => (self.value(first)?, self.value(last)?),
            (value, None) => {
                let value = self.value(value)?;
                (value, if step.is_some() { self.most } else { value })
            }
        };
        if first > last && self.name == YEAR.name {
            return Err(self.error(part, "a range of years goes from the lesser to the greater one"));
        }
        let step = match step.map(str::parse::<usize>) {
            None => 1,
            Some(Ok(step)) if step > 0 => step,
            Some(_) => return Err(self.error(part, "write a number above 0 behind the slash")),
        };
        // 22-2 goes on past midnight.
        let count = self.most - self.least + 1;
        let end = if first > last { last + count } else { last };
        (first..=end).step_by(step).for_each(|value| to.insert(self.least + (value - self.least) % count));
        Ok(())
    }

    /// The values of a whole list.
    pub(super) fn values(self, text: &str) -> Result<ValueSet, CronFieldError> {
        let mut values = self.none();
        text.split(',').try_for_each(|part| self.add(part, &mut values))?;
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(field: CronField, text: &str) -> Vec<u16> {
        let values = field.values(text).unwrap();
        (field.least..=field.most).filter(|value| values.contains(*value)).collect()
    }

    #[test]
    fn lists_ranges_steps_and_names_give_their_values() {
        assert_eq!(of(MINUTES, "1/20"), [1, 21, 41]);
        assert_eq!(of(MINUTES, "*/30"), [0, 30]);
        assert_eq!(of(MINUTES, "10-20/5,59"), [10, 15, 20, 59]);
        assert_eq!(of(MONTH, "JAN,3-5"), [1, 3, 4, 5]);
        assert_eq!(of(DAY_OF_WEEK, "MON-FRI"), [2, 3, 4, 5, 6]);
        assert_eq!(of(HOURS, "22-2"), [0, 1, 2, 22, 23]);
        assert_eq!(of(HOURS, "20-2/3"), [2, 20, 23]);
        assert_eq!(of(DAY_OF_WEEK, "FRI-MON"), [1, 2, 6, 7]);
        assert_eq!(of(YEAR, "2199,1970"), [1970, 2199]);
        assert_eq!(of(YEAR, "*").len(), 230);
        let hours = HOURS.values("8-17").unwrap();
        assert_eq!((hours.at_least(0), hours.at_least(9), hours.at_least(18)), (Some(8), Some(9), None));
        assert!(!hours.contains(300) && !YEAR.values("*").unwrap().contains(5000));
    }

    #[test]
    fn what_is_no_value_is_refused_with_the_way_to_write_it() {
        for (field, text, why) in [
            (MINUTES, "60", "from 0 to 59"),
            (HOURS, "-1", "from 0 to 23"),
            (MONTH, "JANUARY", "or JAN to DEC"),
            (DAY_OF_WEEK, "0", "from 1 to 7, or SUN to SAT"),
            (MINUTES, "*/0", "above 0"),
            (MINUTES, "5/x", "above 0"),
            (YEAR, "2027-2026", "lesser"),
            (HOURS, "", "from 0 to 23"),
            (HOURS, "1,,2", "from 0 to 23"),
            (YEAR, "1969", "from 1970 to 2199"),
        ] {
            let error = field.values(text).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(field.name), "{text}: {error}");
        }
    }
}
