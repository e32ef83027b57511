//! What a running node tells the other members of its cluster of itself.

use async_trait::async_trait;
use nigh_terms::{BucketName, Namespace, ObjectKey};
use nigh_workflow::owned::ExecutionsLocation;

use super::running::RunningNode;
use crate::cluster::ClusterEngine;
use crate::cluster::members::{CopiesSeen, MemberSource, MemberSummary, copies_seen};
use crate::object_users::ObjectUsers;
use crate::shown_executions::{ExecutionsAnswer, ExecutionsQuestion};
use crate::writes;

#[async_trait]
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

    async fn users(&self, namespace: &Namespace, bucket: &BucketName, key: &ObjectKey) -> Result<ObjectUsers, String> {
        let found = ObjectUsers::in_log(&self.parts.activations, namespace, bucket, key).await;
        found.map_err(|error| error.to_string())
    }

    async fn executions(&self, question: &ExecutionsQuestion) -> Result<ExecutionsAnswer, String> {
        let Some(owned) = &self.workflows.owned else { return Ok(ExecutionsAnswer::NotOwner) };
        match owned.at(&question.namespace).await.map_err(|error| error.to_string())? {
            ExecutionsLocation::Here(executions) => {
                question.answer(&executions).await.map_err(|error| error.to_string())
            }
            ExecutionsLocation::There(_) => Ok(ExecutionsAnswer::NotOwner),
        }
    }
}
