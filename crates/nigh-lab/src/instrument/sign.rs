//! Requests signed by AWS Signature Version 4, as the bytes that go over the wire.
//!
//! A load sends the same bytes again and again: a signature holds for minutes, so signing costs the client nothing.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderValue, Method, Request};
use reqsign_aws_v4::{Credential, RequestSigner};
use reqsign_core::{Context, SignRequest};
use sha2::{Digest, Sha256};

use crate::LabError;

/// How long a prepared request may be used.
const VALID: Duration = Duration::from_secs(3600);

/// Who signs, and for which service.
#[derive(Clone, Debug)]
pub struct Signer {
    credential: Credential,
    service: &'static str,
    region: String,
}

impl Signer {
    /// A signer for `service` (`s3` or `lambda`).
    #[must_use]
    pub fn new(service: &'static str, region: &str, access_key: &str, secret_key: &str) -> Self {
        let credential = Credential {
            access_key_id: access_key.to_owned(),
            secret_access_key: secret_key.to_owned(),
            ..Credential::default()
        };
        Self { credential, service, region: region.to_owned() }
    }

    /// A request without a body, signed in its query (presigned).
    ///
    /// # Errors
    /// If `path` is no path.
    pub async fn presigned(&self, method: Method, server: SocketAddr, path: &str) -> Result<Vec<u8>, LabError> {
        self.bytes(method, server, path, &[], b"", Some(VALID)).await
    }

    /// A request with `body`, signed in its headers, its payload included.
    ///
    /// # Errors
    /// If `path` is no path or a header no header.
    pub async fn signed(
        &self,
        method: Method,
        server: SocketAddr,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &[u8],
    ) -> Result<Vec<u8>, LabError> {
        self.bytes(method, server, path, headers, body, None).await
    }

    async fn bytes(
        &self,
        method: Method,
        server: SocketAddr,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &[u8],
        presigned_for: Option<Duration>,
    ) -> Result<Vec<u8>, LabError> {
        let failed =
            |error: &dyn std::fmt::Display| LabError::Request { what: path.to_owned(), reason: error.to_string() };
        let mut request = Request::builder().method(method).uri(format!("http://{server}{path}"));
        if presigned_for.is_none() {
            let hash = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            request = request.header("x-amz-content-sha256", hash);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).map_err(|error| failed(&error))?.into_parts();
        let signer = RequestSigner::new(self.service, &self.region);
        let signed = signer.sign_request(&Context::new(), &mut parts, Some(&self.credential), presigned_for).await;
        signed.map_err(|error| failed(&error))?;
        parts
            .headers
            .entry("host")
            .or_insert(HeaderValue::from_str(&server.to_string()).map_err(|error| failed(&error))?);
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut bytes = format!("{} {target} HTTP/1.1\r\n", parts.method).into_bytes();
        for (name, value) in &parts.headers {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        Ok(bytes)
    }
}
