//! The activation records of all members. Each node stores the records of the invocations that ran on it. This module asks
//! the other members for theirs, so that the admin API of any node answers for the whole cluster. It names the members that
//! do not answer.

mod followed;

use std::cmp::Reverse;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use futures::future::join_all;
use nigh_engine::{PresentMember, RegistryError};
use nigh_invoke::activation_log::{ActivationLog, ActivationQuery, AddedRecords};
use nigh_rpc::{Body, Method, Peers, Refusal, Reply};
use nigh_schedule::activation::Activation;
use nigh_terms::{FunctionName, InvocationId, InvocationIdPrefix, Namespace, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{ClusterEngine, peer_address};

pub(crate) use self::followed::{FollowedMembers, FollowedRound};

/// The method that asks a member for records. The head is a `RecordsRequest`; the answer's head is a `RecordsReply`, its
/// body the records as JSON, one after the other, newest first.
pub(super) const RECORDS: Method = Method { number: 8, name: "records", head_max: 4 << 10, body_max: 0 };
/// How long a member may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// The most records of one answer.
const RECORDS_MAX: usize = 1000;
/// An answer ends before the record with which it would be longer. The first record is always in it.
const ANSWER_BYTES: usize = 16 << 20;
/// The most bytes of an answer that are read: one record alone may exceed `ANSWER_BYTES`.
const ANSWER_MAX_BYTES: u64 = 32 << 20;

/// The records that are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordsRequest {
    /// The newest records that match.
    Newest {
        namespace: Option<Namespace>,
        function: Option<FunctionName>,
        errors_only: bool,
        /// Only records of older invocations than this one.
        before: Option<InvocationId>,
        /// Only records of invocations whose ids begin so. Members of earlier builds leave this and `since` unheeded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prefix: Option<InvocationIdPrefix>,
        /// Only records of invocations that ended then or later.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
        limit: usize,
    },
    /// The record of one invocation; for an event, that of its last attempt on the asked member.
    Of(InvocationId),
    /// The records that were added from a position on, oldest first (`followed`). Without a position none: the answer
    /// says where the next question begins.
    Added { position: Option<u64>, namespace: Option<Namespace>, function: Option<FunctionName>, errors_only: bool },
}

