//! What is in a namespace, and its removal.

use std::fmt::{self, Display};

use nigh_data::{ListRequest, ObjectError, WriteConditions};
use nigh_functions::schedule_store::ScheduleKey;
use nigh_objects::ObjectMemory;
use nigh_terms::{BucketName, Namespace, Principal};
use serde::{Deserialize, Serialize};

use super::{Tenancy, TenancyError};

/// Objects of one page of a listing.
const OBJECTS_PAGE: usize = 1000;
/// Documents of one page of a listing.
const DOCUMENTS_PAGE: usize = 100;
/// Events that are dropped at a time.
const EVENTS_PAGE: usize = 1000;

/// How much is in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceContents {
    /// Buckets, empty or not.
    pub buckets: usize,
    /// Functions, OpenWhisk's actions included.
    pub functions: usize,
    /// Layers.
    pub layers: usize,
    /// Schedules.
    pub schedules: usize,
    /// State machines.
    pub machines: usize,
    /// OpenWhisk's packages, triggers, rules and sequences.
    pub entities: usize,
    /// Asynchronous invocations that are not done or dead, on this node.
    pub events: usize,
}

impl NamespaceContents {
    /// True if there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Display for NamespaceContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.buckets, "buckets"),
            (self.functions, "functions"),
            (self.layers, "layers"),
            (self.schedules, "schedules"),
            (self.machines, "state machines"),
            (self.entities, "OpenWhisk entities"),
            (self.events, "events"),
        ];
        let present = counts.iter().filter(|(count, _)| *count > 0);
        let words: Vec<String> = present.map(|(count, what)| format!("{count} {what}")).collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

impl Tenancy {
    /// What is in the namespace, as this node knows it.
    pub(super) async fn contents(&self, namespace: &Namespace) -> Result<NamespaceContents, TenancyError> {
        let who = Principal::outside(namespace.clone());
        let events = self.events.list(namespace, true, 0);
        Ok(NamespaceContents {
            buckets: self.memory.list_buckets(&who).await?.len(),
            functions: self.functions.totals(namespace).0,
            layers: self.functions.layers().newest(namespace).len(),
            schedules: self.schedules(namespace).len(),
            machines: self.machines.list(namespace, None, usize::MAX - 1).0.len(),
            entities: self.entities.count(namespace),
            events: events.pending + events.dead,
        })
    }

    /// Removes all that is in the namespace. What invokes goes before what is invoked.
    pub(super) async fn remove_contents(&self, namespace: &Namespace) -> Result<(), TenancyError> {
        let failed = |error: &dyn Display| TenancyError::NotEmptied(namespace.clone(), error.to_string());
        for key in self.schedules(namespace) {
            self.functions.schedules().delete(&key).await.map_err(|error| failed(&error))?;
        }
        loop {
            let (machines, more) = self.machines.list(namespace, None, DOCUMENTS_PAGE);
            for machine in machines {
                self.machines.delete(namespace, &machine.name).await.map_err(|error| failed(&error))?;
            }
            if !more {
                break;
            }
        }
        self.entities.clear(namespace).await.map_err(|error| failed(&error))?;
        for event in self.events.list(namespace, true, EVENTS_PAGE).events {
            self.events.drop_event(namespace, event.id).await.map_err(|error| failed(&error))?;
        }
        loop {
            let (functions, more) = self.functions.list(namespace, None, DOCUMENTS_PAGE);
            for deployed in functions {
                let name = &deployed.function.name;
                self.functions.delete(namespace, name).await.map_err(|error| failed(&error))?;
                self.invoke.set_reserved(namespace, name, None);
            }
            if !more {
                break;
            }
        }
        let layers = self.functions.layers();
        for newest in layers.newest(namespace) {
            for version in layers.versions(namespace, &newest.name) {
                let deleted = layers.delete(namespace, &version.name, version.version).await;
                deleted.map_err(|error| failed(&error))?;
            }
        }
        let who = Principal::outside(namespace.clone());
        for bucket in self.memory.list_buckets(&who).await? {
            self.remove_bucket(&who, &bucket.name).await?;
        }
        Ok(())
    }

    async fn remove_bucket(&self, who: &Principal, bucket: &BucketName) -> Result<(), ObjectError> {
        loop {
            let asked = ListRequest { limit: OBJECTS_PAGE, ..ListRequest::default() };
            let page = self.memory.list(who, bucket, asked).await?;
            if page.objects.is_empty() {
                break;
            }
            for object in page.objects {
                self.memory.delete(who, bucket, &object.key, WriteConditions::default(), None).await?;
            }
        }
        self.memory.delete_bucket(who, bucket).await
    }

    fn schedules(&self, namespace: &Namespace) -> Vec<ScheduleKey> {
        let keys = self.functions.schedules().keys();
        keys.into_iter().filter(|key| key.namespace == *namespace).collect()
    }
}

/// The bytes of the namespace's objects, by listing all of its buckets.
pub(super) async fn stored_bytes(memory: &ObjectMemory, namespace: &Namespace) -> Result<u64, ObjectError> {
    let who = Principal::outside(namespace.clone());
    let mut bytes = 0u64;
    for bucket in memory.list_buckets(&who).await? {
        let mut start_after = None;
        loop {
            let asked = ListRequest { limit: OBJECTS_PAGE, start_after, ..ListRequest::default() };
            let page = match memory.list(&who, &bucket.name, asked).await {
                // It was removed meanwhile.
                Err(ObjectError::NoSuchBucket(_)) => break,
                listed => listed?,
            };
            bytes = page.objects.iter().fold(bytes, |sum, object| sum.saturating_add(object.size));
            start_after = page.next;
            if start_after.is_none() {
                break;
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_namespace_is_said_in_words() {
        let contents = NamespaceContents { buckets: 2, functions: 1, ..NamespaceContents::default() };
        assert_eq!(contents.to_string(), "2 buckets, 1 functions");
        assert!(!contents.is_empty());
        assert_eq!(NamespaceContents::default().to_string(), "nothing");
    }
}
