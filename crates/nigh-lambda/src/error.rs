//! The errors of the Lambda API: a type, a status and a message (Lambda API reference, "Errors").

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use nigh_engine::{AccessDenied, OverQuota};
use nigh_functions::code_store::CodeStoreError;
use nigh_functions::function_arn::FunctionReferenceError;
use nigh_functions::function_store::FunctionStoreError;
use nigh_functions::layer_store::LayerError;
use nigh_http::sigv4::SignatureError;
use nigh_invoke::invocation::InvokeError;
use serde_json::json;

/// A refusal, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LambdaError {
    /// The status.
    pub status: StatusCode,
    /// The exception's name: `x-amzn-ErrorType`.
    pub kind: &'static str,
    /// The reason and the remedy.
    pub message: Cow<'static, str>,
    /// Lambda's `Reason` of a throttle.
    pub reason: Option<&'static str>,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $status:ident, $kind:literal;)*) => {
        impl LambdaError {
            $($(#[$doc])*
            pub(crate) fn $name(message: impl Into<Cow<'static, str>>) -> Self {
                Self { status: StatusCode::$status, kind: $kind, message: message.into(), reason: None }
            })*
        }
    };
}

kinds! {
    /// A value that the operation does not accept.
    invalid_parameter = BAD_REQUEST, "InvalidParameterValueException";
    /// A value that breaks its pattern.
    validation = BAD_REQUEST, "ValidationException";
    /// A body that is no JSON.
    invalid_content = BAD_REQUEST, "InvalidRequestContentException";
    /// JSON of other types than the operation's.
    serialization = BAD_REQUEST, "SerializationException";
    /// Too much code in the namespace.
    code_storage = BAD_REQUEST, "CodeStorageExceededException";
    /// The caller may not do this.
    access_denied = FORBIDDEN, "AccessDeniedException";
    /// No signature.
    missing_token = FORBIDDEN, "MissingAuthenticationTokenException";
    /// An incomplete signature.
    incomplete_signature = FORBIDDEN, "IncompleteSignatureException";
    /// A wrong signature.
    invalid_signature = FORBIDDEN, "InvalidSignatureException";
    /// A key that nobody has.
    unrecognized_client = FORBIDDEN, "UnrecognizedClientException";
    /// Not found.
    not_found = NOT_FOUND, "ResourceNotFoundException";
    /// No such path.
    unknown_operation = NOT_FOUND, "UnknownOperationException";
    /// It exists already, or is being changed.
    conflict = CONFLICT, "ResourceConflictException";
    /// A schedule of this name exists already, or is being changed.
    schedule_conflict = CONFLICT, "ConflictException";
    /// The namespace has the most of them.
    quota_exceeded = PAYMENT_REQUIRED, "ServiceQuotaExceededException";
    /// An internal error, by EventBridge's name.
    internal = INTERNAL_SERVER_ERROR, "InternalServerException";
    /// It has another revision.
    precondition_failed = PRECONDITION_FAILED, "PreconditionFailedException";
    /// A payload above the limit.
    too_large = PAYLOAD_TOO_LARGE, "RequestTooLargeException";
    /// A body above the limit.
    entity_too_large = PAYLOAD_TOO_LARGE, "RequestEntityTooLargeException";
    /// A body that did not arrive in time.
    timed_out = REQUEST_TIMEOUT, "RequestTimeoutException";
    /// No capacity now.
    too_many_requests = TOO_MANY_REQUESTS, "TooManyRequestsException";
    /// An internal error.
    service = INTERNAL_SERVER_ERROR, "ServiceException";
    /// The function's answer cannot be returned.
    bad_gateway = BAD_GATEWAY, "BadGatewayException";
    /// The path has no such method.
    method_not_allowed = METHOD_NOT_ALLOWED, "MethodNotAllowedException";
    /// A body of an unsupported type.
    unsupported_media = UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaTypeException";
    /// An operation of Lambda that this door lacks.
    not_implemented = NOT_IMPLEMENTED, "NotImplementedException";
    /// Not now.
    unavailable = SERVICE_UNAVAILABLE, "ServiceUnavailableException";
}

