//! The archive of a small state, whole, cut off and changed.

use std::io::{Cursor, Write as _};
use std::path::Path;

use nigh_engine::{
    AccessKeys, LocalHistories, LocalRegistry, Outbox, OutboxChange, Registry as _, StateFile, StoredHistory,
};
use nigh_functions::code_archive::{Archive, ArchiveLimits};
use nigh_functions::code_store::{CodeStore, CodeVersion};
use nigh_terms::{FunctionName, Namespace, Timestamp};

use super::archive::{ArchiveError, End};
use super::reader::{Verify, read};
use super::restore::{RestoreError, RestoreResult, restore};
use super::source::{BackupScope, BackupSource};
use crate::config::Settings;
use crate::machine::Machine;
use crate::state_folder::{StateFolder, StatePaths};

const ALL: BackupScope = BackupScope { keys: true, objects: false };
const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn zip() -> Archive {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("app.py", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(b"x = 1").unwrap();
    zip.finish().unwrap().into_inner().into()
}

fn version(archive: &Archive) -> CodeVersion {
    CodeVersion::of_archive(&Namespace::new("tenant").unwrap(), &FunctionName::new("f").unwrap(), archive).unwrap()
}

/// A state with keys, documents and code, and its backup.
async fn backup(state: &Path, scope: BackupScope, document: usize) -> Vec<u8> {
    let folder = StateFolder::take(state).unwrap();
    let file = StateFile::open(&folder.paths().database()).unwrap();
    let registry = LocalRegistry::new(file.clone());
    let promised = |id: u8| OutboxChange::Put { id: [id; 16], head: vec![id], body: vec![id; document] };
    let row = |place| StoredHistory { id: [7; 16], place, value: vec![7; document] };
    LocalHistories::take_in(&file, vec![row(None), row(Some(0)), row(Some(1))]).unwrap();
    Outbox::open(file).unwrap().apply(vec![promised(1), promised(2), promised(3)]).await.unwrap();
    let keys = AccessKeys::load(&registry).await.unwrap();
    keys.issue(&registry, &Namespace::new("tenant").unwrap()).await.unwrap();
    for n in 0..3 {
        registry.put("functions", &format!("tenant/{n}"), vec![n; document], None).await.unwrap();
    }
    let code = CodeStore::open(&folder.paths().functions(), ArchiveLimits::LAMBDA).unwrap();
    code.publish(&version(&zip()), &zip()).unwrap();
    std::fs::write(state.join("credentials"), "the keys").unwrap();
    std::fs::write(state.join("nigh.toml"), "drain = '1 s'").unwrap();
    let settings = Settings::defaults(state, &Machine::probe());
    BackupSource::new(registry, folder.paths().clone(), &settings, None).write(scope, NOW, Vec::new()).unwrap()
}

fn verify(archive: &[u8]) -> Result<End, ArchiveError> {
    read(archive, &mut Verify).map(|(_, end)| end)
}

fn restored(archive: &[u8], state: &Path, force: bool) -> Result<RestoreResult, RestoreError> {
    restore(archive, state, force, NOW, &mut |_| {})
}

#[tokio::test]
async fn a_state_restored_elsewhere_has_all_of_it_and_what_was_there_is_moved_away() {
    let folder = tempfile::tempdir().unwrap();
    let archive = backup(&folder.path().join("one"), ALL, 1_000_000).await;
    let there = folder.path().join("two");
    std::fs::create_dir(&there).unwrap();
    std::fs::write(there.join("precious"), "mine").unwrap();
    let refused = restored(&archive, &there, false).unwrap_err().to_string();
    assert!(refused.contains("not empty (precious)") && refused.contains("--force"), "{refused}");
    assert_eq!(std::fs::read_dir(&there).unwrap().count(), 2, "precious and the lock");

    let done = restored(&archive, &there, true).unwrap();
    let End { documents, events, executions, code, objects, .. } = done.restored;
    assert_eq!((documents, events, executions, code, objects), (4, 3, 3, 1, 0));
    assert_eq!(std::fs::read(done.moved_away.unwrap().join("precious")).unwrap(), b"mine");
    let paths = StatePaths::new(&there);
    let registry = LocalRegistry::new(StateFile::open(&paths.database()).unwrap());
    assert_eq!(registry.get("functions", "tenant/2").await.unwrap().unwrap().value, vec![2; 1_000_000]);
    assert_eq!(AccessKeys::load(&registry).await.unwrap().of_namespace(&Namespace::new("tenant").unwrap()).len(), 1);
    let promises: Vec<_> = registry.snapshot().unwrap().promises().unwrap().map(Result::unwrap).collect();
    assert_eq!(promises.iter().map(|one| one.id).collect::<Vec<_>>(), [[1; 16], [2; 16], [3; 16]]);
    assert!(promises.iter().all(|one| one.head == [one.id[0]] && one.body == vec![one.id[0]; 1_000_000]));
    let rows: Vec<_> = registry.snapshot().unwrap().histories().unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.iter().map(|row| row.place).collect::<Vec<_>>(), [None, Some(0), Some(1)]);
    assert!(rows.iter().all(|row| row.id == [7; 16] && row.value == vec![7; 1_000_000]));
    let code = CodeStore::open(&paths.functions(), ArchiveLimits::LAMBDA).unwrap();
    assert_eq!(std::fs::read(code.task_folder(&version(&zip())).join("app.py")).unwrap(), b"x = 1");
    assert_eq!(std::fs::read(paths.credentials()).unwrap(), b"the keys");
    assert_eq!(std::fs::read(there.join("nigh.toml")).unwrap(), b"drain = '1 s'");
}

