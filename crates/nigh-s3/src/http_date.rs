//! Dates as HTTP writes them (RFC 9110, section 5.6.7), and the moments that they name.

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderValue;
use nigh_terms::Timestamp;
use time::OffsetDateTime;

/// Written for a moment whose year has more than four digits.
const EPOCH: &str = "Thu, 01 Jan 1970 00:00:00 GMT";
/// The last second of the year 9999, behind which HTTP has no form.
const LAST_SECOND: u64 = 253_402_300_799;

/// `when` in the form that must be sent.
pub(crate) fn header(when: Timestamp) -> HeaderValue {
    let second = Duration::from_secs((when.0 / 1000).min(LAST_SECOND));
    let text = httpdate::fmt_http_date(UNIX_EPOCH + second);
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(EPOCH))
}

/// The date that `text` states in one of HTTP's three forms; none if it is in no form (a condition is then ignored,
/// RFC 9110 section 13.1.3) or before 1970.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let since = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok().map(Timestamp)
}

/// The same moment as milliseconds since 1970; none if before.
pub(crate) fn timestamp(date: OffsetDateTime) -> Option<Timestamp> {
    u64::try_from(date.unix_timestamp_nanos() / 1_000_000).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_reads_the_same_in_all_three_forms() {
        let moment = Some(Timestamp(784_111_777_000));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), moment);
        assert_eq!(parse("Sun Nov  6 08:49:37 1994"), moment);
        assert_eq!(parse("Tuesday, 21-Nov-23 08:49:37 GMT"), parse("Tue, 21 Nov 2023 08:49:37 GMT"));
        assert!(parse("Tuesday, 21-Nov-23 08:49:37 GMT").is_some());
        for bad in ["", "yesterday", "Sun, 06 Nov 1994 08:49:37", "06 Nov 1994", "Sun, 36 Nov 1994 08:49:37 GMT"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_date_reads_back_as_it_was_written(second in 0u64..4_102_444_800) {
            let when = Timestamp(second * 1000);
            let text = header(when);
            proptest::prop_assert_eq!(parse(text.to_str().unwrap()), Some(when));
        }
    }
}
