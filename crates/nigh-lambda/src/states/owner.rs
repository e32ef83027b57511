//! Requests about executions, which the leader of the namespace's executions performs: in a cluster its dispatch owner, to
//! which other processes forward them. Requests may be repeated, because a new execution gets its id before the request is
//! sent.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use nigh_dispatch::{AnswerStates, AskedStates};
use nigh_engine::Revision;
use nigh_terms::{InvocationId, Principal, Token};
use nigh_workflow::executions::Executions;
use nigh_workflow::machine_store::MachineKind;
use nigh_workflow::owned::{ExecutionsLocation, OwnedExecutions};
use serde_json::Value;
use tokio::time::Instant;

use super::super::LambdaDoor;
use super::super::operations::Request;
use super::super::response::LambdaResponse;
use super::error::StatesError;
use super::shape::{ExecutionShape, read};
use super::{StatesOperation, answered, raw_answer};

/// How long a request waits for an owner, and between two attempts.
const OWNER_WITHIN: Duration = Duration::from_secs(25);
const PAUSE: Duration = Duration::from_millis(50);

/// What the owner needs of a request about executions.
pub(super) struct Seat<'a> {
    pub(super) executions: &'a Executions,
    /// The id of the execution that the request starts, if it starts one.
    pub(super) id: InvocationId,
    /// The caller's token.
    pub(super) seen: Token,
}

impl StatesOperation {
    /// Whether the operation is about executions, not machines.
    pub(crate) const fn is_of_executions(self) -> bool {
        match self {
            Self::StartExecution
            | Self::StartSyncExecution
            | Self::DescribeExecution
            | Self::DescribeStateMachineForExecution
            | Self::ListExecutions
            | Self::StopExecution
            | Self::GetExecutionHistory => true,
            Self::CreateStateMachine
            | Self::UpdateStateMachine
            | Self::DeleteStateMachine
            | Self::DescribeStateMachine
            | Self::ListStateMachines
            | Self::ListTagsForResource
            | Self::TagResource
            | Self::UntagResource
            | Self::ValidateStateMachineDefinition => false,
        }
    }
}

/// Whether another attempt, or another owner, may succeed.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error()
}

impl LambdaDoor {
    /// Performs `operation`, here or at the owner of its namespace.
    pub(super) async fn of_executions(&self, operation: StatesOperation, request: &Request<'_>) -> LambdaResponse {
        let (id, seen) = (InvocationId::now(), self.parts.invoke.seen(&request.who));
        let own = Seat { executions: &self.parts.executions, id, seen };
        let Some(owned) = &self.parts.owned else { return answered(self.seated(operation, request, &own).await) };
        match self.asked(operation, request, &own) {
            Ok(Some(asked)) => self.at_owner(owned, operation, request, asked).await,
            // An execution that is not stored runs in this process.
            Ok(None) => answered(self.seated(operation, request, &own).await),
            Err(error) => error.answer(),
        }
    }

    /// The request to the owner; none if the operation does not concern it.
    fn asked(
        &self,
        operation: StatesOperation,
        request: &Request<'_>,
        own: &Seat<'_>,
    ) -> Result<Option<AskedStates>, StatesError> {
        let shape: ExecutionShape = read(request)?;
        let machine = match operation {
            StatesOperation::StartSyncExecution => return Ok(None),
            StatesOperation::StartExecution | StatesOperation::ListExecutions => {
                let machine = self.machine_by_arn(shape.state_machine_arn.as_deref(), request)?;
                if operation == StatesOperation::StartExecution && machine.kind == MachineKind::Express {
                    return Ok(None);
                }
                Some((machine.name.to_string(), machine.revision.0))
            }
            _ => None,
        };
        Ok(Some(AskedStates {
            namespace: request.who.namespace.clone(),
            operation: operation.name().to_owned(),
            id: own.id,
            seen: own.seen.clone(),
            machine,
        }))
    }

    async fn at_owner(
        &self,
        owned: &OwnedExecutions,
        operation: StatesOperation,
        request: &Request<'_>,
        asked: AskedStates,
    ) -> LambdaResponse {
        let begun = Instant::now();
        loop {
            let done = match owned.at(&asked.namespace).await {
                Ok(ExecutionsLocation::Here(executions)) => {
                    let seat = Seat { executions: &executions, id: asked.id, seen: asked.seen.clone() };
                    Ok(answered(self.seated(operation, request, &seat).await))
                }
                Ok(ExecutionsLocation::There(owner)) => {
                    let asked = owned.ask(&owner, &asked, request.body.clone()).await;
                    asked.map(|(status, body)| raw_answer(StatusCode::from_u16(status).unwrap_or_default(), body))
                }
                Err(error) => Err(error),
            };
            match done {
                Ok(answer) if !is_passing(answer.status()) => return answer,
                Ok(answer) if begun.elapsed() >= OWNER_WITHIN => return answer,
                Err(error) if begun.elapsed() >= OWNER_WITHIN => {
                    return StatesError::unavailable(error.to_string()).answer();
                }
                Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    async fn seated(
        &self,
        operation: StatesOperation,
        request: &Request<'_>,
        seat: &Seat<'_>,
    ) -> Result<Value, StatesError> {
        match operation {
            StatesOperation::StartExecution => self.start_execution(request, seat).await,
            StatesOperation::StartSyncExecution => self.start_sync_execution(request, seat).await,
            StatesOperation::DescribeExecution => Self::describe_execution(request, seat).await,
            StatesOperation::DescribeStateMachineForExecution => {
                Self::describe_machine_of_execution(request, seat).await
            }
            StatesOperation::ListExecutions => self.list_executions(request, seat),
            StatesOperation::StopExecution => Self::stop_execution(request, seat).await,
            StatesOperation::GetExecutionHistory => Self::get_execution_history(request, seat).await,
            _ => Err(StatesError::service("an operation of machines")),
        }
    }
}

#[async_trait]
impl AnswerStates for LambdaDoor {
    async fn answer(&self, asked: AskedStates, body: Bytes) -> Option<(u16, Bytes)> {
        let AskedStates { namespace, operation, id, seen, machine } = asked;
        let operation = StatesOperation::of(&operation)?;
        let ExecutionsLocation::Here(executions) = self.parts.owned.as_ref()?.at(&namespace).await.ok()? else {
            return None;
        };
        if let Some((name, revision)) = machine
            && let Err(error) = self.parts.machines.catch_up(&namespace, &name, Revision(revision)).await
        {
            tracing::warn!(%namespace, %error, "a state machine of another process cannot be read here");
        }
        let (headers, seat) = (HeaderMap::new(), Seat { executions: &executions, id, seen });
        let request = Request { who: Principal::outside(namespace), query: "", headers: &headers, body };
        let answer = answered(self.seated(operation, &request, &seat).await);
        let status = answer.status().as_u16();
        // A body in memory cannot fail.
        let body = answer.into_body().collect().await.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
        Some((status, body))
    }
}
