//! Reads clients' keys from the registry, and follows their changes.

use std::collections::HashMap;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_terms::{AccessKeyId, Clock, SystemClock};

use super::document::{StoredKey, decode};
use super::{ACCESS_KEYS_TABLE, AccessKeys};
use crate::namespaces::Namespaces;
use crate::{Registry, RegistryChange, RegistryError};

impl AccessKeys {
    /// Reads the namespaces' keys and quotas. A damaged key stays in the registry, is named in the log, and is rejected.
    ///
    /// # Errors
    /// If the registry cannot be read, or holds a key that a newer Nigh wrote.
    #[boxed]
    pub async fn load(registry: &dyn Registry) -> Result<Self, RegistryError> {
        Self::load_at(registry, Arc::new(SystemClock::new())).await
    }

    /// The same, with the clock by which keys expire.
    ///
    /// # Errors
    /// The same.
    #[boxed]
    pub async fn load_at(registry: &dyn Registry, clock: Arc<dyn Clock>) -> Result<Self, RegistryError> {
        let keys = Self::new(Namespaces::load(registry).await?, clock);
        for (id, stored) in registry.list(ACCESS_KEYS_TABLE, "").await? {
            if let Some(stored) = decode(&id, &stored.value)? {
                keys.learn(AccessKeyId::new(id), stored.secret, stored.key);
            }
        }
        Ok(keys)
    }

    /// Follows the writes and deletions of other processes, until `registry` ends or all handles are dropped. While the
    /// servers are unreachable it learns nothing; then it learns all that it missed.
    ///
    /// # Errors
    /// If the watch cannot begin.
    #[boxed]
    pub async fn follow(&self, registry: &dyn Registry) -> Result<(), RegistryError> {
        self.shared.namespaces.follow(registry).await?;
        let mut changes = registry.watch(ACCESS_KEYS_TABLE).await?;
        let shared = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            while let Some(RegistryChange { key, now }) = changes.recv().await {
                let Some(shared) = shared.upgrade() else { return };
                let (keys, id) = (Self { shared }, AccessKeyId::new(&key));
                match now.map(|now| decode(&key, &now.value)) {
                    Some(Ok(Some(stored))) => keys.learn(id, stored.secret, stored.key),
                    None | Some(Ok(None)) => keys.revoke(&id),
                    Some(Err(error)) => {
                        tracing::error!(%error, "an access key of another node cannot be read; this node rejects it");
                        keys.revoke(&id);
                    }
                }
            }
        });
        Ok(())
    }

    /// Checks that `reload` can read all keys; nothing changes.
    ///
    /// # Errors
    /// The same as for `reload`.
    #[boxed]
    pub async fn check_reload(&self, registry: &dyn Registry) -> Result<(), RegistryError> {
        self.read_again(registry).await.map(drop)
    }

    /// Reads all keys of the registry again. Returns whether something has changed.
    ///
    /// # Errors
    /// If the registry cannot be read, or holds a key that a newer Nigh wrote, or a damaged one that is in use here; then
    /// nothing changes.
    #[boxed]
    pub async fn reload(&self, registry: &dyn Registry) -> Result<bool, RegistryError> {
        let found = self.read_again(registry).await?;
        let before = self.clients();
        for (id, _) in before.iter().filter(|(id, _)| !found.contains_key(id)) {
            self.revoke(id);
        }
        for (id, stored) in found {
            self.learn(id, stored.secret, stored.key);
        }
        Ok(self.clients() != before)
    }

    /// All keys of the registry, but for damaged ones that this process does not know.
    async fn read_again(&self, registry: &dyn Registry) -> Result<HashMap<AccessKeyId, StoredKey>, RegistryError> {
        let mut found = HashMap::new();
        for (id, stored) in registry.list(ACCESS_KEYS_TABLE, "").await? {
            let decoded = decode(&id, &stored.value)?;
            let id = AccessKeyId::new(id);
            match decoded {
                Some(stored) => {
                    found.insert(id, stored);
                }
                None if self.describe(&id).is_some() => {
                    return Err(RegistryError::Storage(format!(
                        "access key {id} is in use and its document is damaged: give its clients another key, and start \
                         the node again, which then refuses this one"
                    )));
                }
                None => {}
            }
        }
        Ok(found)
    }
}
