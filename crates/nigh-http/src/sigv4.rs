//! Signature Version 4: verifies requests for every door (at S3's the reads of objects; its library verifies all else by
//! itself), and signs the requests of clients.
//!
//! Pure but for the signing keys that are kept: the time and the secret are arguments. The signature is in the
//! `Authorization` header; signatures in query parameters are rejected. The canonical form follows "Create a signed AWS API request" of the IAM
//! User Guide: the path is encoded once for S3, twice for every other service.

mod authorization;
mod canonical;
mod hex;
mod signer;
mod signing_keys;

use std::fmt::Display;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use http::header::HOST;
use nigh_terms::{Hex, SecretKey, Timestamp};
use sha2::{Digest, Sha256};
use thiserror::Error;
use time::PrimitiveDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

pub use self::authorization::Authorization;
use self::canonical::canonical_request;
pub use self::signer::Signer;
pub use self::signing_keys::SigningKeys;
use self::signing_keys::derived;

/// How far the signer's clock may be from ours, either way.
pub const SKEW_MAX: Duration = Duration::from_secs(5 * 60);

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The service whose paths are encoded once.
const S3: &str = "s3";
const DATE: &str = "x-amz-date";
const STAMP: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");

/// Why a signature is rejected, or cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// No signature at all.
    #[error("the request carries no Authorization header; sign it with an access key of this node")]
    Missing,
    /// The request or its signature lacks a part that Signature Version 4 needs.
    #[error("the signature is incomplete: {0}")]
    Incomplete(&'static str),
    /// Signed for another service or day.
    #[error("the credential is scoped to {found}; it should be {expected}")]
    Scope {
        /// The scope of the signature.
        found: String,
        /// The scope that this door accepts.
        expected: String,
    },
    /// Signed too long ago.
    #[error("Signature expired: {signed} is now earlier than {earliest} (5 min. before the node's clock)")]
    Expired {
        /// The time in the signature.
        signed: String,
        /// The earliest time that is accepted now.
        earliest: String,
    },
    /// Signed in the future.
    #[error("Signature not yet current: {signed} is still later than {latest} (5 min. after the node's clock)")]
    NotYetCurrent {
        /// The time in the signature.
        signed: String,
        /// The latest time that is accepted now.
        latest: String,
    },
    /// Another secret signed it, or the request was changed on its way.
    #[error(
        "The request signature we calculated does not match the signature you provided; check the secret access key \
         and the signing method"
    )]
    Mismatch,
}

/// The head of a request, as it came over the wire.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method, in capitals.
    pub method: &'a str,
    /// The path, percent-encoded as received.
    pub path: &'a str,
    /// The query, percent-encoded as received, without `?`.
    pub query: &'a str,
    /// All headers.
    pub headers: &'a HeaderMap,
}

impl Authorization<'_> {
    /// Checks what is known before the body arrives: scope, date, and the headers that must be signed.
    ///
    /// # Errors
    /// The first claim that does not hold.
    pub fn check_claims(&self, headers: &HeaderMap, service: &str, now: Timestamp) -> Result<(), SignatureError> {
        let stamp = signing_time(headers)?;
        if self.service != service || !stamp.starts_with(self.date) || self.date.len() != 8 {
            let found = format!("{}/{}/{}", self.date, self.region, self.service);
            let expected = format!("{}/{}/{service}", &stamp[..8], self.region);
            return Err(SignatureError::Scope { found, expected });
        }
        let signed = PrimitiveDateTime::parse(stamp, STAMP)
            .map_err(|_| SignatureError::Incomplete("X-Amz-Date is no date"))?
            .assume_utc();
        let print = |date: time::OffsetDateTime| date.format(STAMP).unwrap_or_default();
        let (earliest, latest) = (now.date() - SKEW_MAX, now.date() + SKEW_MAX);
        if signed < earliest {
            return Err(SignatureError::Expired { signed: stamp.to_owned(), earliest: print(earliest) });
        }
        if signed > latest {
            return Err(SignatureError::NotYetCurrent { signed: stamp.to_owned(), latest: print(latest) });
        }
        let covers = |name: &str| self.signed_headers.binary_search(&name).is_ok();
        if !covers(HOST.as_str()) {
            return Err(SignatureError::Incomplete("the Host header is not signed"));
        }
        if !headers.keys().filter(|name| name.as_str().starts_with("x-amz-")).all(|name| covers(name.as_str())) {
            return Err(SignatureError::Incomplete("an X-Amz- header is not signed"));
        }
        Ok(())
    }

    /// Checks that `secret` signed this request with this payload: the SHA-256 of the body in hexadecimal digits, or the
    /// word that says that the body is not signed. The time of the check does not depend on where the signatures differ.
    ///
    /// # Errors
    /// `Mismatch` if `secret` did not sign it; `Incomplete` if a signed header is absent.
    pub fn check_signature(
        &self,
        request: &RequestHead<'_>,
        payload: &dyn Display,
        secret: &SecretKey,
        keys: &SigningKeys,
    ) -> Result<(), SignatureError> {
        let canonical = canonical_request(request, &self.signed_headers, payload, self.service == S3)?;
        let scope = [self.date, self.region, self.service];
        let stamp = signing_time(request.headers)?;
        let is_signed = keys.check((self.access_key, secret), scope, |key| {
            signature(key, stamp, scope, &canonical).verify_slice(&self.signature).is_ok()
        });
        if is_signed { Ok(()) } else { Err(SignatureError::Mismatch) }
    }
}

