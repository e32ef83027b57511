//! The records on the disk, bounded in number and in bytes so that a namespace that writes much loses its own oldest
//! records and nobody else's.
//!
//! ```text
//! NAME           id -> record
//! NAME-lengths   (namespace, id) -> bytes of that record
//! ```
//!
//! Both tables change in one transaction. Earlier builds wrote the first table only: where the two do not match, the
//! second is made anew from the records, which then are JSON documents with a field `namespace`.

use std::collections::BTreeMap;

use nigh_terms::{ByteSize, Namespace};
use redb::{ReadableTable, ReadableTableMetadata, Table, TableDefinition};
use serde::Deserialize;

use crate::state_tables::{RowsById, open_written, storage};
use crate::{RegistryError, StateFile};

/// Records that one transaction removes at most; others wait for the file meanwhile.
const REMOVED_AT_ONCE: usize = 4096;
/// The namespace of records that do not say theirs. No namespace has this name.
const UNNAMED: &str = "";

/// How much a log keeps. What is beyond is removed, the oldest of a namespace first: of each namespace with more than
/// `namespace_bytes_max`, then of the namespace with the most bytes, then of the one with the most records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The most records.
    pub records_max: u64,
    /// The most bytes of all records together. The file takes up to about twice as much.
    pub bytes_max: ByteSize,
    /// The most bytes of the records of one namespace.
    pub namespace_bytes_max: ByteSize,
}

impl Default for Retention {
    fn default() -> Self {
        Self { records_max: 100_000, bytes_max: ByteSize::gib(1), namespace_bytes_max: ByteSize::mib(256) }
    }
}

/// A record to be written.
pub(super) struct NewRecord {
    pub(super) id: [u8; 16],
    pub(super) namespace: Namespace,
    pub(super) bytes: Vec<u8>,
}

/// What every record says of itself.
#[derive(Deserialize)]
struct RecordOwner {
    namespace: String,
}

fn namespace_of(record: &[u8]) -> String {
    serde_json::from_slice(record).map_or_else(|_| UNNAMED.to_owned(), |RecordOwner { namespace }| namespace)
}

/// How many records there are, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    records: u64,
    bytes: u64,
}

/// The usage of each namespace that has records, and of all.
#[derive(Debug, Default)]
struct Usages {
    by_namespace: BTreeMap<String, Usage>,
    all: Usage,
}

impl Usages {
    fn add(&mut self, namespace: &str, bytes: u64) {
        if !self.by_namespace.contains_key(namespace) {
            self.by_namespace.insert(namespace.to_owned(), Usage::default());
        }
        let own = self.by_namespace.get_mut(namespace);
        for usage in own.into_iter().chain([&mut self.all]) {
            usage.records += 1;
            usage.bytes += bytes;
        }
    }

    fn remove(&mut self, namespace: &str, bytes: u64) {
        let own = self.by_namespace.get_mut(namespace);
        for usage in own.into_iter().chain([&mut self.all]) {
            usage.records -= 1;
            usage.bytes -= bytes;
        }
        if self.by_namespace.get(namespace).is_some_and(|own| own.records == 0) {
            self.by_namespace.remove(namespace);
        }
    }

    /// The namespace whose oldest record has to go; none if all is within the limits.
    fn beyond(&self, retention: Retention) -> Option<&str> {
        let most = |of: fn(&Usage) -> u64| self.by_namespace.iter().max_by_key(|(_, usage)| of(usage));
        let (name, largest) = most(|usage| usage.bytes)?;
        if largest.bytes > retention.namespace_bytes_max.bytes() || self.all.bytes > retention.bytes_max.bytes() {
            return Some(name);
        }
        if self.all.records > retention.records_max {
            most(|usage| usage.records).map(|(name, _)| &**name)
        } else {
            None
        }
    }
}

/// The two tables in a transaction.
struct KeptTables<'a> {
    records: Table<'a, &'static [u8; 16], &'static [u8]>,
    lengths: Table<'a, (&'static str, &'static [u8; 16]), u64>,
}

