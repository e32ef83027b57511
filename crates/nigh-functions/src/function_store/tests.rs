//! The store over a real registry and disk.

use std::io::{Cursor, Write};
use std::time::Duration;

use async_trait::async_trait;
use nigh_engine::{LocalRegistry, RegistryChange, RegistryDocument, RegistryError, Revision, StateFile};
use nigh_terms::ManualClock;
use tokio::sync::{Semaphore, mpsc};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::retired::RETIRED_CODE_KEPT;
use bytes::Bytes;

use super::*;
use crate::function::{FunctionSource as _, Runtime};
use crate::schedule::{ScheduleName, ScheduleSettings, ScheduleTimes};
use crate::schedule_store::ScheduleKey;

fn archive(content: &str) -> Bytes {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("handler.py", SimpleFileOptions::default()).unwrap();
    zip.write_all(content.as_bytes()).unwrap();
    zip.finish().unwrap().into_inner().into()
}

fn new(name: &str) -> NewFunction {
    NewFunction {
        name: FunctionName::new(name).unwrap(),
        runtime: (Runtime::Provided, "provided".to_owned()),
        handler: "h".to_owned(),
        settings: FunctionSettings::default(),
        tags: BTreeMap::new(),
    }
}

struct Place {
    folder: tempfile::TempDir,
    registry: Arc<LocalRegistry>,
    clock: Arc<ManualClock>,
    tenant: Namespace,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let tenant = Namespace::new("tenant").unwrap();
        Self { folder, registry: Arc::new(LocalRegistry::new(state)), clock: Arc::default(), tenant }
    }

    async fn open(&self, limits: FunctionLimits) -> FunctionStore {
        let registry: Arc<dyn Registry> = Arc::clone(&self.registry) as _;
        self.open_on(registry, limits).await
    }

    async fn open_on(&self, registry: Arc<dyn Registry>, limits: FunctionLimits) -> FunctionStore {
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        FunctionStore::open(registry, &self.folder.path().join("functions"), clock, limits).await.unwrap()
    }

    async fn code(&self, store: &FunctionStore, name: &str) -> String {
        let name = FunctionName::new(name).unwrap();
        let function = store.find(&self.tenant, &name).await.unwrap();
        std::fs::read_to_string(store.code_folder(&function).await.join("handler.py")).unwrap()
    }
}

#[tokio::test]
async fn a_function_and_its_code_are_there_after_a_restart_as_they_were_acknowledged() {
    let place = Place::new();
    let store = place.open(FunctionLimits::default()).await;
    store.create(&place.tenant, new("f"), archive("one")).await.unwrap();
    store.create(&place.tenant, new("gone"), archive("one")).await.unwrap();
    let f = FunctionName::new("f").unwrap();
    let settings = FunctionSettings { memory: Some(ByteSize::mib(512)), ..FunctionSettings::default() };
    store.update_settings(&place.tenant, &f, settings, None).await.unwrap();
    let updated = store.update_code(&place.tenant, &f, archive("two"), None).await.unwrap();
    store.delete(&place.tenant, &FunctionName::new("gone").unwrap()).await.unwrap();

    let store = place.open(FunctionLimits::default()).await;
    assert_eq!(store.get(&place.tenant, &f).unwrap().function, updated.function);
    assert_eq!(updated.function.memory, ByteSize::mib(512));
    assert_eq!(place.code(&store, "f").await, "two");
    assert_eq!(store.list(&place.tenant, None, 10).0.len(), 1);
    let versions = place.folder.path().join("functions/code/tenant/f");
    assert_eq!(std::fs::read_dir(versions).unwrap().count(), 1, "replaced code is swept");
}

