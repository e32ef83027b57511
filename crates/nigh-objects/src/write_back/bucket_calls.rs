//! Calls to the store about buckets: the shell around `buckets`.

use nigh_data::{BucketInfo, ObjectError, ObjectId};
use nigh_terms::{BucketName, Namespace};

use super::WriteBack;
use super::buckets::WritePermit;
use super::dirty::ObjectState;
use super::policy::WriteMode;

impl WriteBack {
    /// Makes a bucket.
    ///
    /// # Errors
    /// `BucketAlreadyOwnedByYou`, or the store's.
    pub(crate) async fn create_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let since = self.buckets.moment();
        let made = self.store.create_bucket(namespace, bucket).await;
        if matches!(made, Ok(()) | Err(ObjectError::BucketAlreadyOwnedByYou(_))) {
            self.buckets.heard(since, namespace, bucket);
        }
        made
    }

    /// The facts about a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, or the store's.
    pub(crate) async fn head_bucket(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
    ) -> Result<BucketInfo, ObjectError> {
        let since = self.buckets.moment();
        let info = self.store.head_bucket(namespace, bucket).await?;
        self.buckets.heard(since, namespace, bucket);
        Ok(info)
    }

    /// The namespace's buckets.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        let since = self.buckets.moment();
        let listed = self.store.list_buckets(namespace).await?;
        listed.iter().for_each(|info| self.buckets.heard(since, namespace, &info.name));
        Ok(listed)
    }

    /// Removes an empty bucket.
    ///
    /// # Errors
    /// `BucketNotEmpty`, also if the bucket has unpushed objects only; the store's.
    pub(crate) async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        // Nobody writes into the bucket from here on; later writers find that it is gone.
        let _alone = self.buckets.alone(namespace, bucket).await;
        loop {
            let first = {
                let dirty = self.dirty.lock();
                let mut keys = dirty.keys(namespace, bucket, "", None);
                keys.next().map(|(key, newest)| (key.clone(), newest.clone()))
            };
            let Some((key, newest)) = first else { break };
            let is_nothing = match newest.becomes {
                ObjectState::Gone => true,
                ObjectState::Put(_) => false,
                // Only its writer may drop a damaged acknowledged write; an ephemeral one was never promised to last.
                ObjectState::Lost => newest.mode == WriteMode::Ephemeral,
            };
            if !is_nothing {
                return Err(ObjectError::BucketNotEmpty(bucket.clone()));
            }
            let object = ObjectId { namespace: namespace.clone(), bucket: bucket.clone(), key };
            self.flush(&object).await?;
            // Only a record that cannot come back after a crash may go with its bucket.
            self.let_go(&object, |dirty| dirty.drop_newest(&object, newest.version)).await;
            self.unmark(&object).await;
        }
        self.store.delete_bucket(namespace, bucket).await?;
        self.buckets.removed(namespace, bucket);
        if let Some(policies) = &self.policies
            && policies.of(namespace, bucket).is_some()
        {
            policies.set(namespace, bucket, None).await?;
        }
        Ok(())
    }

    /// A permit to write into the bucket of `object`, if the ledger takes writes and the store has the bucket.
    pub(crate) async fn enter_write(&self, object: &ObjectId) -> Result<WritePermit, ObjectError> {
        self.ledger.check(self.shards.of(object))?;
        let ObjectId { namespace, bucket, .. } = object;
        let inside = self.buckets.enter(namespace, bucket).await;
        if !self.buckets.is_there(namespace, bucket) {
            self.store.head_bucket(namespace, bucket).await?;
            self.buckets.found(namespace, bucket);
        }
        Ok(inside)
    }

    /// Refuses a bucket that does not exist, as far as is known: a write checks again under its write lock.
    ///
    /// # Errors
    /// `NoSuchBucket`, or the store's.
    pub(crate) async fn find_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        if !self.buckets.is_there(namespace, bucket) {
            let _inside = self.buckets.enter(namespace, bucket).await;
            self.store.head_bucket(namespace, bucket).await?;
            self.buckets.found(namespace, bucket);
        }
        Ok(())
    }
}
