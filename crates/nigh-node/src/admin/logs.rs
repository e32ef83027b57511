//! The logs of ended invocations, and of those that end from now on: of this node, or of all members of its cluster.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::Stream;
use nigh_invoke::activation_log::ActivationQuery;
use nigh_schedule::activation::Activation;
use nigh_terms::{FunctionName, InvocationId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use super::AdminSource;
use super::activations::{ActivationParams, records, with_unanswered};
use super::refusal::Refusal;
use crate::cluster::records::{FollowedMembers, FollowedRound};
use crate::explain::outcome_words;

/// How often the other members are asked for what has ended there.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);
/// Rounds of answers that wait for a slow client; then no member is asked until it has read one.
const ROUNDS_WAITING: usize = 4;

/// The output of one invocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogEntry {
    /// The id of the invocation.
    pub id: InvocationId,
    /// The invocation's function.
    pub function: FunctionName,
    /// When it was requested, RFC 3339.
    pub start: String,
    /// When it ended, in milliseconds since 1970 UTC.
    #[serde(default)]
    pub ended_ms: u64,
    /// The handler's duration in microseconds.
    pub duration_us: u64,
    /// The outcome in words.
    pub outcome: String,
    /// The end of the output.
    pub log: String,
    /// Bytes of output before `log`, beyond the limit.
    pub log_omitted: u64,
}

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum LogLine {
    /// The output of one invocation.
    Entry(LogEntry),
    /// From now on these members of the cluster do not answer; none of them if all answer again.
    Unanswered {
        /// Their names.
        unanswered: Vec<String>,
    },
}

impl From<&Activation> for LogEntry {
    fn from(activation: &Activation) -> Self {
        Self {
            id: activation.id,
            function: activation.function.clone(),
            start: activation.start.rfc3339(),
            ended_ms: activation.ended().millis(),
            duration_us: activation.duration_us,
            outcome: outcome_words(&activation.outcome),
            log: activation.log.clone(),
            log_omitted: activation.log_omitted,
        }
    }
}

impl From<&Activation> for LogLine {
    fn from(activation: &Activation) -> Self {
        Self::Entry(activation.into())
    }
}

pub(super) async fn logs<N: AdminSource>(
    State(node): State<Arc<N>>,
    Query(asked): Query<ActivationParams>,
) -> Result<Response, Refusal> {
    let query = asked.query();
    // Followed before the listing: an invocation that ends in between is known by both, and sent once.
    let live = asked.follow.then(|| node.activations().follow());
    let others = if asked.follow && asked.cluster { follow_others(&node, &query).await } else { None };
    let (mut past, unanswered) = records(&*node, &asked).await?;
    past.reverse();
    let lines = lines(past, live, others, query, node.stop().clone());
    let answer = ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response();
    Ok(with_unanswered(&unanswered, answer))
}

/// What the other members of the cluster add from now on; none if the node is alone.
async fn follow_others<N: AdminSource>(
    node: &Arc<N>,
    query: &ActivationQuery,
) -> Option<mpsc::Receiver<FollowedRound>> {
    let mut followed = FollowedMembers::default();
    let first = node.cluster()?.follow_others(&mut followed, query).await;
    let (tell, told) = mpsc::channel(ROUNDS_WAITING);
    let (node, query) = (Arc::clone(node), query.clone());
    tokio::spawn(async move {
        let mut round = first;
        let stop = node.stop().clone();
        loop {
            if round != FollowedRound::default() && tell.send(round).await.is_err() {
                return;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tell.closed() => return,
                () = tokio::time::sleep(FOLLOW_EVERY) => {}
            }
            let Some(cluster) = node.cluster() else { return };
            round = cluster.follow_others(&mut followed, &query).await;
        }
    });
    Some(told)
}

/// What a follower waits for.
enum News {
    /// An invocation has ended on this node.
    Here(Result<Arc<Activation>, RecvError>),
    /// The other members have answered.
    There(Option<FollowedRound>),
}

