//! What the members of a cluster tell each other for people: a summary of a node, which objects it has cached, who used an
//! object there, and the executions that it runs. The admin API of any node so answers for the whole cluster, and says which
//! members did not answer.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;
use nigh_data::ObjectId;
use nigh_engine::PresentMember;
use nigh_objects::{ObjectMemory, Whereabouts};
use nigh_rpc::{Body, CallError, Method, Peers, Refusal, RefusalKind, Reply};
use nigh_terms::{BucketName, ByteSize, Namespace, ObjectKey, Version};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{ClusterEngine, peer_address};
use crate::object_users::ObjectUsers;
use crate::shown_executions::{ExecutionsAnswer, ExecutionsQuestion};

/// The method that asks a member. The head is a `MemberQuestion`; the answer's body is a `MemberAnswer`.
pub(super) const MEMBERS: Method = Method { number: 14, name: "member", head_max: 1 << 20, body_max: 0 };
/// How long a member may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// The most keys of one question.
pub(crate) const KEYS_MAX: usize = 100;
/// Why an answer is of no use that does not fit the question.
pub(crate) const OTHER_ANSWER: &str = "it answered another question";

/// What a member is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MemberQuestion {
    /// Its summary.
    Summary {},
    /// Where it sees copies of these objects; at most [`KEYS_MAX`].
    Copies {
        /// The objects' namespace.
        namespace: Namespace,
        /// The objects' bucket.
        bucket: BucketName,
        /// The objects' keys.
        keys: Vec<ObjectKey>,
    },
    /// Which of the invocations that ran there used this object.
    Users {
        /// The object's namespace.
        namespace: Namespace,
        /// The object's bucket.
        bucket: BucketName,
        /// The object's key.
        key: ObjectKey,
    },
    /// Executions of a namespace whose executions it runs.
    Executions(ExecutionsQuestion),
}

/// What a member answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MemberAnswer {
    /// To `Summary`.
    Summary(Box<MemberSummary>),
    /// To `Copies`: one entry for each key, in the order of the question.
    Copies(Vec<CopiesSeen>),
    /// To `Users`.
    Users(ObjectUsers),
    /// To `Executions`.
    Executions(ExecutionsAnswer),
}

/// A member in a few figures. Members of later versions may add fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MemberSummary {
    /// The version of its program.
    pub(crate) version: String,
    /// When it started, RFC 3339, and the seconds since.
    pub(crate) started: String,
    pub(crate) uptime_s: u64,
    /// True if it drains.
    pub(crate) draining: bool,
    /// Invocations that run, and that wait.
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    /// What sandboxes may book together, what they have booked, and what their limits come to.
    pub(crate) bookable: ByteSize,
    pub(crate) booked: ByteSize,
    pub(crate) granted: ByteSize,
    /// What the cache may take, and what its copies take.
    pub(crate) cache_budget: ByteSize,
    pub(crate) cache_bytes: ByteSize,
    /// Cached copies.
    pub(crate) copies: u64,
    /// Shards whose home it is.
    pub(crate) homes: usize,
    /// Invalidations of its homes that are not acknowledged.
    pub(crate) invalidations: usize,
    /// Unpushed writes, and how long the oldest has waited.
    pub(crate) unpushed: usize,
    pub(crate) unpushed_bytes: ByteSize,
    pub(crate) unpushed_oldest_ms: u64,
    /// What keeps it from its work; none if nothing does.
    pub(crate) trouble: Option<String>,
}

/// What a member knows of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CopiesSeen {
    /// The version of the copy that it has cached; none if it has none.
    pub(crate) cached: Option<Version>,
    /// True if it is the object's home.
    pub(crate) home: bool,
    /// Nodes, by number, that have not acknowledged an invalidation, if it is the home.
    pub(crate) pending: Vec<u32>,
}

/// A node that answers other members.
#[async_trait]
pub(crate) trait MemberSource: Send + Sync {
    /// The node in a few figures.
    fn summary(&self) -> MemberSummary;
    /// What the node knows of these objects.
    fn copies(&self, namespace: &Namespace, bucket: &BucketName, keys: &[ObjectKey]) -> Vec<CopiesSeen>;
    /// Which of the invocations that ran on the node used this object; an error in words.
    async fn users(&self, namespace: &Namespace, bucket: &BucketName, key: &ObjectKey) -> Result<ObjectUsers, String>;
    /// The executions that are asked for, if the node runs them; an error in words.
    async fn executions(&self, question: &ExecutionsQuestion) -> Result<ExecutionsAnswer, String>;
}

impl MemberQuestion {
    /// What `node` answers.
    async fn answer(&self, node: &dyn MemberSource) -> Result<MemberAnswer, String> {
        Ok(match self {
            Self::Summary {} => MemberAnswer::Summary(Box::new(node.summary())),
            Self::Copies { namespace, bucket, keys } => {
                let asked = &keys[..keys.len().min(KEYS_MAX)];
                MemberAnswer::Copies(node.copies(namespace, bucket, asked))
            }
            Self::Users { namespace, bucket, key } => MemberAnswer::Users(node.users(namespace, bucket, key).await?),
            Self::Executions(question) => MemberAnswer::Executions(node.executions(question).await?),
        })
    }
}

