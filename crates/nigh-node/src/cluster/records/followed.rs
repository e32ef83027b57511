//! Follows the records that the other members add: each is asked again and again for what it has added since the last
//! answer. The pure part says where a question begins, and which members have fallen silent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use futures::future::join_all;
use nigh_engine::PresentMember;
use nigh_invoke::activation_log::ActivationQuery;
use nigh_schedule::activation::Activation;
use nigh_terms::{Incarnation, NodeId};
use tokio::time::Instant;

use super::{RecordsRequest, ask};
use crate::cluster::ClusterEngine;

/// How long a member may take to answer. A member that does not answer delays the records of the others by this.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How far one incarnation of a member has been followed.
#[derive(Debug, PartialEq, Eq)]
struct Cursor {
    incarnation: Incarnation,
    /// Where the next question begins; none until its first answer.
    position: Option<u64>,
}

/// How far the members have been followed.
#[derive(Debug, Default)]
pub(crate) struct FollowedMembers {
    cursors: BTreeMap<NodeId, Cursor>,
    silent: BTreeSet<NodeId>,
    has_begun: bool,
}

/// What a round of questions has brought.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FollowedRound {
    /// The records that were added, in the order of the invocations' ends.
    pub(crate) records: Vec<Activation>,
    /// The members that do not answer, if they are others than in the round before.
    pub(crate) unanswered: Option<Vec<String>>,
}

impl FollowedMembers {
    /// Where the question to `member` begins. What a member added before it was followed is past; of one that has joined
    /// or restarted since, everything is new.
    fn position_of(&mut self, member: &PresentMember) -> Option<u64> {
        let PresentMember { node, incarnation, .. } = member;
        match self.cursors.get(node) {
            Some(cursor) if cursor.incarnation == *incarnation => cursor.position,
            _ => {
                let position = self.has_begun.then_some(0);
                self.cursors.insert(node.clone(), Cursor { incarnation: *incarnation, position });
                position
            }
        }
    }

    fn answered(&mut self, member: &NodeId, position: u64) {
        if let Some(cursor) = self.cursors.get_mut(member) {
            cursor.position = Some(position);
        }
    }

    /// Ends a round. The members that do not answer, if they are others than before.
    fn ended(&mut self, silent: BTreeSet<NodeId>) -> Option<Vec<String>> {
        self.has_begun = true;
        let changed = silent != self.silent;
        self.silent = silent;
        changed.then(|| self.silent.iter().map(|node| node.0.clone()).collect())
    }
}

impl ClusterEngine {
    /// Asks all other living members for the records that match `query` and that they have added since the last round;
    /// in the first round none.
    #[boxed]
    pub(crate) async fn follow_others(&self, followed: &mut FollowedMembers, query: &ActivationQuery) -> FollowedRound {
        let members = self.other_members();
        let by = Instant::now() + ANSWER_WITHIN;
        let heads = members.iter().map(|member| {
            serde_json::to_vec(&RecordsRequest::Added {
                position: followed.position_of(member),
                namespace: query.namespace.clone(),
                function: query.function.clone(),
                errors_only: query.errors_only,
            })
        });
        let heads: Vec<Result<Vec<u8>, serde_json::Error>> = heads.collect();
        let asked = members.iter().zip(&heads).map(|(member, head)| {
            Box::pin(async move {
                match head {
                    Ok(head) => ask(&self.peers, member, head, by).await,
                    Err(error) => Err(error.to_string()),
                }
            })
        });
        let (mut records, mut silent) = (Vec::new(), BTreeSet::new());
        for (member, answered) in members.iter().zip(join_all(asked).await) {
            match answered {
                Ok(answer) => {
                    if answer.missed > 0 {
                        let (node, missed) = (&member.node, answer.missed);
                        tracing::warn!(%node, missed, "a client that follows the logs missed invocations");
                    }
                    followed.answered(&member.node, answer.position);
                    records.extend(answer.list.records);
                }
                Err(reason) => {
                    tracing::debug!(node = %member.node, reason, "a member that is followed did not answer");
                    silent.insert(member.node.clone());
                }
            }
        }
        records.sort_by_key(|one| (one.ended(), one.id, one.attempt));
        FollowedRound { records, unanswered: followed.ended(silent) }
    }
}

#[cfg(test)]
mod tests {
    use nigh_engine::Presence;
    use nigh_terms::NodeNumber;

    use super::*;

    fn member(name: &str, incarnation: u64) -> PresentMember {
        let presence = Presence::new(NodeNumber(1), "127.0.0.1:1", []);
        PresentMember { node: NodeId(name.to_owned()), incarnation: Incarnation(incarnation), presence }
    }

    #[test]
    fn what_was_there_before_is_past_and_of_who_comes_later_everything_is_new() {
        let mut followed = FollowedMembers::default();
        let (a, b) = (member("a", 1), member("b", 1));
        assert_eq!((followed.position_of(&a), followed.position_of(&b)), (None, None));
        followed.answered(&a.node, 5);
        followed.ended([b.node.clone()].into());
        assert_eq!(followed.position_of(&a), Some(5));
        assert_eq!(followed.position_of(&b), None, "it was there from the beginning, and has not answered yet");
        assert_eq!(followed.position_of(&member("c", 1)), Some(0));
        assert_eq!(followed.position_of(&member("a", 2)), Some(0), "another life");
    }

    #[test]
    fn who_does_not_answer_is_told_once_and_again_when_that_changes() {
        let mut followed = FollowedMembers::default();
        let [a, b] = ["a", "b"].map(|name| NodeId(name.to_owned()));
        assert_eq!(followed.ended(BTreeSet::new()), None);
        assert_eq!(followed.ended([a.clone()].into()), Some(vec!["a".to_owned()]));
        assert_eq!(followed.ended([a.clone()].into()), None);
        assert_eq!(followed.ended([a, b].into()), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(followed.ended(BTreeSet::new()), Some(Vec::new()));
    }
}
