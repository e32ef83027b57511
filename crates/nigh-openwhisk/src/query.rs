//! The parameters in a request's query. Pure.

use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::error::WhiskError;
use super::limits::{LIST_DEFAULT, LIST_MAX, WAIT_MAX};

/// A query, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

impl Query {
    /// Decodes `text`, which is `application/x-www-form-urlencoded`.
    pub(super) fn of(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self(pairs.map(|(name, value)| (decoded(name), decoded(value))).collect())
    }

    /// All pairs, in their order.
    pub(super) fn into_pairs(self) -> Vec<(String, String)> {
        self.0
    }

    /// The value of `name`.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The flag `name`, or `or` if the query has none.
    pub(super) fn flag(&self, name: &str, or: bool) -> Result<bool, WhiskError> {
        match self.get(name) {
            None => Ok(or),
            Some(text) if ["true", "yes", "on", "1"].iter().any(|yes| text.eq_ignore_ascii_case(yes)) => Ok(true),
            Some(text) if ["false", "no", "off", "0"].iter().any(|no| text.eq_ignore_ascii_case(no)) => Ok(false),
            Some(_) => Err(WhiskError::bad_request(format!("The query parameter '{name}' is not a boolean."))),
        }
    }

    /// The wait for a blocking invocation.
    pub(super) fn wait(&self) -> Result<Duration, WhiskError> {
        let Some(text) = self.get("timeout") else { return Ok(WAIT_MAX) };
        let wait = text
            .parse()
            .map(Duration::from_millis)
            .ok()
            .filter(|wait| (1..=WAIT_MAX.as_millis()).contains(&wait.as_millis()));
        wait.ok_or_else(|| {
            let most = WAIT_MAX.as_millis();
            WhiskError::bad_request(format!("Timeout must be number of milliseconds up to {most}."))
        })
    }

    /// A date in milliseconds.
    pub(super) fn date(&self, name: &str) -> Result<Option<u64>, WhiskError> {
        let date = self.get(name).map(|text| {
            text.parse().map_err(|_| {
                WhiskError::bad_request(format!("Parameter is not a valid value for epoch seconds: {text}"))
            })
        });
        date.transpose()
    }

    /// The requested part of a list.
    pub(super) fn page(&self, collection: &str) -> Result<Page, WhiskError> {
        let number = |name: &str, or: usize| match self.get(name) {
            None => Ok(or as i64),
            Some(text) => text.parse::<i64>().map_err(|_| {
                WhiskError::bad_request(format!("The value '{text}' is not an integer for {collection}."))
            }),
        };
        let (skip, limit) = (number("skip", 0)?, number("limit", LIST_DEFAULT)?);
        if !(0..=LIST_MAX as i64).contains(&limit) {
            return Err(WhiskError::bad_request(format!(
                "The value '{limit}' is not in the range of 0 to {LIST_MAX} for {collection}."
            )));
        }
        if skip < 0 {
            return Err(WhiskError::bad_request(format!(
                "The value '{skip}' is not greater than or equal to 0 for {collection}."
            )));
        }
        // Zero asks for as many as possible.
        let limit = if limit == 0 { LIST_MAX } else { limit.unsigned_abs() as usize };
        Ok(Page { skip: skip.unsigned_abs() as usize, limit, count: self.flag("count", false)? })
    }
}

/// A part of a list, or the length of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) skip: usize,
    pub(super) limit: usize,
    pub(super) count: bool,
}

impl Page {
    /// The items of `all` in this part.
    pub(super) fn of<T>(&self, all: impl IntoIterator<Item = T>) -> Vec<T> {
        all.into_iter().skip(self.skip).take(self.limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_it_says_or_is_refused() {
        let query = Query::of("blocking=TRUE&x=a%20b+c&timeout=5000&empty");
        assert_eq!((query.flag("blocking", false), query.flag("result", false)), (Ok(true), Ok(false)));
        assert_eq!((query.get("x"), query.get("empty")), (Some("a b c"), Some("")));
        assert_eq!(query.wait(), Ok(Duration::from_secs(5)));
        assert_eq!(Query::default().wait(), Ok(WAIT_MAX));
        for bad in ["timeout=0", "timeout=60001", "timeout=x", "timeout=-1"] {
            assert!(Query::of(bad).wait().is_err(), "{bad}");
        }
        assert!(Query::of("blocking=maybe").flag("blocking", false).is_err());
    }

    #[test]
    fn a_page_has_thirty_items_if_nothing_is_said_and_two_hundred_at_most() {
        let page = |text: &str| Query::of(text).page("actions");
        assert_eq!(page(""), Ok(Page { skip: 0, limit: 30, count: false }));
        assert_eq!(page("limit=0&skip=2&count=true"), Ok(Page { skip: 2, limit: 200, count: true }));
        for bad in ["limit=201", "limit=-1", "skip=-1", "limit=x"] {
            assert!(page(bad).is_err(), "{bad}");
        }
        assert_eq!(page("limit=2&skip=1").unwrap().of(0..9), [1, 2]);
    }
}
