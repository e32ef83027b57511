//! What a running node knows of its health.

use std::path::Path;
use std::time::Duration;

use nigh_engine::journal::JournalUsage;
use nigh_engine::{Ledger as _, LedgerError};
use nigh_objects::DirtyUsage;
use nigh_terms::{ByteSize, ShardId};

use super::running::RunningNode;
use crate::admin::AdminSource;
use crate::cluster::ClusterEngine;
use crate::config::Settings;
use crate::health::{ClusterFacts, HealthSource, NodeFacts, Phase};
use crate::status::{ClusterStatus, HomesStatus, MemberStatus, ServersStatus};
use crate::telemetry::MetricsText;

impl HealthSource for RunningNode {
    fn facts(&self) -> NodeFacts {
        let (foundation, objects) = (&self.parts.foundation, &self.parts.objects);
        let (dirty, journal) = (objects.memory.dirty(), objects.journal.usage());
        let cluster = HealthSource::cluster(self);
        NodeFacts {
            phase: if self.ends() { Phase::Draining(self.awaits().to_string()) } else { Phase::Running },
            stalled: self.ended_threads(),
            is_expelled: self.is_expelled.is_cancelled(),
            servers: cluster.as_ref().and_then(|facts| facts.servers.clone()),
            cordoned: cluster.as_ref().and_then(|facts| cordoned(&facts.members, &foundation.settings.node)),
            journal_failed: self.journal_failed(),
            full: lack_of_room(&foundation.settings, dirty, journal),
            store: store_trouble(dirty).or_else(|| self.store.trouble()),
            homeless: cluster.map(|facts| facts.homeless),
        }
    }

    fn cluster(&self) -> Option<ClusterFacts> {
        let ClusterStatus { servers, members, homes, .. } =
            self.parts.foundation.cluster.as_ref().map(ClusterEngine::status)?;
        let HomesStatus { shards, without, .. } = homes.unwrap_or_default();
        let servers = servers.as_ref().and_then(ServersStatus::trouble);
        Some(ClusterFacts { members, servers, homeless: (without.len(), usize::from(shards)) })
    }

    fn metrics(&self, accept: Option<&str>) -> MetricsText {
        AdminSource::metrics(self, accept)
    }
}

impl RunningNode {
    /// Why writes are refused now, and what to do; none if they are taken.
    pub(super) fn refused_writes(&self) -> Option<String> {
        let (settings, objects) = (&self.parts.foundation.settings, &self.parts.objects);
        self.journal_failed().or_else(|| lack_of_room(settings, objects.memory.dirty(), objects.journal.usage()))
    }

    fn journal_failed(&self) -> Option<String> {
        // A journal of files has one state for all shards.
        match self.parts.objects.journal.check(ShardId(0)) {
            Err(LedgerError::Failed(reason)) => {
                Some(format!("the journal takes no write until the node is restarted: {reason}"))
            }
            _ => None,
        }
    }

    /// The threads that have ended before the node.
    fn ended_threads(&self) -> Vec<String> {
        let threads = [
            ("the journal's thread", self.parts.objects.journal.is_alive()),
            ("the thread of activation records", self.records.is_alive() && self.whisk_records.is_alive()),
        ];
        threads.iter().filter(|(_, lives)| !lives).map(|(name, _)| (*name).to_owned()).collect()
    }
}

/// Why a node gets no new work though it runs; none if it takes work.
fn cordoned(members: &[MemberStatus], own: &str) -> Option<String> {
    let is_out = members.iter().any(|member| member.node == own && !member.availability.takes_work());
    is_out.then(|| "an operator has taken this node out of work: `nigh cluster uncordon` takes it back".to_owned())
}

/// Why a write of an object that may be cached would find no room; none if it would.
fn lack_of_room(settings: &Settings, dirty: DirtyUsage, journal: JournalUsage) -> Option<String> {
    let most = ByteSize(settings.writes.journal_max.bytes() / 2);
    if dirty.bytes.saturating_add(settings.cache.object_max.bytes()) > most.bytes()
        || dirty.objects >= settings.writes.objects_max
    {
        let bytes = ByteSize(dirty.bytes);
        return Some(format!(
            "{} objects of {bytes} wait for the store, and at most {most} may: there is room again when the store has taken \
             some (`nigh status`)",
            dirty.objects
        ));
    }
    if journal.full && !may_grow(journal, free_bytes(&settings.writes.journal)) {
        return Some(format!(
            "the journal has no room on the disk of {}: free {} there, or wait until the store has taken some",
            settings.writes.journal.display(),
            ByteSize(journal.segment_bytes)
        ));
    }
    None
}

/// True if a journal that found no room would find some now.
fn may_grow(journal: JournalUsage, free_bytes: Option<u64>) -> bool {
    journal.files < journal.files_max && free_bytes.is_some_and(|free| free > journal.segment_bytes)
}

/// The free bytes of the file system of a folder; none if the system does not tell.
fn free_bytes(folder: &Path) -> Option<u64> {
    let room = rustix::fs::statvfs(folder).ok()?;
    Some(room.f_bavail.saturating_mul(room.f_frsize))
}

/// Why the store does not take writes; none if it takes them.
fn store_trouble(dirty: DirtyUsage) -> Option<String> {
    let oldest = Duration::from_secs(dirty.oldest.as_secs());
    (dirty.failing > 0).then(|| {
        format!(
            "the store has not taken {} writes, which are tried again; the oldest has waited {oldest:?} (`nigh status`)",
            dirty.failing
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    const SEGMENT: u64 = 16 << 20;

    fn settings(folder: &Path) -> Settings {
        let machine = Machine { hostname: "here".to_owned(), memory: ByteSize::gib(1), cpus: 1 };
        let mut settings = Settings::defaults(folder, &machine);
        (settings.writes.journal_max, settings.cache.object_max) = (ByteSize::mib(64), ByteSize::mib(1));
        (settings.writes.objects_max, settings.writes.journal) = (100, folder.to_owned());
        settings
    }

    fn waiting(objects: usize, mib: u64) -> DirtyUsage {
        DirtyUsage { objects, bytes: mib << 20, ..DirtyUsage::default() }
    }

    #[test]
    fn a_node_has_no_room_when_the_next_object_would_exceed_what_may_wait_for_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let lacks = |dirty| lack_of_room(&settings(folder.path()), dirty, JournalUsage::default());
        assert_eq!(lacks(waiting(99, 31)), None);
        assert!(lacks(waiting(10, 32)).is_some_and(|why| why.contains("at most 32 MiB may")));
        assert!(lacks(waiting(100, 1)).is_some());
    }

    #[test]
    fn a_journal_that_found_no_room_has_room_when_the_disk_has() {
        let journal =
            JournalUsage { files: 2, files_max: 16, segment_bytes: SEGMENT, full: true, ..Default::default() };
        assert!(!may_grow(journal, Some(SEGMENT)) && !may_grow(journal, None));
        assert!(may_grow(journal, Some(SEGMENT + 1)));
        assert!(!may_grow(JournalUsage { files: 16, ..journal }, Some(u64::MAX)));
    }

    #[test]
    fn a_store_that_refuses_pushes_is_in_trouble() {
        assert_eq!(store_trouble(waiting(3, 1)), None);
        let failing = DirtyUsage { failing: 2, oldest: Duration::from_millis(61_500), ..waiting(3, 1) };
        assert!(store_trouble(failing).is_some_and(|why| why.contains("2 writes") && why.contains("61s")));
    }
}
