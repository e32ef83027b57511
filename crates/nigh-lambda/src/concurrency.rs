//! Reserved concurrency: the invocations that are reserved for one function.

use http::StatusCode;
use nigh_terms::FunctionName;
use serde::Deserialize;
use serde_json::json;

use super::operations::Request;
use super::response::{LambdaResponse, empty_answer, json_answer};
use super::validation::read;
use super::{LambdaDoor, LambdaError};

/// One invocation of this many stays unreserved, as Lambda keeps 100 of 1,000.
const UNRESERVED_SHARE: usize = 10;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConcurrencyShape {
    reserved_concurrent_executions: Option<i64>,
}

impl LambdaDoor {
    /// The invocations that no function has reserved.
    pub(super) fn unreserved(&self) -> usize {
        let reserved: usize = self.parts.functions.reserves().iter().map(|(_, _, reserved)| reserved).sum();
        self.settings.concurrency.saturating_sub(reserved)
    }

    pub(super) fn get_concurrency(
        &self,
        name: &FunctionName,
        request: &Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        let answer = match self.deployed(name, request)?.attached.reserved {
            Some(reserved) => json!({ "ReservedConcurrentExecutions": reserved }),
            None => json!({}),
        };
        Ok(json_answer(StatusCode::OK, &answer))
    }

    pub(super) async fn put_concurrency(
        &self,
        name: &FunctionName,
        request: &Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        let shape: ConcurrencyShape = read(&request.body)?;
        let asked = shape.reserved_concurrent_executions;
        let asked = asked.ok_or_else(|| LambdaError::validation("ReservedConcurrentExecutions is required"))?;
        let reserved = usize::try_from(asked)
            .map_err(|_| LambdaError::validation("ReservedConcurrentExecutions must not be negative"))?;
        self.reserve(name, request, Some(reserved)).await?;
        Ok(json_answer(StatusCode::OK, &json!({ "ReservedConcurrentExecutions": reserved })))
    }

    pub(super) async fn delete_concurrency(
        &self,
        name: &FunctionName,
        request: &Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        self.reserve(name, request, None).await?;
        Ok(empty_answer(StatusCode::NO_CONTENT))
    }

    async fn reserve(
        &self,
        name: &FunctionName,
        request: &Request<'_>,
        reserved: Option<usize>,
    ) -> Result<(), LambdaError> {
        let (namespace, limit) = (&request.who.namespace, self.settings.concurrency);
        let unreserved_min = limit.div_ceil(UNRESERVED_SHARE);
        let done = self.parts.functions.reserve(namespace, name, reserved, limit, unreserved_min).await;
        done.map_err(|error| self.refused(error))?;
        self.parts.invoke.set_reserved(namespace, name, reserved);
        Ok(())
    }
}
