//! The errors of the OpenWhisk API: a status and `{error, code}`.
//!
//! The messages are those of OpenWhisk's controller where it has one, because clients look for some of them.

use std::borrow::Cow;

use http::StatusCode;
use nigh_engine::{AccessDenied, OverQuota};
use nigh_functions::action::names::NameError;
use nigh_functions::code_store::CodeStoreError;
use nigh_functions::function_store::FunctionStoreError;
use nigh_invoke::invocation::InvokeError;
use thiserror::Error;

use super::entity_store::EntityStoreError;

/// What was not found.
pub(super) const NO_SUCH_RESOURCE: &str = "The requested resource does not exist.";
const CONFLICT: &str = "Concurrent modification to resource detected.";
const NOT_AUTHORIZED: &str = "The supplied authentication is not authorized to access this resource.";

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct WhiskError {
    /// The status.
    pub status: StatusCode,
    /// The reason.
    pub message: Cow<'static, str>,
}

macro_rules! kinds {
    ($($name:ident = $status:ident;)*) => {
        impl WhiskError {
            $(pub(super) fn $name(message: impl Into<Cow<'static, str>>) -> Self {
                Self { status: StatusCode::$status, message: message.into() }
            })*
        }
    };
}

kinds! {
    bad_request = BAD_REQUEST;
    unauthorized = UNAUTHORIZED;
    refused = FORBIDDEN;
    absent = NOT_FOUND;
    conflicts = CONFLICT;
    too_large = PAYLOAD_TOO_LARGE;
    too_many = TOO_MANY_REQUESTS;
    internal = INTERNAL_SERVER_ERROR;
    unavailable = SERVICE_UNAVAILABLE;
}

impl WhiskError {
    pub(super) fn not_found() -> Self {
        Self::absent(NO_SUCH_RESOURCE)
    }

    pub(super) fn forbidden() -> Self {
        Self::refused(NOT_AUTHORIZED)
    }

    pub(super) fn conflict() -> Self {
        Self::conflicts(CONFLICT)
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "HTTP method not allowed, supported methods are those of the resource".into();
        Self { status: StatusCode::METHOD_NOT_ALLOWED, message }
    }

    /// Too many at once, in OpenWhisk's words.
    pub(super) fn too_many_at_once(count: usize, allowed: usize) -> Self {
        Self::too_many(format!("Too many concurrent requests in flight (count: {count}, allowed: {allowed})."))
    }

    /// A body above its limit, in OpenWhisk's words.
    pub(super) fn larger_than(what: &str, is: usize, allowed: usize) -> Self {
        Self::too_large(format!("{what} larger than allowed: {is} > {allowed} bytes."))
    }
}

impl From<NameError> for WhiskError {
    fn from(error: NameError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<AccessDenied> for WhiskError {
    fn from(error: AccessDenied) -> Self {
        match error {
            AccessDenied::UnknownKey(_) => Self::unauthorized("The supplied authentication is invalid."),
            AccessDenied::Disabled(_) | AccessDenied::Expired { .. } => Self::unauthorized(error.to_string()),
            AccessDenied::BetweenInvocations(_) | AccessDenied::OutOfScope { .. } => Self::refused(error.to_string()),
            AccessDenied::OverQuota(OverQuota::Functions { .. } | OverQuota::Stored { .. }) => {
                Self::bad_request(error.to_string())
            }
            AccessDenied::OverQuota(OverQuota::Requests { .. } | OverQuota::Memory { .. }) => {
                Self::too_many(error.to_string())
            }
        }
    }
}

impl From<EntityStoreError> for WhiskError {
    fn from(error: EntityStoreError) -> Self {
        match error {
            EntityStoreError::Conflict => Self::conflict(),
            EntityStoreError::TooMany(_) => Self::bad_request(error.to_string()),
            EntityStoreError::Registry(_) | EntityStoreError::Document(..) => {
                tracing::error!(%error, "an OpenWhisk entity could not be changed");
                Self::internal(error.to_string())
            }
        }
    }
}

impl From<FunctionStoreError> for WhiskError {
    fn from(error: FunctionStoreError) -> Self {
        let message = error.to_string();
        match error {
            FunctionStoreError::NotFound(_) => Self::not_found(),
            FunctionStoreError::Exists(_) | FunctionStoreError::Busy(_) | FunctionStoreError::OtherRevision { .. } => {
                Self::conflict()
            }
            FunctionStoreError::Code(CodeStoreError::Archive(archive)) if archive.is_the_archives() => {
                Self::bad_request(message)
            }
            FunctionStoreError::TooMany(_)
            | FunctionStoreError::CodeStorage { .. }
            | FunctionStoreError::TooMuchReserved { .. }
            | FunctionStoreError::BooksTooMuch { .. }
            | FunctionStoreError::WithLayers { .. } => Self::bad_request(message),
            FunctionStoreError::CodeGone(_)
            | FunctionStoreError::Code(_)
            | FunctionStoreError::Layers(_)
            | FunctionStoreError::Schedules(_)
            | FunctionStoreError::Registry(_)
            | FunctionStoreError::Document(..)
            | FunctionStoreError::Aborted(_) => {
                tracing::error!(error = %message, "an action could not be changed");
                Self::internal(message)
            }
        }
    }
}

impl From<InvokeError> for WhiskError {
    fn from(error: InvokeError) -> Self {
        let message = error.to_string();
        match error {
            InvokeError::NotFound(_) => Self::absent("Action could not be found or may have been deleted."),
            InvokeError::TooManyRequests(_) | InvokeError::Gate(_) | InvokeError::ReservedConcurrency { .. } => {
                Self::too_many(format!("Too many concurrent requests in flight: {message}."))
            }
            InvokeError::InvalidRequest(_) => Self::bad_request(message),
            InvokeError::PayloadTooLarge { size, limit } => Self::larger_than("Request", size, limit),
            InvokeError::Network(_) => Self::refused(message),
            InvokeError::ShuttingDown => Self::unavailable(message),
            InvokeError::Lost(_) => Self::internal(message),
            InvokeError::Internal(_) => {
                tracing::error!(error = %message, "an action could not be invoked");
                Self::internal(message)
            }
        }
    }
}