impl RecordsRequest {
    pub(crate) fn newest(query: &ActivationQuery, limit: usize) -> Self {
        let ActivationQuery { namespace, function, errors_only, before, prefix, since } = query.clone();
        Self::Newest { namespace, function, errors_only, before, prefix, since, limit }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordsReply {
    /// True if older records match and are left out, because the answer would be too long.
    is_cut: bool,
    /// Of `Added`: where the next question begins.
    #[serde(default)]
    position: u64,
    /// Of `Added`: how many records before these are not remembered any more.
    #[serde(default)]
    missed: u64,
}

/// The records of one node, newest first.
#[derive(Debug, PartialEq)]
pub(crate) struct RecordList {
    pub(crate) records: Vec<Activation>,
    /// True if older records match and are left out.
    pub(crate) is_cut: bool,
}

/// What a member answers.
#[derive(Debug, PartialEq)]
pub(super) struct RecordsAnswer {
    pub(super) list: RecordList,
    /// Of `RecordsRequest::Added`: where the next question begins.
    pub(super) position: u64,
    /// Of `RecordsRequest::Added`: how many records before these are not remembered any more.
    pub(super) missed: u64,
}

/// The answers of several members.
#[derive(Debug, Default)]
pub(crate) struct MembersAnswers {
    /// One list for each member that answered.
    pub(crate) lists: Vec<RecordList>,
    /// The names of the members that did not answer.
    pub(crate) unanswered: Vec<String>,
}

/// Merges lists into one of at most `limit` records, newest first. Leaves out records older than the end of a list that is
/// cut, because the merged list would lack that list's records between them.
pub(crate) fn merge(lists: Vec<RecordList>, limit: usize) -> Vec<Activation> {
    let order = |one: &Activation| (one.id, one.attempt);
    let cut = lists.iter().filter(|list| list.is_cut);
    let end = cut.filter_map(|list| list.records.last().map(order)).max();
    let mut all: Vec<Activation> = lists.into_iter().flat_map(|list| list.records).collect();
    all.sort_by_key(|one| Reverse(order(one)));
    all.retain(|one| end.is_none_or(|end| order(one) >= end));
    all.truncate(limit);
    all
}

/// Answers another member from this node's log.
pub(super) async fn answer(log: &ActivationLog, head: Bytes) -> Result<Reply, Refusal> {
    let unread = |error: RegistryError| Refusal::failed(error.to_string());
    let request = serde_json::from_slice(&head).map_err(|error| Refusal::failed(error.to_string()))?;
    let unwritten = |error: serde_json::Error| Refusal::failed(error.to_string());
    let (reply, body) = match request {
        RecordsRequest::Newest { namespace, function, errors_only, before, prefix, since, limit } => {
            let query = ActivationQuery { namespace, function, errors_only, before, prefix, since };
            let records = log.list(query, limit.min(RECORDS_MAX)).await.map_err(unread)?;
            encode(&records, ANSWER_BYTES).map_err(unwritten)?
        }
        RecordsRequest::Of(id) => {
            let record = log.get(id).await.map_err(unread)?;
            encode(record.as_slice(), ANSWER_BYTES).map_err(unwritten)?
        }
        RecordsRequest::Added { position: None, .. } => {
            (RecordsReply { is_cut: false, position: log.position(), missed: 0 }, Vec::new())
        }
        RecordsRequest::Added { position: Some(position), namespace, function, errors_only } => {
            let query = ActivationQuery { namespace, function, errors_only, ..ActivationQuery::default() };
            let added = log.added_from(position, &query, RECORDS_MAX).await.map_err(unread)?;
            encode_added(added, ANSWER_BYTES).map_err(unwritten)?
        }
    };
    let head = serde_json::to_vec(&reply).map_err(unwritten)?;
    Ok(Reply { head: head.into(), body: Body::from(Bytes::from(body)) })
}

/// The records one after the other, until they would be longer than `bytes`; the first always. How many they are.
fn concatenate<'a>(
    records: impl IntoIterator<Item = &'a Activation>,
    bytes: usize,
) -> Result<(Vec<u8>, usize), serde_json::Error> {
    let (mut body, mut count) = (Vec::new(), 0);
    for record in records {
        let record = serde_json::to_vec(record)?;
        if !body.is_empty() && body.len() + record.len() > bytes {
            break;
        }
        body.extend(record);
        count += 1;
    }
    Ok((body, count))
}

/// The head and the body of an answer.
fn encode(records: &[Activation], bytes: usize) -> Result<(RecordsReply, Vec<u8>), serde_json::Error> {
    let (body, count) = concatenate(records, bytes)?;
    Ok((RecordsReply { is_cut: count < records.len(), position: 0, missed: 0 }, body))
}

/// The head and the body of an answer to `Added`. If not all records have room, the next question begins after the last
/// that has.
fn encode_added(added: AddedRecords, bytes: usize) -> Result<(RecordsReply, Vec<u8>), serde_json::Error> {
    let AddedRecords { records, position, missed } = added;
    let (body, count) = concatenate(records.iter().map(|(_, record)| record), bytes)?;
    let is_cut = count < records.len();
    let after_last = records.get(count.saturating_sub(1)).map(|(after, _)| *after);
    let position = after_last.filter(|_| is_cut).unwrap_or(position);
    Ok((RecordsReply { is_cut, position, missed }, body))
}

fn decode(head: &[u8], body: &[u8]) -> Result<RecordsAnswer, serde_json::Error> {
    let RecordsReply { is_cut, position, missed } = serde_json::from_slice(head)?;
    let records =
        serde_json::Deserializer::from_slice(body).into_iter::<Activation>().collect::<Result<Vec<_>, _>>()?;
    Ok(RecordsAnswer { list: RecordList { records, is_cut }, position, missed })
}

/// Asks `member` and waits for its answer until `by`.
pub(super) async fn ask(
    peers: &Peers,
    member: &PresentMember,
    head: &[u8],
    by: Instant,
) -> Result<RecordsAnswer, String> {
    let answer = peers.call(&peer_address(member), &RECORDS, head, Bytes::new(), by).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let body = answer.body.collect(ANSWER_MAX_BYTES).await.map_err(|error| error.to_string())?;
    decode(&answer.head, &body).map_err(|error| error.to_string())
}

/// Asks all `members` at once.
async fn ask_all(peers: &Peers, members: &[PresentMember], request: &RecordsRequest) -> MembersAnswers {
    let mut answers = MembersAnswers::default();
    let head = match serde_json::to_vec(request) {
        Ok(head) => head,
        Err(error) => {
            tracing::error!(%error, "a request for records cannot be written as JSON");
            answers.unanswered = members.iter().map(|member| member.node.0.clone()).collect();
            return answers;
        }
    };
    let by = Instant::now() + ANSWER_WITHIN;
    let asked = members.iter().map(|member| Box::pin(ask(peers, member, &head, by)));
    for (member, answered) in members.iter().zip(join_all(asked).await) {
        match answered {
            Ok(answer) => answers.lists.push(answer.list),
            Err(reason) => {
                tracing::warn!(node = %member.node, reason, "a member did not answer with its activation records");
                answers.unanswered.push(member.node.0.clone());
            }
        }
    }
    answers
}

impl ClusterEngine {
    /// From now on this node answers other members' requests for records from `log`. Call this once.
    pub(crate) fn serve_records(&self, log: ActivationLog) {
        // A second call changes nothing.
        let _ = self.calls.records.set(log);
    }

