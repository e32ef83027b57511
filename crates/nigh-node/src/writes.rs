//! Opens the journal, by the settings, with the writes that it recovers.

use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use nigh_engine::journal::{Damage, DamageKind, JournalRecovery, JournalUsage, OnDamage, UNNAMED_DAMAGE};
use nigh_engine::{Journal, JournalError, JournalSettings, Registry};
use nigh_objects::{DirtyUsage, WriteSettings, Writes};
use nigh_terms::{ByteSize, Epoch, Timestamp};

use crate::config::{DamagedJournal, Settings};
use crate::status::{Level, WritesStatus};
use crate::telemetry::Sample;

/// The size of a segment file of the journal: a sixteenth of the journal, within bounds.
fn segment_bytes(journal: ByteSize) -> ByteSize {
    ByteSize((journal.bytes() / 16).clamp(16 << 20, 64 << 20).next_multiple_of(1 << 20))
}

/// What the journal has lost, and what to do about it; none if it has lost nothing.
fn loss(lost: usize, may_lack_writes: bool, journal: &Path) -> Option<String> {
    let mut told = Vec::new();
    if lost > 0 {
        told.push(format!(
            "{lost} acknowledged writes are damaged in the journal: reads of their objects fail until they are written anew \
             (`nigh objects unpushed` lists them)"
        ));
    }
    if may_lack_writes {
        let note = journal.join(UNNAMED_DAMAGE);
        let made = std::fs::metadata(&note).and_then(|note| note.modified()).ok();
        let millis = made.and_then(|at| u64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok());
        let found = millis.map_or_else(|| "now".to_owned(), |millis| format!("at {}", Timestamp(millis).rfc3339()));
        told.push(format!(
            "the journal was found damaged {found} where no object is named: objects last written before then may be older \
             than what was acknowledged; check them against their source, then remove {}",
            note.display()
        ));
    }
    (!told.is_empty()).then(|| told.join("; "))
}

/// Opens the journal, and describes the write mode in one line. `epoch` is higher than in any earlier incarnation.
pub(crate) async fn open(
    settings: &Settings,
    registry: Arc<dyn Registry>,
    epoch: Epoch,
) -> Result<(Writes, Arc<Journal>, Level), JournalError> {
    let writes = &settings.writes;
    let journal = JournalSettings {
        limit: writes.journal_max,
        segment: segment_bytes(writes.journal_max),
        epoch_min: epoch,
        on_damage: match writes.on_damage {
            DamagedJournal::Refuse => OnDamage::Refuse,
            DamagedJournal::KeepAside => OnDamage::KeepAside,
        },
    };
    let folder = writes.journal.clone();
    let opened = tokio::task::spawn_blocking(move || Journal::open(&folder, &journal)).await;
    let (journal, recovered) = opened.map_err(|error| JournalError::Io {
        what: "opening",
        file: writes.journal.display().to_string(),
        source: std::io::Error::other(error),
    })??;
    let JournalRecovery { records, damage, may_lack_writes, torn, bytes, .. } = recovered;
    if let Some(torn) = torn {
        let (file, offset) = (torn.file, torn.offset);
        if damage.iter().any(|damage| damage.kind.hides_writes()) {
            tracing::warn!(file, offset, "dropped an incomplete write; the damage hides whether it was acknowledged");
        } else {
            tracing::info!(file, offset, "dropped an incomplete write, which was not acknowledged before the crash");
        }
    }
    let mut lost = Vec::new();
    for Damage { file, offset, kind } in damage {
        let said = Damage { file, offset, kind };
        tracing::error!(damage = %said, "the journal is damaged; a copy of the file is kept aside");
        if let DamageKind::Record { record, stored: false } = said.kind {
            lost.push(*record);
        }
    }
    let waiting = records.len();
    let detail = format!(
        "{} unless a bucket's policy names another mode; journal of up to {} in {}; recovered {waiting} unpushed writes \
         ({})",
        writes.mode,
        writes.journal_max,
        writes.journal.display(),
        ByteSize(bytes)
    );
    let loss = loss(lost.len(), may_lack_writes, &writes.journal);
    let (on, detail) = match loss {
        None => (true, detail),
        Some(loss) => (false, format!("{loss}; {detail}")),
    };
    let level = Level { name: "writes".to_owned(), on, detail };
    let journal = Arc::new(journal);
    let ledger = Arc::clone(&journal) as Arc<dyn nigh_engine::Ledger>;
    let settings = WriteSettings {
        mode: writes.mode,
        modes: settings.namespaces.iter().filter_map(|(name, own)| Some((name.clone(), own.write_mode?))).collect(),
        dirty_max: ByteSize(writes.journal_max.bytes() / 2),
        dirty_objects_max: writes.objects_max,
        delay: writes.delay.duration(),
        back_off: writes.back_off.duration(),
        back_off_max: writes.back_off_max.duration(),
        pushes_max: writes.pushes_max,
        wait: writes.wait.duration(),
    };
    let writes = Writes { ledger, recovered: records, lost, may_lack_writes, settings, registry: Some(registry) };
    Ok((writes, journal, level))
}

