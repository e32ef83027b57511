//! Fetches one document from any HTTP server, for example a service's metrics.

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use http::Request;

use super::http_call::{Target, full};
use super::{ClientError, DoorAddress};

/// The document at `url` (`http://host:port/path`, or `https` with a certificate that the system trusts).
///
/// # Errors
/// If the URL has another form, nobody answers, or the answer is an error.
#[boxed]
pub async fn fetch(url: &str) -> Result<Bytes, ClientError> {
    let target = Target::of(&DoorAddress { url: url.to_owned(), ca_bundle: None })?;
    let request = Request::get(url)
        .header(http::header::HOST, target.authority())
        .header(http::header::ACCEPT, "text/plain")
        .body(full(Bytes::new()))
        .map_err(|error| ClientError::Request(error.to_string()))?;
    let answer = target.send(request).await?;
    let status = answer.status();
    if !status.is_success() {
        return Err(ClientError::Answer { endpoint: target.name(), reason: format!("it answers {status}") });
    }
    target.collect(answer.into_body()).await
}
