//! Dates in definitions and inputs: RFC 3339 with a capital `T` and `Z`. Pure.

use nigh_terms::Timestamp;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Parses a date; none if `text` is none.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    if text.bytes().any(|letter| matches!(letter, b't' | b'z')) {
        return None;
    }
    let date = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(date.unix_timestamp_nanos() / 1_000_000).ok().map(Timestamp)
}
