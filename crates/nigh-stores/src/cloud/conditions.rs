//! Writes and deletions that replace one state of an object only: its generation on Google Cloud Storage, the service's
//! own entity tag on Azure.
//!
//! Nigh's entity tag names bytes, not the write that stored them, and is only metadata to the services. So the object is
//! read first. If it has the expected tag, the request names the generation or tag that the service gave; the service
//! rejects the request if an outsider writes in between.

use nigh_data::{ETag, ObjectError, ObjectId, WriteConditions};
use nigh_terms::{BucketName, Namespace};
use opendal::options::{DeleteOptions, WriteOptions};
use opendal::{ErrorKind, Metadata};

use super::{CloudService, CloudStore};
use crate::{check_pin, probe_in};

/// One state of an object, as its service names it.
struct State {
    tag: Option<String>,
    generation: Option<String>,
}

impl State {
    fn only_over_it(self) -> WriteOptions {
        WriteOptions { if_match: self.tag, if_version_match: self.generation, ..WriteOptions::default() }
    }

    fn only_it(self) -> DeleteOptions {
        DeleteOptions { if_match: self.tag, if_version_match: self.generation, ..DeleteOptions::default() }
    }
}

const IF_ABSENT: fn() -> WriteOptions = || WriteOptions { if_not_exists: true, ..WriteOptions::default() };

impl CloudStore {
    fn state(&self, metadata: &Metadata) -> Result<State, ObjectError> {
        let unnamed = || self.failed("head", "the service does not say which state of the object it has".to_owned());
        let named = |name: Option<&str>| name.map(str::to_owned).ok_or_else(unnamed);
        Ok(match self.service {
            CloudService::Gcs { .. } => State { tag: None, generation: Some(named(metadata.version())?) },
            CloudService::Azure { .. } => State { tag: Some(named(metadata.etag())?), generation: None },
        })
    }

    /// The state of the object, if it has the entity tag `expected`; else `NoSuchKey` or `PreconditionFailed`.
    async fn state_of(&self, object: &ObjectId, expected: &ETag) -> Result<State, ObjectError> {
        let (_, metadata) = self.stat(object).await?;
        check_pin(&self.meta_of(&object.key, &metadata), Some(expected))?;
        self.state(&metadata)
    }

    /// The options of a write that requires `condition`.
    pub(super) async fn only_if(
        &self,
        object: &ObjectId,
        condition: &WriteConditions,
    ) -> Result<WriteOptions, ObjectError> {
        match condition {
            WriteConditions { if_absent: true, .. } => Ok(IF_ABSENT()),
            WriteConditions { if_match: Some(expected), .. } => match self.state_of(object, expected).await {
                Err(ObjectError::NoSuchKey(_)) => Err(ObjectError::PreconditionFailed("If-Match")),
                state => Ok(state?.only_over_it()),
            },
            WriteConditions { if_absent: false, if_match: None } => Ok(WriteOptions::default()),
        }
    }

    /// Removes the object with the entity tag `expected`; nothing happens if there is none.
    pub(super) async fn delete_only(&self, object: &ObjectId, expected: &ETag) -> Result<(), ObjectError> {
        match self.state_of(object, expected).await {
            Err(ObjectError::NoSuchKey(_)) => Ok(()),
            state => self.delete_with(object, state?.only_it()).await,
        }
    }

    /// Whether the service keeps the conditions of writes: an emulator may ignore them. (fake-gcs-server ignores those of
    /// deletions, which this store therefore also checks itself.)
    pub(super) async fn tries_conditions(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
    ) -> Result<bool, ObjectError> {
        let probe = probe_in(namespace, bucket)?;
        let kept = self.try_conditions(&probe).await;
        self.delete_with(&probe, DeleteOptions::default()).await?;
        kept
    }

    async fn try_conditions(&self, probe: &ObjectId) -> Result<bool, ObjectError> {
        let refused = |done: Result<(), ObjectError>| match done {
            Ok(()) => Ok(false),
            Err(ObjectError::PreconditionFailed(_)) => Ok(true),
            Err(error) => Err(error),
        };
        self.write_probe(probe, "first", IF_ABSENT()).await?;
        let (_, old) = self.stat(probe).await?;
        self.write_probe(probe, "second", WriteOptions::default()).await?;
        Ok(refused(self.write_probe(probe, "third", IF_ABSENT()).await)?
            && refused(self.write_probe(probe, "third", self.state(&old)?.only_over_it()).await)?)
    }

    async fn write_probe(
        &self,
        probe: &ObjectId,
        text: &'static str,
        options: WriteOptions,
    ) -> Result<(), ObjectError> {
        let (operator, key) = self.target(probe)?;
        match operator.write_options(key, text, options).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.missing(probe, "probe", &error).await),
        }
    }

    async fn delete_with(&self, object: &ObjectId, options: DeleteOptions) -> Result<(), ObjectError> {
        let (operator, key) = self.target(object)?;
        match operator.delete_options(key, options).await {
            Ok(()) => Ok(()),
            // An outsider has deleted the object.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.error("delete", &error)),
        }
    }
}