#[test]
fn a_backup_of_the_first_form_has_no_events_and_is_restored() {
    // The end entry as the first build wrote it: without a count of events.
    let folder = tempfile::tempdir().unwrap();
    let restored = restored(include_bytes!("../../tests/fixtures/backup-1.tar"), folder.path(), false).unwrap();
    assert_eq!((restored.backup.format, restored.restored.documents, restored.restored.events), (1, 1, 0));
}

#[tokio::test]
async fn without_keys_neither_keys_nor_settings_are_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let archive = backup(&folder.path().join("one"), BackupScope { keys: false, objects: false }, 100).await;
    let there = folder.path().join("two");
    std::fs::create_dir(&there).unwrap();
    std::fs::write(there.join("nigh.toml"), "own").unwrap();
    assert_eq!(restored(&archive, &there, false).unwrap().restored.documents, 3);
    assert!(!there.join("credentials").exists());
    assert_eq!(std::fs::read(there.join("nigh.toml")).unwrap(), b"own");
    let text = String::from_utf8_lossy(&archive).into_owned();
    assert!(!text.contains("access-keys") && !text.contains("the keys"));
}

#[tokio::test]
async fn an_archive_that_was_cut_or_changed_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let archive = backup(&folder.path().join("one"), ALL, 100).await;
    let whole = verify(&archive).unwrap();
    // Everything after `end.json` is padding.
    let end = archive.windows(8).rposition(|window| window == b"end.json").unwrap();
    for part in [0, 1, 300, 511, 512, 513, 1024, 3000, end - 512, end, end + 512, end + 600] {
        let error = verify(&archive[..part]).unwrap_err();
        assert!(matches!(error, ArchiveError::Truncated { .. } | ArchiveError::Foreign(_)), "{part}: {error}");
    }
    // Flips a bit of every part: headers, names, lengths, contents, sums, the end.
    for at in (0..end + 560).step_by(3) {
        let mut other = archive.clone();
        other[at] ^= 0x10;
        match verify(&other) {
            Err(_) => {}
            // Padding, times and owners are not restored.
            Ok(end) => assert_eq!(end, whole, "{at}"),
        }
    }
    let there = folder.path().join("two");
    let mut other = archive.clone();
    let at = other.windows(5).position(|window| window == b"drain").unwrap();
    other[at] ^= 1;
    let error = restored(&other, &there, false).unwrap_err().to_string();
    assert!(error.contains("files/nigh.toml") && error.contains("checksum"), "{error}");
    assert!(matches!(
        restored(&archive[..end], &there, false),
        Err(RestoreError::Archive(ArchiveError::Truncated { .. }))
    ));
    let left: Vec<_> = std::fs::read_dir(&there).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
    restored(&archive, &there, false).unwrap();
}

fn tar_of(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = tar::Header::new_ustar();
        // Written by hand, because `set_path` refuses the name that this test needs.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn what_is_no_backup_or_a_newer_one_or_leads_outside_is_refused_by_name() {
    const HEADER: &[u8] = br#"{"format":1,"nigh":"0.1.0","created":"","keys":true,"objects":true}"#;
    let regular = tar::EntryType::Regular;
    let first = ("nigh-backup.json", regular, HEADER);
    let said = |archive: &[u8]| verify(archive).unwrap_err().to_string();
    assert!(said(b"").contains("not a backup of nigh"));
    assert!(said(&[7; 4096]).contains("not a backup of nigh"));
    assert!(said(&tar_of(&[("a.txt", regular, b"x")])).contains("not a backup of nigh"));
    let newer = br#"{"format":9,"nigh":"7.3.1","what":[]}"#;
    let words = said(&tar_of(&[("nigh-backup.json", regular, newer)]));
    assert!(words.contains("7.3.1") && words.contains("format 9"), "{words}");
    for name in ["../../etc/cron.d/x", "/etc/passwd", "files/../../x", "objects/a/../../x/1", "files/instance"] {
        let words = said(&tar_of(&[first, (name, regular, b"x")]));
        assert!(words.contains("no backup has such an entry"), "{name}: {words}");
    }
    for kind in [tar::EntryType::Symlink, tar::EntryType::Link, tar::EntryType::GNULongName, tar::EntryType::XHeader] {
        let words = said(&tar_of(&[first, ("files/credentials", kind, b"/etc/passwd")]));
        assert!(words.contains("no backup has such an entry"), "{kind:?}: {words}");
    }
    assert!(said(&tar_of(&[first, first])).contains("twice"));
    assert!(said(&tar_of(&[first, ("objects/a/data/1", regular, b"x")])).contains("follow its bucket"));
}