impl LambdaError {
    /// The error with Lambda's `Reason`.
    pub(crate) fn because(self, reason: &'static str) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Whether no operation of this door has such a method and path.
    pub(crate) fn is_unknown_operation(&self) -> bool {
        self.kind == Self::unknown_operation("").kind
    }

    /// The body, as the SDKs read it.
    #[must_use]
    pub fn body(&self) -> Bytes {
        let user = self.status.is_client_error();
        let mut body = json!({ "Type": if user { "User" } else { "Service" }, "Message": self.message });
        if let Some(reason) = self.reason {
            body["Reason"] = reason.into();
        }
        Bytes::from(body.to_string())
    }
}

impl From<SignatureError> for LambdaError {
    fn from(error: SignatureError) -> Self {
        let message = error.to_string();
        match error {
            SignatureError::Missing => Self::missing_token(message),
            SignatureError::Incomplete(_) => Self::incomplete_signature(message),
            SignatureError::Scope { .. }
            | SignatureError::Expired { .. }
            | SignatureError::NotYetCurrent { .. }
            | SignatureError::Mismatch => Self::invalid_signature(message),
        }
    }
}

impl From<AccessDenied> for LambdaError {
    fn from(error: AccessDenied) -> Self {
        match error {
            AccessDenied::UnknownKey(_) | AccessDenied::Disabled(_) | AccessDenied::Expired { .. } => {
                Self::unrecognized_client(error.to_string())
            }
            AccessDenied::BetweenInvocations(_) | AccessDenied::OutOfScope { .. } => {
                Self::access_denied(error.to_string())
            }
            AccessDenied::OverQuota(OverQuota::Functions { .. } | OverQuota::Stored { .. }) => {
                Self::code_storage(error.to_string())
            }
            AccessDenied::OverQuota(OverQuota::Requests { .. }) => {
                Self::too_many_requests(error.to_string()).because("CallerRateLimitExceeded")
            }
            AccessDenied::OverQuota(OverQuota::Memory { .. }) => {
                Self::too_many_requests(error.to_string()).because("ConcurrentInvocationLimitExceeded")
            }
        }
    }
}

impl From<FunctionReferenceError> for LambdaError {
    fn from(error: FunctionReferenceError) -> Self {
        match error {
            FunctionReferenceError::Malformed(_) => Self::validation(error.to_string()),
            FunctionReferenceError::NotHere(_) => Self::not_found(error.to_string()),
        }
    }
}

impl From<FunctionStoreError> for LambdaError {
    fn from(error: FunctionStoreError) -> Self {
        let message = error.to_string();
        match error {
            FunctionStoreError::NotFound(_) => Self::not_found(message),
            FunctionStoreError::Exists(_) | FunctionStoreError::Busy(_) => Self::conflict(message),
            FunctionStoreError::OtherRevision { .. } => Self::precondition_failed(message),
            FunctionStoreError::TooMany(_) | FunctionStoreError::CodeStorage { .. } => Self::code_storage(message),
            FunctionStoreError::Code(CodeStoreError::Archive(archive)) if archive.is_the_archives() => {
                Self::invalid_parameter(message)
            }
            FunctionStoreError::TooMuchReserved { .. }
            | FunctionStoreError::WithLayers { .. }
            | FunctionStoreError::BooksTooMuch { .. } => Self::invalid_parameter(message),
            FunctionStoreError::Layers(error) => error.into(),
            FunctionStoreError::CodeGone(_)
            | FunctionStoreError::Code(_)
            | FunctionStoreError::Schedules(_)
            | FunctionStoreError::Registry(_)
            | FunctionStoreError::Document(..)
            | FunctionStoreError::Aborted(_) => {
                tracing::error!(error = %message, "a function could not be changed");
                Self::service(message)
            }
        }
    }
}

impl From<LayerError> for LambdaError {
    fn from(error: LayerError) -> Self {
        let message = error.to_string();
        match error {
            LayerError::NotFound(_) | LayerError::Arn(_) | LayerError::Extension { .. } => {
                Self::invalid_parameter(message)
            }
            LayerError::TooMany => Self::code_storage(message),
            LayerError::Code(CodeStoreError::Archive(archive)) if archive.is_the_archives() => {
                Self::invalid_parameter(message)
            }
            LayerError::Registry(nigh_engine::RegistryError::Conflict { .. }) => Self::conflict(message),
            LayerError::Code(_)
            | LayerError::Registry(_)
            | LayerError::Document(..)
            | LayerError::Merge { .. }
            | LayerError::Aborted(_) => {
                tracing::error!(error = %message, "a layer could not be changed");
                Self::service(message)
            }
        }
    }
}

impl From<InvokeError> for LambdaError {
    fn from(error: InvokeError) -> Self {
        let message = error.to_string();
        match error {
            InvokeError::NotFound(_) => Self::not_found(message),
            InvokeError::TooManyRequests(_) | InvokeError::Gate(_) => {
                Self::too_many_requests(message).because("ConcurrentInvocationLimitExceeded")
            }
            InvokeError::ReservedConcurrency { .. } => {
                Self::too_many_requests(message).because("ReservedFunctionConcurrentInvocationLimitExceeded")
            }
            InvokeError::InvalidRequest(_) => Self::invalid_content(message),
            InvokeError::PayloadTooLarge { .. } => Self::too_large(message),
            InvokeError::Network(_) => Self::access_denied(message),
            InvokeError::ShuttingDown => Self::unavailable(message),
            InvokeError::Lost(_) => Self::service(message),
            InvokeError::Internal(_) => {
                tracing::error!(error = %message, "an invocation could not be run");
                Self::service(message)
            }
        }
    }
}
