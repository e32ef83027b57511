//! When each client's key was last used, to the minute and of all processes together.
//!
//! A use is noted in memory; once a minute what is new is written to a table of its own, so that no use conflicts with a
//! change of a key. A process that ends loses the uses of its last minute.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_terms::{AccessKeyId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{AccessKeys, Holder};
use crate::{Registry, RegistryError};

/// The registry's table of last uses.
const TABLE: &str = "access-key-uses";
/// How often uses are written, if there are any.
pub const KEY_USES_WRITTEN_EVERY: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct StoredUse {
    used: Timestamp,
}

impl AccessKeys {
    /// Writes the uses since the last call.
    ///
    /// # Errors
    /// If the registry cannot be written: the next call writes them.
    #[boxed]
    pub async fn write_uses(&self, registry: &dyn Registry) -> Result<(), RegistryError> {
        let new: Vec<(AccessKeyId, u64)> = {
            let entries = self.shared.entries.read();
            let used = |entry: &super::Entry| entry.used.load(Ordering::Relaxed);
            let is_new = |entry: &super::Entry| used(entry) > entry.used_written.load(Ordering::Relaxed);
            let clients = entries.iter().filter(|(_, entry)| matches!(entry.holder, Holder::Client(_)));
            clients.filter(|(_, entry)| is_new(entry)).map(|(id, entry)| (id.clone(), used(entry))).collect()
        };
        if new.is_empty() {
            return Ok(());
        }
        let document = |used| serde_json::to_vec(&StoredUse { used: Timestamp(used) }).ok();
        let changes = new.iter().map(|(id, used)| (id.as_str().to_owned(), document(*used))).collect();
        registry.apply(TABLE, changes).await?;
        let entries = self.shared.entries.read();
        for (id, used) in new {
            if let Some(entry) = entries.get(&id) {
                entry.used_written.fetch_max(used, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The last uses of all clients' keys: what is written, and what this process has seen since.
    ///
    /// # Errors
    /// If the registry cannot be read.
    #[boxed]
    pub async fn uses(&self, registry: &dyn Registry) -> Result<HashMap<AccessKeyId, Timestamp>, RegistryError> {
        let mut uses = HashMap::new();
        for (id, document) in registry.list(TABLE, "").await? {
            if let Ok(StoredUse { used }) = serde_json::from_slice(&document.value) {
                uses.insert(AccessKeyId::new(id), used);
            }
        }
        let entries = self.shared.entries.read();
        for (id, entry) in entries.iter().filter(|(_, entry)| matches!(entry.holder, Holder::Client(_))) {
            let used = Timestamp(entry.used.load(Ordering::Relaxed));
            if used > Timestamp(0) {
                let known = uses.entry(id.clone()).or_insert(used);
                *known = used.max(*known);
            }
        }
        Ok(uses)
    }

    /// Forgets the uses of a key that was removed.
    ///
    /// # Errors
    /// If the registry cannot be written.
    #[boxed]
    pub async fn forget_uses(&self, registry: &dyn Registry, id: &AccessKeyId) -> Result<(), RegistryError> {
        registry.apply(TABLE, vec![(id.as_str().to_owned(), None)]).await
    }
}
