//! Buckets: created, removed and listed, and the policy of each.

use async_recursion::async_recursion as boxed;
use nigh_data::listing::RollUp;
use nigh_data::{BucketInfo, DataOperation, ListPage, ListRequest, ObjectError, ServeOutcome};
use nigh_terms::{BucketName, Principal, Token};

use super::ObjectMemory;
use super::cluster::RemoteHomes;
use super::fetch::READ_RETRIES_MAX;
use crate::BucketPolicy;

impl ObjectMemory {
    /// The policy of a bucket's writes.
    ///
    /// # Errors
    /// `NoSuchBucket`, or the store's.
    #[boxed]
    pub async fn bucket_policy(&self, who: &Principal, bucket: &BucketName) -> Result<BucketPolicy, ObjectError> {
        self.head_bucket(who, bucket).await?;
        Ok(self.0.back.bucket_policy(&who.namespace, bucket))
    }

    /// Replaces the policy of a bucket's writes; the default removes it. Earlier writes keep their modes.
    ///
    /// # Errors
    /// `NoSuchBucket`; `InvalidArgument` for a policy that contradicts itself or that the store cannot support.
    #[boxed]
    pub async fn set_bucket_policy(
        &self,
        who: &Principal,
        bucket: &BucketName,
        policy: BucketPolicy,
    ) -> Result<(), ObjectError> {
        self.head_bucket(who, bucket).await?;
        self.0.back.set_bucket_policy(&who.namespace, bucket, policy).await
    }

    /// Makes a bucket.
    ///
    /// # Errors
    /// `BucketAlreadyOwnedByYou`, or the store's.
    #[boxed]
    pub async fn create_bucket(&self, who: &Principal, bucket: &BucketName) -> Result<(), ObjectError> {
        let mut call = self.0.begin(who, DataOperation::Write, bucket, None);
        self.0.back.create_bucket(&who.namespace, bucket).await?;
        call.succeeded(ServeOutcome::Metadata, None, Token::empty());
        Ok(())
    }

    /// Removes an empty bucket and its unfinished uploads.
    ///
    /// # Errors
    /// `NoSuchBucket`, `BucketNotEmpty`, or the store's.
    #[boxed]
    pub async fn delete_bucket(&self, who: &Principal, bucket: &BucketName) -> Result<(), ObjectError> {
        let mut call = self.0.begin(who, DataOperation::Write, bucket, None);
        self.0.check_empty_elsewhere(&who.namespace, bucket).await?;
        self.0.back.delete_bucket(&who.namespace, bucket).await?;
        self.0.forget_notifications(&who.namespace, bucket).await;
        self.0.completed.lock().forget(&who.namespace, bucket);
        for upload in self.0.uploads.list(&who.namespace, bucket, "") {
            self.0.end_upload(upload).await?;
        }
        call.succeeded(ServeOutcome::Delete, None, Token::empty());
        Ok(())
    }

    /// The facts about a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, or the store's.
    #[boxed]
    pub async fn head_bucket(&self, who: &Principal, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        let mut call = self.0.begin(who, DataOperation::Metadata, bucket, None);
        let info = self.0.back.head_bucket(&who.namespace, bucket).await?;
        call.succeeded(ServeOutcome::Metadata, None, Token::empty());
        Ok(info)
    }

    /// The namespace's buckets. The call names no bucket, so it emits no event.
    ///
    /// # Errors
    /// The store's.
    #[boxed]
    pub async fn list_buckets(&self, who: &Principal) -> Result<Vec<BucketInfo>, ObjectError> {
        self.0.back.list_buckets(&who.namespace).await
    }

    /// Lists a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, or the store's.
    #[boxed]
    pub async fn list(
        &self,
        who: &Principal,
        bucket: &BucketName,
        request: ListRequest,
    ) -> Result<ListPage, ObjectError> {
        let mut call = self.0.begin(who, DataOperation::Metadata, bucket, None);
        let prefix = request.prefix.clone();
        for _ in 0..READ_RETRIES_MAX {
            let (mut roll_up, mut question) = RollUp::begin(request.clone());
            if question.is_none() {
                self.0.back.head_bucket(&who.namespace, bucket).await?;
            }
            let elsewhere = RemoteHomes::new(&self.0, (&who.namespace, bucket), &prefix);
            while let Some(asked) = question {
                let (after, back) = (asked.after.as_deref(), &self.0.back);
                let listed = back.list(&who.namespace, bucket, &prefix, after, asked.limit, &elsewhere).await?;
                question = roll_up.answer(listed);
            }
            if elsewhere.until_covered().await? {
                self.0.shows_newest(who);
                call.succeeded(ServeOutcome::Metadata, None, Token::empty());
                return Ok(roll_up.page());
            }
        }
        Err(ObjectError::SlowDown("the homes of the bucket's objects move faster than it can be listed"))
    }
}
