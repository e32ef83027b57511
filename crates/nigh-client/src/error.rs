//! Why a call fails.

use thiserror::Error;

/// Why a call fails.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The node cannot be reached.
    #[error("the fast path at {address}: {reason}; check that the node runs, with s3.fast_path = \"on\"")]
    Connect {
        /// The address.
        address: String,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// The connection broke.
    #[error("the connection to the fast path failed: {what}: {reason}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// The node's message does not follow the protocol.
    #[error("the node's answer cannot be read: {0}")]
    Protocol(String),
    /// The environment lacks the node's address or a key.
    #[error(
        "the variable {0} is not set: only sandboxes of Nigh have it; elsewhere connect to the socket in endpoints.json"
    )]
    Environment(&'static str),
    /// The operation needs HTTP.
    #[error("the fast path cannot serve this request: {0}; send it over HTTP")]
    UseHttp(&'static str),
    /// The node refused, as its S3 door would.
    #[error("{code} ({status}): {message}")]
    Refused {
        /// HTTP's status.
        status: u16,
        /// The error's code in the S3 API.
        code: String,
        /// The node's message.
        message: String,
    },
}

impl ClientError {
    /// The error's code in the S3 API, if the node refused.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    pub(crate) fn io(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::Io { what, reason: errno.into() }
    }
}
