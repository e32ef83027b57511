//! A node reports its free capacity and its cached copies to every controller: five times a second, and soon after a run has
//! begun or ended. Of the copies it reports what has changed since the last report that the controller heard.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use futures::future::join_all;
use nigh_engine::{NodeRole, PresentMember};
use nigh_objects::{HoldingsCursor, ObjectMemory};
use nigh_protocol::Member;
use nigh_rpc::Peers;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::owners::address;
use crate::run_door::RunDoor;
use crate::wire::{HoldingsNews, REPORT, ReportHead, decode, encode};

/// The time between two reports.
const EVERY: Duration = Duration::from_millis(200);
/// The least time between two reports.
const NOT_SOONER: Duration = Duration::from_millis(10);
/// The time limit of a report; the next one repeats what was not heard.
const WITHIN: Duration = Duration::from_millis(500);

/// Reports until `ending`, of this node's room and its `memory`.
#[boxed]
pub async fn report_all(
    door: Arc<RunDoor>,
    memory: ObjectMemory,
    peers: Peers,
    present: watch::Receiver<Vec<PresentMember>>,
    ending: CancellationToken,
) {
    let mut serial = 0;
    // By incarnation of a controller: up to which change it has heard.
    let mut heard: HashMap<Member, HoldingsCursor> = HashMap::new();
    while !ending.is_cancelled() {
        let (node, from) = door.me();
        serial += 1;
        let (vacancy, covered) = (door.vacancy(), memory.covered());
        let controllers: Vec<PresentMember> =
            present.borrow().iter().filter(|member| member.has(NodeRole::Controller)).cloned().collect();
        let who = |one: &PresentMember| Member { node: one.presence.number, incarnation: one.incarnation };
        heard.retain(|known, _| controllers.iter().any(|controller| who(controller) == *known));
        let calls = controllers.iter().map(|controller| {
            let page = memory.holdings(heard.get(&who(controller)).copied().unwrap_or_default());
            let report = ReportHead {
                node: node.clone(),
                from,
                serial,
                vacancy: vacancy.clone(),
                covered: covered.clone(),
                holdings: HoldingsNews::of(&page),
            };
            let (head, peers) = (encode(&report), &peers);
            async move {
                let deadline = Instant::now() + WITHIN;
                match peers.call(&address(controller), &REPORT, &head, Bytes::new(), deadline).await {
                    Ok(answer) if decode(&answer.head) == Ok(true) => Some((who(controller), page.cursor)),
                    Ok(_) => None,
                    Err(error) => {
                        tracing::debug!(controller = %controller.node, %error, "a report was not heard");
                        None
                    }
                }
            }
        });
        heard.extend(join_all(calls).await.into_iter().flatten());
        let pause = async {
            sleep(NOT_SOONER).await;
            let _changed_or_time = timeout(EVERY, door.changed()).await;
        };
        let _stopped = ending.run_until_cancelled(pause).await;
    }
}
