//! Ended invocations: their records, explanations and logs.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::Stream;
use nigh_invoke::activation_log::ActivationQuery;
use nigh_schedule::activation::Activation;
use nigh_terms::{FunctionName, InvocationId, Namespace};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::refusal::Refusal;
use super::{AdminSource, RECORDS_MAX, UNANSWERED, json};
use crate::cluster::records::{MembersAnswers, RecordList, RecordsRequest, merge};
use crate::explain::{explain, outcome_words};

/// The records of one answer, if the request names no limit.
const RECORDS: usize = 20;

/// The output of one invocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// The id of the invocation.
    pub id: InvocationId,
    /// The invocation's function.
    pub function: FunctionName,
    /// When it was requested, RFC 3339.
    pub start: String,
    /// The handler's duration in microseconds.
    pub duration_us: u64,
    /// The outcome in words.
    pub outcome: String,
    /// The end of the output.
    pub log: String,
    /// Bytes of output before `log`, beyond the limit.
    pub log_omitted: u64,
}

impl From<&Activation> for LogEntry {
    fn from(activation: &Activation) -> Self {
        Self {
            id: activation.id,
            function: activation.function.clone(),
            start: activation.start.rfc3339(),
            duration_us: activation.duration_us,
            outcome: outcome_words(&activation.outcome),
            log: activation.log.clone(),
            log_omitted: activation.log_omitted,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ActivationParams {
    namespace: Option<Namespace>,
    function: Option<FunctionName>,
    errors: bool,
    before: Option<InvocationId>,
    limit: Option<usize>,
    follow: bool,
    /// True for the records of all members of the cluster.
    cluster: bool,
}

impl ActivationParams {
    fn query(&self) -> ActivationQuery {
        ActivationQuery {
            namespace: self.namespace.clone(),
            function: self.function.clone(),
            errors_only: self.errors,
            before: self.before,
        }
    }

    fn limit(&self) -> usize {
        self.limit.unwrap_or(RECORDS).min(RECORDS_MAX)
    }
}

/// The records that are asked for, newest first, and the names of the members that did not answer.
async fn records<N: AdminSource>(
    node: &N,
    asked: &ActivationParams,
) -> Result<(Vec<Activation>, Vec<String>), Refusal> {
    let own = node.activations().list(asked.query(), asked.limit()).await?;
    let Some(cluster) = node.cluster().filter(|_| asked.cluster) else { return Ok((own, Vec::new())) };
    let mut others = cluster.records_of_others(&RecordsRequest::newest(&asked.query(), asked.limit())).await;
    others.lists.push(RecordList { records: own, is_cut: false });
    Ok((merge(others.lists, asked.limit()), others.unanswered))
}

/// The answer with the names of the members that did not answer.
fn with_unanswered(unanswered: &[String], mut answer: Response) -> Response {
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
    Ok(with_unanswered(&unanswered, json(&found)?))
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

pub(super) async fn logs<N: AdminSource>(
    State(node): State<Arc<N>>,
    Query(asked): Query<ActivationParams>,
) -> Result<Response, Refusal> {
    // Followed before the listing: an invocation that ends in between is sent twice, with the same id.
    let live = asked.follow.then(|| node.activations().follow());
    let (mut past, unanswered) = records(&*node, &asked).await?;
    past.reverse();
    let lines = follow(past, live, asked.query(), node.stop().clone());
    let answer = ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response();
    Ok(with_unanswered(&unanswered, answer))
}

struct ActivationStream {
    past: VecDeque<Activation>,
    told: Vec<InvocationId>,
    live: Option<broadcast::Receiver<Arc<Activation>>>,
    query: ActivationQuery,
    stop: CancellationToken,
}

/// First the past invocations, then those that end, until the node stops or the client leaves.
fn follow(
    past: Vec<Activation>,
    live: Option<broadcast::Receiver<Arc<Activation>>>,
    query: ActivationQuery,
    stop: CancellationToken,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let told = past.iter().map(|one| one.id).collect();
    let following = ActivationStream { past: past.into(), told, live, query, stop };
    futures::stream::unfold(following, async |mut following| {
        let entry = following.next().await?;
        let mut line = serde_json::to_vec(&entry).ok()?;
        line.push(b'\n');
        Some((Ok(Bytes::from(line)), following))
    })
}

impl ActivationStream {
    async fn next(&mut self) -> Option<LogEntry> {
        if let Some(activation) = self.past.pop_front() {
            return Some(LogEntry::from(&activation));
        }
        let live = self.live.as_mut()?;
        loop {
            let received = tokio::select! {
                () = self.stop.cancelled() => return None,
                received = live.recv() => received,
            };
            match received {
                Ok(activation) if self.query.wants(&activation) && !self.told.contains(&activation.id) => {
                    return Some(LogEntry::from(&*activation));
                }
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "a client that follows the logs was too slow and missed invocations")
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
