//! The node's one redb file: opened once, shared by the registry and the record log.
//!
//! It carries the number of its format and the Nigh that wrote it. A file of an older format is brought to this one when
//! it is opened, step by step, all in one transaction: a crash leaves it as it was. A newer one is refused and left
//! alone. What documents in it mean, and their own formats, are their owners'.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use thiserror::Error;
use tokio::sync::watch;

/// The format that this build writes.
const FORMAT: u64 = 2;
/// The first one: a file without a number is of it, or new.
const FIRST: u64 = 1;
/// `format`: the number.
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
/// `nigh`: the version that opened it last. Since format 2.
const WRITTEN_BY: TableDefinition<'static, &str, &str> = TableDefinition::new("written-by");
/// This build's version: all crates have one.
const NIGH: &str = env!("CARGO_PKG_VERSION");

/// What brings a file from one format to the next: the first from `FIRST` on.
const MIGRATIONS: [Migration; (FORMAT - FIRST) as usize] = [v1_to_v2];

type Migration = fn(&WriteTransaction) -> Result<(), redb::Error>;

/// Why the state file cannot be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// redb's own reason.
    #[error("state file {path}: {source}")]
    Database {
        /// The file.
        path: PathBuf,
        /// What redb said.
        #[source]
        source: Box<redb::Error>,
    },
    /// Written by a newer Nigh.
    #[error(
        "state file {path} has format {found} and was written by nigh {nigh}; this build ({NIGH}) reads up to {FORMAT}: \
         start that nigh or a newer one, or restore a backup of before"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The version of Nigh that wrote it.
        nigh: String,
    },
}

/// An open state file.
#[derive(Clone, Debug)]
pub struct StateFile {
    pub(crate) database: Arc<Database>,
    /// Counts the writes of the registry, for those who watch it.
    writes: watch::Sender<u64>,
}

impl StateFile {
    /// Opens `path`, or makes it.
    ///
    /// # Errors
    /// If it is no state file, is held by another process, or has a newer format.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |source: redb::Error| StateError::Database { path: path.to_owned(), source: Box::new(source) };
        let database = Database::create(path).map_err(|e| failed(e.into()))?;
        let (found, nigh) = stored_format(&database).map_err(failed)?;
        match found {
            Some(found) if found > FORMAT => {
                let nigh = nigh.unwrap_or_else(|| "a newer version".to_owned());
                return Err(StateError::Newer { path: path.to_owned(), found, nigh });
            }
            Some(FORMAT) if nigh.as_deref() == Some(NIGH) => {}
            found => migrate(&database, found.unwrap_or(FIRST)).map_err(failed)?,
        }
        Ok(Self { database: Arc::new(database), writes: watch::Sender::new(0) })
    }

    /// The registry was written.
    pub(crate) fn changed(&self) {
        self.writes.send_modify(|writes| *writes += 1);
    }

    /// Tells of each write of the registry from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.writes.subscribe()
    }
}

/// The file's format and the Nigh that wrote it, where it says so.
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

/// Brings the file from format `from` to this build's, in one durable step.
fn migrate(database: &Database, from: u64) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    prepare(&write, from)?;
    write.commit()?;
    if from < FORMAT {
        tracing::info!(from, to = FORMAT, "the state file has this build's format now");
    }
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

/// Format 2 says which Nigh wrote it.
fn v1_to_v2(write: &WriteTransaction) -> Result<(), redb::Error> {
    let mut written_by = write.open_table(WRITTEN_BY)?;
    if written_by.get("nigh")?.is_none() {
        written_by.insert("nigh", NIGH)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalRegistry, Registry as _};

    /// As the first builds wrote it: one number, the registry's table, a document with its revision before it.
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
            assert_eq!(stored_format(&state.database).unwrap(), (Some(FORMAT), Some(NIGH.to_owned())));
        }
        let state = StateFile::open(&path).unwrap();
        let log = crate::RecordLog::open(state.clone(), crate::Retention { records_max: 10 }).unwrap();
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
        assert_eq!(stored_format(&state.database).unwrap().0, Some(FORMAT));
    }

    #[test]
    fn a_file_of_a_newer_format_is_refused_with_the_nigh_that_wrote_it_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        {
            let state = StateFile::open(&path).unwrap();
            let write = state.database.begin_write().unwrap();
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
}