/// The journal's metrics, without commit times, which the journal records itself.
pub(crate) fn meters(journal: JournalUsage) -> [Sample; 9] {
    [
        Sample::number("nigh_journal_commits_total", journal.commits as f64),
        Sample::number("nigh_journal_syncs_total", journal.syncs as f64),
        Sample::number("nigh_journal_written_bytes_total", journal.written_bytes as f64),
        Sample::number("nigh_journal_trims_total", journal.trims as f64),
        Sample::number("nigh_journal_segments", journal.segments as f64),
        Sample::number("nigh_journal_used_bytes", (journal.segments * journal.segment_bytes) as f64),
        Sample::number("nigh_journal_limit_bytes", (journal.files_max * journal.segment_bytes) as f64),
        Sample::number("nigh_journal_live_records", journal.records as f64),
        Sample::number("nigh_journal_live_bytes", journal.body_bytes as f64),
    ]
}

/// The status of writes.
pub(crate) fn status(dirty: DirtyUsage, journal: JournalUsage) -> WritesStatus {
    WritesStatus {
        waiting: dirty.waiting(),
        watched: dirty.watched,
        waiting_bytes: ByteSize(dirty.waiting_bytes),
        bytes: ByteSize(dirty.bytes),
        ephemeral: dirty.ephemeral - dirty.lost,
        lost: dirty.lost,
        failing: dirty.failing,
        oldest_ms: dirty.oldest.as_millis() as u64,
        conflicts: dirty.conflicts,
        homeless: dirty.homeless,
        journal: ByteSize(journal.files * journal.segment_bytes),
        journal_max: ByteSize(journal.files_max * journal.segment_bytes),
        commits: journal.commits,
        syncs: journal.syncs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_that_names_no_object_is_told_until_its_note_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(loss(0, false, folder.path()), None);
        let named = loss(2, false, folder.path()).unwrap();
        assert!(named.starts_with("2 acknowledged writes are damaged") && !named.contains("older"), "{named}");
        let note = folder.path().join(UNNAMED_DAMAGE);
        std::fs::write(&note, "").unwrap();
        let year = Timestamp(UNIX_EPOCH.elapsed().unwrap().as_millis() as u64).rfc3339()[..4].to_owned();
        let unnamed = loss(0, true, folder.path()).unwrap();
        assert!(unnamed.contains(&format!("damaged at {year}-")) && unnamed.contains("may be older"), "{unnamed}");
        assert!(unnamed.ends_with(&format!("then remove {}", note.display())), "{unnamed}");
        assert!(loss(1, true, folder.path()).unwrap().contains("; the journal was found damaged"));
    }
}
