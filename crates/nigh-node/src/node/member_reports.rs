//! What a running node tells the other members of its cluster of itself.

use nigh_terms::{BucketName, Namespace, ObjectKey};

use super::running::RunningNode;
use crate::cluster::ClusterEngine;
use crate::cluster::members::{CopiesSeen, MemberSource, MemberSummary, copies_seen};
use crate::writes;

impl MemberSource for RunningNode {
    fn summary(&self) -> MemberSummary {
        let pool = self.invocations.invoker.in_use();
        let memory = self.parts.objects.node_memory.status().unwrap_or_default();
        let usage = self.parts.objects.memory.usage();
        let writes = writes::status(self.parts.objects.memory.dirty(), self.parts.objects.journal.usage());
        let cluster = self.parts.foundation.cluster.as_ref();
        let trouble = || cluster.and_then(|cluster| cluster.status().trouble());
        MemberSummary {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started.rfc3339(),
            uptime_s: self.uptime_s(),
            draining: self.draining.get().is_some(),
            running: pool.running,
            waiting: pool.waiting,
            bookable: self.parts.foundation.settings.functions.memory,
            booked: pool.booked,
            granted: memory.granted,
            cache_budget: usage.budget,
            cache_bytes: usage.kept,
            copies: usage.objects,
            homes: cluster.and_then(ClusterEngine::homes_status).map_or(0, |homes| homes.own.len()),
            invalidations: self.parts.objects.memory.invalidations_under_way(),
            unpushed: writes.waiting,
            unpushed_bytes: writes.waiting_bytes,
            unpushed_oldest_ms: writes.oldest_ms,
            trouble: self.draining.get().map(|_| "it ends".to_owned()).or_else(trouble),
        }
    }

    fn copies(&self, namespace: &Namespace, bucket: &BucketName, keys: &[ObjectKey]) -> Vec<CopiesSeen> {
        copies_seen(&self.parts.objects.memory, namespace, bucket, keys)
    }
}
