//! Why a call fails.

use thiserror::Error;

/// Why a call fails.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The node is not reached.
    #[error("the fast path at {address}: {reason}; is the node running, with s3.fast_path = \"on\"?")]
    Connect {
        /// Where.
        address: String,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// The connection broke.
    #[error("the connection to the fast path: {what}: {reason}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// The node said something that is not its protocol.
    #[error("the node's answer cannot be read: {0}")]
    Protocol(String),
    /// The environment does not say where the node is, or who asks.
    #[error("the variable {0} is not set; a sandbox of Nigh has it, elsewhere connect to the socket in endpoints.json")]
    Environment(&'static str),
    /// The node wants to be asked over HTTP.
    #[error("this goes over HTTP only: {0}")]
    UseHttp(&'static str),
    /// The node refused, as its S3 door would.
    #[error("{code} ({status}): {message}")]
    Refused {
        /// HTTP's status.
        status: u16,
        /// The error's code in the S3 API.
        code: String,
        /// The node's words.
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