impl KeptTables<'_> {
    fn put(&mut self, usages: &mut Usages, new: &NewRecord) -> Result<(), RegistryError> {
        self.records.insert(&new.id, new.bytes.as_slice()).map_err(storage)?;
        // An id belongs to one invocation, so a record is replaced by one of the same namespace.
        let (namespace, length) = (new.namespace.as_str(), new.bytes.len() as u64);
        let replaced = self.lengths.insert((namespace, &new.id), length).map_err(storage)?.map(|old| old.value());
        if let Some(replaced) = replaced {
            usages.remove(namespace, replaced);
        }
        usages.add(namespace, length);
        Ok(())
    }

    /// Removes what is beyond the limits; true if some of it is left for the next transaction.
    fn remove_surplus(&mut self, usages: &mut Usages, retention: Retention) -> Result<bool, RegistryError> {
        for _ in 0..REMOVED_AT_ONCE {
            let Some(namespace) = usages.beyond(retention).map(str::to_owned) else { return Ok(false) };
            let own = (namespace.as_str(), &[0; 16])..=(namespace.as_str(), &[0xff; 16]);
            let oldest = match self.lengths.range::<(&str, &[u8; 16])>(own).map_err(storage)?.next() {
                Some(row) => row.map(|(key, length)| (*key.value().1, length.value())).map_err(storage)?,
                None => {
                    return Err(RegistryError::Storage(format!(
                        "the count of the records of {namespace:?} is wrong; restart the node, which counts them again"
                    )));
                }
            };
            let (id, length) = oldest;
            self.lengths.remove((namespace.as_str(), &id)).map_err(storage)?;
            self.records.remove(&id).map_err(storage)?;
            usages.remove(&namespace, length);
        }
        Ok(usages.beyond(retention).is_some())
    }
}

/// The kept records of one log. Its writer thread has it.
pub(super) struct KeptRecords {
    records: RowsById,
    /// The name of the table of lengths.
    lengths: String,
    retention: Retention,
    /// As of the last durable transaction; none if it has to be read.
    usages: Option<Usages>,
}

impl KeptRecords {
    /// Those in the table `name` and the one beside it.
    pub(super) fn new(name: &'static str, retention: Retention) -> Self {
        Self { records: RowsById::new(name), lengths: format!("{name}-lengths"), retention, usages: None }
    }

    fn lengths(&self) -> TableDefinition<'_, (&'static str, &'static [u8; 16]), u64> {
        TableDefinition::new(&self.lengths)
    }

    /// The bytes of all records.
    pub(super) fn bytes(&self) -> u64 {
        self.usages.as_ref().map_or(0, |usages| usages.all.bytes)
    }

    /// Writes `batch` and removes what is then beyond the limits, in one durable transaction. True if more has to be
    /// removed: call it again.
    pub(super) fn commit(&mut self, state: &StateFile, batch: &[NewRecord]) -> Result<bool, RegistryError> {
        // If the transaction fails, they are read again.
        let mut usages = match self.usages.take() {
            Some(usages) => usages,
            None => self.read_usages(state)?,
        };
        if batch.is_empty() && usages.beyond(self.retention).is_none() {
            self.usages = Some(usages);
            return Ok(false);
        }
        let write = state.begin_write().map_err(storage)?;
        let more = {
            let mut tables = KeptTables {
                records: write.open_table(self.records).map_err(storage)?,
                lengths: write.open_table(self.lengths()).map_err(storage)?,
            };
            for new in batch {
                tables.put(&mut usages, new)?;
            }
            tables.remove_surplus(&mut usages, self.retention)?
        };
        write.commit().map_err(storage)?;
        self.usages = Some(usages);
        Ok(more)
    }

    /// The usages by the table of lengths, which is made anew if it does not match the records.
    fn read_usages(&self, state: &StateFile) -> Result<Usages, RegistryError> {
        let read = state.begin_read().map_err(storage)?;
        let Some(records) = open_written(&read, self.records).map_err(storage)? else { return Ok(Usages::default()) };
        let count = records.len().map_err(storage)?;
        let newest = records.last().map_err(storage)?.map(|(id, _)| *id.value());
        let (mut usages, mut newest_counted) = (Usages::default(), None);
        if let Some(lengths) = open_written(&read, self.lengths()).map_err(storage)? {
            for row in lengths.iter().map_err(storage)? {
                let (key, length) = row.map_err(storage)?;
                let (namespace, id) = key.value();
                usages.add(namespace, length.value());
                newest_counted = newest_counted.max(Some(*id));
            }
        }
        // An earlier build adds newer records, and removes the oldest ones, without counting them.
        if (usages.all.records, newest_counted) == (count, newest) {
            return Ok(usages);
        }
        tracing::info!(records = count, "counting the records that another version of Nigh wrote");
        let mut counted = Vec::new();
        for row in records.iter().map_err(storage)? {
            let (id, record) = row.map_err(storage)?;
            counted.push((*id.value(), namespace_of(record.value()), record.value().len() as u64));
        }
        drop((records, read));
        self.write_lengths(state, &counted)?;
        let mut usages = Usages::default();
        for (_, namespace, length) in &counted {
            usages.add(namespace, *length);
        }
        Ok(usages)
    }

    fn write_lengths(&self, state: &StateFile, counted: &[([u8; 16], String, u64)]) -> Result<(), RegistryError> {
        let write = state.begin_write().map_err(storage)?;
        write.delete_table(self.lengths()).map_err(storage)?;
        {
            let mut lengths = write.open_table(self.lengths()).map_err(storage)?;
            for (id, namespace, length) in counted {
                lengths.insert((namespace.as_str(), id), *length).map_err(storage)?;
            }
        }
        write.commit().map_err(storage)
    }
}
