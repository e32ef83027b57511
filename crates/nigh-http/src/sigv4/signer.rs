//! Signs the requests of clients.

use http::HeaderValue;
use http::header::{AUTHORIZATION, HOST, HeaderName};
use http::request::Parts;
use nigh_terms::{AccessKeyId, Hex, SecretKey, Timestamp};

use super::{ALGORITHM, DATE, RequestHead, S3, STAMP, SignatureError, canonical_request, derived, signature};

const DIGEST: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Signs with one key, for one service in one region.
#[derive(Clone, Debug)]
pub struct Signer {
    access_key: AccessKeyId,
    secret_key: SecretKey,
    service: String,
    region: String,
}

impl Signer {
    /// A signer for `service`, such as `s3` or `lambda`.
    pub fn new(access_key: AccessKeyId, secret_key: SecretKey, service: &str, region: &str) -> Self {
        Self { access_key, secret_key, service: service.to_owned(), region: region.to_owned() }
    }

    /// Adds `host`, the date and the signature of all headers to `head`, whose URI has its host and is percent-encoded.
    /// The body is signed if `x-amz-content-sha256` has its digest.
    ///
    /// # Errors
    /// If the URI has no host, or a header or the access key is not ASCII.
    pub fn sign(&self, head: &mut Parts, now: Timestamp) -> Result<(), SignatureError> {
        let incomplete = SignatureError::Incomplete;
        let ascii =
            |text: &str| HeaderValue::from_str(text).map_err(|_| incomplete("a header to be signed is not ASCII"));
        let host = head.uri.authority().ok_or(incomplete("the request has no host"))?;
        let stamp = now.date().format(STAMP).map_err(|_| incomplete("the date has no text"))?;
        head.headers.insert(HOST, ascii(host.as_str())?);
        head.headers.insert(DATE, ascii(&stamp)?);
        head.headers.entry(DIGEST).or_insert(HeaderValue::from_static(UNSIGNED));

        let mut names: Vec<&str> = head.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let request = RequestHead {
            method: head.method.as_str(),
            path: head.uri.path(),
            query: head.uri.query().unwrap_or(""),
            headers: &head.headers,
        };
        let payload = head.headers[DIGEST].to_str().unwrap_or(UNSIGNED);
        let canonical = canonical_request(&request, &names, &payload, self.service == S3)?;
        let scope: [&str; 3] = [&stamp[..8], &self.region, &self.service];
        let signature = signature(&derived(&self.secret_key, scope), &stamp, scope, &canonical);
        let mut authorization = ascii(&format!(
            "{ALGORITHM} Credential={}/{}/aws4_request, SignedHeaders={}, Signature={}",
            self.access_key.as_str(),
            scope.join("/"),
            names.join(";"),
            Hex(&hmac::Mac::finalize(signature).into_bytes())
        ))?;
        authorization.set_sensitive(true);
        head.headers.insert(AUTHORIZATION, authorization);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::sigv4::{Authorization, SigningKeys};

    fn signer(service: &str) -> Signer {
        let secret = SecretKey::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        Signer::new(AccessKeyId::new("AKIAIOSFODNN7EXAMPLE"), secret, service, "us-east-1")
    }

    /// "Signature Calculations for the Authorization Header" in the Amazon S3 API Reference.
    #[test]
    fn the_examples_of_the_s3_reference_are_signed_as_there() {
        let empty = Hex(&Sha256::digest("")).to_string();
        let written = Hex(&Sha256::digest("Welcome to Amazon S3.")).to_string();
        for (method, target, headers, signature) in [
            (
                "GET",
                "/test.txt",
                vec![("range", "bytes=0-9"), ("x-amz-content-sha256", &*empty)],
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "PUT",
                "/test%24file.text",
                vec![
                    ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                    ("x-amz-content-sha256", &*written),
                ],
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                "GET",
                "/?lifecycle",
                vec![("x-amz-content-sha256", &*empty)],
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "GET",
                "/?max-keys=2&prefix=J",
                vec![("x-amz-content-sha256", &*empty)],
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let mut request = Request::builder().method(method);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let uri = format!("https://examplebucket.s3.amazonaws.com{target}");
            let (mut head, ()) = request.uri(uri).body(()).unwrap().into_parts();
            // 2013-05-24T00:00:00Z.
            signer("s3").sign(&mut head, Timestamp(1_369_353_600_000)).unwrap();
            assert_eq!(Hex(&Authorization::of(&head.headers).unwrap().signature).to_string(), signature, "{target}");
        }
    }

    #[test]
    fn a_signed_request_is_verified_for_every_service() {
        let now = Timestamp(1_704_164_645_000);
        for service in ["s3", "lambda", "states"] {
            let digest: [u8; 32] = Sha256::digest("body").into();
            let request = Request::post("http://127.0.0.1:9100/a%20b//c?x=1&a=%2F")
                .header("x-amz-content-sha256", Hex(&digest).to_string())
                .header("x-amz-meta-two", "  one   value ");
            let (mut head, ()) = request.body(()).unwrap().into_parts();
            signer(service).sign(&mut head, now).unwrap();
            let authorization = Authorization::of(&head.headers).unwrap();
            authorization.check_claims(&head.headers, service, now).unwrap();
            let signed = RequestHead { method: "POST", path: "/a%20b//c", query: "x=1&a=%2F", headers: &head.headers };
            let keys = SigningKeys::default();
            for _ in 0..2 {
                authorization.check_signature(&signed, &Hex(&digest), &signer(service).secret_key, &keys).unwrap();
            }
        }
    }
}
