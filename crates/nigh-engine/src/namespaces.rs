//! The namespaces that an operator has created or limited, with their quotas, and what each uses of its quota here.
//!
//! A namespace needs no document: one of the settings has one only if it has a quota. Requests a second are shared
//! evenly by the cluster's nodes. Memory is counted where a namespace's invocations are dispatched, which is one place
//! at a time; a new dispatch owner counts from its first invocation on.

mod quota;
mod token_bucket;
mod usage;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_recursion::async_recursion as boxed;
use nigh_terms::{ByteSize, Monotonic, Namespace, Timestamp};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::quota::{NamespaceQuota, OverQuota};
use self::usage::NamespaceUsage;
pub use self::usage::{ListingStart, MemoryBooking};
use crate::{Registry, RegistryChange, RegistryDocument, RegistryError};

/// The registry's table of namespaces with their quotas.
pub const NAMESPACES_TABLE: &str = "namespaces";

/// The format version of a namespace's document that this build writes.
const FORMAT: u32 = 1;
/// How often a change is tried again because another was first.
const CONFLICTS_MAX: u32 = 8;

/// Why a namespace was not changed.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// It exists.
    #[error("namespace {0} exists already")]
    Exists(Namespace),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredNamespace {
    format: u32,
    /// When an operator created it; none if it is one of the settings and has a quota.
    created: Option<Timestamp>,
    quota: NamespaceQuota,
}

#[derive(Debug)]
struct Known {
    created: Option<Timestamp>,
    usage: Arc<NamespaceUsage>,
}

#[derive(Debug, Default)]
struct Shared {
    known: RwLock<HashMap<Namespace, Known>>,
    /// The nodes that share a namespace's requests; zero counts as one.
    nodes: AtomicUsize,
}

/// The namespaces with documents. A clone is another handle to them.
#[derive(Clone, Debug, Default)]
pub struct Namespaces(Arc<Shared>);

impl Namespaces {
    /// Reads the namespaces of `registry`. A damaged document is named in the log and limits nothing.
    ///
    /// # Errors
    /// If the registry cannot be read, or holds a namespace that a newer Nigh wrote.
    #[boxed]
    pub async fn load(registry: &dyn Registry) -> Result<Self, RegistryError> {
        let namespaces = Self::default();
        for (name, document) in registry.list(NAMESPACES_TABLE, "").await? {
            if let Some((name, stored)) = decode(&name, &document.value)? {
                namespaces.learn(name, &stored);
            }
        }
        Ok(namespaces)
    }

