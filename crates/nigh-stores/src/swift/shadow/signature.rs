//! The signature by which Swift's middleware recognises Nigh. Pure: time and nonce are arguments.
//!
//! Follows `integrations/swift/README.md`, "Signatures". Each attempt at a request has its own signature, because a nonce is
//! valid once.

use hmac::{Hmac, KeyInit, Mac};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use nigh_terms::SecretKey;
use nigh_terms::hex;
use percent_encoding::percent_decode_str;
use sha2::Sha256;

use crate::wire::encode_path;

/// The first line of the signed text: the direction and the format.
const TO_SWIFT: &str = "nigh-swift-request-1";
/// The prefix of signed headers.
const PREFIX: &str = "x-nigh-";
/// Signed instead of the body's digest, because tags identify a payload.
const NO_BODY: &str = "-";
/// The header with the operation.
pub(in crate::swift) const OPERATION: HeaderName = HeaderName::from_static("x-nigh-op");
const DATE: HeaderName = HeaderName::from_static("x-nigh-date");
const NONCE: HeaderName = HeaderName::from_static("x-nigh-nonce");
const SIGNATURE: HeaderName = HeaderName::from_static("x-nigh-signature");
/// The operation of a request that Nigh sends but that is not part of the protocol.
const OWN: HeaderValue = HeaderValue::from_static("own");
/// The shortest secret that the middleware accepts, in bytes.
const SECRET_BYTES_MIN: usize = 32;

/// Signs requests with the middleware's secret.
#[derive(Clone, Debug)]
pub(in crate::swift) struct Signer(SecretKey);

impl Signer {
    /// Creates a signer. None if the secret is too short for the middleware.
    pub(in crate::swift) fn new(secret: SecretKey) -> Option<Self> {
        (secret.reveal().trim().len() >= SECRET_BYTES_MIN).then_some(Self(secret))
    }

    /// Signs `head`, whose URI is complete, at `now_s` (seconds since 1970), with an unused nonce.
    pub(in crate::swift) fn sign(&self, head: &mut Parts, now_s: u64, nonce: &str) {
        head.headers.entry(OPERATION).or_insert(OWN);
        head.headers.insert(DATE, HeaderValue::from(now_s));
        if let Ok(nonce) = HeaderValue::from_str(nonce) {
            head.headers.insert(NONCE, nonce);
        }
        head.headers.remove(SIGNATURE);
        let path = head.uri.path();
        // Swift's own filters change the query of a listing on its way to the middleware.
        let query = head.uri.query().filter(|_| names_object(path)).unwrap_or_default();
        let text = canonical(head.method.as_str(), path, query, &head.headers);
        #[expect(clippy::expect_used, reason = "an HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.reveal().trim().as_bytes()).expect("any length");
        mac.update(text.as_bytes());
        // Hexadecimal digits are valid in a header.
        if let Ok(mut signature) = HeaderValue::from_str(&hex(&mac.finalize().into_bytes())) {
            signature.set_sensitive(true);
            head.headers.insert(SIGNATURE, signature);
        }
    }
}

/// Returns true if the path is `/v1/account/container/object`.
fn names_object(path: &str) -> bool {
    path.splitn(5, '/').nth(4).is_some_and(|object| !object.is_empty())
}

fn canonical(method: &str, path: &str, query: &str, headers: &HeaderMap) -> String {
    let mut signed: Vec<(&str, &str)> = headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with(PREFIX))
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default().trim()))
        .collect();
    signed.sort_unstable();
    // One encoded form, because a client may send characters such as `+` unencoded.
    let path = encode_path(&percent_decode_str(path).decode_utf8_lossy());
    let mut lines = vec![TO_SWIFT.to_owned(), method.to_owned(), path, query.to_owned(), NO_BODY.to_owned()];
    lines.extend(signed.iter().map(|(name, value)| format!("{name}:{value}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_documents_example() {
        let signer = Signer::new(SecretKey::new("0123456789abcdef0123456789abcdef")).unwrap();
        let request = http::Request::put("http://swift:8080/v1/AUTH_test/c/a%20b")
            .header("x-nigh-version", "1.7")
            .header("x-nigh-op", "push")
            .header("x-auth-token", "not signed");
        let mut head = request.body(()).unwrap().into_parts().0;
        for _ in 0..2 {
            // Signing again gives the same result, because an earlier signature is not part of what is signed.
            signer.sign(&mut head, 1_700_000_000, "abcdefghijklmnopqrstuvwx");
            let expected = "68ab4b433c3a2abc2ec1df2b39bd40fe592a090b7e19eff613e319dd1e44851f";
            assert_eq!(head.headers[SIGNATURE], expected);
        }
    }

    #[test]
    fn a_path_is_signed_in_one_form_and_the_query_of_a_listing_not_at_all() {
        let signer = Signer::new(SecretKey::new("0123456789abcdef0123456789abcdef")).unwrap();
        let signature = |url: &str| {
            let mut head = http::Request::get(url).body(()).unwrap().into_parts().0;
            signer.sign(&mut head, 1, "abcdefghijklmnopqrstuvwx");
            head.headers[SIGNATURE].clone()
        };
        assert_eq!(signature("http://s/v1/a/c?prefix=x"), signature("http://s/v1/a/c?format=json"));
        assert_ne!(signature("http://s/v1/a/c/o?x=1"), signature("http://s/v1/a/c/o"));
        assert_eq!(signature("http://s/v1/a/c+d"), signature("http://s/v1/a/c%2Bd"));
    }

    #[test]
    fn what_is_no_operation_is_signed_as_a_plain_request_and_short_secrets_are_refused() {
        let signer = Signer::new(SecretKey::new("0123456789abcdef0123456789abcdef\n")).unwrap();
        let mut head = http::Request::get("http://swift/v1/a/c?format=json").body(()).unwrap().into_parts().0;
        signer.sign(&mut head, 1, "abcdefghijklmnopqrstuvwx");
        assert_eq!(head.headers[OPERATION], "own");
        assert!(!format!("{head:?}").contains(head.headers[SIGNATURE].to_str().unwrap()));
        assert!(Signer::new(SecretKey::new("short")).is_none());
    }
}
