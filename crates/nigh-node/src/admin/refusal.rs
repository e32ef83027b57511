//! Why a request of the admin API is rejected.

use std::fmt::Display;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use nigh_data::ObjectError;
use nigh_engine::{KeyError, NamespaceError, RegistryError};
use nigh_invoke::event_invoker::{EventError, RetryError};
use nigh_sizing::memory_sizing::MemorySizingError;

use crate::cluster::OperationError;
use crate::learning::LearningError;
use crate::tenancy::TenancyError;

/// The status and the text of the answer.
pub(super) struct Refusal(StatusCode, String);

impl Refusal {
    pub(super) fn not_found(words: String) -> Self {
        Self(StatusCode::NOT_FOUND, words)
    }

    /// It was there, and is not any more.
    pub(super) fn gone(words: String) -> Self {
        Self(StatusCode::GONE, words)
    }

    /// `text` is not an id.
    pub(super) fn bad_id(text: &str) -> Self {
        let begin: String = text.chars().take(64).collect();
        Self(StatusCode::BAD_REQUEST, format!("{begin:?} is not an invocation's id"))
    }

    /// This node belongs to no cluster.
    pub(super) fn no_cluster() -> Self {
        Self::conflict("this node belongs to no cluster; docs/howto/cluster.md says how to make one".to_owned())
    }

    /// The request is wrong.
    pub(super) fn bad_request(why: impl Display) -> Self {
        Self(StatusCode::BAD_REQUEST, why.to_string())
    }

    /// `text` is no cursor of this list.
    pub(super) fn bad_cursor(text: &str) -> Self {
        let begin: String = text.chars().take(64).collect();
        Self::bad_request(format!("{begin:?} is no cursor of this list; begin without one"))
    }

    /// The node or its namespace has too much to do.
    pub(super) fn too_many(why: impl Display) -> Self {
        Self(StatusCode::TOO_MANY_REQUESTS, why.to_string())
    }

    /// It cannot be done now.
    pub(super) fn unavailable(why: impl Display) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
    }

    /// A file of the node cannot be read.
    pub(super) fn disk(error: std::io::Error) -> Self {
        Self::internal(error)
    }

    /// What was asked for conflicts with what is there.
    pub(super) fn conflict(words: String) -> Self {
        Self(StatusCode::CONFLICT, words)
    }

    pub(super) fn internal(error: impl Display) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.1)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl From<RegistryError> for Refusal {
    fn from(error: RegistryError) -> Self {
        Self::internal(error)
    }
}

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(error)
    }
}

impl From<EventError> for Refusal {
    fn from(error: EventError) -> Self {
        Self::internal(error)
    }
}

impl From<RetryError> for Refusal {
    fn from(error: RetryError) -> Self {
        match error {
            RetryError::Full(full) => Self(StatusCode::TOO_MANY_REQUESTS, full.to_string()),
            RetryError::Event(error) => error.into(),
        }
    }
}

impl From<ObjectError> for Refusal {
    fn from(error: ObjectError) -> Self {
        let status = match &error {
            ObjectError::NoSuchBucket(_) | ObjectError::NoSuchKey(_) => StatusCode::NOT_FOUND,
            ObjectError::InvalidArgument(_)
            | ObjectError::InvalidRequest(_)
            | ObjectError::Body(_)
            | ObjectError::EntityTooLarge { .. }
            | ObjectError::IncompleteBody { .. } => StatusCode::BAD_REQUEST,
            ObjectError::SlowDown(_) | ObjectError::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            ObjectError::ConditionalRequestConflict => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl From<OperationError> for Refusal {
    fn from(error: OperationError) -> Self {
        let status = match &error {
            OperationError::NoSuchNode(_) => StatusCode::NOT_FOUND,
            OperationError::OldProgram(_) | OperationError::LastNode { .. } | OperationError::OldMembers { .. } => {
                StatusCode::CONFLICT
            }
            OperationError::Registry(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl From<TenancyError> for Refusal {
    fn from(error: TenancyError) -> Self {
        let status = match &error {
            TenancyError::Key(KeyError::Unknown(_)) | TenancyError::NoNamespace(_) => StatusCode::NOT_FOUND,
            TenancyError::Key(KeyError::NameTaken(_) | KeyError::Rotated { .. })
            | TenancyError::Namespace(NamespaceError::Exists(_))
            | TenancyError::KeyOfSettings(..)
            | TenancyError::OfSettings(_)
            | TenancyError::NotEmpty { .. } => StatusCode::CONFLICT,
            TenancyError::KeyName(_) | TenancyError::Description | TenancyError::Expiry | TenancyError::Quota(_) => {
                StatusCode::BAD_REQUEST
            }
            TenancyError::Key(KeyError::Registry(_))
            | TenancyError::Namespace(NamespaceError::Registry(_))
            | TenancyError::NotEmptied(..)
            | TenancyError::Objects(_)
            | TenancyError::Registry(_)
            | TenancyError::Credentials(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl From<LearningError> for Refusal {
    fn from(error: LearningError) -> Self {
        let status = match &error {
            LearningError::NoFunction(_) | LearningError::Sizing(MemorySizingError::Nothing(_)) => {
                StatusCode::NOT_FOUND
            }
            LearningError::Off => StatusCode::CONFLICT,
            LearningError::Sizing(MemorySizingError::Csv(_)) => StatusCode::BAD_REQUEST,
            LearningError::Sizing(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}
