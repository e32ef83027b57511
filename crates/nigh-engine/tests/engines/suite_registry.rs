//! What every registry must do.

use std::collections::BTreeMap;

use nigh_engine::nats::NatsRegistry;
use nigh_engine::{LocalRegistry, Registry, RegistryDocument, RegistryError, StateFile};
use tokio::time::timeout;

use crate::servers::{PATIENCE, Servers};
use crate::under_test::content;

/// A server that is asked for a list may be behind for a moment.
async fn lists(registry: &dyn Registry, table: &str, prefix: &str, expected: &[&str]) {
    let mut last = (Vec::new(), Vec::new());
    let lists = async {
        while last.0 != expected || last.1 != expected {
            let listed = registry.list(table, prefix).await.unwrap();
            last = (listed.into_iter().map(|(key, _)| key).collect(), registry.keys(table, prefix).await.unwrap());
        }
    };
    let known = timeout(PATIENCE, lists).await;
    assert!(known.is_ok(), "{last:?}, not {expected:?}");
}

async fn conforms(registry: &dyn Registry) {
    assert_eq!(registry.get("t", "a").await.unwrap(), None);
    assert!(registry.list("t", "").await.unwrap().is_empty());
    let first = registry.put("t", "a", b"one".to_vec(), None).await.unwrap();
    assert!(matches!(
        registry.put("t", "a", b"other".to_vec(), None).await,
        Err(RegistryError::Conflict { found: Some(found), .. }) if found == first
    ));
    let second = registry.put("t", "a", b"two".to_vec(), Some(first)).await.unwrap();
    assert!(second > first);
    assert!(registry.put("t", "a", b"late".to_vec(), Some(first)).await.is_err());
    assert!(registry.delete("t", "a", first).await.is_err());
    assert_eq!(
        registry.get("t", "a").await.unwrap(),
        Some(RegistryDocument { value: b"two".to_vec(), revision: second })
    );

    registry.put("t", "ab", b"x".to_vec(), None).await.unwrap();
    registry.put("t", "b", b"x".to_vec(), None).await.unwrap();
    registry.put("u", "a", b"x".to_vec(), None).await.unwrap();
    registry.put("odd.table", "", b"empty key".to_vec(), None).await.unwrap();
    registry.put("odd.table", "ns/a key.*>=\u{7f}\u{e9}", b"odd key".to_vec(), None).await.unwrap();
    lists(registry, "t", "a", &["a", "ab"]).await;
    lists(registry, "t", "", &["a", "ab", "b"]).await;
    lists(registry, "odd.table", "", &["", "ns/a key.*>=\u{7f}\u{e9}"]).await;

    registry.delete("t", "a", second).await.unwrap();
    assert_eq!(registry.get("t", "a").await.unwrap(), None);
    lists(registry, "t", "a", &["ab"]).await;
    assert!(matches!(
        registry.put("t", "a", b"late".to_vec(), Some(second)).await,
        Err(RegistryError::Conflict { found: None, .. })
    ));
    registry.put("t", "a", b"again".to_vec(), None).await.unwrap();

    let all = vec![("x".to_owned(), Some(b"1".to_vec())), ("ab".to_owned(), None), ("none".to_owned(), None)];
    registry.apply("t", all).await.unwrap();
    let once = registry.get("t", "x").await.unwrap().unwrap();
    registry.apply("t", vec![("x".to_owned(), Some(b"2".to_vec()))]).await.unwrap();
    lists(registry, "t", "", &["a", "b", "x"]).await;
    let twice = registry.get("t", "x").await.unwrap().unwrap();
    assert_eq!(twice.value, b"2");
    assert!(twice.revision > once.revision);

    long_values_come_back(registry).await;
    of_writers_at_once_one_wins(registry).await;
    a_watcher_sees_what_is_and_what_comes(registry).await;
}

