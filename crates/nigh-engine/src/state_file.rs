//! The node's one redb file: opened once, shared by the registry and the record log.
//!
//! The file has the number of its format and the version of Nigh that wrote it. Opening a file of an older format migrates
//! it step by step, in one transaction: a crash leaves the old format. A file of a newer format is rejected unchanged. The
//! owners of documents in it define their meaning and formats.
//!
//! redb accepts no writes after a failed write, for example on a full disk. The file is then opened again as soon as the
//! disk accepts bytes, with the last durable transaction.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, StorageError, TableDefinition, TransactionError,
    WriteTransaction,
};
use thiserror::Error;
use tokio::sync::watch;

/// The format version that this build writes.
const FORMAT: u64 = 2;
/// The first format version: a file without a number has it, or is new.
const FIRST: u64 = 1;
/// Key `format`: the format version.
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
/// Key `nigh`: the version of Nigh that opened the file last. Since format version 2.
const WRITTEN_BY: TableDefinition<'static, &str, &str> = TableDefinition::new("written-by");
/// The bytes that the disk must accept before a file is opened again after a failure.
const PROBE_BYTES: usize = 1 << 20;
/// The memory for pages of the file, read and unwritten ones together. (redb's own default is 1 GiB.)
const CACHE_BYTES: usize = 64 << 20;
/// This build's version: all crates have one.
const NIGH: &str = env!("CARGO_PKG_VERSION");

/// The migrations from each format to the next, beginning with `FIRST`.
const MIGRATIONS: [Migration; (FORMAT - FIRST) as usize] = [v1_to_v2];

type Migration = fn(&WriteTransaction) -> Result<(), redb::Error>;

/// Why the state file cannot be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// redb reported an error.
    #[error("state file {path}: {source}")]
    Database {
        /// The path of the file.
        path: PathBuf,
        /// redb's error.
        #[source]
        source: Box<redb::Error>,
    },
    /// The file was written by a newer Nigh.
    #[error(
        "state file {path} has format {found} and was written by nigh {nigh}; this build ({NIGH}) reads up to {FORMAT}: \
         start that nigh or a newer one, or restore a backup of before"
    )]
    Newer {
        /// The path of the file.
        path: PathBuf,
        /// The file's format version.
        found: u64,
        /// The version of Nigh that wrote it.
        nigh: String,
    },
}

/// An open state file.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: Arc<Path>,
    /// None after a failure, until the file is opened again.
    database: Arc<Mutex<Option<Arc<Database>>>>,
    /// Counts the writes of the registry, for watchers.
    writes: watch::Sender<u64>,
}

impl StateFile {
    /// Opens or creates the file at `path`.
    ///
    /// # Errors
    /// If it is no state file, is held by another process, or has a newer format.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |source: redb::Error| StateError::Database { path: path.to_owned(), source: Box::new(source) };
        let is_new = !path.exists();
        let database = open_database(path).map_err(|e| failed(e.into()))?;
        let (found, nigh) = stored_format(&database).map_err(failed)?;
        match found {
            Some(found) if found > FORMAT => {
                let nigh = nigh.unwrap_or_else(|| "a newer version".to_owned());
                return Err(StateError::Newer { path: path.to_owned(), found, nigh });
            }
            Some(FORMAT) if nigh.as_deref() == Some(NIGH) => {}
            found => {
                let from = found.unwrap_or(FIRST);
                migrate(&database, from).map_err(failed)?;
                if from < FORMAT && !is_new {
                    tracing::info!(from, to = FORMAT, "the state file was migrated to this build's format");
                }
            }
        }
        let database = Arc::new(Mutex::new(Some(Arc::new(database))));
        Ok(Self { path: path.into(), database, writes: watch::Sender::new(0) })
    }

    /// A view of the file as it is now.
    pub(crate) fn begin_read(&self) -> Result<ReadTransaction, redb::Error> {
        let database = self.database.lock().clone();
        Ok(database.map_or_else(|| self.open_anew(None), Ok)?.begin_read()?)
    }

    /// Begins a write transaction when the one before has ended.
    pub(crate) fn begin_write(&self) -> Result<WriteTransaction, redb::Error> {
        let database = self.database.lock().clone();
        let begun = database.as_ref().map(|database| database.begin_write());
        match begun {
            Some(Ok(write)) => Ok(write),
            None | Some(Err(TransactionError::Storage(StorageError::PreviousIo))) => {
                let database = self.open_anew(database)?;
                Ok(database.begin_write()?)
            }
            Some(Err(other)) => Err(other.into()),
        }
    }

    /// Opens the file again after `failed`, unless another thread has.
    fn open_anew(&self, failed: Option<Arc<Database>>) -> Result<Arc<Database>, redb::Error> {
        let mut current = self.database.lock();
        if let Some(current) = &*current
            && !failed.as_ref().is_some_and(|failed| Arc::ptr_eq(current, failed))
        {
            return Ok(Arc::clone(current));
        }
        // Until the disk accepts bytes, the old handle stays open for reads.
        takes_bytes(&self.path)?;
        *current = None;
        // The last handle releases its lock; if another thread has that handle, the next writer opens the file.
        drop(failed);
        let database = Arc::new(open_database(&self.path)?);
        *current = Some(Arc::clone(&database));
        tracing::info!(path = %self.path.display(), "the state file accepts writes again");
        Ok(database)
    }

    /// Counts a write of the registry.
    pub(crate) fn changed(&self) {
        self.writes.send_modify(|writes| *writes += 1);
    }

    /// Receives the count of the registry's writes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.writes.subscribe()
    }
}