/// What a node whose object memory is `memory` knows of these objects.
pub(crate) fn copies_seen(
    memory: &ObjectMemory,
    namespace: &Namespace,
    bucket: &BucketName,
    keys: &[ObjectKey],
) -> Vec<CopiesSeen> {
    let seen = keys.iter().map(|key| {
        let object = ObjectId { namespace: namespace.clone(), bucket: bucket.clone(), key: key.clone() };
        let Whereabouts { cached, home, .. } = memory.whereabouts(&object);
        CopiesSeen {
            cached: cached.map(|cached| cached.version),
            home: home.is_some(),
            pending: home.map(|home| home.pending.iter().map(|node| node.0).collect()).unwrap_or_default(),
        }
    });
    seen.collect()
}

/// Answers another member.
pub(super) async fn answer(source: Option<&Weak<dyn MemberSource>>, head: &[u8]) -> Result<Reply, Refusal> {
    let failed = |error: serde_json::Error| Refusal::failed(error.to_string());
    let Some(node) = source.and_then(Weak::upgrade) else {
        return Err(Refusal::new(RefusalKind::Closing, "this node is starting or ending"));
    };
    let question: MemberQuestion = serde_json::from_slice(head).map_err(failed)?;
    let answer = question.answer(&*node).await.map_err(Refusal::failed)?;
    let body = serde_json::to_vec(&answer).map_err(failed)?;
    Ok(Reply { head: Bytes::new(), body: Body::from(Bytes::from(body)) })
}

/// Why a member did not answer. One whose program is older does not have the method.
fn silence(error: &CallError) -> String {
    match error.refusal() {
        Some(Refusal { kind: RefusalKind::UnknownMethod, .. }) => {
            "its program is older and does not tell this; upgrade it".to_owned()
        }
        _ => error.to_string(),
    }
}

async fn ask(peers: &Peers, member: &PresentMember, head: &[u8]) -> Result<MemberAnswer, String> {
    let by = Instant::now() + ANSWER_WITHIN;
    let answer = peers.call(&peer_address(member), &MEMBERS, head, Bytes::new(), by).await;
    let answer = answer.map_err(|error| silence(&error))?;
    let body = answer.body.collect(ANSWER_BYTES_MAX).await.map_err(|error| error.to_string())?;
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}

impl ClusterEngine {
    /// From now on this node answers other members' questions by `source`. Call this once.
    pub(crate) fn serve_members(&self, source: Weak<dyn MemberSource>) {
        // A second call changes nothing.
        let _ = self.calls.members.set(source);
    }

    /// The answer of `member`, or why it did not answer.
    #[boxed]
    pub(crate) async fn ask_member(
        &self,
        member: &PresentMember,
        question: &MemberQuestion,
    ) -> Result<MemberAnswer, String> {
        let head = serde_json::to_vec(question).map_err(|error| error.to_string())?;
        ask(&self.peers, member, &head).await
    }

    /// The answers of all other living members by their names; an error says why a member did not answer.
    #[boxed]
    pub(crate) async fn ask_members(
        &self,
        question: &MemberQuestion,
    ) -> Result<BTreeMap<String, Result<MemberAnswer, String>>, serde_json::Error> {
        let head = serde_json::to_vec(question)?;
        let members = self.other_members();
        let asked = members.iter().map(|member| Box::pin(ask(&self.peers, member, &head)));
        let answers = join_all(asked).await;
        Ok(members.iter().map(|member| member.node.0.clone()).zip(answers).collect())
    }

    /// The summary of each of `members`, this node included; an error says why a member did not answer.
    pub(super) async fn summaries(
        &self,
        members: &[PresentMember],
    ) -> Result<Vec<Result<MemberSummary, String>>, serde_json::Error> {
        let head = serde_json::to_vec(&MemberQuestion::Summary {})?;
        let own = self.calls.members.get().and_then(Weak::upgrade);
        let asked = members.iter().map(|member| {
            let (own, head) = (own.as_ref().filter(|_| member.node == self.claimant.node), &head);
            Box::pin(async move {
                match own {
                    Some(own) => Ok(own.summary()),
                    None => summary_in(ask(&self.peers, member, head).await?),
                }
            })
        });
        Ok(join_all(asked).await)
    }
}