    /// The records of all other living members.
    #[boxed]
    pub(crate) async fn records_of_others(&self, request: &RecordsRequest) -> MembersAnswers {
        ask_all(&self.peers, &self.other_members(), request).await
    }

    /// All other living members.
    pub(super) fn other_members(&self) -> Vec<PresentMember> {
        let present = self.membership.present();
        let present = present.borrow();
        present.iter().filter(|member| member.presence.number != self.number()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use nigh_engine::{Presence, RecordLog, Retention, StateFile};
    use nigh_rpc::{Call, ClientSettings, Handler, Hello, Identity, Role, Security, ServerSettings, serve};
    use nigh_schedule::activation::Outcome;
    use nigh_schedule::test_support::activation;
    use nigh_terms::{Incarnation, NodeId, NodeNumber};
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// A member that answers requests for records only.
    struct RecordsDoor(ActivationLog);

    #[async_trait]
    impl Handler for RecordsDoor {
        fn method(&self, number: u16) -> Option<&'static Method> {
            (number == RECORDS.number).then_some(&RECORDS)
        }

        async fn call(&self, call: Call<'_>) -> Result<Reply, Refusal> {
            answer(&self.0, call.head).await
        }
    }

    fn hello(name: &str) -> Hello {
        Hello { identity: Identity::new("trial", Role::Node, name).unwrap(), incarnation: 1 }
    }

    fn member(name: &str, number: u32, address: &str) -> PresentMember {
        let presence = Presence::new(NodeNumber(number), address, []);
        PresentMember { node: NodeId(name.to_owned()), incarnation: Incarnation(1), presence }
    }

    #[tokio::test]
    async fn members_answer_with_their_records_and_one_that_does_not_answer_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let log = ActivationLog::new(RecordLog::open(state, Retention::default()).unwrap());
        let [one, other] = ["one", "other"].map(|namespace| activation(namespace, "f", Outcome::Answered));
        log.append(one.clone());
        log.append(other.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let answers_at = listener.local_addr().unwrap().to_string();
        let (door, ending) = (Arc::new(RecordsDoor(log)), CancellationToken::new());
        let settings = ServerSettings::default();
        tokio::spawn(serve(listener, hello("b"), Security::Plain, settings, door, ending.clone()));
        let nobody_at = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let members = [member("b", 2, &answers_at), member("c", 3, &nobody_at)];
        let peers = Peers::new(hello("a"), Security::Plain, ClientSettings::default());

        let query = ActivationQuery { namespace: Some(one.namespace.clone()), ..ActivationQuery::default() };
        let answers = ask_all(&peers, &members, &RecordsRequest::newest(&query, 10)).await;
        assert_eq!(answers.lists, [RecordList { records: vec![one], is_cut: false }]);
        assert_eq!(answers.unanswered, ["c"]);
        let answers = ask_all(&peers, &members[..1], &RecordsRequest::Of(other.id)).await;
        assert_eq!(merge(answers.lists, 10), [other]);
        assert!(answers.unanswered.is_empty());
        ending.cancel();
    }

    #[test]
    fn lists_are_merged_newest_first_and_end_where_one_of_them_is_cut() {
        let all: Vec<Activation> = (0..6).map(|_| activation("one", "f", Outcome::Answered)).collect();
        let list =
            |of: &[usize], is_cut| RecordList { records: of.iter().map(|at| all[*at].clone()).collect(), is_cut };
        let merged = |lists: [RecordList; 2], limit| -> Vec<usize> {
            let merged = merge(lists.into(), limit);
            merged.iter().map(|one| all.iter().position(|known| known.id == one.id).unwrap()).collect()
        };
        assert_eq!(merged([list(&[4, 2, 0], false), list(&[5, 3, 1], false)], 4), [5, 4, 3, 2]);
        assert_eq!(merged([list(&[4, 2], true), list(&[5, 3, 1], false)], 10), [5, 4, 3, 2]);
        let second = Activation { attempt: 2, ..all[0].clone() };
        let attempts = merge(vec![list(&[0], false), RecordList { records: vec![second], is_cut: false }], 10);
        assert_eq!(attempts.iter().map(|one| one.attempt).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn an_answer_that_would_be_too_long_says_that_it_is_cut() {
        let all: Vec<Activation> = (0..3).map(|_| activation("one", "f", Outcome::Answered)).collect();
        for (bytes, count) in [(1, 1), (ANSWER_BYTES, 3)] {
            let (head, body) = encode(&all, bytes).unwrap();
            let list = decode(&serde_json::to_vec(&head).unwrap(), &body).unwrap().list;
            assert_eq!((list.records.as_slice(), list.is_cut), (&all[..count], count < all.len()));
            let added = AddedRecords {
                records: all.iter().enumerate().map(|(at, one)| (10 + at as u64, one.clone())).collect(),
                position: 20,
                missed: 7,
            };
            let (head, body) = encode_added(added, bytes).unwrap();
            let answer = decode(&serde_json::to_vec(&head).unwrap(), &body).unwrap();
            let next = if count < all.len() { 10 } else { 20 };
            assert_eq!((answer.list.records.as_slice(), answer.position, answer.missed), (&all[..count], next, 7));
        }
    }

    #[test]
    fn a_request_of_an_earlier_build_is_understood() {
        let earlier = r#"{"newest":{"namespace":"one","function":null,"errors_only":true,"before":null,"limit":5}}"#;
        let namespace = Some(Namespace::new("one").unwrap());
        let query = ActivationQuery { namespace, errors_only: true, ..ActivationQuery::default() };
        assert_eq!(serde_json::from_str::<RecordsRequest>(earlier).unwrap(), RecordsRequest::newest(&query, 5));
        assert_eq!(serde_json::to_string(&RecordsRequest::newest(&query, 5)).unwrap(), earlier);
    }
}
