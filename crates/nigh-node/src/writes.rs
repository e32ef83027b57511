//! Opens the journal, by the settings, with the writes that it recovers.

use std::sync::Arc;

use nigh_engine::journal::{Damage, DamageKind, JournalRecovery, JournalUsage, OnDamage};
use nigh_engine::{Journal, JournalError, JournalSettings, Registry};
use nigh_objects::{DirtyUsage, WriteSettings, Writes};
use nigh_terms::{ByteSize, Epoch};

use crate::config::{DamagedJournal, Settings};
use crate::status::{Level, WritesStatus};

/// The size of a segment file of the journal: a sixteenth of the journal, within bounds.
fn segment_bytes(journal: ByteSize) -> ByteSize {
    ByteSize((journal.bytes() / 16).clamp(16 << 20, 64 << 20).next_multiple_of(1 << 20))
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
    let JournalRecovery { records, damage, torn, bytes, .. } = recovered;
    if let Some(torn) = torn {
        tracing::info!(
            file = torn.file,
            offset = torn.offset,
            "dropped an incomplete write, which was not acknowledged before the crash"
        );
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
    let level = Level { name: "writes".to_owned(), on: lost.is_empty(), detail };
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
    Ok((Writes { ledger, recovered: records, lost, settings, registry: Some(registry) }, journal, level))
}

/// The journal's metrics, without commit times, which the journal records itself.
pub(crate) fn meters(journal: JournalUsage) -> [(&'static str, f64); 9] {
    [
        ("nigh_journal_commits_total", journal.commits as f64),
        ("nigh_journal_syncs_total", journal.syncs as f64),
        ("nigh_journal_written_bytes_total", journal.written_bytes as f64),
        ("nigh_journal_trims_total", journal.trims as f64),
        ("nigh_journal_segments", journal.segments as f64),
        ("nigh_journal_used_bytes", (journal.segments * journal.segment_bytes) as f64),
        ("nigh_journal_limit_bytes", (journal.files_max * journal.segment_bytes) as f64),
        ("nigh_journal_live_records", journal.records as f64),
        ("nigh_journal_live_bytes", journal.body_bytes as f64),
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