    /// Follows the changes of other processes, until `registry` ends or all handles are dropped.
    ///
    /// # Errors
    /// If the watch cannot begin.
    #[boxed]
    pub async fn follow(&self, registry: &dyn Registry) -> Result<(), RegistryError> {
        let mut changes = registry.watch(NAMESPACES_TABLE).await?;
        let shared = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            while let Some(RegistryChange { key, now }) = changes.recv().await {
                let Some(shared) = shared.upgrade() else { return };
                let namespaces = Self(shared);
                match now.map(|now| decode(&key, &now.value)) {
                    None => {
                        if let Ok(name) = Namespace::new(&key) {
                            namespaces.forget(&name);
                        }
                    }
                    Some(Ok(Some((name, stored)))) => namespaces.learn(name, &stored),
                    Some(Ok(None)) => {}
                    Some(Err(error)) => {
                        tracing::error!(%error, "a namespace of another node cannot be read; its last quota stays")
                    }
                }
            }
        });
        Ok(())
    }

    /// Creates a namespace without a quota.
    ///
    /// # Errors
    /// If it has a document, or the registry cannot be written.
    #[boxed]
    pub async fn create(
        &self,
        registry: &dyn Registry,
        namespace: &Namespace,
        now: Timestamp,
    ) -> Result<(), NamespaceError> {
        let stored = StoredNamespace { format: FORMAT, created: Some(now), quota: NamespaceQuota::default() };
        match registry.put(NAMESPACES_TABLE, namespace.as_str(), encode(&stored)?, None).await {
            Ok(_) => self.learn(namespace.clone(), &stored),
            Err(RegistryError::Conflict { .. }) => return Err(NamespaceError::Exists(namespace.clone())),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Replaces the quota of a namespace.
    ///
    /// # Errors
    /// If the registry cannot be read or written.
    #[boxed]
    pub async fn set_quota(
        &self,
        registry: &dyn Registry,
        namespace: &Namespace,
        quota: NamespaceQuota,
    ) -> Result<(), NamespaceError> {
        for _ in 0..CONFLICTS_MAX {
            let found = registry.get(NAMESPACES_TABLE, namespace.as_str()).await?;
            let (created, revision) = match found {
                None => (None, None),
                Some(RegistryDocument { value, revision }) => {
                    let earlier = decode(namespace.as_str(), &value)?;
                    (earlier.and_then(|(_, earlier)| earlier.created), Some(revision))
                }
            };
            let stored = StoredNamespace { format: FORMAT, created, quota };
            match registry.put(NAMESPACES_TABLE, namespace.as_str(), encode(&stored)?, revision).await {
                Ok(_) => {
                    self.learn(namespace.clone(), &stored);
                    return Ok(());
                }
                Err(RegistryError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(changed_too_often(namespace).into())
    }

    /// Removes a namespace's document: it has no quota then. What is in the namespace stays.
    ///
    /// # Errors
    /// If the registry cannot be read or written.
    #[boxed]
    pub async fn remove(&self, registry: &dyn Registry, namespace: &Namespace) -> Result<(), NamespaceError> {
        for _ in 0..CONFLICTS_MAX {
            let Some(found) = registry.get(NAMESPACES_TABLE, namespace.as_str()).await? else {
                self.forget(namespace);
                return Ok(());
            };
            match registry.delete(NAMESPACES_TABLE, namespace.as_str(), found.revision).await {
                Err(RegistryError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => self.forget(namespace),
            }
        }
        Err(changed_too_often(namespace).into())
    }

    /// The namespaces with documents, in the order of their names, each with the date of its creation and its quota.
    #[must_use]
    pub fn all(&self) -> Vec<(Namespace, Option<Timestamp>, NamespaceQuota)> {
        let known = self.0.known.read();
        let mut all: Vec<_> =
            known.iter().map(|(name, known)| (name.clone(), known.created, known.usage.quota())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// The quota of `namespace`; empty if it has none.
    #[must_use]
    pub fn quota(&self, namespace: &Namespace) -> NamespaceQuota {
        self.usage(namespace).map(|usage| usage.quota()).unwrap_or_default()
    }

    /// The memory that its invocations book here, and the bytes that it stores; nothing if it has no document.
    #[must_use]
    pub fn used(&self, namespace: &Namespace) -> Option<(ByteSize, ByteSize)> {
        self.usage(namespace).map(|usage| usage.now())
    }

    /// From now on so many nodes share a namespace's requests.
    pub fn set_nodes(&self, nodes: usize) {
        self.0.nodes.store(nodes, Ordering::Relaxed);
    }

    /// Counts a request of a client of `namespace`.
    ///
    /// # Errors
    /// If it has sent as many in this second as it may.
    pub fn take_request(&self, namespace: &Namespace, now: impl FnOnce() -> Monotonic) -> Result<(), OverQuota> {
        let Some(usage) = self.usage(namespace) else { return Ok(()) };
        usage.take_request(self.0.nodes.load(Ordering::Relaxed), now()).map_err(counted)
    }

    /// Books memory for an invocation, until the result is dropped; nothing where the namespace has no document.
    ///
    /// # Errors
    /// If the namespace's invocations would book more than they may.
    pub fn book(&self, namespace: &Namespace, memory: ByteSize) -> Result<Option<MemoryBooking>, OverQuota> {
        self.usage(namespace).map(|usage| usage.book(memory)).transpose().map_err(counted)
    }

    /// Counts bytes that are about to be stored.
    ///
    /// # Errors
    /// If the namespace would store more than it may.
    pub fn store(&self, namespace: &Namespace, bytes: u64) -> Result<(), OverQuota> {
        self.usage(namespace).map_or(Ok(()), |usage| usage.store(bytes)).map_err(counted)
    }

    /// Whether the namespace may have one function more than the `count` that it has.
    ///
    /// # Errors
    /// If it has as many as it may have.
    pub fn check_functions(&self, namespace: &Namespace, count: usize) -> Result<(), OverQuota> {
        match self.quota(namespace).functions {
            Some(limit) if count as u64 >= limit => {
                Err(counted(OverQuota::Functions { namespace: namespace.clone(), limit }))
            }
            _ => Ok(()),
        }
    }

    /// A listing of the namespace's objects begins; nothing if it has no document.
    #[must_use]
    pub fn listing_starts(&self, namespace: &Namespace) -> Option<ListingStart> {
        self.usage(namespace).map(|usage| usage.listing_starts())
    }

    /// The listing that began at `since` found so many bytes.
    pub fn listed(&self, namespace: &Namespace, bytes: u64, since: ListingStart) {
        if let Some(usage) = self.usage(namespace) {
            usage.listed(bytes, since);
        }
    }

    fn usage(&self, namespace: &Namespace) -> Option<Arc<NamespaceUsage>> {
        self.0.known.read().get(namespace).map(|known| Arc::clone(&known.usage))
    }

    fn learn(&self, namespace: Namespace, stored: &StoredNamespace) {
        let mut known = self.0.known.write();
        if let Some(known) = known.get_mut(&namespace) {
            known.created = stored.created;
            known.usage.set_quota(stored.quota);
            return;
        }
        let usage = Arc::new(NamespaceUsage::new(namespace.clone(), stored.quota));
        known.insert(namespace, Known { created: stored.created, usage });
    }

    fn forget(&self, namespace: &Namespace) {
        self.0.known.write().remove(namespace);
    }
}

/// Counts a refusal.
fn counted(over: OverQuota) -> OverQuota {
    let quota = match over {
        OverQuota::Requests { .. } => "requests",
        OverQuota::Memory { .. } => "memory",
        OverQuota::Stored { .. } => "stored",
        OverQuota::Functions { .. } => "functions",
    };
    metrics::counter!("nigh_quota_refusals_total", "quota" => quota).increment(1);
    over
}

fn changed_too_often(namespace: &Namespace) -> RegistryError {
    RegistryError::Storage(format!("namespace {namespace} is changed by others again and again; try again"))
}

fn encode(stored: &StoredNamespace) -> Result<Vec<u8>, RegistryError> {
    serde_json::to_vec(stored).map_err(|error| RegistryError::Storage(format!("namespace: {error}")))
}

/// Reads a namespace's document; none if it is damaged.
fn decode(name: &str, document: &[u8]) -> Result<Option<(Namespace, StoredNamespace)>, RegistryError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    if let Ok(Format { format }) = serde_json::from_slice(document)
        && format > FORMAT
    {
        return Err(RegistryError::Storage(format!(
            "namespace {name} has format {format}, this build reads up to {FORMAT}; start the newer nigh that wrote it"
        )));
    }
    let stored = serde_json::from_slice(document).map_err(|error| error.to_string());
    match stored.and_then(|stored| Ok((Namespace::new(name).map_err(|error| error.to_string())?, stored))) {
        Ok(found) => Ok(Some(found)),
        Err(error) => {
            tracing::warn!(name, error, "a namespace cannot be read; it has no quota");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests;