#[tokio::test]
async fn a_function_that_books_more_than_the_node_has_is_refused_when_it_is_deployed() {
    let place = Place::new();
    let limits = FunctionLimits { memory: Some(ByteSize::mib(512)), ..FunctionLimits::default() };
    let store = place.open(limits).await;
    let books = |mib| FunctionSettings { memory: Some(ByteSize::mib(mib)), ..FunctionSettings::default() };
    let large = NewFunction { settings: books(513), ..new("f") };
    let refused = store.create(&place.tenant, large, archive("one")).await.unwrap_err();
    assert!(refused.to_string().contains("would book 513 MiB and the node has 512 MiB"), "{refused}");
    store.create(&place.tenant, NewFunction { settings: books(512), ..new("f") }, archive("one")).await.unwrap();
    let f = FunctionName::new("f").unwrap();
    let refused = store.update_settings(&place.tenant, &f, books(1024), None).await;
    assert!(matches!(refused, Err(FunctionStoreError::BooksTooMuch { .. })));
    assert_eq!(store.get(&place.tenant, &f).unwrap().function.memory, ByteSize::mib(512));
}

#[tokio::test]
async fn a_change_for_another_revision_is_refused_and_changes_nothing() {
    let place = Place::new();
    let store = place.open(FunctionLimits::default()).await;
    let first = store.create(&place.tenant, new("f"), archive("one")).await.unwrap();
    let first = first.function.revision_id.clone();
    let f = FunctionName::new("f").unwrap();
    let updated = store.update_code(&place.tenant, &f, archive("two"), Some(first.clone())).await.unwrap();
    assert_ne!(updated.function.revision_id, first);
    let stale = store.update_code(&place.tenant, &f, archive("three"), Some(first)).await;
    assert!(matches!(stale, Err(FunctionStoreError::OtherRevision { .. })));
    assert_eq!(place.code(&store, "f").await, "two");
    let again = store.create(&place.tenant, new("f"), archive("four")).await;
    assert!(matches!(again, Err(FunctionStoreError::Exists(_))));
    let absent = store.delete(&place.tenant, &FunctionName::new("g").unwrap()).await;
    assert!(matches!(absent, Err(FunctionStoreError::NotFound(_))));
}

#[tokio::test]
async fn replaced_code_stays_while_an_invocation_may_run_it_and_not_longer() {
    let place = Place::new();
    let store = place.open(FunctionLimits::default()).await;
    let first = store.create(&place.tenant, new("f"), archive("one")).await.unwrap();
    let old = store.code_folder(&first.function).await;
    let f = FunctionName::new("f").unwrap();
    store.update_code(&place.tenant, &f, archive("two"), None).await.unwrap();
    place.clock.advance(Duration::from_secs(901));
    store.create(&place.tenant, new("g"), archive("g")).await.unwrap();
    assert!(old.exists());
    // Back to the first code: what was to be removed is in use again.
    store.update_code(&place.tenant, &f, archive("one"), None).await.unwrap();
    place.clock.advance(RETIRED_CODE_KEPT * 2);
    store.create(&place.tenant, new("h"), archive("h")).await.unwrap();
    assert_eq!(place.code(&store, "f").await, "one");
    store.update_code(&place.tenant, &f, archive("three"), None).await.unwrap();
    place.clock.advance(RETIRED_CODE_KEPT * 2);
    store.delete(&place.tenant, &FunctionName::new("h").unwrap()).await.unwrap();
    assert!(!old.exists());
    assert_eq!(place.code(&store, "f").await, "three");
}

#[tokio::test]
async fn code_beyond_the_namespace_limit_is_refused_and_leaves_nothing() {
    let place = Place::new();
    let zipped = ByteSize(archive(&"x".repeat(1000)).len() as u64);
    let limits = FunctionLimits { code: zipped + ByteSize(1200), ..FunctionLimits::default() };
    let store = place.open(limits).await;
    store.create(&place.tenant, new("f"), archive(&"x".repeat(1000))).await.unwrap();
    let refused = store.create(&place.tenant, new("g"), archive(&"y".repeat(1000))).await;
    assert!(matches!(refused, Err(FunctionStoreError::CodeStorage { .. })));
    assert!(store.get(&place.tenant, &FunctionName::new("g").unwrap()).is_none());
    assert!(!place.folder.path().join("functions/code/tenant/g").exists());
    let other = Namespace::new("other").unwrap();
    store.create(&other, new("g"), archive(&"y".repeat(1000))).await.unwrap();
}

