//! Ended invocations: their records and explanations.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::HeaderValue;
use axum::response::Response;
use nigh_invoke::activation_log::{ActivationQuery, cursor_behind};
use nigh_schedule::activation::Activation;
use nigh_terms::{FunctionName, InvocationId, InvocationIdPrefix, Namespace, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;

use super::refusal::Refusal;
use super::{AdminSource, RECORDS_MAX, UNANSWERED, json, with_cursor};
use crate::cluster::records::{MembersAnswers, RecordList, RecordsRequest, merge};
use crate::explain::explain;

/// The records of one answer, if the request names no limit.
const RECORDS: usize = 20;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ActivationParams {
    /// Only invocations of this namespace's functions.
    namespace: Option<Namespace>,
    /// Only invocations of this function.
    function: Option<FunctionName>,
    /// Only invocations that failed.
    errors: bool,
    /// Only invocations with an earlier id.
    before: Option<InvocationId>,
    /// Where the page begins: the header `x-nigh-cursor` of the page before.
    cursor: Option<InvocationId>,
    /// Only invocations whose ids begin so.
    prefix: Option<InvocationIdPrefix>,
    /// Only invocations that ended then or later, in milliseconds since 1970 UTC.
    since: Option<Timestamp>,
    /// The most records: 20 if absent, 1000 at most.
    limit: Option<usize>,
    /// In `/logs`: what ends from now on follows, until the client leaves.
    pub(super) follow: bool,
    /// True for the records of all members of the cluster.
    pub(super) cluster: bool,
}

impl ActivationParams {
    pub(super) fn query(&self) -> ActivationQuery {
        ActivationQuery {
            namespace: self.namespace.clone(),
            function: self.function.clone(),
            errors_only: self.errors,
            // A page goes on below both.
            before: self.before.into_iter().chain(self.cursor).min(),
            prefix: self.prefix.clone(),
            since: self.since,
        }
    }

    fn limit(&self) -> usize {
        self.limit.unwrap_or(RECORDS).min(RECORDS_MAX)
    }
}

/// The records that are asked for, newest first, and the names of the members that did not answer.
pub(super) async fn records<N: AdminSource>(
    node: &N,
    asked: &ActivationParams,
) -> Result<(Vec<Activation>, Vec<String>), Refusal> {
    let own = node.activations().list(asked.query(), asked.limit()).await?;
    let Some(cluster) = node.cluster().filter(|_| asked.cluster) else { return Ok((own, Vec::new())) };
    let mut others = cluster.records_of_others(&RecordsRequest::newest(&asked.query(), asked.limit())).await;
    others.lists.push(RecordList { records: own, is_cut: false });
    let mut all = merge(others.lists, asked.limit());
    // A member of an earlier build answers without regard to newer conditions.
    all.retain(|one| asked.query().wants(one));
    Ok((all, others.unanswered))
}

/// The answer with the names of the members that did not answer.
pub(super) fn with_unanswered(unanswered: &[String], mut answer: Response) -> Response {
    if unanswered.is_empty() {
        return answer;
    }
    match HeaderValue::from_str(&unanswered.join(",")) {
        Ok(names) => drop(answer.headers_mut().insert(UNANSWERED, names)),
        Err(error) => tracing::error!(%error, ?unanswered, "names of members cannot be sent in a header"),
    }
    answer
}

pub(super) async fn activations<N: AdminSource>(
    State(node): State<Arc<N>>,
    Query(asked): Query<ActivationParams>,
) -> Result<Response, Refusal> {
    let (found, unanswered) = records(&*node, &asked).await?;
    let next = found.last().filter(|_| found.len() >= asked.limit()).map(|last| cursor_behind(last).to_string());
    Ok(with_cursor(next, with_unanswered(&unanswered, json(&found)?)))
}

/// The record of an invocation, from whichever member has it; for an event, that of its last attempt.
async fn find<N: AdminSource>(node: &N, id: &str) -> Result<Activation, Refusal> {
    let id: InvocationId = id.parse().map_err(|_| Refusal::bad_id(id))?;
    let own = node.activations().get(id).await?;
    let others = match node.cluster() {
        Some(cluster) => cluster.records_of_others(&RecordsRequest::Of(id)).await,
        None => MembersAnswers::default(),
    };
    let others_records = others.lists.into_iter().flat_map(|list| list.records);
    own.into_iter().chain(others_records).max_by_key(|one| one.attempt).ok_or_else(|| {
        let mut words = format!("there is no record of an invocation {id}");
        if !others.unanswered.is_empty() {
            words += &format!("; it may have run on {}, which did not answer", others.unanswered.join(" or "));
        }
        Refusal::not_found(words)
    })
}

pub(super) async fn activation<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    json(&find(&*node, &id).await?)
}

pub(super) async fn explanation<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    json(&explain(find(&*node, &id).await?))
}
