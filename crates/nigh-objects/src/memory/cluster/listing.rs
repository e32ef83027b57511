//! Listings over a cluster: the unpushed writes at homes in other processes, beside those here.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures::future::{join_all, try_join_all};
use nigh_data::{ListedObject, ObjectError};
use nigh_rpc::Body;
use nigh_terms::{BucketName, Namespace, ObjectKey, ShardId, Token, Version};
use tokio::time::Instant;

use super::neighbours::NotAnswered;
use super::wire::{UnpushedRequest, WAITING, WaitingPage};
use super::{COVERED_WITHIN, HOMES_WITHIN, PAUSE};
use crate::memory::ObjectMemoryState;
use crate::sync::Mutex;
use crate::write_back::{AskElsewhere, Side, joined};

/// A bucket's unpushed writes at homes in other processes, and the newest versions of these homes.
pub(in crate::memory) struct RemoteHomes<'l> {
    inner: &'l ObjectMemoryState,
    bucket: (&'l Namespace, &'l BucketName),
    prefix: &'l str,
    newest: Mutex<Token>,
    /// The newest versions of the homes here.
    here: Mutex<Vec<(ShardId, Version)>>,
}

impl<'l> RemoteHomes<'l> {
    pub(in crate::memory) fn new(
        inner: &'l ObjectMemoryState,
        bucket: (&'l Namespace, &'l BucketName),
        prefix: &'l str,
    ) -> Self {
        Self { inner, bucket, prefix, newest: Mutex::default(), here: Mutex::default() }
    }

    /// Waits until the node covers the listed versions. False if a home here is a former one, or has moved meanwhile:
    /// its part may be old, and everything must be listed again.
    pub(in crate::memory) async fn until_covered(self) -> Result<bool, ObjectError> {
        let here = std::mem::take(&mut *self.here.lock());
        let count = here.len();
        if self.inner.standing(here).await.len() < count {
            return Ok(false);
        }
        let newest = self.newest.lock().clone();
        self.inner.cover(&newest, COVERED_WITHIN).await.map(|()| true)
    }
}

#[async_trait]
impl AskElsewhere for RemoteHomes<'_> {
    async fn waiting(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Side<(ObjectKey, Option<ListedObject>)>>, ObjectError> {
        let (here, pages) = self.inner.waiting_there(self.bucket, self.prefix, after, limit).await?;
        self.here.lock().extend(here);
        let mut newest = self.newest.lock();
        let side = |WaitingPage { entries, more, newest: told }| {
            told.into_iter().for_each(|(shard, version)| newest.see(shard, version));
            Side { entries, more }
        };
        Ok(pages.into_iter().map(side).collect())
    }
}

impl ObjectMemoryState {
    /// The unpushed writes at the homes here, for a listing. A home whose epoch may be over is not named; the caller
    /// asks for it again, wherever it is by then.
    pub(super) async fn waiting_here(&self, waiting: &UnpushedRequest) -> WaitingPage {
        let UnpushedRequest { namespace, bucket, prefix, after, limit } = waiting;
        let newest = self.newest_here();
        let side = self.back.waiting(namespace, bucket, prefix, after.as_deref(), *limit);
        WaitingPage { entries: side.entries, more: side.more, newest: self.standing(newest).await }
    }

    /// The entries whose homes here are confirmed by the ledger: their epochs are not over. A former home may not know
    /// that it is one.
    async fn standing(&self, epochs: Vec<(ShardId, Version)>) -> Vec<(ShardId, Version)> {
        if self.coherence.is_alone() {
            return epochs;
        }
        let confirmed = epochs.iter().map(|(shard, version)| self.confirm(*shard, Some(version.epoch)));
        let confirmed = join_all(confirmed).await;
        let now: BTreeMap<ShardId, Version> = self.newest_here().into_iter().collect();
        let stands =
            |(shard, version): &(ShardId, Version)| now.get(shard).is_some_and(|now| now.epoch == version.epoch);
        let epochs = epochs.into_iter().zip(confirmed).filter(|(epoch, confirmed)| confirmed.is_ok() && stands(epoch));
        epochs.map(|(epoch, _)| epoch).collect()
    }

    /// The unpushed writes and newest versions at all homes of the cluster but those here, and before them the epochs
    /// here.
    async fn waiting_there(
        &self,
        (namespace, bucket): (&Namespace, &BucketName),
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<(ShardId, Version)>, Vec<WaitingPage>), ObjectError> {
        let Some(neighbours) = &self.neighbours else { return Ok((Vec::new(), Vec::new())) };
        let deadline = Instant::now() + HOMES_WITHIN;
        let (namespace, bucket) = (namespace.clone(), bucket.clone());
        let waiting =
            UnpushedRequest { namespace, bucket, prefix: prefix.to_owned(), after: after.map(str::to_owned), limit };
        loop {
            let here = self.newest_here();
            let is_here = |shard: &ShardId| here.iter().any(|(of, _)| of == shard);
            let elsewhere: Vec<ShardId> = self.coherence.shards.all().filter(|shard| !is_here(shard)).collect();
            let mut nodes: Vec<_> = elsewhere.iter().filter_map(|shard| neighbours.home_of(*shard)).collect();
            nodes.sort_unstable();
            nodes.dedup();
            let asked = nodes.into_iter().map(|node| {
                let waiting = &waiting;
                async move {
                    let page = neighbours.ask::<WaitingPage>(node, &WAITING, waiting, Body::empty()).await;
                    page.map(|(page, _)| page)
                }
            });
            let pages: Result<Vec<WaitingPage>, NotAnswered> = try_join_all(asked).await;
            let has_all = |pages: &[WaitingPage]| {
                let told = |shard| pages.iter().any(|page| page.newest.iter().any(|(of, _)| *of == shard));
                elsewhere.iter().all(|shard| told(*shard))
            };
            match pages {
                Ok(pages) if has_all(&pages) => return Ok((here, pages)),
                _ if Instant::now() >= deadline => {
                    return Err(ObjectError::SlowDown("not every home of the cluster answers"));
                }
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Refuses to remove a bucket with unpushed objects at a home elsewhere. Unpushed deletions do not matter: they
    /// will find no bucket, and end.
    pub(in crate::memory) async fn check_empty_elsewhere(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
    ) -> Result<(), ObjectError> {
        let mut after: Option<ObjectKey> = None;
        loop {
            let from = after.as_ref().map(ObjectKey::as_str);
            let (_, pages) = self.waiting_there((namespace, bucket), "", from, 1000).await?;
            let sides = pages.into_iter().map(|WaitingPage { entries, more, .. }| Side { entries, more });
            let Side { entries, more } = joined(sides.collect());
            if entries.iter().any(|(_, listed)| listed.is_some()) {
                return Err(ObjectError::BucketNotEmpty(bucket.clone()));
            }
            match entries.into_iter().last() {
                Some((last, _)) if more => after = Some(last),
                _ => return Ok(()),
            }
        }
    }
}
