//! Notifies functions of changes: the shell around `notification`, and the store of buckets' configurations.
//!
//! A place for each event is reserved before the change is made, so that a full queue refuses the change and loses no
//! event. The events are durable before the change is acknowledged. A crash between the two loses the event of a change
//! that was not acknowledged. Without any configuration a write costs the load of one counter.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use bytes::Bytes;
use nigh_data::{ETag, ObjectError, ObjectId};
use nigh_engine::{Registry, RegistryError};
use nigh_protocol::Stamp;
use nigh_terms::{BucketName, Namespace, NodeNumber, Principal, Timestamp, Token};

use super::{ObjectMemory, ObjectMemoryState};
use crate::bucket_documents::BucketDocuments;
use crate::notification::{
    ChangeNotice, NotificationConfig, NotificationRule, ObjectChange, document, document_bytes_max,
};

const TABLE: &str = "bucket-notifications";

/// The functions that the rules of buckets name; the crate that assembles a node implements it.
#[async_trait]
pub trait NotificationTargets: Send + Sync {
    /// Checks that the function exists.
    ///
    /// # Errors
    /// Why it cannot be notified.
    fn check(&self, namespace: &Namespace, function_arn: &str) -> Result<(), String>;
    /// Reserves a place for each event: a function's ARN, and the most bytes of the event. The event of a function that no
    /// longer exists is kept too, and reported as failed.
    ///
    /// # Errors
    /// `SlowDown` if the queue is full.
    fn reserve(&self, namespace: &Namespace, events: &[(&str, usize)]) -> Result<Box<dyn ReservedEvents>, ObjectError>;
}

/// Reserved places for events. Dropping them releases the places.
#[async_trait]
pub trait ReservedEvents: Send {
    /// Fills the places, in order. The events are durable when this returns.
    ///
    /// # Errors
    /// Why the events cannot be stored.
    async fn send(self: Box<Self>, documents: Vec<Bytes>, writer: Writer) -> Result<(), String>;
}

/// What is known of the maker of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The token with which the notified function begins: what the writer had seen, and the change.
    pub token: Token,
    /// The node that made the change, and the bytes that were written; none for a removal.
    pub wrote: Option<(NodeNumber, u64)>,
}

/// The notification configurations of a node's buckets.
pub struct Notifications {
    configs: BucketDocuments<NotificationConfig>,
    targets: Arc<dyn NotificationTargets>,
    region: String,
}

impl Notifications {
    /// Reads the configurations from `registry`.
    ///
    /// # Errors
    /// If the registry cannot be read, or holds a configuration that this build does not know.
    #[boxed]
    pub async fn open(
        registry: Arc<dyn Registry>,
        targets: Arc<dyn NotificationTargets>,
        region: String,
    ) -> Result<Self, RegistryError> {
        let configs = BucketDocuments::open(registry, TABLE, "notifications").await?;
        Ok(Self { configs, targets, region })
    }

    /// Applies other nodes' changes from now on.
    ///
    /// # Errors
    /// If the registry cannot be watched.
    #[boxed]
    pub async fn follow(&self) -> Result<(), RegistryError> {
        self.configs.follow().await
    }
}

/// The reserved events of a change that is about to be made.
pub(super) struct Notices {
    rules: Vec<NotificationRule>,
    reserved: Box<dyn ReservedEvents>,
}

/// A change that was made.
pub(super) struct ChangeDone<'a> {
    pub(super) object: &'a ObjectId,
    pub(super) change: ObjectChange,
    pub(super) who: &'a Principal,
    pub(super) created: Option<(u64, &'a ETag)>,
    pub(super) stamp: &'a Stamp,
    /// The node that made the change.
    pub(super) node: NodeNumber,
    pub(super) at: Timestamp,
}

impl ObjectMemoryState {
    /// True if a rule matches `change`.
    pub(super) fn is_wanted(&self, object: &ObjectId, change: ObjectChange) -> bool {
        let config = self.notifications.get().and_then(|all| all.configs.of(&object.namespace, &object.bucket));
        config.is_some_and(|config| config.wanting(change, object.key.as_str()).next().is_some())
    }

