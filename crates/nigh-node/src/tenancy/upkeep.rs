//! Work for keys and namespaces beside the requests: the last uses of keys, the bytes that namespaces store, and the number
//! of nodes that share a namespace's requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_engine::{AccessKeys, KEY_USES_WRITTEN_EVERY, PresentMember, Registry};
use nigh_objects::ObjectMemory;
use nigh_terms::Namespace;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::contents::stored_bytes;

/// How often it is looked whether a namespace's objects must be listed.
const LOOKED_EVERY: Duration = Duration::from_secs(1);
/// How often a namespace with a quota of stored bytes is listed at most.
const LISTED_EVERY: Duration = Duration::from_secs(60);
/// The pause after a listing, as a multiple of its duration.
const LISTING_REST: u32 = 19;

/// Writes the last uses of keys until the node stops, and once more then.
pub(crate) async fn write_key_uses(keys: AccessKeys, registry: Arc<dyn Registry>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(KEY_USES_WRITTEN_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let goes_on = stop.run_until_cancelled(ticks.tick()).await.is_some();
        if let Err(error) = keys.write_uses(&*registry).await {
            tracing::debug!(%error, "the last uses of keys are not written yet");
        }
        if !goes_on {
            return;
        }
    }
}

/// Lists the objects of each namespace that has a quota of stored bytes, until the node stops.
pub(crate) async fn count_stored_bytes(keys: AccessKeys, memory: ObjectMemory, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(LOOKED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut due: Vec<(Namespace, Instant)> = Vec::new();
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let all = keys.namespaces().all();
        let limited: Vec<Namespace> =
            all.into_iter().filter(|(_, _, quota)| quota.stored.is_some()).map(|(name, ..)| name).collect();
        due.retain(|(name, _)| limited.contains(name));
        for namespace in limited {
            let is_known = due.iter().any(|(name, at)| *name == namespace && Instant::now() < *at);
            if is_known {
                continue;
            }
            let counted = stop.run_until_cancelled(count(&keys, &memory, &namespace)).await;
            let Some(took) = counted else { return };
            due.retain(|(name, _)| *name != namespace);
            due.push((namespace, Instant::now() + LISTED_EVERY.max(took * LISTING_REST)));
        }
    }
}

/// Lists the objects of one namespace. Returns how long that took.
async fn count(keys: &AccessKeys, memory: &ObjectMemory, namespace: &Namespace) -> Duration {
    let began = Instant::now();
    let Some(since) = keys.namespaces().listing_starts(namespace) else { return Duration::ZERO };
    match stored_bytes(memory, namespace).await {
        Ok(bytes) => keys.namespaces().listed(namespace, bytes, since),
        Err(error) => {
            tracing::warn!(%namespace, %error, "a namespace cannot be listed; what it stores counts from the last listing");
        }
    }
    began.elapsed()
}

/// Divides the requests of namespaces among the nodes that are present, until the cluster is left.
pub(crate) async fn share_requests(
    keys: AccessKeys,
    mut present: watch::Receiver<Vec<PresentMember>>,
    stop: CancellationToken,
) {
    loop {
        keys.namespaces().set_nodes(present.borrow_and_update().len());
        match stop.run_until_cancelled(present.changed()).await {
            Some(Ok(())) => {}
            Some(Err(_)) | None => return,
        }
    }
}
