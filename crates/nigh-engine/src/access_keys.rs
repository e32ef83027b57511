//! Access keys and what each may do now: the only place that turns a request into a `Principal`.
//!
//! A namespace's keys are in the registry. A sandbox's key is in memory, ends with the sandbox, and is rejected while the
//! sandbox runs no invocation. The calls of an invocation are counted while they are under way, so that the invocation's
//! end can wait for calls that may still have an effect.

use std::collections::HashMap;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_terms::{AccessKeyId, Admission, FunctionName, InvocationId, Namespace, Principal, SandboxId, SecretKey};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::{Registry, RegistryChange, RegistryError};

/// The holder of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A client of the namespace.
    Client(Namespace),
    /// A sandbox of one function.
    Sandbox {
        /// The sandbox's namespace.
        namespace: Namespace,
        /// The sandbox's function.
        function: FunctionName,
        /// The id of the sandbox.
        sandbox: SandboxId,
    },
}

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AccessDenied {
    /// Nobody has this key, or its sandbox has ended.
    #[error("the access key {0} does not exist")]
    UnknownKey(AccessKeyId),
    /// The sandbox is between invocations.
    #[error("sandbox {0} runs no invocation; requests for data are rejected until the next one begins")]
    BetweenInvocations(SandboxId),
}

/// The calls of one invocation.
#[derive(Clone, Debug, Default)]
struct Calls {
    /// Cancelled when the invocation has ended.
    ended: CancellationToken,
    under_way: TaskTracker,
}

impl Calls {
    fn end(&self) {
        self.under_way.close();
        self.ended.cancel();
    }
}

/// A call under way. Hold it until the call can have no more effect: the invocation's end waits for it.
#[derive(Debug)]
pub struct CallGuard(Option<(CancellationToken, TaskTrackerToken)>);

impl CallGuard {
    /// True if the invocation has ended; never for a client of the namespace.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|(ended, _)| ended.is_cancelled())
    }

    /// Is cancelled when the invocation has ended, and then a call whose request is incomplete must be dropped; none for a
    /// client of the namespace.
    #[must_use]
    pub fn cancelled(&self) -> Option<WaitForCancellationFutureOwned> {
        self.0.as_ref().map(|(ended, _)| ended.clone().cancelled_owned())
    }
}

#[derive(Debug)]
struct Entry {
    secret: SecretKey,
    holder: Holder,
    invocation: Option<InvocationId>,
    admission: Admission,
    /// The calls of the current invocation, or of the last one.
    calls: Calls,
}

/// The format version of a key's document that this build writes.
const FORMAT: u32 = 1;

/// The format version of documents without a number: the first ones had none.
const fn first() -> u32 {
    1
}

/// The part that every format of the document has.
#[derive(Deserialize)]
struct Format {
    #[serde(default = "first")]
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    #[serde(default = "first")]
    format: u32,
    namespace: Namespace,
    secret: SecretKey,
}

/// The registry's table of the namespaces' keys, secrets included.
pub const ACCESS_KEYS_TABLE: &str = "access-keys";

/// All keys of a node.
#[derive(Clone, Debug, Default)]
pub struct AccessKeys {
    entries: Arc<RwLock<HashMap<AccessKeyId, Entry>>>,
}