/// Opens or creates the file, with bounded memory for its pages.
fn open_database(path: &Path) -> Result<Database, redb::DatabaseError> {
    Database::builder().set_cache_size(CACHE_BYTES).create(path)
}

/// Fails unless the disk accepts the bytes that redb may write when it opens the file.
fn takes_bytes(path: &Path) -> Result<(), std::io::Error> {
    let probe = path.with_extension("probe");
    let written = std::fs::write(&probe, vec![1; PROBE_BYTES]);
    std::fs::remove_file(&probe)?;
    written
}

/// The file's format and the version of Nigh that wrote it, as far as the file has them.
fn stored_format(database: &Database) -> Result<(Option<u64>, Option<String>), redb::Error> {
    let read = database.begin_read()?;
    let format = match read.open_table(META) {
        Ok(meta) => meta.get("format")?.map(|format| format.value()),
        Err(redb::TableError::TableDoesNotExist(_)) => None,
        Err(other) => return Err(other.into()),
    };
    let nigh = match read.open_table(WRITTEN_BY) {
        Ok(written_by) => written_by.get("nigh")?.map(|nigh| nigh.value().to_owned()),
        Err(redb::TableError::TableDoesNotExist(_)) => None,
        Err(other) => return Err(other.into()),
    };
    Ok((format, nigh))
}

/// Migrates the file from format `from` to this build's, in one durable step.
fn migrate(database: &Database, from: u64) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    prepare(&write, from)?;
    write.commit()?;
    Ok(())
}

fn prepare(write: &WriteTransaction, from: u64) -> Result<(), redb::Error> {
    let done = usize::try_from(from.saturating_sub(FIRST)).unwrap_or(MIGRATIONS.len());
    for step in MIGRATIONS.iter().skip(done) {
        step(write)?;
    }
    write.open_table(META)?.insert("format", FORMAT)?;
    write.open_table(WRITTEN_BY)?.insert("nigh", NIGH)?;
    Ok(())
}

