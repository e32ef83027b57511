//! The date of a signature, where the client states it in `Date`.
//!
//! Signature Version 4 takes it from `x-amz-date` or, where that is absent, from `Date` (IAM User Guide, "Elements of an
//! AWS API request signature"); botocore signs so when a request has a `Date`. `s3s` (0.14.1) reads `x-amz-date` only.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use nigh_terms::Timestamp;
use time::format_description::well_known::Rfc2822;
use time::{OffsetDateTime, PrimitiveDateTime};

use crate::conditions::text;
use crate::http_date;
use crate::screen::{is_signed, signed_header_names};

static AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
/// How `x-amz-date` is written.
const BASIC: &[time::format_description::BorrowedFormatItem<'_>] =
    time::macros::format_description!("[year][month][day]T[hour][minute][second]Z");

/// Gives a request that is signed with `Date` an `x-amz-date` that states the same second. The string to sign has this
/// text, so that the signature matches only if the client has signed with that very second.
pub(crate) fn complete(headers: &mut HeaderMap) {
    if headers.contains_key(&AMZ_DATE) {
        return;
    }
    if let Some(date) = date_of_signature(headers) {
        headers.insert(AMZ_DATE.clone(), date);
    }
}

fn date_of_signature(headers: &HeaderMap) -> Option<HeaderValue> {
    let authorization = text(headers, &header::AUTHORIZATION)?;
    let names = signed_header_names(authorization)?;
    if !authorization.starts_with("AWS4-") || !is_signed(names, header::DATE.as_str()) {
        return None;
    }
    let date = parse(text(headers, &header::DATE)?)?;
    HeaderValue::try_from(date.format(BASIC).ok()?).ok()
}

/// In one of the three forms of HTTP, in that of mail (`-0000` for `GMT`, as Python writes it), or as `x-amz-date` is.
fn parse(date: &str) -> Option<OffsetDateTime> {
    http_date::parse(date)
        .map(Timestamp::date)
        .or_else(|| OffsetDateTime::parse(date, &Rfc2822).ok())
        .or_else(|| PrimitiveDateTime::parse(date, BASIC).ok().map(PrimitiveDateTime::assume_utc))
        .map(|date| date.to_offset(time::UtcOffset::UTC))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=K/20250101/r/s3/aws4_request, \
                          SignedHeaders=date;host;x-amz-content-sha256, Signature=00";

    fn completed(fields: &[(&'static str, &str)]) -> Option<String> {
        let mut headers: HeaderMap =
            fields.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        complete(&mut headers);
        headers.get(&AMZ_DATE).map(|date| date.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_signed_date_in_any_form_is_the_signature_s() {
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 -0000",
            "Sun, 06 Nov 1994 10:49:37 +0200",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "19941106T084937Z",
        ] {
            let completed = completed(&[("authorization", SIGNED), ("date", date)]);
            assert_eq!(completed.as_deref(), Some("19941106T084937Z"), "{date}");
        }
    }

    #[test]
    fn no_other_date_becomes_the_signature_s() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let unsigned = SIGNED.replace("date;", "");
        for fields in [
            &[date][..],
            &[("authorization", SIGNED)],
            &[("authorization", SIGNED), ("date", "yesterday")],
            &[("authorization", &unsigned), date],
            &[("authorization", "Bearer x"), date],
        ] {
            assert_eq!(completed(fields), None, "{fields:?}");
        }
        let given = [("authorization", SIGNED), date, ("x-amz-date", "20250101T000000Z")];
        assert_eq!(completed(&given).as_deref(), Some("20250101T000000Z"));
    }
}