struct LogLines {
    waiting: VecDeque<LogLine>,
    /// The past invocations and their attempts, which may come a second time.
    sent: HashSet<(InvocationId, u32)>,
    live: Option<broadcast::Receiver<Arc<Activation>>>,
    others: Option<mpsc::Receiver<FollowedRound>>,
    query: ActivationQuery,
    stop: CancellationToken,
}

/// First the past invocations, then those that end, until the node stops or the client leaves.
fn lines(
    past: Vec<Activation>,
    live: Option<broadcast::Receiver<Arc<Activation>>>,
    others: Option<mpsc::Receiver<FollowedRound>>,
    query: ActivationQuery,
    stop: CancellationToken,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let sent = past.iter().map(|one| (one.id, one.attempt)).collect();
    let waiting = past.iter().map(LogLine::from).collect();
    let lines = LogLines { waiting, sent, live, others, query, stop };
    futures::stream::unfold(lines, async |mut lines| {
        let entry = lines.next().await?;
        let mut line = serde_json::to_vec(&entry).ok()?;
        line.push(b'\n');
        Some((Ok(Bytes::from(line)), lines))
    })
}

impl LogLines {
    async fn next(&mut self) -> Option<LogLine> {
        loop {
            if let Some(line) = self.waiting.pop_front() {
                return Some(line);
            }
            let Self { live, others, stop, .. } = self;
            let live = live.as_mut()?;
            let round = async {
                match others {
                    Some(others) => others.recv().await,
                    None => std::future::pending().await,
                }
            };
            let news = tokio::select! {
                () = stop.cancelled() => return None,
                received = live.recv() => News::Here(received),
                round = round => News::There(round),
            };
            match news {
                News::Here(Ok(activation)) => self.take(&activation),
                News::Here(Err(RecvError::Lagged(missed))) => {
                    tracing::warn!(missed, "a client that follows the logs was too slow and missed invocations");
                }
                News::Here(Err(RecvError::Closed)) => return None,
                News::There(Some(round)) => self.take_round(round),
                // The task that asks the members has ended: the node stops.
                News::There(None) => self.others = None,
            }
        }
    }

    fn take(&mut self, activation: &Activation) {
        if self.query.wants(activation) && !self.sent.contains(&(activation.id, activation.attempt)) {
            self.waiting.push_back(activation.into());
        }
    }

    fn take_round(&mut self, round: FollowedRound) {
        for record in &round.records {
            self.take(record);
        }
        self.waiting.extend(round.unanswered.map(|unanswered| LogLine::Unanswered { unanswered }));
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use nigh_schedule::activation::Outcome;
    use nigh_schedule::test_support::activation;

    use super::*;

    #[tokio::test]
    async fn the_past_comes_first_and_then_what_ends_here_and_elsewhere_each_once() {
        let [past, here, there] = [(); 3].map(|()| activation("one", "f", Outcome::Answered));
        let foreign = activation("two", "f", Outcome::Answered);
        let (live, followed) = broadcast::channel(8);
        let (tell, told) = mpsc::channel(8);
        let query = ActivationQuery { namespace: Some(past.namespace.clone()), ..ActivationQuery::default() };
        let stop = CancellationToken::new();
        let mut lines = Box::pin(lines(vec![past.clone()], Some(followed), Some(told), query, stop.clone()));
        let mut next = async || {
            let line = lines.next().await.map(|line| line.unwrap_or_default());
            line.map(|line| serde_json::from_slice::<LogLine>(&line).unwrap())
        };
        assert_eq!(next().await, Some(LogLine::from(&past)));
        for one in [&past, &foreign, &here] {
            live.send(Arc::new(one.clone())).unwrap();
        }
        assert_eq!(next().await, Some(LogLine::from(&here)));
        let unanswered = vec!["node-3".to_owned()];
        let round = FollowedRound { records: vec![past, there.clone()], unanswered: Some(unanswered.clone()) };
        tell.send(round).await.unwrap();
        assert_eq!(next().await, Some(LogLine::from(&there)));
        assert_eq!(next().await, Some(LogLine::Unanswered { unanswered }));
        stop.cancel();
        assert_eq!(next().await, None);
    }
}
