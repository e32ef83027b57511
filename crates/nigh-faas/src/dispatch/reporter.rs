//! A node tells every controller of its room: five times a second, and soon after something has begun or ended.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use nigh_engine::{NodeRole, PresentMember};
use nigh_rpc::Peers;
use nigh_terms::Token;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::owners::address;
use super::run_door::RunDoor;
use super::wire::{REPORT, ReportHead, encode};

/// Between two reports.
const EVERY: Duration = Duration::from_millis(200);
/// The least time between two, whatever changes.
const NOT_SOONER: Duration = Duration::from_millis(10);
/// For a report; the next one says all anew.
const WITHIN: Duration = Duration::from_millis(500);

/// Reports until `ending`. `covered` says how far this node's memory has come.
pub async fn report_all(
    door: Arc<RunDoor>,
    covered: impl Fn() -> Token + Send + Sync,
    peers: Peers,
    present: watch::Receiver<Vec<PresentMember>>,
    ending: CancellationToken,
) {
    let mut serial = 0;
    while !ending.is_cancelled() {
        let (node, from) = door.me();
        serial += 1;
        let report = ReportHead { node: node.clone(), from, serial, vacancy: door.vacancy(), covered: covered() };
        let head = encode(&report);
        let controllers: Vec<PresentMember> =
            present.borrow().iter().filter(|member| member.has(NodeRole::Controller)).cloned().collect();
        let calls = controllers.iter().map(|controller| async {
            let told = peers.call(&address(controller), &REPORT, &head, Bytes::new(), Instant::now() + WITHIN).await;
            if let Err(error) = told {
                tracing::debug!(controller = %controller.node, %error, "a report was not heard");
            }
        });
        join_all(calls).await;
        let pause = async {
            sleep(NOT_SOONER).await;
            let _changed_or_time = timeout(EVERY, door.changed()).await;
        };
        let _stopped = ending.run_until_cancelled(pause).await;
    }
}