#[tokio::test]
async fn a_list_goes_on_behind_its_marker_and_shows_one_namespace() {
    let place = Place::new();
    let store = place.open(FunctionLimits::default()).await;
    for name in ["c", "a", "b"] {
        store.create(&place.tenant, new(name), archive("x")).await.unwrap();
    }
    let names = |page: &[Arc<DeployedFunction>]| page.iter().map(|f| f.function.name.to_string()).collect::<Vec<_>>();
    let (page, more) = store.list(&place.tenant, None, 2);
    assert_eq!((names(&page), more), (vec!["a".to_owned(), "b".to_owned()], true));
    let (page, more) = store.list(&place.tenant, Some(&page[1].function.name), 2);
    assert_eq!((names(&page), more), (vec!["c".to_owned()], false));
    assert!(store.list(&Namespace::new("other").unwrap(), None, 2).0.is_empty());
    assert_eq!(store.totals(&place.tenant).0, 3);
}

/// The real registry, whose writes wait for a permit each.
struct GatedRegistry(Arc<LocalRegistry>, Semaphore);

#[async_trait]
impl Registry for GatedRegistry {
    async fn get(&self, table: &str, key: &str) -> Result<Option<RegistryDocument>, RegistryError> {
        self.0.get(table, key).await
    }
    async fn list(&self, table: &str, prefix: &str) -> Result<Vec<(String, RegistryDocument)>, RegistryError> {
        self.0.list(table, prefix).await
    }
    async fn keys(&self, table: &str, prefix: &str) -> Result<Vec<String>, RegistryError> {
        self.0.keys(table, prefix).await
    }
    async fn put(
        &self,
        table: &str,
        key: &str,
        value: Vec<u8>,
        expected: Option<Revision>,
    ) -> Result<Revision, RegistryError> {
        self.1.acquire().await.unwrap().forget();
        self.0.put(table, key, value, expected).await
    }
    async fn delete(&self, table: &str, key: &str, expected: Revision) -> Result<(), RegistryError> {
        self.0.delete(table, key, expected).await
    }
    async fn apply(&self, table: &str, changes: Vec<(String, Option<Vec<u8>>)>) -> Result<(), RegistryError> {
        self.0.apply(table, changes).await
    }
    async fn watch(&self, table: &str) -> Result<mpsc::Receiver<RegistryChange>, RegistryError> {
        self.0.watch(table).await
    }
}

#[tokio::test]
async fn of_two_changes_at_once_one_is_refused_and_a_caller_who_leaves_does_not_stop_the_other() {
    let place = Place::new();
    let gated = Arc::new(GatedRegistry(Arc::clone(&place.registry), Semaphore::new(1)));
    let store = place.open_on(Arc::clone(&gated) as _, FunctionLimits::default()).await;
    store.create(&place.tenant, new("f"), archive("one")).await.unwrap();
    let f = FunctionName::new("f").unwrap();

    let first = store.update_code(&place.tenant, &f, archive("two"), None);
    assert!(tokio::time::timeout(Duration::from_millis(20), first).await.is_err(), "it waits for the registry");
    let second = store.update_code(&place.tenant, &f, archive("three"), None).await;
    assert!(matches!(second, Err(FunctionStoreError::Busy(_))));
    assert!(matches!(store.delete(&place.tenant, &f).await, Err(FunctionStoreError::Busy(_))));
    gated.1.add_permits(1);
    while store.0.changing.lock().contains(&(place.tenant.clone(), f.clone())) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(place.code(&store, "f").await, "two");
}