async fn long_values_come_back(registry: &dyn Registry) {
    let (long, longer) = (content(1, 700_000).to_vec(), content(2, 3 << 20).to_vec());
    let first = registry.put("long", "a", long.clone(), None).await.unwrap();
    assert_eq!(registry.get("long", "a").await.unwrap().unwrap().value, long);
    assert!(registry.put("long", "a", longer.clone(), None).await.is_err());
    let second = registry.put("long", "a", longer.clone(), Some(first)).await.unwrap();
    assert!(registry.put("long", "a", long.clone(), Some(first)).await.is_err());
    let found = registry.get("long", "a").await.unwrap().unwrap();
    assert!(found.value == longer && found.revision == second);
    registry
        .apply("long", vec![("b".to_owned(), Some(long.clone())), ("c".to_owned(), Some(b"c".to_vec()))])
        .await
        .unwrap();
    let listed: BTreeMap<_, _> = registry.list("long", "").await.unwrap().into_iter().collect();
    assert_eq!(listed.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(listed["b"].value == long && listed["a"].value == longer);
    let third = registry.put("long", "a", b"short".to_vec(), Some(second)).await.unwrap();
    registry.delete("long", "a", third).await.unwrap();
    assert_eq!(registry.keys("long", "").await.unwrap(), ["b", "c"]);
}

async fn of_writers_at_once_one_wins(registry: &dyn Registry) {
    let revision = registry.put("race", "a", b"0".to_vec(), None).await.unwrap();
    let values: Vec<Vec<u8>> = (1..=8).map(|writer| vec![writer]).collect();
    let writes = values.iter().map(|value| registry.put("race", "a", value.clone(), Some(revision)));
    let done = futures::future::join_all(writes).await;
    let winners: Vec<_> =
        values.iter().zip(&done).filter_map(|(value, done)| Some((value, done.as_ref().ok()?))).collect();
    let [(value, revision)] = winners[..] else { panic!("{done:?}") };
    let found = registry.get("race", "a").await.unwrap().unwrap();
    assert_eq!((&found.value, &found.revision), (value, revision));
}

async fn a_watcher_sees_what_is_and_what_comes(registry: &dyn Registry) {
    let first = registry.put("seen", "a", b"1".to_vec(), None).await.unwrap();
    registry.put("unseen", "a", b"1".to_vec(), None).await.unwrap();
    let mut changes = registry.watch("seen").await.unwrap();
    let mut seen: BTreeMap<String, RegistryDocument> = BTreeMap::new();
    let told = timeout(PATIENCE, changes.recv()).await.unwrap().unwrap();
    assert_eq!((told.key.as_str(), told.now.as_ref().map(|now| now.revision)), ("a", Some(first)));
    seen.extend(told.now.map(|now| (told.key, now)));
    registry.put("seen", "a", b"2".to_vec(), Some(first)).await.unwrap();
    let b = registry.put("seen", "b", b"3".to_vec(), None).await.unwrap();
    registry.delete("seen", "b", b).await.unwrap();
    registry.put("seen", "c", content(3, 600_000).to_vec(), None).await.unwrap();
    let expected: BTreeMap<_, _> = registry.list("seen", "").await.unwrap().into_iter().collect();
    while seen != expected {
        let told = timeout(PATIENCE, changes.recv()).await.unwrap().unwrap();
        match told.now {
            Some(now) => seen.insert(told.key, now),
            None => seen.remove(&told.key),
        };
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registry_of_one_machine_conforms_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    conforms(&LocalRegistry::new(StateFile::open(&path).unwrap())).await;
    // Who watched lets go of the file in its own time.
    let again = loop {
        match StateFile::open(&path) {
            Ok(state) => break LocalRegistry::new(state),
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
    };
    assert_eq!(again.get("t", "a").await.unwrap().unwrap().value, b"again");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registry_of_a_cluster_conforms_and_is_one_for_all_nodes() {
    let Some(servers) = Servers::start("the_registry_of_a_cluster_conforms_and_is_one_for_all_nodes", 3) else {
        return;
    };
    conforms(&NatsRegistry::open(servers.connect(3).await).await.unwrap()).await;
    let again = NatsRegistry::open(servers.connect(3).await).await.unwrap();
    assert_eq!(again.get("t", "a").await.unwrap().unwrap().value, b"again");
    let many = (0..1001).map(|number| (number.to_string(), Some(Vec::new()))).collect();
    assert!(again.apply("many", many).await.unwrap_err().to_string().contains("1000"));
    assert_eq!(again.keys("many", "").await.unwrap(), Vec::<String>::new());
    let most = (0..1000).map(|number| (number.to_string(), Some(Vec::new()))).collect();
    again.apply("many", most).await.unwrap();
    assert_eq!(again.keys("many", "").await.unwrap().len(), 1000);
}
