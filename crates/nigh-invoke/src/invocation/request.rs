//! Checks what a client asks before anything runs.

use bytes::Bytes;
use http::HeaderValue;

use super::{InvokeError, InvokeRequest, REQUEST_BYTES_MAX};

/// The largest `ClientContext`, as a header of an input; callers may send 3,583 bytes of base64, which escapes widen.
const CLIENT_CONTEXT_BYTES_MAX: usize = 16 * 1024;

/// A request that may run.
pub(crate) struct CheckedRequest {
    pub(crate) request: InvokeRequest,
    pub(crate) client_context: Option<HeaderValue>,
}

/// Refuses a payload that is not JSON.
pub(crate) fn check_payload(payload: &[u8]) -> Result<(), InvokeError> {
    let invalid = |why: String| InvokeError::InvalidRequest(format!("Could not parse request body into json: {why}"));
    let text = std::str::from_utf8(payload).map_err(|error| invalid(error.to_string()))?;
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| invalid(error.to_string()))?;
    Ok(())
}

impl CheckedRequest {
    pub(crate) fn of(mut request: InvokeRequest) -> Result<Self, InvokeError> {
        let size = request.payload.len();
        if size > REQUEST_BYTES_MAX {
            return Err(InvokeError::PayloadTooLarge { size, limit: REQUEST_BYTES_MAX });
        }
        if request.payload.is_empty() {
            // As Lambda does.
            request.payload = Bytes::from_static(b"{}");
        }
        check_payload(&request.payload)?;
        let client_context = match request.client_context.take() {
            None => None,
            Some(context) if context.len() > CLIENT_CONTEXT_BYTES_MAX => {
                return Err(InvokeError::InvalidRequest(format!(
                    "Client context must be at most {CLIENT_CONTEXT_BYTES_MAX} bytes"
                )));
            }
            Some(context) => Some(
                HeaderValue::from_str(&context)
                    .map_err(|_| InvokeError::InvalidRequest("Client context must be one line of text".to_owned()))?,
            ),
        };
        Ok(Self { request, client_context })
    }
}
