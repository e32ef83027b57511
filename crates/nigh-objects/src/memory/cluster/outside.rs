//! A store's reports about outside readers and writers, on their way to the object's home.
//!
//! The store tells one node. Only the home knows the object's unpushed write, so the told node passes the report on, and
//! again if the home moves meanwhile. It announces an outside write that is under way to each next home of its object.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use nigh_data::{ObjectError, ObjectId};
use nigh_engine::LedgerError;
use nigh_rpc::Body;
use nigh_terms::ShardId;
use tokio::time::{sleep, timeout};

use super::PAUSE;
use super::neighbours::NotAnswered;
use super::there::no_home;
use super::wire::{OUTSIDE, OutsideCall, WireError};
use crate::memory::ObjectMemoryState;
use crate::memory::outside::{OutsideAnswer, OutsideReport};

/// How long a report waits until a home has acted on it.
const REPORT_WITHIN: Duration = Duration::from_secs(20);
/// The most outside writes that are announced to a next home at a time.
const ANNOUNCED_AT_ONCE: usize = 8;

impl ObjectMemoryState {
    /// Has the object's home act on a report, wherever the home is.
    ///
    /// # Errors
    /// `SlowDown` if no home answers within 20 seconds; the home's.
    pub(in crate::memory) async fn report_outside(
        self: &Arc<Self>,
        object: &ObjectId,
        report: OutsideReport,
    ) -> Result<OutsideAnswer, ObjectError> {
        let (Some(neighbours), Some(me)) = (&self.neighbours, self.me) else {
            return self.outside_here(object, report).await;
        };
        let shard = self.coherence.shards.of(object);
        let call = OutsideCall { from: me, object: object.clone(), report };
        let acting = async {
            loop {
                let acted = if self.coherence.is_home(shard) {
                    self.outside_at_home(object, call.report.clone()).await
                } else {
                    match neighbours.ask_home::<OutsideAnswer>(shard, &OUTSIDE, &call, Body::empty()).await {
                        Ok((answer, _)) => Ok(answer),
                        Err(NotAnswered::Refused(error)) => Err(error),
                        Err(NotAnswered::Away(why)) => {
                            tracing::debug!(%shard, %why, "a store's report is sent again");
                            Err(WireError::Elsewhere)
                        }
                    }
                };
                match acted {
                    Err(WireError::Elsewhere) => sleep(PAUSE).await,
                    acted => return acted,
                }
            }
        };
        Ok(timeout(REPORT_WITHIN, acting).await.map_err(|_| no_home())??)
    }

    /// Acts on another node's report at the home here.
    pub(super) async fn serve_outside(self: &Arc<Self>, call: OutsideCall) -> Result<OutsideAnswer, WireError> {
        let OutsideCall { from, object, report } = call;
        self.home_here(&object, Some(from)).await?;
        self.outside_at_home(&object, report).await
    }

    /// Acts on a report at the home here; `Elsewhere` if the home is over.
    async fn outside_at_home(
        self: &Arc<Self>,
        object: &ObjectId,
        report: OutsideReport,
    ) -> Result<OutsideAnswer, WireError> {
        let shard = self.coherence.shards.of(object);
        let epoch = self.coherence.epoch_here(shard);
        let acted = self.outside_here(object, report).await;
        // A former home may not know that it is one, nor what is unpushed at the next.
        match self.confirm(shard, epoch).await {
            Err(ObjectError::Ledger(LedgerError::Fenced { .. })) => Err(WireError::Elsewhere),
            confirmed => {
                confirmed?;
                Ok(acted?)
            }
        }
    }

    /// Announces the outside writes that this node was told of, and that are under way, to the next home of `shard`.
    pub(super) fn announce_to_next_home(self: &Arc<Self>, shard: ShardId) {
        let is_of = |object: &ObjectId| self.coherence.shards.of(object) == shard;
        let under_way = self.announced.lock().under_way(is_of, self.now());
        if under_way.is_empty() {
            return;
        }
        let inner = Arc::clone(self);
        crate::sync::spawn(async move {
            let announced = futures::stream::iter(under_way).for_each_concurrent(ANNOUNCED_AT_ONCE, |begun| {
                let inner = Arc::clone(&inner);
                async move { inner.announce(begun).await }
            });
            announced.await;
        });
    }

    async fn announce(self: &Arc<Self>, (object, token, lease): (ObjectId, String, Duration)) {
        // It may have ended while others were announced.
        if !self.announced.lock().hold(&object, self.now()) {
            return;
        }
        if let Err(error) = self.report_outside(&object, OutsideReport::WriteBegins { token, lease }).await {
            tracing::warn!(%object, %error, "the object's next home was not told of an outside write under way");
        }
    }
}
