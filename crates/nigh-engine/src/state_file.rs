//! The node's one redb file: opened once, shared by the registry and the record log.
//!
//! It carries the version of its format under `meta/format`; a file of a newer version is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableDatabase, TableDefinition};
use thiserror::Error;

/// The version of the tables' layout that this build writes.
const FORMAT: u64 = 1;
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");

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
        "state file {path} has format {found}, this build reads up to {FORMAT}; start the newer nigh that wrote it"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
}

/// An open state file.
#[derive(Clone, Debug)]
pub struct StateFile {
    pub(crate) database: Arc<Database>,
}

impl StateFile {
    /// Opens `path`, or makes it.
    ///
    /// # Errors
    /// If it is no state file, is held by another process, or has a newer format.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |source: redb::Error| StateError::Database { path: path.to_owned(), source: Box::new(source) };
        let database = Database::create(path).map_err(|e| failed(e.into()))?;
        let found = stored_format(&database).map_err(failed)?;
        match found {
            Some(found) if found > FORMAT => return Err(StateError::Newer { path: path.to_owned(), found }),
            Some(_) => {}
            None => write_format(&database).map_err(failed)?,
        }
        Ok(Self { database: Arc::new(database) })
    }
}

fn stored_format(database: &Database) -> Result<Option<u64>, redb::Error> {
    let read = database.begin_read()?;
    match read.open_table(META) {
        Ok(meta) => Ok(meta.get("format")?.map(|format| format.value())),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

fn write_format(database: &Database) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    write.open_table(META)?.insert("format", FORMAT)?;
    write.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_newer_format_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        {
            let state = StateFile::open(&path).unwrap();
            let write = state.database.begin_write().unwrap();
            write.open_table(META).unwrap().insert("format", FORMAT + 1).unwrap();
            write.commit().unwrap();
        }
        assert!(matches!(StateFile::open(&path), Err(StateError::Newer { found, .. }) if found == FORMAT + 1));
    }
}
