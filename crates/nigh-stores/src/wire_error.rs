//! Why a request to a store got no successful answer.

use std::time::Duration;

use http::StatusCode;
use nigh_data::ObjectError;

use super::retry::{Failure, is_busy};

/// Why a request got no successful answer.
#[derive(Clone, Debug)]
pub(super) enum WireError {
    /// The store refused the request. `retry_after` is None if the store named no wait.
    Refused { status: StatusCode, code: String, message: String, retry_after: Option<Duration> },
    /// The request was not sent.
    NotSent(String),
    /// The request was not sent, and another attempt would not help, because the login was refused.
    NotAllowed(String),
    /// The request was not sent, because too many requests were in progress.
    Queued,
    /// The request was sent, but no readable answer came: the outcome is unknown.
    Failed(String),
}

impl WireError {
    /// The failure that `retry` judges. None if the request must not be sent again.
    pub(super) fn failure(&self) -> Option<Failure> {
        match self {
            Self::Refused { status, code, retry_after, .. } => Some(Failure::Refused {
                status: *status,
                busy: matches!(code.as_str(), "RequestTimeout" | "OperationAborted" | "SlowDown"),
                retry_after: *retry_after,
            }),
            Self::NotSent(_) => Some(Failure::NotSent),
            Self::Failed(_) => Some(Failure::NoAnswer),
            Self::NotAllowed(_) | Self::Queued => None,
        }
    }

    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The outcome, in metrics.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Refused { status, .. } if *status == StatusCode::NOT_FOUND => "missing",
            Self::Refused { .. } => "refused",
            Self::Failed(_) => "failed",
            Self::NotSent(_) | Self::NotAllowed(_) | Self::Queued => "not_sent",
        }
    }

    pub(super) fn is_missing(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// Turns this into the general error of the store.
    pub(super) fn into_object_error(self, store: &'static str, operation: &'static str) -> ObjectError {
        let because = |reason| ObjectError::Store { store, operation, reason };
        match self {
            Self::Refused { status, .. } if is_busy(status) => {
                ObjectError::SlowDown("the store asks for fewer requests")
            }
            Self::Queued => ObjectError::SlowDown("too many requests to the store behind are under way"),
            // A gateway answers with these statuses if the store does not answer the gateway.
            Self::Refused {
                status: status @ (StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT), message, ..
            } => ObjectError::StoreSilent { store, operation, reason: format!("{status} {message}") },
            Self::Refused { status, code, message, .. } => {
                let hint = match status {
                    StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                        "; check the store's access key, its rights, and this machine's clock"
                    }
                    StatusCode::MOVED_PERMANENTLY | StatusCode::BAD_REQUEST => {
                        "; check the store's endpoint and region"
                    }
                    _ => "",
                };
                because(format!("{status} {code} {message}{hint}"))
            }
            Self::NotSent(reason) => ObjectError::StoreUnreached { store, operation, reason },
            Self::Failed(reason) => ObjectError::StoreSilent { store, operation, reason },
            Self::NotAllowed(reason) => because(reason),
        }
    }
}

pub(super) fn not_sent(what: &str, error: &dyn std::error::Error) -> WireError {
    WireError::NotSent(format!("{what}: {}", chain(error)))
}

/// The text of an error and of its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
