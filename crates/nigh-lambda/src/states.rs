//! The Step Functions API on the Lambda door's listener: awsJson 1.0, by the names of its API reference.
//!
//! `X-Amz-Target` names the operation; the door checks signature and limits. Unsupported operations get an error that says
//! so.

mod error;
mod executions;
mod machines;
mod owner;
mod shape;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde_json::Value;

use self::error::StatesError;
pub(super) use self::error::refusal;
use super::operations::Request;
use super::response::LambdaResponse;
use super::{LambdaDoor, LambdaError};

const TARGET: &str = "x-amz-target";
const SERVICE: &str = "AWSStepFunctions.";
const JSON: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.0");

macro_rules! operations {
    ($($name:ident,)*) => {
        /// An operation of the Step Functions API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum StatesOperation {
            $(#[doc = concat!("`", stringify!($name), "`.")] $name,)*
        }

        impl StatesOperation {
            fn of(name: &str) -> Option<Self> {
                match name { $(stringify!($name) => Some(Self::$name),)* _ => None }
            }

            /// Its name in the API reference.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

operations! {
    CreateStateMachine,
    UpdateStateMachine,
    DeleteStateMachine,
    DescribeStateMachine,
    DescribeStateMachineForExecution,
    ListStateMachines,
    ListTagsForResource,
    TagResource,
    UntagResource,
    ValidateStateMachineDefinition,
    StartExecution,
    StartSyncExecution,
    DescribeExecution,
    ListExecutions,
    StopExecution,
    GetExecutionHistory,
}

/// The operation in these headers; none if the request is not for the Step Functions API.
///
/// # Errors
/// For an operation that is not supported.
pub(super) fn operation_of(headers: &HeaderMap) -> Option<Result<StatesOperation, LambdaError>> {
    let name = headers.get(TARGET)?.to_str().ok()?.strip_prefix(SERVICE)?;
    let unknown = || LambdaError::unknown_operation("this operation of the Step Functions API is not supported here");
    Some(StatesOperation::of(name).ok_or_else(unknown))
}

impl LambdaDoor {
    /// Performs `operation`; errors are answers too.
    pub(super) async fn states(&self, operation: StatesOperation, request: Request<'_>) -> LambdaResponse {
        let done = if request.who.function.is_some() && operation != StatesOperation::StartExecution {
            Err(StatesError::access_denied("a function may start executions; all else needs a client's key"))
        } else if operation.is_of_executions() {
            return self.of_executions(operation, &request).await;
        } else {
            self.of_machines(operation, &request).await
        };
        answered(done)
    }

    async fn of_machines(&self, operation: StatesOperation, request: &Request<'_>) -> Result<Value, StatesError> {
        match operation {
            StatesOperation::CreateStateMachine => self.create_machine(request).await,
            StatesOperation::UpdateStateMachine => self.update_machine(request).await,
            StatesOperation::DeleteStateMachine => self.delete_machine(request).await,
            StatesOperation::DescribeStateMachine => self.describe_machine(request),
            StatesOperation::ListStateMachines => self.list_machines(request),
            StatesOperation::ListTagsForResource => self.list_machine_tags(request),
            StatesOperation::TagResource | StatesOperation::UntagResource => self.tag_machine(request).await,
            StatesOperation::ValidateStateMachineDefinition => machines::validate(request),
            _ => Err(StatesError::service("an operation of executions")),
        }
    }
}

fn answered(done: Result<Value, StatesError>) -> LambdaResponse {
    done.map_or_else(|error| error.answer(), |value| answer(StatusCode::OK, &value))
}

fn answer(status: StatusCode, value: &Value) -> LambdaResponse {
    raw_answer(status, value.to_string().into())
}

fn raw_answer(status: StatusCode, body: Bytes) -> LambdaResponse {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_says_which_operation_it_is() {
        let of = |target: &'static str| {
            let headers =
                HeaderMap::from_iter([(http::HeaderName::from_static(TARGET), HeaderValue::from_static(target))]);
            operation_of(&headers)
        };
        assert_eq!(of("AWSStepFunctions.StartExecution"), Some(Ok(StatesOperation::StartExecution)));
        assert!(of("AWSStepFunctions.CreateActivity").unwrap().is_err());
        assert!(of("DynamoDB_20120810.GetItem").is_none() && operation_of(&HeaderMap::new()).is_none());
    }
}
