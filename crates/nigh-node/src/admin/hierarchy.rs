//! A node's memory hierarchy in one document, top to bottom: last-level cache, memory, the other nodes' memory, and the
//! store; and the invocations that use it now.

use std::collections::{BTreeMap, HashMap};

use nigh_invoke::node_memory::SandboxShare;
use nigh_schedule::activation::SandboxStart;
use nigh_terms::{ByteSize, ClosId, FunctionName, InvocationId, Namespace, Timestamp};
use serde::Serialize;

use super::AdminSource;
use crate::cluster::members::{MemberAnswer, MemberQuestion, MemberSource, MemberSummary, OTHER_ANSWER};
use crate::llc::LlcStatus;
use crate::recent_invocations::RunningInvocation;
use crate::recent_invocations::figures::{FunctionFigures, WINDOW_S, window_start};
use crate::status::Status;

/// The most running invocations of the document.
const RUNNING_MAX: usize = 64;

/// A running invocation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ShownRun {
    namespace: Namespace,
    function: FunctionName,
    /// When its handler got the input.
    since: Timestamp,
    start: SandboxStart,
    booked: ByteSize,
    /// What a model predicted for it.
    predicted: Option<ByteSize>,
    /// The sandbox's limit now, and what it uses.
    limit: Option<ByteSize>,
    used: Option<ByteSize>,
    /// Its class of service.
    clos: Option<ClosId>,
}

/// A member of the cluster, or why it did not answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum ShownMember {
    Summary(Box<MemberSummary>),
    Unanswered { unanswered: String },
}

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Hierarchy {
    at: Timestamp,
    status: Status,
    llc: LlcStatus,
    /// By id; at most [`RUNNING_MAX`], those that run longest.
    running: BTreeMap<String, ShownRun>,
    /// Further running invocations.
    running_more: usize,
    /// Where the time of the last invocations went.
    time: FunctionFigures,
    time_window_s: u64,
    /// Invalidations of this node's homes that are not acknowledged.
    invalidations: usize,
    /// The other members by name.
    members: BTreeMap<String, ShownMember>,
}

/// A running invocation with what the memory and the last-level cache know of it.
fn shown(
    run: RunningInvocation,
    share: Option<SandboxShare>,
    classes: &HashMap<InvocationId, ClosId>,
) -> (String, ShownRun) {
    let clos = classes.get(&run.id).copied();
    let RunningInvocation { id, namespace, function, since, start, booked, predicted, sandbox: _ } = run;
    let (limit, used) = share.map_or((None, None), |share| (Some(share.limit), share.used));
    (id.to_string(), ShownRun { namespace, function, since, start, booked, predicted, limit, used, clos })
}

/// The hierarchy of `node` now.
pub(super) async fn hierarchy<N: AdminSource>(node: &N) -> Result<Hierarchy, serde_json::Error> {
    let recent = node.recent();
    let (running, running_more) = recent.running(RUNNING_MAX);
    let classes = node.classes_of_running();
    let running = running.into_iter().map(|run| {
        let share = node.sandbox_share(run.sandbox);
        shown(run, share, &classes)
    });
    Ok(Hierarchy {
        at: recent.now(),
        time: FunctionFigures::of(&recent.ended(window_start(recent.now()), |_| true)),
        time_window_s: WINDOW_S,
        running: running.collect(),
        running_more,
        status: node.status(),
        // The models are as long as the list of functions, and have a command of their own.
        llc: LlcStatus { models: Vec::new(), ..node.llc() },
        invalidations: node.memory().invalidations_under_way(),
        members: members(node).await?,
    })
}

/// The summaries of the other members.
pub(super) async fn members<N: AdminSource>(node: &N) -> Result<BTreeMap<String, ShownMember>, serde_json::Error> {
    let Some(cluster) = node.cluster() else { return Ok(BTreeMap::new()) };
    let answers = cluster.ask_members(&MemberQuestion::Summary {}).await?;
    Ok(answers.into_iter().map(|(name, answer)| (name, shown_member(answer))).collect())
}

fn shown_member(answer: Result<MemberAnswer, String>) -> ShownMember {
    match answer {
        Ok(MemberAnswer::Summary(summary)) => ShownMember::Summary(summary),
        Ok(_) => ShownMember::Unanswered { unanswered: OTHER_ANSWER.to_owned() },
        Err(unanswered) => ShownMember::Unanswered { unanswered },
    }
}

/// The summary of this node, in the form of the others'.
pub(super) fn own<N: AdminSource + MemberSource>(node: &N) -> ShownMember {
    ShownMember::Summary(Box::new(node.summary()))
}

#[cfg(test)]
mod tests {
    use nigh_terms::SandboxId;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_running_invocation_is_shown_with_its_memory_and_class() {
        let run = RunningInvocation {
            id: InvocationId::now(),
            namespace: Namespace::new("one").unwrap(),
            function: FunctionName::new("f").unwrap(),
            sandbox: SandboxId::random(),
            since: Timestamp(5),
            start: SandboxStart::Warm,
            booked: ByteSize::mib(256),
            predicted: None,
        };
        let share = SandboxShare { limit: ByteSize::mib(96), used: Some(ByteSize::mib(64)) };
        let classes = HashMap::from([(run.id, ClosId(3))]);
        let (id, one) = shown(run.clone(), Some(share), &classes);
        assert_eq!(id, run.id.to_string());
        assert_eq!((one.limit, one.used, one.clos), (Some(share.limit), share.used, Some(ClosId(3))));
        let (_, unknown) = shown(run, None, &HashMap::new());
        assert_eq!((unknown.limit, unknown.used, unknown.clos), (None, None, None));
    }

    #[test]
    fn a_member_that_does_not_answer_is_shown_with_the_reason() {
        let silent = serde_json::to_value(shown_member(Err("timed out".to_owned()))).unwrap();
        assert_eq!(silent, json!({"unanswered": "timed out"}));
        let summary = MemberAnswer::Summary(Box::new(MemberSummary { copies: 7, ..MemberSummary::default() }));
        assert_eq!(serde_json::to_value(shown_member(Ok(summary))).unwrap()["copies"], 7);
    }
}
