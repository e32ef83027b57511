//! Settings of buckets beyond S3's own: one document for each bucket, in the registry.
//!
//! All documents are in memory too, so a bucket without one costs the load of one counter. Changes by other nodes
//! arrive soon after (`follow`). While the registry's servers cannot be reached no change arrives; after that all
//! missed ones do.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use nigh_data::ObjectError;
use nigh_engine::{Registry, RegistryChange, RegistryDocument, RegistryError, Revision};
use nigh_terms::{BucketName, Namespace};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The format version that this build writes.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct StoredConfig<T> {
    format: u32,
    config: T,
}

/// A document, and its revision in the registry.
type RevisedDocument<T> = (Arc<T>, Revision);

/// The bucket of a document.
type Place = (Namespace, BucketName);

/// The documents of one kind.
pub(crate) struct BucketDocuments<T> {
    registry: Arc<dyn Registry>,
    table: &'static str,
    /// The name of this kind of document, for messages.
    what: &'static str,
    kept: Arc<KeptDocuments<T>>,
}

/// The documents in memory.
struct KeptDocuments<T> {
    count: AtomicUsize,
    documents: RwLock<HashMap<Place, RevisedDocument<T>>>,
    /// Locked while a document is changed, by this node or as another node did.
    changing: tokio::sync::Mutex<()>,
}

impl<T> KeptDocuments<T> {
    fn keep(&self, place: Place, now: Option<RevisedDocument<T>>) {
        let mut documents = self.documents.write();
        match now {
            Some(kept) => drop(documents.insert(place, kept)),
            None => drop(documents.remove(&place)),
        }
        self.count.store(documents.len(), Ordering::Relaxed);
    }
}

fn key_of(namespace: &Namespace, bucket: &BucketName) -> String {
    format!("{namespace}/{bucket}")
}

fn decode<T: DeserializeOwned>(
    what: &str,
    key: &str,
    stored: &RegistryDocument,
) -> Result<(Place, RevisedDocument<T>), RegistryError> {
    let unreadable = |why: String| RegistryError::Storage(format!("{what} of bucket {key}: {why}"));
    let StoredConfig { format, config } =
        serde_json::from_slice(&stored.value).map_err(|error| unreadable(error.to_string()))?;
    if format > FORMAT {
        return Err(unreadable(format!(
            "their format is {format}, and this build reads up to {FORMAT}; start the newer nigh that wrote them"
        )));
    }
    let place = place_of(key).map_err(unreadable)?;
    Ok((place, (Arc::new(config), stored.revision)))
}

fn place_of(key: &str) -> Result<Place, String> {
    let (namespace, bucket) = key.split_once('/').ok_or("no namespace")?;
    let namespace = Namespace::new(namespace).map_err(|error| error.to_string())?;
    Ok((namespace, BucketName::new(bucket).map_err(|error| error.to_string())?))
}

/// Applies other nodes' changes until the documents are dropped.
async fn follow<T: DeserializeOwned>(
    what: &'static str,
    table: &'static str,
    registry: Arc<dyn Registry>,
    kept: Weak<KeptDocuments<T>>,
    mut changes: tokio::sync::mpsc::Receiver<RegistryChange>,
) {
    while let Some(RegistryChange { key, now }) = changes.recv().await {
        let Some(kept) = kept.upgrade() else { return };
        let _changing = kept.changing.lock().await;
        let Ok(place) = place_of(&key) else { continue };
        let known = kept.documents.read().get(&place).map(|(_, revision)| *revision);
        if now.as_ref().map(|now| now.revision) <= known && now.is_some() {
            continue;
        }
        // The notification may be older than this node's own change, so the registry is read.
        let found = match registry.get(table, &key).await {
            Ok(found) => found.map(|found| decode(what, &key, &found)).transpose(),
            Err(error) => Err(error),
        };
        match found {
            Ok(found) => kept.keep(place, found.map(|(_, kept)| kept)),
            Err(error) => tracing::error!(%error, "what another node set of a bucket is not known here"),
        }
    }
}

impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> BucketDocuments<T> {
    /// Reads the documents from `registry`.
    ///
    /// # Errors
    /// If the registry cannot be read, or holds a document that this build does not know.
    pub(crate) async fn open(
        registry: Arc<dyn Registry>,
        table: &'static str,
        what: &'static str,
    ) -> Result<Self, RegistryError> {
        let mut documents = HashMap::new();
        for (key, stored) in registry.list(table, "").await? {
            let (place, kept) = decode(what, &key, &stored)?;
            documents.insert(place, kept);
        }
        let count = AtomicUsize::new(documents.len());
        let documents = RwLock::new(documents);
        let kept = Arc::new(KeptDocuments { count, documents, changing: tokio::sync::Mutex::default() });
        Ok(Self { registry, table, what, kept })
    }

    /// Applies other nodes' changes from now on.
    ///
    /// # Errors
    /// If the registry cannot be watched.
    pub(crate) async fn follow(&self) -> Result<(), RegistryError> {
        let changes = self.registry.watch(self.table).await?;
        let (registry, kept) = (Arc::clone(&self.registry), Arc::downgrade(&self.kept));
        tokio::spawn(follow(self.what, self.table, registry, kept, changes));
        Ok(())
    }

    fn kept(&self, namespace: &Namespace, bucket: &BucketName) -> Option<RevisedDocument<T>> {
        if self.kept.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.kept.documents.read().get(&(namespace.clone(), bucket.clone())).cloned()
    }

    /// The bucket's document; none if it has none.
    pub(crate) fn of(&self, namespace: &Namespace, bucket: &BucketName) -> Option<Arc<T>> {
        self.kept(namespace, bucket).map(|(document, _)| document)
    }

    /// Replaces a bucket's document; `None` removes it. Durable when it returns.
    ///
    /// # Errors
    /// `ConditionalRequestConflict` if another node changes it at the same time; the registry's.
    pub(crate) async fn set(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        document: Option<T>,
    ) -> Result<(), ObjectError> {
        let failed = |error: RegistryError| match error {
            RegistryError::Conflict { .. } => ObjectError::ConditionalRequestConflict,
            // A registry that does not answer may have the change.
            other => ObjectError::StoreSilent {
                store: "of settings",
                operation: "keep a bucket's settings",
                reason: format!("{}: {other}", self.what),
            },
        };
        let _changing = self.kept.changing.lock().await;
        let before = self.kept(namespace, bucket).map(|(_, revision)| revision);
        let key = key_of(namespace, bucket);
        let now = match document {
            None => {
                if let Some(revision) = before {
                    self.registry.delete(self.table, &key, revision).await.map_err(failed)?;
                }
                None
            }
            Some(document) => {
                let stored = serde_json::to_vec(&StoredConfig { format: FORMAT, config: document.clone() });
                let stored = stored.map_err(|error| failed(RegistryError::Storage(error.to_string())))?;
                let revision = self.registry.put(self.table, &key, stored, before).await.map_err(failed)?;
                Some((Arc::new(document), revision))
            }
        };
        self.kept.keep((namespace.clone(), bucket.clone()), now);
        Ok(())
    }
}
