//! Reads of objects whose signature is in their `Authorization` header, by far the most requests: verified and answered
//! without `s3s`.
//!
//! The signature is verified as at the other doors, with a signing key that is derived once a day and access key. Nothing
//! is refused here: what is not found right, `s3s` judges, and it words the refusal.

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Response};
use nigh_http::sigv4::{Authorization, RequestHead, SigningKeys};
use nigh_terms::{AccessKeyId, Clock, SystemClock};
use s3s::{Body, S3Response, S3Result};

use crate::auth::Secrets;
use crate::operations::Routes;
use crate::read::ReadExtension;

static CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
static DATE: HeaderName = HeaderName::from_static("x-amz-date");
/// What a request without a body says of it: nothing, or the SHA-256 of no bytes.
const PAYLOADS: [&str; 2] = ["UNSIGNED-PAYLOAD", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"];
const SERVICE: &str = "s3";

/// The reads of one door.
pub(crate) struct SignedReads {
    routes: Routes,
    secrets: Secrets,
    signing: SigningKeys,
    clock: SystemClock,
}

impl SignedReads {
    /// Those of a door which knows these secrets.
    pub(crate) fn new(routes: Routes, secrets: Secrets) -> Self {
        Self { routes, secrets, signing: SigningKeys::default(), clock: SystemClock::new() }
    }

    /// The access key that has signed a read without a body. None if that is not certain.
    pub(crate) fn signer(&self, reading: &ReadExtension, parts: &Parts) -> Option<AccessKeyId> {
        let headers = &parts.headers;
        let payload = only_one(headers, &CONTENT_SHA256).filter(|payload| PAYLOADS.contains(payload))?;
        only_one(headers, &DATE)?;
        let authorization = Authorization::parse(only_one(headers, &AUTHORIZATION)?).ok()?;
        authorization.check_claims(headers, SERVICE, self.clock.wall()).ok()?;
        let key = AccessKeyId::new(authorization.access_key);
        let secret = self.secrets.of(&key).filter(|_| !reading.is_presigned)?;
        let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
        let head = RequestHead { method: parts.method.as_str(), path, query, headers };
        authorization.check_signature(&head, &payload, &secret, &self.signing).ok()?;
        Some(key)
    }

    /// Answers a read that `key` has signed.
    pub(crate) async fn answer(
        &self,
        key: &AccessKeyId,
        reading: &ReadExtension,
        parts: &Parts,
    ) -> S3Result<Response<Body>> {
        let answer = self.routes.read(key, reading, parts.uri.query(), &parts.headers).await?;
        let S3Response { output, status, headers, extensions } = answer;
        let mut response = Response::new(output);
        *response.status_mut() = status.unwrap_or_default();
        (*response.headers_mut(), *response.extensions_mut()) = (headers, extensions);
        Ok(response)
    }
}

/// The value of a header; none if it is absent, comes twice, or is no text.
fn only_one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    value.to_str().ok().filter(|_| values.next().is_none())
}