    /// Reserves places for the events of `change`, if a rule matches it.
    pub(super) fn reserve_notices(
        &self,
        object: &ObjectId,
        change: ObjectChange,
    ) -> Result<Option<Notices>, ObjectError> {
        let Some(all) = self.notifications.get() else { return Ok(None) };
        let Some(config) = all.configs.of(&object.namespace, &object.bucket) else { return Ok(None) };
        let rules: Vec<NotificationRule> = config.wanting(change, object.key.as_str()).cloned().collect();
        if rules.is_empty() {
            return Ok(None);
        }
        let events: Vec<_> =
            rules.iter().map(|rule| (rule.function.as_str(), document_bytes_max(object, rule))).collect();
        let reserved = all.targets.reserve(&object.namespace, &events)?;
        Ok(Some(Notices { rules, reserved }))
    }

    /// Notifies of a durable change.
    pub(super) async fn notify(&self, notices: Option<Notices>, done: ChangeDone<'_>) -> Result<(), ObjectError> {
        let (Some(Notices { rules, reserved }), Some(all)) = (notices, self.notifications.get()) else { return Ok(()) };
        let ChangeDone { object, change, who, created, stamp, node, at } = done;
        let changed = ChangeNotice { object, change, who, created, version: stamp.version, at, region: &all.region };
        let documents = rules.iter().map(|rule| document(&changed, rule)).collect();
        // The token has all that the writer had seen: the function may read what the writer wrote before.
        let mut token = Token::empty();
        stamp.join_into(self.coherence.shards.of(object), &mut token);
        let wrote = created.map(|(bytes, _)| (node, bytes));
        let sent = reserved.send(documents, Writer { token, wrote }).await;
        sent.map_err(|reason| ObjectError::Memory { operation: "keep the event of a change", reason })
    }

    /// Drops the configuration of a removed bucket.
    pub(super) async fn forget_notifications(&self, namespace: &Namespace, bucket: &BucketName) {
        let Some(all) = self.notifications.get() else { return };
        if all.configs.of(namespace, bucket).is_some()
            && let Err(error) = all.configs.set(namespace, bucket, None).await
        {
            tracing::warn!(%bucket, %error, "the notification configuration of a bucket that is gone stays");
        }
    }
}

impl ObjectMemory {
    /// Starts the notifications. Set once, before the doors open.
    pub fn notify_by(&self, notifications: Notifications) {
        if self.0.notifications.set(notifications).is_err() {
            tracing::error!("notifications were set twice; the first ones stay");
        }
    }

    /// The bucket's notification configuration.
    ///
    /// # Errors
    /// `NoSuchBucket`, or the store's.
    #[boxed]
    pub async fn notification_config(
        &self,
        who: &Principal,
        bucket: &BucketName,
    ) -> Result<NotificationConfig, ObjectError> {
        self.head_bucket(who, bucket).await?;
        let found = self.0.notifications.get().and_then(|all| all.configs.of(&who.namespace, bucket));
        Ok(found.map(|config| NotificationConfig::clone(&config)).unwrap_or_default())
    }

    /// Replaces the bucket's notification configuration; one without rules removes it. Durable when it returns.
    ///
    /// # Errors
    /// `NoSuchBucket`; `InvalidArgument` if rules overlap, or name no function of the namespace.
    #[boxed]
    pub async fn set_notification_config(
        &self,
        who: &Principal,
        bucket: &BucketName,
        config: NotificationConfig,
    ) -> Result<(), ObjectError> {
        self.head_bucket(who, bucket).await?;
        let all =
            self.0.notifications.get().ok_or_else(|| {
                ObjectError::InvalidRequest("there are no functions here that could be told".to_owned())
            })?;
        config.check().map_err(|error| ObjectError::InvalidArgument(error.to_string()))?;
        for rule in &config.rules {
            all.targets.check(&who.namespace, &rule.function).map_err(|why| {
                ObjectError::InvalidArgument(format!(
                    "Unable to validate the following destination configurations: {}: {why}",
                    rule.function
                ))
            })?;
        }
        let config = (!config.rules.is_empty()).then_some(config);
        all.configs.set(&who.namespace, bucket, config).await
    }
}