fn summary_in(answer: MemberAnswer) -> Result<MemberSummary, String> {
    match answer {
        MemberAnswer::Summary(summary) => Ok(*summary),
        _ => Err(OTHER_ANSWER.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nigh_engine::Presence;
    use nigh_rpc::{Call, ClientSettings, Handler, Hello, Identity, Role, Security, ServerSettings, serve};
    use nigh_terms::{Incarnation, NodeId, NodeNumber};
    use nigh_workflow::arn::WorkflowName;
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;

    struct One;

    #[async_trait]
    impl MemberSource for One {
        fn summary(&self) -> MemberSummary {
            MemberSummary { version: "1".to_owned(), copies: 3, ..MemberSummary::default() }
        }

        fn copies(&self, _: &Namespace, _: &BucketName, keys: &[ObjectKey]) -> Vec<CopiesSeen> {
            vec![CopiesSeen { home: true, ..CopiesSeen::default() }; keys.len()]
        }

        async fn users(&self, _: &Namespace, _: &BucketName, _: &ObjectKey) -> Result<ObjectUsers, String> {
            Err("the records cannot be read".to_owned())
        }

        async fn executions(&self, _: &ExecutionsQuestion) -> Result<ExecutionsAnswer, String> {
            Ok(ExecutionsAnswer::NotOwner)
        }
    }

    async fn asked(question: &MemberQuestion, node: &Arc<dyn MemberSource>) -> Result<MemberAnswer, String> {
        let head = serde_json::to_vec(question).unwrap();
        let source = Arc::downgrade(node);
        match answer(Some(&source), &head).await {
            Ok(reply) => assert_ne!(reply.body.len(), 0),
            Err(refusal) => return Err(refusal.text),
        }
        question.answer(&**node).await
    }

    #[tokio::test]
    async fn a_member_answers_what_it_is_asked_and_no_more_keys_than_the_limit() {
        let node = Arc::new(One) as Arc<dyn MemberSource>;
        let Ok(MemberAnswer::Summary(summary)) = asked(&MemberQuestion::Summary {}, &node).await else {
            panic!("other")
        };
        assert_eq!(summary.copies, 3);
        let (namespace, bucket) = (Namespace::new("one").unwrap(), BucketName::new("bucket").unwrap());
        let keys: Vec<ObjectKey> = (0..KEYS_MAX + 5).map(|n| ObjectKey::new(&n.to_string()).unwrap()).collect();
        let (of, within, key) = (namespace.clone(), bucket.clone(), keys[0].clone());
        let copies = MemberQuestion::Copies { namespace, bucket, keys };
        let Ok(MemberAnswer::Copies(seen)) = asked(&copies, &node).await else { panic!("other") };
        assert_eq!(seen.len(), KEYS_MAX);
        let (workflow, execution) = (WorkflowName::new("nightly").unwrap(), None);
        let executions = ExecutionsQuestion { namespace: of.clone(), workflow, execution };
        let answered = asked(&MemberQuestion::Executions(executions), &node).await;
        assert!(matches!(answered, Ok(MemberAnswer::Executions(ExecutionsAnswer::NotOwner))));
        let users = asked(&MemberQuestion::Users { namespace: of, bucket: within, key }, &node).await;
        assert_eq!(users, Err("the records cannot be read".to_owned()));
        assert!(answer(None, b"{}").await.is_err());
    }

    /// A member that has the method, or is of an older program and has no method at all.
    struct Door(Option<Arc<dyn MemberSource>>);

    #[async_trait]
    impl Handler for Door {
        fn method(&self, number: u16) -> Option<&'static Method> {
            (self.0.is_some() && number == MEMBERS.number).then_some(&MEMBERS)
        }

        async fn call(&self, call: Call<'_>) -> Result<Reply, Refusal> {
            answer(self.0.as_ref().map(Arc::downgrade).as_ref(), &call.head).await
        }
    }

    fn hello(name: &str) -> Hello {
        Hello { identity: Identity::new("trial", Role::Node, name).unwrap(), incarnation: 1 }
    }

    #[tokio::test]
    async fn a_member_of_an_older_program_is_said_to_be_older_and_costs_only_its_own_part() {
        let (peers, ending) =
            (Peers::new(hello("a"), Security::Plain, ClientSettings::default()), CancellationToken::new());
        let head = serde_json::to_vec(&MemberQuestion::Summary {}).unwrap();
        let doors = [Door(Some(Arc::new(One))), Door(None)];
        let mut answers = Vec::new();
        for (number, door) in doors.into_iter().enumerate() {
            let (name, settings) = (format!("b{number}"), ServerSettings::default());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let presence = Presence::new(NodeNumber(2), &listener.local_addr().unwrap().to_string(), []);
            let member = PresentMember { node: NodeId(name.clone()), incarnation: Incarnation(1), presence };
            let until = ending.clone();
            tokio::spawn(serve(listener, hello(&name), Security::Plain, settings, Arc::new(door), until));
            answers.push(ask(&peers, &member, &head).await);
        }
        assert!(matches!(&answers[0], Ok(MemberAnswer::Summary(summary)) if summary.copies == 3));
        assert_eq!(answers[1], Err("its program is older and does not tell this; upgrade it".to_owned()));
        ending.cancel();
    }

    #[test]
    fn a_summary_of_an_earlier_or_later_version_is_understood() {
        let summary: MemberSummary = serde_json::from_str(r#"{"copies": 2, "new": true}"#).unwrap();
        assert_eq!(summary, MemberSummary { copies: 2, ..MemberSummary::default() });
    }
}
