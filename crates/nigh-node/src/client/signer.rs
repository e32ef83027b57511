//! Signs requests with AWS Signature Version 4.

use http::Request;
use nigh_http::sigv4;
use nigh_terms::{Clock as _, SystemClock, hex};
use sha2::{Digest, Sha256};

use super::ClientError;
use crate::credentials::Credentials;

/// Signs for one service in one region.
pub(super) struct Signer(sigv4::Signer);

/// The payload's hash, as `x-amz-content-sha256` carries it.
pub(super) enum PayloadHash<'a> {
    /// The hash of these bytes.
    Of(&'a [u8]),
    /// The payload is not signed: its bytes are streamed and not known.
    Unsigned,
}

impl Signer {
    /// A signer with a client's key.
    pub(super) fn new(service: &str, region: &str, credentials: &Credentials) -> Self {
        let Credentials { access_key, secret_key, .. } = credentials;
        Self(sigv4::Signer::new(access_key.clone(), secret_key.clone(), service, region))
    }

    /// Adds the signature's headers to `request`, whose URI is in full and percent-encoded.
    pub(super) fn sign<B>(&self, request: Request<B>, hash: PayloadHash<'_>) -> Result<Request<B>, ClientError> {
        let (mut parts, body) = request.into_parts();
        let hash = match hash {
            PayloadHash::Of(bytes) => hex(&Sha256::digest(bytes)),
            PayloadHash::Unsigned => "UNSIGNED-PAYLOAD".to_owned(),
        };
        let hash = hash.parse().map_err(|_| ClientError::Request("the payload's hash is no header".to_owned()))?;
        parts.headers.insert("x-amz-content-sha256", hash);
        let signed = self.0.sign(&mut parts, SystemClock::new().wall());
        signed.map_err(|error| ClientError::Request(format!("the request cannot be signed: {error}")))?;
        Ok(Request::from_parts(parts, body))
    }
}
