//! Dates as HTTP writes them (RFC 9110, section 5.6.7).

use http::HeaderValue;
use nigh_terms::Timestamp;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

/// IMF-fixdate, the form that must be sent.
const FIXDATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");
/// RFC 850's form, which must be understood.
const RFC850: &[BorrowedFormatItem<'_>] = format_description!(
    "[weekday repr:long], [day]-[month repr:short]-[year repr:last_two] [hour]:[minute]:[second] GMT"
);
/// C's `asctime`, which must be understood.
const ASCTIME: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short] [month repr:short] [day padding:space] [hour]:[minute]:[second] [year]");

const DAYS: [&[u8; 3]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
const EPOCH: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

/// `when` in the form that must be sent. By hand, since every answer to a read carries one.
pub(crate) fn header(when: Timestamp) -> HeaderValue {
    let date = when.date();
    let mut text = *b"ddd, DD mmm YYYY HH:MM:SS GMT";
    let mut two = |at: usize, number: u8| {
        text[at] = b'0' + number / 10 % 10;
        text[at + 1] = b'0' + number % 10;
    };
    let year = date.year().clamp(0, 9999);
    two(5, date.day());
    two(12, (year / 100) as u8);
    two(14, (year % 100) as u8);
    two(17, date.hour());
    two(20, date.minute());
    two(23, date.second());
    text[..3].copy_from_slice(DAYS[usize::from(date.weekday().number_days_from_monday())]);
    text[8..11].copy_from_slice(MONTHS[usize::from(u8::from(date.month())) - 1]);
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static(EPOCH))
}

/// The date that `text` states in one of HTTP's three forms; none if it is in no form (a condition is then ignored,
/// RFC 9110 section 13.1.3) or before 1970.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let date = [FIXDATE, ASCTIME]
        .iter()
        .find_map(|form| PrimitiveDateTime::parse(text, form).ok())
        .or_else(|| parse_rfc850(text))?;
    timestamp(date.assume_utc())
}

/// A two-digit year is of this century: such dates name recent moments.
fn parse_rfc850(text: &str) -> Option<PrimitiveDateTime> {
    let mut parsed = time::parsing::Parsed::new();
    let rest = parsed.parse_items(text.as_bytes(), RFC850).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let year = i32::from(parsed.year_last_two()?) + 2000;
    parsed.set_year(year)?;
    parsed.try_into().ok()
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