/// Format version 2 names the version of Nigh that wrote the file.
fn v1_to_v2(write: &WriteTransaction) -> Result<(), redb::Error> {
    let mut written_by = write.open_table(WRITTEN_BY)?;
    if written_by.get("nigh")?.is_none() {
        written_by.insert("nigh", NIGH)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::skipped::skip;
    use crate::{LocalRegistry, Registry as _};

    fn opened(state: &StateFile) -> Arc<Database> {
        state.database.lock().clone().unwrap()
    }

    /// A file of format version 1, as the first builds wrote it: one number, the registry's table, a document with its
    /// revision before it.
    fn v1(path: &Path) {
        let database = Database::create(path).unwrap();
        let write = database.begin_write().unwrap();
        write.open_table(META).unwrap().insert("format", 1).unwrap();
        let registry: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("registry");
        let document = [&3_u64.to_le_bytes()[..], b"kept"].concat();
        write.open_table(registry).unwrap().insert("functions\0tenant/f", document.as_slice()).unwrap();
        let records: TableDefinition<'_, &[u8; 16], &[u8]> = TableDefinition::new("records");
        write.open_table(records).unwrap().insert(&[7; 16], &b"record"[..]).unwrap();
        write.commit().unwrap();
    }

    #[tokio::test]
    async fn a_file_of_the_first_format_is_brought_to_this_one_with_nothing_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        v1(&path);
        for _ in 0..2 {
            let state = StateFile::open(&path).unwrap();
            assert_eq!(stored_format(&opened(&state)).unwrap(), (Some(FORMAT), Some(NIGH.to_owned())));
        }
        let state = StateFile::open(&path).unwrap();
        let log = crate::RecordLog::open(state.clone(), crate::Retention::default()).unwrap();
        assert_eq!(log.get([7; 16]).await.unwrap(), Some(b"record".to_vec()));
        let found = LocalRegistry::new(state).get("functions", "tenant/f").await.unwrap().unwrap();
        assert_eq!((found.value, found.revision), (b"kept".to_vec(), crate::Revision(3)));
    }

    #[test]
    fn a_crash_in_the_middle_of_a_migration_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        v1(&path);
        {
            let database = Database::create(&path).unwrap();
            let write = database.begin_write().unwrap();
            prepare(&write, FIRST).unwrap();
            drop(write);
            assert_eq!(stored_format(&database).unwrap(), (Some(1), None));
        }
        let state = StateFile::open(&path).unwrap();
        assert_eq!(stored_format(&opened(&state)).unwrap().0, Some(FORMAT));
    }

    #[test]
    fn a_file_of_a_newer_format_is_refused_with_the_nigh_that_wrote_it_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        {
            let state = StateFile::open(&path).unwrap();
            let write = state.begin_write().unwrap();
            write.open_table(META).unwrap().insert("format", FORMAT + 1).unwrap();
            write.open_table(WRITTEN_BY).unwrap().insert("nigh", "7.3.1").unwrap();
            write.commit().unwrap();
        }
        for _ in 0..2 {
            let refused = StateFile::open(&path).unwrap_err();
            assert!(matches!(refused, StateError::Newer { found, .. } if found == FORMAT + 1));
            assert!(refused.to_string().contains("nigh 7.3.1"), "{refused}");
        }
    }

    #[test]
    fn what_is_no_state_file_is_named_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        let refused = StateFile::open(&path).unwrap_err().to_string();
        assert!(refused.contains("state.redb"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; 10_000]);
    }

    /// A file system of 4 MiB in a mount namespace: its path as other processes see it, and the process that keeps it.
    /// None if this user cannot mount.
    fn small_disk() -> Option<(PathBuf, Child)> {
        let script = "mount -t tmpfs -o size=4m tmpfs /mnt && echo mounted && exec sleep infinity";
        let mut keeper = Command::new("unshare");
        keeper.args(["--mount", "--propagation", "private", "/bin/sh", "-c", script]);
        let mut keeper = keeper.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let mut said = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said == "mounted\n" {
            return Some((format!("/proc/{}/root/mnt", keeper.id()).into(), keeper));
        }
        keeper.wait().unwrap();
        None
    }

    #[tokio::test]
    async fn a_file_whose_disk_was_full_takes_writes_again_when_there_is_room() {
        let test = "a_file_whose_disk_was_full_takes_writes_again_when_there_is_room";
        let Some((folder, mut keeper)) = small_disk() else {
            return skip(test, "no file system can be mounted by this user");
        };
        let state = StateFile::open(&folder.join("state.redb")).unwrap();
        let (registry, same) = (LocalRegistry::new(state.clone()), LocalRegistry::new(state.clone()));
        let name = |n: usize| format!("document-{n}");
        let mut kept = 0;
        while registry.put("table", &name(kept), vec![7; 100_000], None).await.is_ok() {
            kept += 1;
        }
        assert!(kept > 2);
        for _ in 0..3 {
            assert!(same.put("table", "small", vec![1], None).await.is_err(), "its disk is full");
        }
        let resized = Command::new("nsenter")
            .args([&format!("--mount=/proc/{}/ns/mnt", keeper.id()), "--", "mount", "-o", "remount,size=16m", "/mnt"])
            .status();
        assert!(resized.unwrap().success());
        same.put("table", "small", vec![1], None).await.unwrap();
        // As if the file could not be opened again: the next caller opens it, even to read.
        *state.database.lock() = None;
        assert_eq!(same.get("table", &name(0)).await.unwrap().unwrap().value, vec![7; 100_000]);
        registry.put("table", &name(kept), vec![8; 100_000], None).await.unwrap();
        for n in 0..kept {
            assert_eq!(same.get("table", &name(n)).await.unwrap().unwrap().value, vec![7; 100_000]);
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "the file and nothing else");
        keeper.kill().unwrap();
        keeper.wait().unwrap();
    }
}