fn signing_time(headers: &HeaderMap) -> Result<&str, SignatureError> {
    let stamp = headers.get(DATE).ok_or(SignatureError::Incomplete("there is no X-Amz-Date header"))?;
    let stamp = stamp.to_str().map_err(|_| SignatureError::Incomplete("X-Amz-Date is no date"))?;
    if stamp.len() != 16 {
        return Err(SignatureError::Incomplete("X-Amz-Date is not YYYYMMDDTHHMMSSZ"));
    }
    Ok(stamp)
}

/// The signature of a signing key over a canonical request, not finalized. `scope` is date, region and service.
fn signature(key: &[u8; 32], stamp: &str, scope: [&str; 3], canonical: &str) -> Hmac<Sha256> {
    let [date, region, service] = scope;
    let digest = Sha256::digest(canonical);
    let text = format!("{ALGORITHM}\n{stamp}\n{date}/{region}/{service}/aws4_request\n{}", Hex(&digest));
    mac(key, text.as_bytes())
}

fn mac(key: &[u8], message: &[u8]) -> Hmac<Sha256> {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length (RFC 2104)")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    /// Signed by botocore 1.43.11 at this time with this secret: a known answer from an independent signer.
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    const NOW: Timestamp = Timestamp(1_704_164_645_000);
    const PATH: &str =
        "/2015-03-31/functions/arn%3Aaws%3Alambda%3Aus-east-1%3A000000000000%3Afunction%3Ahello/invocations";
    const QUERY: &str = "Qualifier=%24LATEST&b=2&a=x%20y";
    const BODY: &[u8] = b"{\"a\": 1}";

    fn headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
        set("host", "127.0.0.1:9100");
        set("x-amz-log-type", "Tail");
        set("x-amz-client-context", "  a   b ");
        set("x-amz-date", "20240102T030405Z");
        set(
            "authorization",
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20240102/eu-west-3/lambda/aws4_request, \
             SignedHeaders=host;x-amz-client-context;x-amz-date;x-amz-log-type, \
             Signature=45eab6131d462b02fada204a078071159f5171d7b03a6f837abf7f6376450a54",
        );
        headers
    }

    fn verify(
        (method, path, query): (&str, &str, &str),
        headers: &HeaderMap,
        body: &[u8],
        secret: &str,
        now: Timestamp,
    ) -> Result<(), SignatureError> {
        let authorization = Authorization::of(headers)?;
        authorization.check_claims(headers, "lambda", now)?;
        let head = RequestHead { method, path, query, headers };
        authorization.check_signature(
            &head,
            &Hex(&Sha256::digest(body)),
            &SecretKey::new(secret),
            &SigningKeys::default(),
        )
    }

    #[test]
    fn what_botocore_signs_is_taken_and_any_change_to_it_is_not() {
        let good = headers();
        assert_eq!(verify(("POST", PATH, QUERY), &good, BODY, SECRET, NOW), Ok(()));
        assert_eq!(verify(("POST", PATH, "a=x%20y&b=2&Qualifier=$LATEST"), &good, BODY, SECRET, NOW), Ok(()));

        let mismatch = Err(SignatureError::Mismatch);
        assert_eq!(verify(("PUT", PATH, QUERY), &good, BODY, SECRET, NOW), mismatch);
        assert_eq!(verify(("POST", &PATH.replace("hello", "hellp"), QUERY), &good, BODY, SECRET, NOW), mismatch);
        assert_eq!(verify(("POST", PATH, "b=2"), &good, BODY, SECRET, NOW), mismatch);
        assert_eq!(verify(("POST", PATH, QUERY), &good, b"{\"a\": 2}", SECRET, NOW), mismatch);
        assert_eq!(verify(("POST", PATH, QUERY), &good, BODY, "another", NOW), mismatch);
        let mut other_log_type = good.clone();
        other_log_type.insert("x-amz-log-type", HeaderValue::from_static("None"));
        assert_eq!(verify(("POST", PATH, QUERY), &other_log_type, BODY, SECRET, NOW), mismatch);
    }

    #[test]
    fn a_signature_is_taken_for_five_minutes_before_and_after_its_date() {
        let at = |seconds: i64| {
            let now = Timestamp((NOW.millis() as i64 + seconds * 1000) as u64);
            verify(("POST", PATH, QUERY), &headers(), BODY, SECRET, now)
        };
        assert_eq!(at(300), Ok(()));
        assert_eq!(at(-300), Ok(()));
        assert!(matches!(at(301), Err(SignatureError::Expired { .. })));
        assert!(matches!(at(-301), Err(SignatureError::NotYetCurrent { .. })));
        // A date of this machine that has jumped by an hour; it holds again when the date is right again.
        assert!(matches!(at(3600), Err(SignatureError::Expired { .. })));
        assert!(matches!(at(-3600), Err(SignatureError::NotYetCurrent { .. })));
        assert_eq!(at(0), Ok(()));
    }

    #[test]
    fn every_amz_header_must_be_signed_so_that_none_can_be_added() {
        let mut added = headers();
        added.insert("x-amz-invocation-type", HeaderValue::from_static("DryRun"));
        let result = verify(("POST", PATH, QUERY), &added, BODY, SECRET, NOW);
        assert_eq!(result, Err(SignatureError::Incomplete("an X-Amz- header is not signed")));
    }

    #[test]
    fn a_signature_for_another_service_or_day_is_refused_with_the_right_scope() {
        for (from, to) in [("/lambda/", "/s3/"), ("/20240102/", "/20240101/")] {
            let mut other = headers();
            let text = other["authorization"].to_str().unwrap().replace(from, to);
            other.insert("authorization", text.parse().unwrap());
            let result = verify(("POST", PATH, QUERY), &other, BODY, SECRET, NOW);
            let Err(SignatureError::Scope { expected, .. }) = result else { panic!("{result:?}") };
            assert_eq!(expected, "20240102/eu-west-3/lambda");
        }
    }

    #[test]
    fn half_a_header_is_incomplete_and_none_is_missing() {
        assert_eq!(Authorization::of(&HeaderMap::new()), Err(SignatureError::Missing));
        let whole = headers();
        let whole = whole["authorization"].to_str().unwrap();
        assert!(Authorization::parse(whole).is_ok());
        for cut in 0..whole.len() {
            assert!(matches!(Authorization::parse(&whole[..cut]), Err(SignatureError::Incomplete(_))), "{cut}");
        }
        for bad in [
            whole.replace("host;", "Host;"),
            whole.replace("host;x-amz-client-context", "x-amz-client-context;host"),
            whole.replace("host;", "host;host;"),
            whole.replace("aws4_request", "aws5_request"),
            whole.replace("Signature=", "Signature=zz"),
            format!("{whole}, Signature=00"),
            format!("{whole}, Unknown=1"),
            whole.replace("AKIDEXAMPLE", &"A".repeat(5000)),
        ] {
            assert!(matches!(Authorization::parse(&bad), Err(SignatureError::Incomplete(_))), "{bad}");
        }
    }
}