#[tokio::test]
async fn what_another_node_wrote_meanwhile_is_taken_over_and_the_change_refused() {
    let place = Place::new();
    let (here, there) = (place.open(FunctionLimits::default()).await, place.open(FunctionLimits::default()).await);
    here.create(&place.tenant, new("f"), archive("one")).await.unwrap();
    let theirs = there.create(&place.tenant, new("f"), archive("other")).await;
    assert!(matches!(theirs, Err(FunctionStoreError::Busy(_))));
    let f = FunctionName::new("f").unwrap();
    assert_eq!(there.get(&place.tenant, &f).unwrap().function, here.get(&place.tenant, &f).unwrap().function);
    assert!(there.update_code(&place.tenant, &f, archive("three"), None).await.is_ok());
}

#[tokio::test]
async fn a_document_of_a_newer_format_stops_the_start() {
    let place = Place::new();
    let document = br#"{"format":4,"function":{},"tags":{},"unpacked":0}"#.to_vec();
    place.registry.put(TABLE, "tenant/f", document, None).await.unwrap();
    let registry: Arc<dyn Registry> = Arc::clone(&place.registry) as _;
    let clock: Arc<dyn Clock> = Arc::clone(&place.clock) as _;
    let root = place.folder.path().join("functions");
    let Err(error) = FunctionStore::open(registry, &root, clock, FunctionLimits::default()).await else {
        panic!("it was opened")
    };
    assert!(error.to_string().contains("reads up to 3"), "{error}");
}

#[tokio::test]
async fn a_function_of_the_first_format_is_read_and_what_is_attached_to_it_lives_with_it() {
    let place = Place::new();
    let store = place.open(FunctionLimits::default()).await;
    let first = store.create(&place.tenant, new("f"), archive("one")).await.unwrap();
    let stored = place.registry.get(TABLE, "tenant/f").await.unwrap().unwrap();
    let mut document: serde_json::Value = serde_json::from_slice(&stored.value).unwrap();
    document["format"] = 1.into();
    document.as_object_mut().unwrap().remove("attached").unwrap();
    let document = serde_json::to_vec(&document).unwrap();
    place.registry.put(TABLE, "tenant/f", document, Some(stored.revision)).await.unwrap();

    let store = place.open(FunctionLimits::default()).await;
    let f = FunctionName::new("f").unwrap();
    assert_eq!(store.get(&place.tenant, &f).unwrap().attached, FunctionAttachments::default());
    store.reserve(&place.tenant, &f, Some(7), 100, 10).await.unwrap();
    store.update_code(&place.tenant, &f, archive("two"), Some(first.function.revision_id.clone())).await.unwrap();
    let store = place.open(FunctionLimits::default()).await;
    assert_eq!(store.get(&place.tenant, &f).unwrap().attached.reserved, Some(7));
    assert_eq!(store.reserves(), [(place.tenant.clone(), f.clone(), 7)]);
    store.delete(&place.tenant, &f).await.unwrap();
    store.create(&place.tenant, new("f"), archive("one")).await.unwrap();
    assert!(store.reserves().is_empty(), "a new function has what was attached to an old one");
}

#[tokio::test]
async fn a_removed_function_takes_its_schedules_along_and_a_start_removes_those_that_a_crash_left() {
    let place = Place::new();
    let store = place.open(FunctionLimits::default()).await;
    let scheduled = |name: &str, function: &str| {
        let key = ScheduleKey { namespace: place.tenant.clone(), name: ScheduleName::new(name).unwrap() };
        let (expression, time_zone) = ("rate(1 day)".to_owned(), "UTC".to_owned());
        let settings = ScheduleSettings {
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
        };
        (key, settings)
    };
    for name in ["f", "g"] {
        store.create(&place.tenant, new(name), archive("one")).await.unwrap();
        let (key, settings) = scheduled(name, name);
        store.schedules().create(&key, settings, None).await.unwrap();
    }
    store.delete(&place.tenant, &FunctionName::new("f").unwrap()).await.unwrap();
    assert_eq!(store.schedules().keys(), [scheduled("g", "g").0]);
    let (lost, settings) = scheduled("lost", "f");
    store.schedules().create(&lost, settings, None).await.unwrap();

    let store = place.open(FunctionLimits::default()).await;
    assert_eq!(store.schedules().keys().len(), 2);
    store.sweep_schedules().await.unwrap();
    assert_eq!(store.schedules().keys(), [scheduled("g", "g").0]);
}

