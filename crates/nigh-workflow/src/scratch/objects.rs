//! Scratch folders in the object memory.

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _};
use nigh_data::{ListRequest, ObjectError, WriteConditions};
use nigh_objects::{ModeRule, ObjectMemory, WriteMode};
use nigh_terms::{Namespace, Principal};

use super::{ScratchFolder, ScratchObjects};

/// The objects that are listed at a time.
const PAGE: usize = 1000;
/// The removals at a time, which share the journal's syncs.
const REMOVALS: usize = 64;

#[async_trait]
impl ScratchObjects for ObjectMemory {
    async fn declare(&self, namespace: &Namespace, folder: &ScratchFolder) -> Result<(), String> {
        let who = Principal::outside(namespace.clone());
        let words = |error: ObjectError| format!("the bucket {}: {error}", folder.bucket);
        let mut policy = self.bucket_policy(&who, &folder.bucket).await.map_err(words)?;
        let own = |rule: &&ModeRule| rule.prefix == folder.prefix && rule.tag.is_none();
        match policy.rules.iter().find(own) {
            // The owner's own rule for the folder stays.
            Some(_) => return Ok(()),
            None => {
                policy.rules.push(ModeRule { prefix: folder.prefix.clone(), tag: None, mode: WriteMode::Ephemeral })
            }
        }
        self.set_bucket_policy(&who, &folder.bucket, policy).await.map_err(words)
    }

    async fn drop_all(&self, namespace: &Namespace, folder: &ScratchFolder) -> Result<usize, String> {
        let (who, mut dropped) = (Principal::outside(namespace.clone()), 0);
        let words = |error: ObjectError| error.to_string();
        let mut after = None;
        loop {
            let request =
                ListRequest { prefix: folder.prefix.clone(), delimiter: None, start_after: after, limit: PAGE };
            let page = match self.list(&who, &folder.bucket, request).await {
                Err(ObjectError::NoSuchBucket(_)) => return Ok(dropped),
                page => page.map_err(words)?,
            };
            let (who, bucket) = (&who, &folder.bucket);
            let removals = page.objects.into_iter().map(|object| async move {
                self.delete(who, bucket, &object.key, WriteConditions::default(), None).await
            });
            let removed = futures::stream::iter(removals).buffer_unordered(REMOVALS).map_err(words);
            dropped += removed.try_fold(0, |count, ()| std::future::ready(Ok(count + 1))).await?;
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(dropped),
            }
        }
    }
}
