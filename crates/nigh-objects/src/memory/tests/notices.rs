//! Notifications of changes, and what a write gets if they cannot be made.

use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use nigh_engine::{LocalRegistry, Registry, StateFile};

use super::*;
use crate::{
    EventPattern, NotificationConfig, NotificationRule, NotificationTargets, Notifications, ReservedEvents, Writer,
};

/// Functions that record their notifications.
#[derive(Default)]
pub(super) struct NotifiedFunctions {
    documents: Mutex<Vec<serde_json::Value>>,
    is_full: AtomicBool,
}

#[derive(Clone)]
struct Targets(Arc<NotifiedFunctions>);

#[async_trait]
impl NotificationTargets for Targets {
    fn check(&self, _: &Namespace, arn: &str) -> Result<(), String> {
        if arn == "told" { Ok(()) } else { Err("nobody".to_owned()) }
    }

    fn reserve(&self, _: &Namespace, events: &[(&str, usize)]) -> Result<Box<dyn ReservedEvents>, ObjectError> {
        if self.0.is_full.load(Ordering::Relaxed) {
            return Err(ObjectError::SlowDown("full"));
        }
        assert!(events.iter().all(|(_, bytes)| *bytes > 0));
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl ReservedEvents for Targets {
    async fn send(self: Box<Self>, documents: Vec<Bytes>, writer: Writer) -> Result<(), String> {
        assert!(!writer.token.is_empty(), "an event carries what its writer has written");
        let documents = documents.iter().map(|document| serde_json::from_slice(document).unwrap());
        self.0.documents.lock().extend(documents);
        Ok(())
    }
}

pub(super) fn rule(events: &str, prefix: &str) -> NotificationRule {
    NotificationRule {
        id: format!("{events}-{prefix}"),
        function: "told".to_owned(),
        events: vec![EventPattern::new(events).unwrap()],
        prefix: prefix.to_owned(),
        suffix: String::new(),
    }
}

pub(super) async fn notified(memory: &ObjectMemory, registry: &Arc<dyn Registry>) -> Arc<NotifiedFunctions> {
    let told = Arc::new(NotifiedFunctions::default());
    let targets = Arc::new(Targets(Arc::clone(&told)));
    let all = Notifications::open(Arc::clone(registry), targets, "us-east-1".to_owned()).await.unwrap();
    memory.notify_by(all);
    told
}

pub(super) fn names(told: &NotifiedFunctions) -> Vec<String> {
    let documents = std::mem::take(&mut *told.documents.lock());
    let name = |one: &serde_json::Value| {
        let record = &one["Records"][0];
        format!("{} {}", record["eventName"].as_str().unwrap(), record["s3"]["object"]["key"].as_str().unwrap())
    };
    documents.iter().map(name).collect()
}

#[tokio::test]
async fn functions_are_told_of_the_changes_that_they_asked_for_also_after_a_restart() {
    let f = Fixture::new().await;
    let state = StateFile::open(&f.folder.path().join("state.redb")).unwrap();
    let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state));
    let told = notified(&f.memory, &registry).await;
    f.put("in/before", b"1").await;
    let rules = vec![rule("s3:ObjectCreated:*", "in/"), rule("s3:ObjectRemoved:*", "")];
    f.memory.set_notification_config(&f.who, &f.bucket, NotificationConfig { rules: rules.clone() }).await.unwrap();
    f.put("in/a", b"1").await;
    f.put("out/a", b"1").await;
    f.delete("out/a").await;
    f.delete("out/never").await;
    assert_eq!(names(&told), ["ObjectCreated:Put in/a", "ObjectRemoved:Delete out/a"]);

    let f = f.restarted().await;
    let told = notified(&f.memory, &registry).await;
    assert_eq!(f.memory.notification_config(&f.who, &f.bucket).await.unwrap().rules, rules);
    f.put("in/b", b"1").await;
    assert_eq!(names(&told), ["ObjectCreated:Put in/b"]);

    // Removing the bucket has removed its configuration.
    for name in ["in/before", "in/a", "in/b"] {
        f.delete(name).await;
    }
    f.memory.delete_bucket(&f.who, &f.bucket).await.unwrap();
    f.memory.create_bucket(&f.who, &f.bucket).await.unwrap();
    assert!(f.memory.notification_config(&f.who, &f.bucket).await.unwrap().rules.is_empty());
}

#[tokio::test]
async fn a_change_whose_event_finds_no_place_is_refused_before_anything_is_written() {
    let f = Fixture::new().await;
    let state = StateFile::open(&f.folder.path().join("state.redb")).unwrap();
    let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state));
    let told = notified(&f.memory, &registry).await;
    f.put("in/old", b"old").await;
    let rules = vec![rule("s3:ObjectCreated:*", "in/"), rule("s3:ObjectRemoved:*", "in/")];
    f.memory.set_notification_config(&f.who, &f.bucket, NotificationConfig { rules }).await.unwrap();
    told.is_full.store(true, Ordering::Relaxed);
    for name in ["in/new", "in/old"] {
        assert!(matches!(f.put_with(name, body(b"new")).await, Err(ObjectError::SlowDown(_))));
    }
    let deleted = f.memory.delete(&f.who, &f.bucket, &key("in/old"), WriteConditions::default(), None).await;
    assert!(matches!(deleted, Err(ObjectError::SlowDown(_))));
    f.put("out/new", b"new").await;
    assert!(matches!(f.get("in/new").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!(f.get("in/old").await.unwrap(), b"old");
    assert!(names(&told).is_empty());
}

#[tokio::test]
async fn a_configuration_is_refused_that_overlaps_or_tells_nobody() {
    let f = Fixture::new().await;
    let put = async |rules| f.memory.set_notification_config(&f.who, &f.bucket, NotificationConfig { rules }).await;
    assert!(matches!(put(vec![]).await, Err(ObjectError::InvalidRequest(_))), "nobody could be told");
    let state = StateFile::open(&f.folder.path().join("state.redb")).unwrap();
    let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state));
    notified(&f.memory, &registry).await;
    let overlapping = vec![rule("s3:ObjectCreated:*", ""), rule("s3:ObjectCreated:Put", "")];
    let to_nobody = vec![NotificationRule { function: "nobody".to_owned(), ..rule("s3:ObjectCreated:*", "") }];
    for (rules, words) in [(overlapping, "overlap"), (to_nobody, "destination configurations")] {
        let refused = put(rules).await.unwrap_err();
        assert!(matches!(&refused, ObjectError::InvalidArgument(_)), "{refused:?}");
        assert!(refused.to_string().contains(words), "{refused}");
    }
    assert!(f.memory.notification_config(&f.who, &f.bucket).await.unwrap().rules.is_empty());
}
