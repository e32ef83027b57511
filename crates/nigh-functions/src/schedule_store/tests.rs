//! The store over a real registry.

use nigh_engine::{LocalRegistry, StateFile};
use nigh_terms::{ManualClock, NodeId, Timestamp};

use super::*;
use crate::schedule::{ScheduleCommand, ScheduleTimes};

struct Place {
    registry: Arc<dyn Registry>,
    clock: Arc<ManualClock>,
    _folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let clock = Arc::new(ManualClock::default());
        clock.advance(std::time::Duration::from_secs(1_767_225_600));
        Self { registry: Arc::new(LocalRegistry::new(state)), clock, _folder: folder }
    }

    async fn open(&self) -> Result<ScheduleStore, ScheduleError> {
        ScheduleStore::open(Arc::clone(&self.registry), Arc::clone(&self.clock) as Arc<dyn Clock>).await
    }
}

fn key(name: &str) -> ScheduleKey {
    ScheduleKey { namespace: Namespace::new("tenant").unwrap(), name: ScheduleName::new(name).unwrap() }
}

fn settings(function: &str, expression: &str) -> ScheduleSettings {
    let (expression, time_zone) = (expression.to_owned(), "UTC".to_owned());
    ScheduleSettings {
        times: ScheduleTimes { expression, time_zone, start: None, end: None },
        function: FunctionName::new(function).unwrap(),
        target_arn: String::new(),
        role: String::new(),
        input: None,
        run_age_s: None,
        retries: None,
        window_minutes: None,
        enabled: true,
        delete_after: false,
        description: None,
    }
}

fn names(store: &ScheduleStore) -> Vec<String> {
    store.keys().into_iter().map(|key| key.name.to_string()).collect()
}

#[tokio::test]
async fn a_schedule_is_there_after_a_restart_with_what_came_of_its_runs() {
    let place = Place::new();
    let store = place.open().await.unwrap();
    let made = store.create(&key("a"), settings("f", "rate(1 minute)"), Some("token".to_owned())).await.unwrap();
    let again = store.create(&key("a"), settings("f", "rate(1 minute)"), Some("token".to_owned())).await.unwrap();
    assert_eq!(made.schedule.id, again.schedule.id, "the same request is one schedule");
    let other = store.create(&key("a"), settings("f", "rate(1 minute)"), Some("other".to_owned())).await;
    assert!(matches!(other, Err(ScheduleError::Exists(_))));
    let none = store.create(&key("a"), settings("f", "rate(1 minute)"), None).await;
    assert!(matches!(none, Err(ScheduleError::Exists(_))));
    let wrong = store.create(&key("b"), settings("f", "rate(1 fortnight)"), None).await.unwrap_err();
    assert!(wrong.to_string().starts_with("Invalid Schedule Expression: "), "{wrong}");
    let (node, due) = (NodeId("n".to_owned()), place.clock.wall());
    let progress = made.schedule.progress.with_run(&node, due);
    store.advance(&key("a"), &made, progress.clone()).await.unwrap();
    assert_eq!(store.take_changed().into_iter().collect::<Vec<_>>(), [key("a")]);

    let found = place.open().await.unwrap().get(&key("a")).unwrap();
    assert_eq!((found.schedule.id, &found.schedule.progress), (made.schedule.id, &progress));
    assert_eq!(found.schedule.run_id(due), made.schedule.run_id(due));
    let waits = ScheduleCommand::WaitUntil(Timestamp(due.0 + 60_000));
    assert_eq!(found.schedule.command(due), waits);
}

#[tokio::test]
async fn no_run_begins_after_a_pause_a_change_or_a_removal_was_acknowledged() {
    let place = Place::new();
    let store = place.open().await.unwrap();
    let node = NodeId("n".to_owned());
    for change in ["pause", "change", "removal"] {
        let made = store.create(&key(change), settings("f", "rate(1 minute)"), None).await.unwrap();
        match change {
            "pause" => {
                let paused = ScheduleSettings { enabled: false, ..settings("f", "rate(1 minute)") };
                store.update(&key(change), paused).await.map(drop).unwrap();
            }
            "change" => store.update(&key(change), settings("f", "rate(1 hour)")).await.map(drop).unwrap(),
            _ => store.delete(&key(change)).await.unwrap(),
        }
        let progress = made.schedule.progress.with_run(&node, place.clock.wall());
        let refused = store.advance(&key(change), &made, progress).await.unwrap_err();
        assert!(matches!(refused, ScheduleError::Registry(RegistryError::Conflict { .. })), "{change}: {refused}");
    }
    assert!(matches!(store.delete(&key("removal")).await, Err(ScheduleError::NotFound(_))));
    let update = store.update(&key("removal"), settings("f", "rate(1 hour)")).await;
    assert!(matches!(update, Err(ScheduleError::NotFound(_))));
    let made = store.create(&key("removal"), settings("f", "rate(1 hour)"), None).await.unwrap();
    assert_eq!(store.get(&key("removal")).unwrap().schedule.id, made.schedule.id, "a name is free again");
}

#[tokio::test]
async fn a_functions_schedules_go_with_it_and_so_do_those_that_a_crash_left() {
    let place = Place::new();
    let store = place.open().await.unwrap();
    for (name, function) in [("a", "f"), ("b", "g"), ("c", "f")] {
        store.create(&key(name), settings(function, "rate(1 minute)"), None).await.unwrap();
    }
    let tenant = key("a").namespace;
    store.delete_of(&tenant, &FunctionName::new("f").unwrap()).await.unwrap();
    assert_eq!(names(&store), ["b"]);
    store.sweep(|_, function| function.as_str() == "g").await.unwrap();
    assert_eq!(names(&store), ["b"]);
    store.sweep(|_, _| false).await.unwrap();
    assert!(names(&store).is_empty() && names(&place.open().await.unwrap()).is_empty());
}

#[tokio::test]
async fn schedules_are_listed_by_name_and_one_of_a_newer_format_stops_the_start() {
    let place = Place::new();
    let store = place.open().await.unwrap();
    for name in ["a-1", "a-2", "b-1"] {
        store.create(&key(name), settings("f", "rate(1 minute)"), None).await.unwrap();
    }
    let tenant = key("a").namespace;
    let page = |after: Option<&str>, limit, prefix: &str| {
        let after = after.map(|name| ScheduleName::new(name).unwrap());
        let (page, more) = store.list(&tenant, after.as_ref(), limit, |one| one.name.as_str().starts_with(prefix));
        (page.iter().map(|one| one.schedule.name.to_string()).collect::<Vec<_>>(), more)
    };
    assert_eq!(page(None, 1, "a"), (vec!["a-1".to_owned()], true));
    assert_eq!(page(Some("a-1"), 1, "a"), (vec!["a-2".to_owned()], false));
    assert_eq!(page(None, 9, "").0.len(), 3);
    let newer = br#"{"format":2,"more":1}"#.to_vec();
    place.registry.put(SCHEDULES_TABLE, "tenant/default/new", newer, None).await.unwrap();
    let error = place.open().await.err().unwrap().to_string();
    assert!(error.contains("tenant/default/new") && error.contains("reads up to 1"), "{error}");
}
