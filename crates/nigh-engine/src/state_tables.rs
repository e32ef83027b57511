//! Reads the tables of the state file, on threads that may block.

use redb::{Key, ReadOnlyTable, ReadTransaction, TableDefinition, TableError, Value};

use crate::{RegistryError, StateFile};

/// A table whose rows have identifiers of 16 bytes.
pub(crate) type RowsById = TableDefinition<'static, &'static [u8; 16], &'static [u8]>;

pub(crate) fn storage(error: impl Into<redb::Error>) -> RegistryError {
    RegistryError::Storage(error.into().to_string())
}

/// Runs `work` on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    state: &StateFile,
    work: impl FnOnce(&StateFile) -> Result<T, RegistryError> + Send + 'static,
) -> Result<T, RegistryError> {
    let state = state.clone();
    let done = tokio::task::spawn_blocking(move || work(&state)).await;
    done.map_err(|join| RegistryError::Storage(join.to_string()))?
}

/// The table as `read` sees it; none if nobody has written it yet.
pub(crate) fn open_written<K: Key, V: Value>(
    read: &ReadTransaction,
    table: TableDefinition<'_, K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>, TableError> {
    match read.open_table(table) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Runs `work` on the table as it is now; returns the default if nobody has written the table yet.
pub(crate) async fn read_table<K: Key + Send, V: Value + Send, T: Default + Send + 'static>(
    state: &StateFile,
    table: TableDefinition<'static, K, V>,
    work: impl FnOnce(&ReadOnlyTable<K, V>) -> Result<T, RegistryError> + Send + 'static,
) -> Result<T, RegistryError> {
    blocking(state, move |state| {
        let read = state.begin_read().map_err(storage)?;
        open_written(&read, table).map_err(storage)?.map_or_else(|| Ok(T::default()), |table| work(&table))
    })
    .await
}

/// All rows, in the order of their identifiers.
pub(crate) async fn all_rows(state: &StateFile, table: RowsById) -> Result<Vec<([u8; 16], Vec<u8>)>, RegistryError> {
    read_table(state, table, |rows| {
        let rows = rows.range::<&[u8; 16]>(..).map_err(storage)?;
        rows.map(|row| row.map(|(id, value)| (*id.value(), value.value().to_vec())).map_err(storage)).collect()
    })
    .await
}
