//! Signs requests with AWS Signature Version 4.

use http::Request;
use reqsign_aws_v4::{Credential, RequestSigner};
use reqsign_core::{Context, SignRequest};
use sha2::{Digest, Sha256};

use super::ClientError;
use crate::credentials::Credentials;

/// Signs for one service in one region.
pub(super) struct Signer {
    context: Context,
    signer: RequestSigner,
    credential: Credential,
}

/// The payload's hash, as `x-amz-content-sha256` carries it.
pub(super) enum PayloadHash<'a> {
    /// Of these bytes.
    Of(&'a [u8]),
    /// Not signed: the bytes stream and are not known.
    Unsigned,
}

impl Signer {
    /// A signer with a client's key.
    pub(super) fn new(service: &str, region: &str, credentials: &Credentials) -> Self {
        Self {
            context: Context::new(),
            signer: RequestSigner::new(service, region),
            credential: Credential {
                access_key_id: credentials.access_key.as_str().to_owned(),
                secret_access_key: credentials.secret_key.reveal().to_owned(),
                session_token: None,
                expires_in: None,
            },
        }
    }

    /// Adds the signature's headers to `request`, whose URI is in full and percent-encoded.
    pub(super) async fn sign<B>(&self, request: Request<B>, hash: PayloadHash<'_>) -> Result<Request<B>, ClientError> {
        let (mut parts, body) = request.into_parts();
        let hash = match hash {
            PayloadHash::Of(bytes) => Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect(),
            PayloadHash::Unsigned => "UNSIGNED-PAYLOAD".to_owned(),
        };
        let hash = hash.parse().map_err(|_| ClientError::Request("the payload's hash is no header".to_owned()))?;
        parts.headers.insert("x-amz-content-sha256", hash);
        self.signer
            .sign_request(&self.context, &mut parts, Some(&self.credential), None)
            .await
            .map_err(|error| ClientError::Request(format!("signing: {error}")))?;
        Ok(Request::from_parts(parts, body))
    }
}
