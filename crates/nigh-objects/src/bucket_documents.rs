//! What is set of a bucket beyond what S3 keeps: one document a bucket, in the registry.
//!
//! All are kept in memory too: a bucket without a document costs one load of a counter.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nigh_engine::{Registry, RegistryError, Revision};
use nigh_terms::{BucketName, Namespace};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ObjectError;

/// The document's form that this build writes.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Stored<T> {
    format: u32,
    config: T,
}

/// A document, and the revision under which it stands in the registry.
type Kept<T> = (Arc<T>, Revision);

/// The documents of one kind.
pub(crate) struct BucketDocuments<T> {
    registry: Arc<dyn Registry>,
    table: &'static str,
    /// What they are, for messages.
    what: &'static str,
    count: AtomicUsize,
    documents: RwLock<HashMap<(Namespace, BucketName), Kept<T>>>,
}

fn place(namespace: &Namespace, bucket: &BucketName) -> String {
    format!("{namespace}/{bucket}")
}

impl<T: Clone + Serialize + DeserializeOwned> BucketDocuments<T> {
    /// Those kept in `registry`.
    ///
    /// # Errors
    /// If it cannot be read, or holds what this build does not know.
    pub(crate) async fn open(
        registry: Arc<dyn Registry>,
        table: &'static str,
        what: &'static str,
    ) -> Result<Self, RegistryError> {
        let mut documents = HashMap::new();
        for (key, stored) in registry.list(table, "").await? {
            let unreadable = |why: String| RegistryError::Storage(format!("{what} of bucket {key}: {why}"));
            let Stored { format, config } =
                serde_json::from_slice(&stored.value).map_err(|error| unreadable(error.to_string()))?;
            if format > FORMAT {
                return Err(unreadable(format!("their format is {format}, this build reads up to {FORMAT}")));
            }
            let (namespace, bucket) = key.split_once('/').ok_or_else(|| unreadable("no namespace".to_owned()))?;
            let namespace = Namespace::new(namespace).map_err(|error| unreadable(error.to_string()))?;
            let bucket = BucketName::new(bucket).map_err(|error| unreadable(error.to_string()))?;
            documents.insert((namespace, bucket), (Arc::new(config), stored.revision));
        }
        let count = AtomicUsize::new(documents.len());
        Ok(Self { registry, table, what, count, documents: RwLock::new(documents) })
    }

    fn kept(&self, namespace: &Namespace, bucket: &BucketName) -> Option<Kept<T>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.documents.read().get(&(namespace.clone(), bucket.clone())).cloned()
    }

    /// The bucket's document, if it has one.
    pub(crate) fn of(&self, namespace: &Namespace, bucket: &BucketName) -> Option<Arc<T>> {
        self.kept(namespace, bucket).map(|(document, _)| document)
    }

    /// Replaces a bucket's document; `None` removes it. Durable when it returns.
    ///
    /// # Errors
    /// `ConditionalRequestConflict` if somebody else does so too; the registry's.
    pub(crate) async fn set(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        document: Option<T>,
    ) -> Result<(), ObjectError> {
        let failed = |error: RegistryError| match error {
            RegistryError::Conflict { .. } => ObjectError::ConditionalRequestConflict,
            other => {
                ObjectError::Memory { operation: "keep a bucket's settings", reason: format!("{}: {other}", self.what) }
            }
        };
        let before = self.kept(namespace, bucket).map(|(_, revision)| revision);
        let key = place(namespace, bucket);
        let now = match document {
            None => {
                if let Some(revision) = before {
                    self.registry.delete(self.table, &key, revision).await.map_err(failed)?;
                }
                None
            }
            Some(document) => {
                let stored = serde_json::to_vec(&Stored { format: FORMAT, config: document.clone() });
                let stored = stored.map_err(|error| failed(RegistryError::Storage(error.to_string())))?;
                let revision = self.registry.put(self.table, &key, stored, before).await.map_err(failed)?;
                Some((Arc::new(document), revision))
            }
        };
        let mut documents = self.documents.write();
        let which = (namespace.clone(), bucket.clone());
        match now {
            Some(kept) => drop(documents.insert(which, kept)),
            None => drop(documents.remove(&which)),
        }
        self.count.store(documents.len(), Ordering::Relaxed);
        Ok(())
    }
}
