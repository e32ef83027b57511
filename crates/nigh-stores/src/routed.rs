//! Stores by namespace: some namespaces have their own, the others share one. The namespace alone selects the store, so no
//! request reaches the store of another namespace.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use nigh_data::{BucketInfo, ByteStream, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta, Tags, WriteConditions};
use nigh_terms::{BucketName, Namespace};

use super::{ListQuery, Payload, Shadows, Store};
use crate::StoreAbilities;

/// Stores by namespace.
pub struct RoutedStore {
    shared: Arc<dyn Store>,
    own: BTreeMap<Namespace, Arc<dyn Store>>,
}

impl RoutedStore {
    /// The namespaces in `own` use their own store, all others `shared`.
    #[must_use]
    pub fn new(shared: Arc<dyn Store>, own: BTreeMap<Namespace, Arc<dyn Store>>) -> Self {
        Self { shared, own }
    }

    fn of(&self, namespace: &Namespace) -> &dyn Store {
        &**self.own.get(namespace).unwrap_or(&self.shared)
    }
}

#[async_trait]
impl Store for RoutedStore {
    fn kind(&self) -> &'static str {
        self.shared.kind()
    }

    fn trouble(&self) -> Option<String> {
        let own = self.own.iter().map(|(namespace, store)| (format!("the store of {namespace}: "), store));
        let mut all = std::iter::once((String::new(), &self.shared)).chain(own);
        all.find_map(|(name, store)| Some(name + &store.trouble()?))
    }

    fn abilities(&self, namespace: &Namespace) -> StoreAbilities {
        self.of(namespace).abilities(namespace)
    }

    fn shadows(&self, namespace: &Namespace) -> Option<&dyn Shadows> {
        self.of(namespace).shadows(namespace)
    }

    fn bucket_named(&self, account: Option<&str>, name: &str) -> Vec<(Namespace, BucketName)> {
        let all = std::iter::once(&self.shared).chain(self.own.values());
        let mut named: Vec<_> = all.flat_map(|store| store.bucket_named(account, name)).collect();
        named.sort();
        named.dedup();
        named
    }

    async fn let_go(&self) {
        self.shared.let_go().await;
        for store in self.own.values() {
            store.let_go().await;
        }
    }

    async fn keeps_conditions(&self, namespace: &Namespace, bucket: &BucketName) -> Result<bool, ObjectError> {
        self.of(namespace).keeps_conditions(namespace, bucket).await
    }

    fn check(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.of(&object.namespace).check(object, meta)
    }

    async fn put_if(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        condition: &WriteConditions,
    ) -> Result<(), ObjectError> {
        self.of(&object.namespace).put_if(object, payload, meta, condition).await
    }

    /// The spool of the shared store, from which the other stores read too.
    fn spool(&self) -> Option<&Path> {
        self.shared.spool()
    }

    async fn create_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        self.of(namespace).create_bucket(namespace, bucket).await
    }

    async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        self.of(namespace).delete_bucket(namespace, bucket).await
    }

    async fn head_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        self.of(namespace).head_bucket(namespace, bucket).await
    }

    async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        self.of(namespace).list_buckets(namespace).await
    }

    async fn put(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.of(&object.namespace).put(object, payload, meta).await
    }

    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        self.of(&object.namespace).head(object).await
    }

    async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        self.of(&object.namespace).get(object, range, pinned).await
    }

    async fn delete_if(&self, object: &ObjectId, expected: &ETag) -> Result<(), ObjectError> {
        self.of(&object.namespace).delete_if(object, expected).await
    }

    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError> {
        self.of(&object.namespace).delete(object).await
    }

    async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        self.of(&object.namespace).put_tags(object, tags).await
    }

    async fn list(&self, query: ListQuery<'_>) -> Result<Vec<ListedObject>, ObjectError> {
        self.of(query.namespace).list(query).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::DirectoryStore;
    use nigh_terms::SystemClock;

    #[tokio::test]
    async fn each_namespace_is_in_its_own_store_and_in_no_other() {
        let namespace = |name: &str| Namespace::new(name).unwrap();
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [shared, own] = folders.each_ref().map(|folder| {
            Arc::new(DirectoryStore::open(folder.path(), Arc::new(SystemClock::new())).unwrap()) as Arc<dyn Store>
        });
        let both = RoutedStore::new(Arc::clone(&shared), [(namespace("a"), Arc::clone(&own))].into());
        let bucket = BucketName::new("bucket").unwrap();
        for name in ["a", "b"] {
            both.create_bucket(&namespace(name), &bucket).await.unwrap();
        }
        assert!(own.head_bucket(&namespace("a"), &bucket).await.is_ok());
        assert!(own.head_bucket(&namespace("b"), &bucket).await.is_err());
        assert!(shared.head_bucket(&namespace("a"), &bucket).await.is_err());
        assert_eq!(both.list_buckets(&namespace("b")).await.unwrap().len(), 1);
        assert!(both.list_buckets(&namespace("c")).await.unwrap().is_empty());
    }
}
