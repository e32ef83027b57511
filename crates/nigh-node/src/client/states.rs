//! The client of the Step Functions API.

use async_recursion::async_recursion as boxed;
use http::{Method, Request, StatusCode};
use serde_json::Value;

use super::http_call::{Target, full};
use super::signer::{PayloadHash, Signer};
use super::{ClientError, DoorAddress};
use crate::credentials::Credentials;

/// A client of one namespace at one Lambda door, for its state machines.
pub struct StatesClient {
    target: Target,
    signer: Signer,
}

impl StatesClient {
    /// A client of `door`.
    ///
    /// # Errors
    /// If its address is no URL, or its authorities cannot be read.
    pub fn new(door: &DoorAddress, region: &str, credentials: &Credentials) -> Result<Self, ClientError> {
        Ok(Self { target: Target::of(door)?, signer: Signer::new("states", region, credentials) })
    }

    /// Calls `operation` of the API with `body`.
    #[boxed]
    pub async fn call(&self, operation: &str, body: &Value) -> Result<Value, ClientError> {
        let bytes = bytes::Bytes::from(body.to_string());
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{}/", self.target.authority()))
            .header("x-amz-target", format!("AWSStepFunctions.{operation}"))
            .header(http::header::CONTENT_TYPE, "application/x-amz-json-1.0")
            .header(http::header::CONTENT_LENGTH, bytes.len())
            .body(full(bytes.clone()))
            .map_err(|error| ClientError::Request(error.to_string()))?;
        let answer = self.target.send(self.signer.sign(request, PayloadHash::Of(&bytes))?).await?;
        let (parts, body) = answer.into_parts();
        let body = self.target.collect(body).await?;
        let read: Result<Value, _> = serde_json::from_slice(&body);
        if parts.status.is_success() {
            return read
                .map_err(|error| ClientError::Answer { endpoint: self.target.name(), reason: error.to_string() });
        }
        Err(refusal(parts.status, &read.unwrap_or_default()))
    }
}

fn refusal(status: StatusCode, body: &Value) -> ClientError {
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    let code = text("__type").unwrap_or_else(|| status.as_str().to_owned());
    let message = text("message").unwrap_or_else(|| status.canonical_reason().unwrap_or("refused").to_owned());
    ClientError::Refused { status: status.as_u16(), code, message }
}
