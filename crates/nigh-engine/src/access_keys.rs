//! Access keys and what each may do now: the one place where a request becomes a `Principal`.
//!
//! A namespace's keys live in the registry. A sandbox's key lives in memory, dies with the sandbox,
//! and is refused while the sandbox runs no invocation.

use std::collections::HashMap;
use std::sync::Arc;

use nigh_terms::{AccessKeyId, FunctionName, InvocationId, Namespace, Principal, SandboxId, SecretKey};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Registry, RegistryError};

/// Whom a key was given to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A client of the namespace.
    Client(Namespace),
    /// A sandbox of one function.
    Sandbox {
        /// The tenant.
        namespace: Namespace,
        /// Its function.
        function: FunctionName,
        /// The sandbox.
        sandbox: SandboxId,
    },
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AccessDenied {
    /// Nobody has this key, or it died with its sandbox.
    #[error("the access key {0} does not exist")]
    UnknownKey(AccessKeyId),
    /// The sandbox is between invocations.
    #[error("sandbox {0} runs no invocation; data is refused until the next one begins")]
    BetweenInvocations(SandboxId),
}

#[derive(Debug)]
struct Entry {
    secret: SecretKey,
    holder: Holder,
    invocation: Option<InvocationId>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    namespace: Namespace,
    secret: SecretKey,
}

const TABLE: &str = "access-keys";

/// All keys of a node.
#[derive(Clone, Debug, Default)]
pub struct AccessKeys {
    entries: Arc<RwLock<HashMap<AccessKeyId, Entry>>>,
}

impl AccessKeys {
    /// Reads the namespaces' keys.
    ///
    /// # Errors
    /// If the registry cannot be read or holds what is no key.
    pub async fn load(registry: &dyn Registry) -> Result<Self, RegistryError> {
        let keys = Self::default();
        for (id, stored) in registry.list(TABLE, "").await? {
            let stored: StoredKey = serde_json::from_slice(&stored.value)
                .map_err(|error| RegistryError::Storage(format!("access key {id}: {error}")))?;
            keys.insert(AccessKeyId::new(id), stored.secret, Holder::Client(stored.namespace));
        }
        Ok(keys)
    }

    /// Makes a key for clients of `namespace`, durable before it is returned.
    ///
    /// # Errors
    /// If the registry cannot be written.
    pub async fn issue(
        &self,
        registry: &dyn Registry,
        namespace: &Namespace,
    ) -> Result<(AccessKeyId, SecretKey), RegistryError> {
        let (id, secret) = (AccessKeyId::random(), SecretKey::random());
        let stored = StoredKey { namespace: namespace.clone(), secret: secret.clone() };
        let document =
            serde_json::to_vec(&stored).map_err(|error| RegistryError::Storage(format!("access key: {error}")))?;
        registry.put(TABLE, id.as_str(), document, None).await?;
        self.insert(id.clone(), secret.clone(), Holder::Client(namespace.clone()));
        Ok((id, secret))
    }

    /// Makes a key for one sandbox. It may do nothing until an invocation begins.
    #[must_use]
    pub fn issue_sandbox(
        &self,
        namespace: Namespace,
        function: FunctionName,
        sandbox: SandboxId,
    ) -> (AccessKeyId, SecretKey) {
        let (id, secret) = (AccessKeyId::random(), SecretKey::random());
        self.insert(id.clone(), secret.clone(), Holder::Sandbox { namespace, function, sandbox });
        (id, secret)
    }

    /// From here on the sandbox's key acts for `invocation`; with `None` it is refused.
    pub fn set_invocation(&self, id: &AccessKeyId, invocation: Option<InvocationId>) {
        if let Some(entry) = self.entries.write().get_mut(id) {
            entry.invocation = invocation;
        }
    }

    /// The key is gone at once.
    pub fn revoke(&self, id: &AccessKeyId) {
        self.entries.write().remove(id);
    }

    /// The secret that `id` signs with.
    #[must_use]
    pub fn secret(&self, id: &AccessKeyId) -> Option<SecretKey> {
        self.entries.read().get(id).map(|entry| entry.secret.clone())
    }

    /// The keys of `namespace`'s clients, oldest name first.
    #[must_use]
    pub fn of_namespace(&self, namespace: &Namespace) -> Vec<AccessKeyId> {
        let entries = self.entries.read();
        let mut ids: Vec<_> = entries
            .iter()
            .filter(|(_, entry)| matches!(&entry.holder, Holder::Client(holder) if holder == namespace))
            .map(|(id, _)| id.clone())
            .collect();
        ids.sort();
        ids
    }

    /// On whose behalf a request signed with `id` acts, now.
    ///
    /// # Errors
    /// If the key is unknown, or its sandbox runs no invocation.
    pub fn principal(&self, id: &AccessKeyId) -> Result<Principal, AccessDenied> {
        let entries = self.entries.read();
        let entry = entries.get(id).ok_or_else(|| AccessDenied::UnknownKey(id.clone()))?;
        match (&entry.holder, entry.invocation) {
            (Holder::Client(namespace), _) => Ok(Principal::outside(namespace.clone())),
            (Holder::Sandbox { sandbox, .. }, None) => Err(AccessDenied::BetweenInvocations(*sandbox)),
            (Holder::Sandbox { namespace, function, sandbox }, Some(invocation)) => {
                Ok(Principal::inside(namespace.clone(), function.clone(), *sandbox, invocation))
            }
        }
    }

    fn insert(&self, id: AccessKeyId, secret: SecretKey, holder: Holder) {
        self.entries.write().insert(id, Entry { secret, holder, invocation: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalRegistry, StateFile};

    #[tokio::test]
    async fn a_namespace_key_survives_a_restart_and_a_sandbox_key_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
        let keys = AccessKeys::load(&registry).await.unwrap();
        let tenant = Namespace::new("tenant").unwrap();
        let (client, secret) = keys.issue(&registry, &tenant).await.unwrap();
        let (inside, _) = keys.issue_sandbox(tenant.clone(), FunctionName::new("f").unwrap(), SandboxId::random());

        let again = AccessKeys::load(&registry).await.unwrap();
        assert_eq!(again.secret(&client), Some(secret));
        assert_eq!(again.principal(&client), Ok(Principal::outside(tenant)));
        assert_eq!(again.principal(&inside), Err(AccessDenied::UnknownKey(inside)));
    }

    #[test]
    fn a_sandbox_key_acts_for_its_invocation_and_for_nothing_between() {
        let keys = AccessKeys::default();
        let (namespace, function) = (Namespace::new("tenant").unwrap(), FunctionName::new("f").unwrap());
        let (sandbox, invocation) = (SandboxId::random(), InvocationId::now());
        let (id, _) = keys.issue_sandbox(namespace.clone(), function.clone(), sandbox);
        assert_eq!(keys.principal(&id), Err(AccessDenied::BetweenInvocations(sandbox)));
        keys.set_invocation(&id, Some(invocation));
        assert_eq!(keys.principal(&id), Ok(Principal::inside(namespace, function, sandbox, invocation)));
        keys.set_invocation(&id, None);
        assert_eq!(keys.principal(&id), Err(AccessDenied::BetweenInvocations(sandbox)));
        keys.revoke(&id);
        assert!(matches!(keys.principal(&id), Err(AccessDenied::UnknownKey(_))));
    }
}
