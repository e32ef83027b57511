//! What one node changes in the shared registry, the others see within a second.

use std::collections::BTreeMap;
use std::io::{Cursor, Write as _};
use std::sync::Arc;
use std::time::Duration;

use nigh_engine::{ACCESS_KEYS_TABLE, AccessKeys};
use nigh_functions::function::{FunctionSource as _, Runtime};
use nigh_functions::function_store::{FunctionLimits, FunctionSettings, FunctionStore, NewFunction};
use nigh_node::cluster::ClusterEngine;
use nigh_terms::{FunctionName, Namespace, Principal, SystemClock};

use crate::support::{Trial, until};

/// Code of a function.
fn archive() -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("bootstrap", zip::write::SimpleFileOptions::default().unix_permissions(0o755)).unwrap();
    zip.write_all(b"#!/bin/sh\n").unwrap();
    zip.finish().unwrap().into_inner()
}

/// How soon others see a change.
const SOON: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_key_made_at_one_node_opens_the_others_and_one_that_was_deleted_is_refused_there() {
    let test = "a_key_made_at_one_node_opens_the_others_and_one_that_was_deleted_is_refused_there";
    let Some(trial) = Trial::start(test, 3, 4) else { return };
    let (a, b) = (trial.join("a").await.registry(), trial.join("b").await.registry());
    let (here, there) = (AccessKeys::load(&*a).await.unwrap(), AccessKeys::load(&*b).await.unwrap());
    here.follow(&*a).await.unwrap();
    there.follow(&*b).await.unwrap();
    let tenant = Namespace::new("tenant").unwrap();
    let (id, secret) = here.issue(&*a, &tenant).await.unwrap();
    let took = until("the key opens the other node", || there.secret(&id) == Some(secret.clone())).await;
    assert!(took < SOON, "{took:?}");
    assert_eq!(there.principal(&id), Ok(Principal::outside(tenant)));

    let found = a.get(ACCESS_KEYS_TABLE, id.as_str()).await.unwrap().unwrap();
    a.delete(ACCESS_KEYS_TABLE, id.as_str(), found.revision).await.unwrap();
    let took = until("the key is refused at both", || [&here, &there].iter().all(|keys| keys.principal(&id).is_err()));
    let took = took.await;
    assert!(took < SOON, "{took:?}");
    println!("a deleted key was refused at both nodes after {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_deleted_while_a_node_s_servers_were_away_are_refused_when_they_are_back() {
    let test = "keys_deleted_while_a_node_s_servers_were_away_are_refused_when_they_are_back";
    let Some(mut trial) = Trial::start(test, 1, 4) else { return };
    let engine = trial.join("a").await;
    let registry = engine.registry();
    let keys = AccessKeys::load(&*registry).await.unwrap();
    keys.follow(&*registry).await.unwrap();
    let (id, _) = keys.issue(&*registry, &Namespace::new("tenant").unwrap()).await.unwrap();
    trial.servers.servers()[0].kill().unwrap();
    trial.servers.servers()[0].run().unwrap();
    // Another node deletes it before this one's watch has begun anew.
    let other = trial.join("b").await.registry();
    let found = other.get(ACCESS_KEYS_TABLE, id.as_str()).await.unwrap().unwrap();
    other.delete(ACCESS_KEYS_TABLE, id.as_str(), found.revision).await.unwrap();
    until("it is refused", || keys.principal(&id).is_err()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_one_node_deploys_changes_and_deletes_is_so_at_the_others() {
    let test = "a_function_that_one_node_deploys_changes_and_deletes_is_so_at_the_others";
    let Some(trial) = Trial::start(test, 3, 4) else { return };
    let (a, b) = (trial.join("a").await.registry(), trial.join("b").await.registry());
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SystemClock::new());
    let open = async |registry, name: &str| {
        let folder = folder.path().join(name);
        let store = FunctionStore::open(registry, &folder, clock.clone(), FunctionLimits::default()).await.unwrap();
        store.follow().await.unwrap();
        store
    };
    let (here, there) = (open(a, "a").await, open(b, "b").await);
    let (tenant, name) = (Namespace::new("tenant").unwrap(), FunctionName::new("hello").unwrap());
    let new = NewFunction {
        name: name.clone(),
        runtime: (Runtime::Provided, "provided".to_owned()),
        handler: "main.handler".to_owned(),
        settings: FunctionSettings::default(),
        tags: BTreeMap::new(),
    };
    here.create(&tenant, new, archive()).await.unwrap();
    let took = until("it is deployed", || there.get(&tenant, &name).is_some()).await;
    assert!(took < SOON, "{took:?}");
    let function = there.get(&tenant, &name).unwrap().function.clone();
    let code = there.code_folder(&function).await;
    assert_eq!(std::fs::read(code.join("bootstrap")).unwrap(), b"#!/bin/sh\n", "it can run there");
    // A node that was not there then has it too.
    let later = open(trial.join("c").await.registry(), "c").await;
    assert!(later.code_folder(&function).await.join("bootstrap").exists());

    let settings = FunctionSettings { description: Some("another".to_owned()), ..FunctionSettings::default() };
    there.update_settings(&tenant, &name, settings, None).await.unwrap();
    let changed = || here.get(&tenant, &name).is_some_and(|found| found.function.description == "another");
    assert!(until("it is changed", changed).await < SOON);
    here.delete(&tenant, &name).await.unwrap();
    assert!(until("it is deleted", || there.get(&tenant, &name).is_none()).await < SOON);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_another_number_of_shards_does_not_join() {
    let Some(trial) = Trial::start("a_node_with_another_number_of_shards_does_not_join", 1, 4) else { return };
    let _first = trial.join("a").await;
    let mut settings = trial.settings("b");
    let mut cluster = settings.cluster.take().unwrap();
    cluster.shards = 5;
    let refused = ClusterEngine::join(&settings, &cluster, None, Arc::new(SystemClock::new())).await;
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("cluster.shards is 5") && text.contains("made with 4"), "{text}");
}
