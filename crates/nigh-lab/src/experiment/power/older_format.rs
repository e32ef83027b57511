//! Turns a node's state file into one of the first format, as the first builds of Nigh wrote it, so that the next start
//! migrates it. The formats differ in their number and in the version of Nigh that wrote the file.

use std::path::Path;

use redb::{Database, TableDefinition};

use crate::LabError;

/// Of nigh-engine's state file.
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const WRITTEN_BY: TableDefinition<'static, &str, &str> = TableDefinition::new("written-by");
const FIRST: u64 = 1;

/// The node must not run. A file that is not there yet stays so.
pub(super) fn turn_back(path: &Path) -> Result<(), LabError> {
    let turned = || -> Result<(), redb::Error> {
        let database = Database::open(path)?;
        let write = database.begin_write()?;
        write.open_table(META)?.insert("format", FIRST)?;
        write.delete_table(WRITTEN_BY)?;
        write.commit()?;
        Ok(())
    };
    if !path.exists() {
        return Ok(());
    }
    turned().map_err(|error| LabError::file(path, &error))
}
