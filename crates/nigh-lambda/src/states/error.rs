//! The errors of the Step Functions API: a type, a status and a message (its API reference, "Errors").

use std::borrow::Cow;

use http::StatusCode;
use nigh_http::throttle::say_when;
use nigh_workflow::arn::WorkflowNameError;
use nigh_workflow::executions::ExecutionError;
use nigh_workflow::machine_store::MachineError;
use nigh_workflow::scratch::ScratchTagError;
use serde_json::json;

use super::super::LambdaError;
use super::super::response::LambdaResponse;
use super::answer;

/// A refusal, as clients see it.
#[derive(Debug)]
pub(super) struct StatesError {
    status: StatusCode,
    kind: &'static str,
    message: Cow<'static, str>,
}

macro_rules! kinds {
    ($($name:ident = $status:ident, $kind:literal;)*) => {
        impl StatesError {
            $(pub(super) fn $name(message: impl Into<Cow<'static, str>>) -> Self {
                Self { status: StatusCode::$status, kind: $kind, message: message.into() }
            })*
        }
    };
}

kinds! {
    access_denied = FORBIDDEN, "AccessDeniedException";
    conflict = CONFLICT, "ConflictException";
    execution_exists = BAD_REQUEST, "ExecutionAlreadyExists";
    execution_not_found = BAD_REQUEST, "ExecutionDoesNotExist";
    execution_limit = BAD_REQUEST, "ExecutionLimitExceeded";
    invalid_arn = BAD_REQUEST, "InvalidArn";
    invalid_definition = BAD_REQUEST, "InvalidDefinition";
    invalid_input = BAD_REQUEST, "InvalidExecutionInput";
    invalid_name = BAD_REQUEST, "InvalidName";
    invalid_token = BAD_REQUEST, "InvalidToken";
    machine_exists = BAD_REQUEST, "StateMachineAlreadyExists";
    machine_not_found = BAD_REQUEST, "StateMachineDoesNotExist";
    machine_limit = BAD_REQUEST, "StateMachineLimitExceeded";
    machine_kind = BAD_REQUEST, "StateMachineTypeNotSupported";
    missing = BAD_REQUEST, "MissingRequiredParameter";
    serialization = BAD_REQUEST, "SerializationException";
    service = INTERNAL_SERVER_ERROR, "InternalServerError";
    unavailable = SERVICE_UNAVAILABLE, "ServiceUnavailable";
    validation = BAD_REQUEST, "ValidationException";
}

impl StatesError {
    pub(super) fn answer(&self) -> LambdaResponse {
        answer(self.status, &json!({ "__type": self.kind, "message": self.message }))
    }
}

/// An error of the door, in the form of this API.
pub(crate) fn refusal(error: &LambdaError) -> LambdaResponse {
    let mut answer = StatesError { status: error.status, kind: error.kind, message: error.message.clone() }.answer();
    say_when(error.status, answer.headers_mut());
    answer
}

impl From<WorkflowNameError> for StatesError {
    fn from(error: WorkflowNameError) -> Self {
        Self::invalid_name(error.to_string())
    }
}

impl From<ScratchTagError> for StatesError {
    fn from(error: ScratchTagError) -> Self {
        Self::validation(error.to_string())
    }
}

impl From<MachineError> for StatesError {
    fn from(error: MachineError) -> Self {
        let message = error.to_string();
        match error {
            MachineError::NotFound(_) => Self::machine_not_found(message),
            MachineError::Exists(_) => Self::machine_exists(message),
            MachineError::Invalid(_) => Self::invalid_definition(message),
            MachineError::TooMany => Self::machine_limit(message),
            MachineError::Conflict => Self::conflict(message),
            MachineError::Document(..) | MachineError::Registry(_) => {
                tracing::error!(error = %message, "a state machine cannot be stored");
                Self::service(message)
            }
        }
    }
}

impl From<ExecutionError> for StatesError {
    fn from(error: ExecutionError) -> Self {
        let message = error.to_string();
        match error {
            ExecutionError::NotFound(_) => Self::execution_not_found(message),
            ExecutionError::Exists(_) => Self::execution_exists(message),
            ExecutionError::TooMany(_) => Self::execution_limit(message),
            ExecutionError::Input(_) => Self::invalid_input(message),
            ExecutionError::TooLong | ExecutionError::ShuttingDown | ExecutionError::Undecided => {
                Self::unavailable(message)
            }
            ExecutionError::Registry(_) | ExecutionError::Row(_) | ExecutionError::Definition(..) => {
                tracing::error!(error = %message, "an execution cannot be stored");
                Self::service(message)
            }
        }
    }
}