#[tokio::test]
async fn reserves_leave_the_others_their_least_share() {
    let place = Place::new();
    let store = place.open(FunctionLimits::default()).await;
    let [f, g] = ["f", "g"].map(|name| FunctionName::new(name).unwrap());
    for name in ["f", "g"] {
        store.create(&place.tenant, new(name), archive("one")).await.unwrap();
    }
    let reserve = |name, count| store.reserve(&place.tenant, name, count, 100, 10);
    reserve(&f, Some(50)).await.unwrap();
    let refused = reserve(&g, Some(41)).await;
    assert!(matches!(refused, Err(FunctionStoreError::TooMuchReserved { unreserved_min: 10 })));
    reserve(&g, Some(40)).await.unwrap();
    reserve(&f, Some(0)).await.unwrap();
    reserve(&g, Some(90)).await.unwrap();
    reserve(&g, None).await.unwrap();
}

#[tokio::test]
async fn a_document_of_the_first_form_is_a_function_and_a_damaged_one_stops_the_start_by_its_name() {
    let place = Place::new();
    let first = include_bytes!("../../tests/fixtures/function-1.json").to_vec();
    place.registry.put(TABLE, "tenant/f", first, None).await.unwrap();
    let store = place.open(FunctionLimits::default()).await;
    let found = store.get(&place.tenant, &FunctionName::new("f").unwrap()).unwrap();
    assert_eq!((found.function.handler.as_str(), &found.tags["team"]), ("app.handler", &"a".to_owned()));
    assert_eq!((found.function.memory, found.function.timeout), (ByteSize::mib(128), Duration::from_secs(3)));
    drop(store);
    place.registry.put(TABLE, "tenant/broken", b"{\"format\":1,".to_vec(), None).await.unwrap();
    let registry: Arc<dyn Registry> = Arc::clone(&place.registry) as _;
    let clock: Arc<dyn Clock> = Arc::clone(&place.clock) as _;
    let root = place.folder.path().join("functions");
    std::fs::create_dir_all(root.join("code/tenant/f/kept")).unwrap();
    let refused = FunctionStore::open(registry, &root, clock, FunctionLimits::default()).await.err().unwrap();
    assert!(refused.to_string().contains("tenant/broken"), "{refused}");
    assert!(root.join("code/tenant/f/kept").exists(), "nothing is swept while a document cannot be read");
    assert!(place.registry.get(TABLE, "tenant/f").await.unwrap().is_some());
}

#[tokio::test]
async fn replaced_code_stays_while_a_copy_of_what_is_deployed_is_made() {
    let place = Place::new();
    let store = place.open(FunctionLimits::default()).await;
    let first = store.create(&place.tenant, new("f"), archive("one")).await.unwrap();
    let code = store.code_folder(&first.function).await;
    let hold = store.hold_code();
    store.update_code(&place.tenant, &FunctionName::new("f").unwrap(), archive("two"), None).await.unwrap();
    place.clock.advance(RETIRED_CODE_KEPT * 2);
    store.create(&place.tenant, new("g"), archive("g")).await.unwrap();
    assert!(code.exists());
    drop(hold);
    store.create(&place.tenant, new("h"), archive("h")).await.unwrap();
    assert!(!code.exists());
}
