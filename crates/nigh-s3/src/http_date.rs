//! HTTP's dates (RFC 9110, section 5.6.7).

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderValue;
use nigh_terms::Timestamp;
use time::OffsetDateTime;

/// Written instead of a date that cannot be a header's value.
const EPOCH: &str = "Thu, 01 Jan 1970 00:00:00 GMT";
/// The last second of the year 9999, in seconds since 1970. HTTP cannot express a later date.
const LAST_SECOND: u64 = 253_402_300_799;

/// `when` in the form that must be sent. A date after the year 9999 becomes the last second of 9999.
pub(crate) fn header(when: Timestamp) -> HeaderValue {
    let second = Duration::from_secs((when.0 / 1000).min(LAST_SECOND));
    let text = httpdate::fmt_http_date(UNIX_EPOCH + second);
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(EPOCH))
}

/// The date that `text` states in one of HTTP's three forms. None if it has none of these forms or is before 1970; a
/// condition with such a date is ignored (RFC 9110 section 13.1.3).
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let since = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok().map(Timestamp)
}

/// `date` in milliseconds since 1970. None if it is before 1970.
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