impl AccessKeys {
    /// Reads the namespaces' keys. A damaged key stays in the registry, is named in the log, and is rejected.
    ///
    /// # Errors
    /// If the registry cannot be read, or holds a key that a newer Nigh wrote.
    #[boxed]
    pub async fn load(registry: &dyn Registry) -> Result<Self, RegistryError> {
        let keys = Self::default();
        for (id, stored) in registry.list(ACCESS_KEYS_TABLE, "").await? {
            if let Some(key) = decode(&id, &stored.value)? {
                keys.insert(AccessKeyId::new(id), key.secret, Holder::Client(key.namespace));
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
        let mut changes = registry.watch(ACCESS_KEYS_TABLE).await?;
        let entries = Arc::downgrade(&self.entries);
        tokio::spawn(async move {
            while let Some(RegistryChange { key, now }) = changes.recv().await {
                let Some(entries) = entries.upgrade() else { return };
                let (keys, id) = (Self { entries }, AccessKeyId::new(&key));
                match now.map(|now| decode(&key, &now.value)) {
                    None => keys.revoke(&id),
                    // A secret never changes: a known key keeps its entry, with its calls.
                    Some(Ok(Some(_))) if keys.secret(&id).is_some() => {}
                    Some(Ok(Some(stored))) => keys.insert(id, stored.secret, Holder::Client(stored.namespace)),
                    Some(Ok(None)) => {}
                    Some(Err(error)) => {
                        tracing::error!(%error, "an access key of another node cannot be read; this node rejects it")
                    }
                }
            }
        });
        Ok(())
    }

    /// Creates a key for clients of `namespace`, durable before it is returned.
    ///
    /// # Errors
    /// If the registry cannot be written.
    #[boxed]
    pub async fn issue(
        &self,
        registry: &dyn Registry,
        namespace: &Namespace,
    ) -> Result<(AccessKeyId, SecretKey), RegistryError> {
        let (id, secret) = (AccessKeyId::random(), SecretKey::random());
        let stored = StoredKey { format: FORMAT, namespace: namespace.clone(), secret: secret.clone() };
        let document =
            serde_json::to_vec(&stored).map_err(|error| RegistryError::Storage(format!("access key: {error}")))?;
        registry.put(ACCESS_KEYS_TABLE, id.as_str(), document, None).await?;
        self.insert(id.clone(), secret.clone(), Holder::Client(namespace.clone()));
        Ok((id, secret))
    }

    /// Creates a key for one sandbox, which may do nothing until an invocation begins.
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

    /// Lets the sandbox's key act for `invocation`; with `None` the key is rejected. Cancels the calls of an earlier
    /// invocation; `settled` waits for their end.
    pub fn set_invocation(&self, id: &AccessKeyId, invocation: Option<InvocationId>) {
        let earlier = {
            let mut entries = self.entries.write();
            let Some(entry) = entries.get_mut(id) else { return };
            entry.invocation = invocation;
            // The calls of the last invocation stay, because `settled` may wait for them.
            if invocation.is_some() { std::mem::take(&mut entry.calls) } else { entry.calls.clone() }
        };
        // Outside the lock, because this wakes waiting tasks.
        earlier.end();
    }

    /// Sets whether objects that the sandbox reads from now on are cached. By default they are.
    pub fn set_admission(&self, id: &AccessKeyId, admission: Admission) {
        if let Some(entry) = self.entries.write().get_mut(id) {
            entry.admission = admission;
        }
    }

    /// Returns when no call of the sandbox's last invocation is under way, or at once if the key is unknown. Call it when the
    /// invocation has ended.
    #[boxed]
    pub async fn settled(&self, id: &AccessKeyId) {
        let calls = self.entries.read().get(id).map(|entry| entry.calls.under_way.clone());
        if let Some(under_way) = calls {
            under_way.wait().await;
        }
    }

    /// Removes the key at once, and cancels its calls.
    pub fn revoke(&self, id: &AccessKeyId) {
        let gone = self.entries.write().remove(id);
        if let Some(entry) = gone {
            entry.calls.end();
        }
    }

    /// The secret that `id` signs with.
    #[must_use]
    pub fn secret(&self, id: &AccessKeyId) -> Option<SecretKey> {
        self.entries.read().get(id).map(|entry| entry.secret.clone())
    }

    /// The secret that `id` signs with, if it is a client's key and no sandbox's.
    #[must_use]
    pub fn client_secret(&self, id: &AccessKeyId) -> Option<SecretKey> {
        let entries = self.entries.read();
        let entry = entries.get(id).filter(|entry| matches!(entry.holder, Holder::Client(_)));
        entry.map(|entry| entry.secret.clone())
    }

    /// The keys of `namespace`'s clients, by id.
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

    /// The principal of a request that is signed with `id`.
    ///
    /// # Errors
    /// If the key is unknown, or its sandbox runs no invocation.
    pub fn principal(&self, id: &AccessKeyId) -> Result<Principal, AccessDenied> {
        let entries = self.entries.read();
        principal(id, entries.get(id))
    }

    /// The principal of a request that is signed with `id` and may have an effect. The call counts as in progress until
    /// the guard is dropped.
    ///
    /// # Errors
    /// The same as for `principal`.
    pub fn enter(&self, id: &AccessKeyId) -> Result<(Principal, CallGuard), AccessDenied> {
        // Under the lock: either `set_invocation` sees the call, or the call sees the new invocation.
        let entries = self.entries.read();
        let entry = entries.get(id);
        let who = principal(id, entry)?;
        let guard = entry
            .filter(|_| who.invocation.is_some())
            .map(|entry| (entry.calls.ended.clone(), entry.calls.under_way.token()));
        Ok((who, CallGuard(guard)))
    }

    fn insert(&self, id: AccessKeyId, secret: SecretKey, holder: Holder) {
        let entry = Entry { secret, holder, invocation: None, admission: Admission::Always, calls: Calls::default() };
        self.entries.write().insert(id, entry);
    }
}

/// Reads a key's document; none if it is damaged.
fn decode(id: &str, document: &[u8]) -> Result<Option<StoredKey>, RegistryError> {
    if let Ok(Format { format }) = serde_json::from_slice(document)
        && format > FORMAT
    {
        return Err(RegistryError::Storage(format!(
            "access key {id} has format {format}, this build reads up to {FORMAT}; start the newer nigh that wrote it"
        )));
    }
    match serde_json::from_slice(document) {
        Ok(stored) => Ok(Some(stored)),
        Err(error) => {
            // The log must not have the document, because that may have the secret.
            tracing::warn!(
                id,
                line = error.line(),
                column = error.column(),
                "an access key cannot be read; it is refused"
            );
            Ok(None)
        }
    }
}

fn principal(id: &AccessKeyId, entry: Option<&Entry>) -> Result<Principal, AccessDenied> {
    let entry = entry.ok_or_else(|| AccessDenied::UnknownKey(id.clone()))?;
    match (&entry.holder, entry.invocation) {
        (Holder::Client(namespace), _) => Ok(Principal::outside(namespace.clone())),
        (Holder::Sandbox { sandbox, .. }, None) => Err(AccessDenied::BetweenInvocations(*sandbox)),
        (Holder::Sandbox { namespace, function, sandbox }, Some(invocation)) => {
            let inside = Principal::inside(namespace.clone(), function.clone(), *sandbox, invocation);
            Ok(Principal { admission: entry.admission, ..inside })
        }
    }
}

#[cfg(test)]
mod tests;
