use std::collections::BTreeSet;
use std::task::Poll;
use std::time::Duration;

use nigh_terms::{BucketName, ManualClock, Timestamp};

use super::*;
use crate::{LocalRegistry, NamespaceQuota, OverQuota, Registry as _, StateFile};

#[tokio::test]
async fn a_namespace_key_survives_a_restart_and_a_sandbox_key_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
    let keys = AccessKeys::load(&registry).await.unwrap();
    let tenant = Namespace::new("tenant").unwrap();
    let (client, secret) = keys.issue(&registry, &tenant).await.unwrap();
    let (inside, _) = keys.issue_sandbox(tenant.clone(), FunctionName::new("f").unwrap(), SandboxId::random());

    let again = AccessKeys::load(&registry).await.unwrap();
    assert_eq!(again.secret(&client), Some(secret));
    assert_eq!(again.client_secret(&client), again.secret(&client));
    assert!(keys.secret(&inside).is_some() && keys.client_secret(&inside).is_none());
    assert_eq!(again.principal(&client), Ok(Principal::outside(tenant)));
    assert_eq!(again.principal(&inside), Err(AccessDenied::UnknownKey(inside)));
}

#[tokio::test]
async fn a_key_of_the_first_form_opens_a_damaged_one_opens_nothing_and_a_newer_one_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
    let first = include_bytes!("../../tests/fixtures/access-key-1.json").to_vec();
    registry.put(ACCESS_KEYS_TABLE, "NIGHFIRST", first, None).await.unwrap();
    registry.put(ACCESS_KEYS_TABLE, "NIGHBROKEN", b"{\"namespace\":".to_vec(), None).await.unwrap();
    let keys = AccessKeys::load(&registry).await.unwrap();
    let tenant = Namespace::new("tenant").unwrap();
    assert_eq!(keys.of_namespace(&tenant), [AccessKeyId::new("NIGHFIRST")]);
    assert_eq!(keys.secret(&AccessKeyId::new("NIGHFIRST")), Some(SecretKey::new("a-secret-of-a-test")));
    assert!(registry.get(ACCESS_KEYS_TABLE, "NIGHBROKEN").await.unwrap().is_some());
    registry.put(ACCESS_KEYS_TABLE, "NIGHNEW", b"{\"format\":3}".to_vec(), None).await.unwrap();
    let refused = AccessKeys::load(&registry).await.unwrap_err().to_string();
    assert!(refused.contains("NIGHNEW") && refused.contains("newer nigh"), "{refused}");
}

#[test]
fn a_sandbox_key_acts_for_its_invocation_and_for_nothing_between() {
    let keys = AccessKeys::default();
    let (namespace, function) = (Namespace::new("tenant").unwrap(), FunctionName::new("f").unwrap());
    let (sandbox, invocation) = (SandboxId::random(), InvocationId::now());
    let (id, _) = keys.issue_sandbox(namespace.clone(), function.clone(), sandbox);
    assert_eq!(keys.principal(&id), Err(AccessDenied::BetweenInvocations(sandbox)));
    keys.set_invocation(&id, Some(invocation));
    assert_eq!(keys.principal(&id), Ok(Principal::inside(namespace, function, sandbox, invocation)));
    keys.set_invocation(&id, None);
    assert_eq!(keys.principal(&id), Err(AccessDenied::BetweenInvocations(sandbox)));
    keys.revoke(&id);
    assert!(matches!(keys.principal(&id), Err(AccessDenied::UnknownKey(_))));
}

#[tokio::test]
async fn an_invocations_end_cancels_its_calls_and_waits_until_they_are_over() {
    let keys = AccessKeys::default();
    let (namespace, function) = (Namespace::new("tenant").unwrap(), FunctionName::new("f").unwrap());
    let (id, _) = keys.issue_sandbox(namespace, function, SandboxId::random());
    keys.set_invocation(&id, Some(InvocationId::now()));
    let (_, call) = keys.enter(&id).unwrap();
    assert!(!call.is_cancelled());
    keys.set_invocation(&id, None);
    assert!(keys.enter(&id).is_err());
    call.cancelled().unwrap().await;
    let mut settled = std::pin::pin!(keys.settled(&id));
    let waits = std::future::poll_fn(|context| Poll::Ready(settled.as_mut().poll(context).is_pending())).await;
    assert!(waits, "the call is under way");
    drop(call);
    settled.await;

    // The next invocation has calls of its own.
    keys.set_invocation(&id, Some(InvocationId::now()));
    let (_, next) = keys.enter(&id).unwrap();
    assert!(!next.is_cancelled());
    keys.revoke(&id);
    assert!(next.is_cancelled());
}

struct Ground {
    keys: AccessKeys,
    registry: LocalRegistry,
    clock: Arc<ManualClock>,
    _folder: tempfile::TempDir,
}

/// Keys of a new state file, at a time that only the test moves.
async fn ground() -> Ground {
    let folder = tempfile::tempdir().unwrap();
    let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(1_700_000_000));
    let keys = AccessKeys::load_at(&registry, Arc::clone(&clock) as Arc<dyn Clock>).await.unwrap();
    Ground { keys, registry, clock, _folder: folder }
}

fn tenant() -> Namespace {
    Namespace::new("tenant").unwrap()
}

fn named(name: &str, now: Timestamp) -> KeyDescription {
    KeyDescription { name: Some(name.to_owned()), created: Some(now), ..KeyDescription::of_settings(tenant()) }
}

#[tokio::test]
async fn what_an_operator_says_of_a_key_survives_a_restart_and_binds_at_once() {
    let Ground { keys, registry, clock, _folder } = ground().await;
    let buckets = BTreeSet::from([BucketName::new("pictures").unwrap()]);
    let scope = KeyScope { read_only: true, buckets, ..KeyScope::default() };
    let key = KeyDescription { scope, role: Some(AdminRole::View), ..named("reader", clock.wall()) };
    let (id, secret) = keys.create(&registry, key.clone()).await.unwrap();
    assert!(matches!(keys.create(&registry, key.clone()).await, Err(KeyError::NameTaken(_))));

    let again = AccessKeys::load(&registry).await.unwrap();
    assert_eq!(again.describe(&id), Some(key));
    assert_eq!(again.named("reader").unwrap(), id);
    assert!(again.named("nobody").is_err());
    assert!(keys.admit(&id, Action::ReadBucket("pictures")).is_ok());
    for refused in [Action::WriteBucket("pictures"), Action::ReadBucket("others"), Action::Invoke("f")] {
        assert!(matches!(keys.authorize(&id, refused), Err(AccessDenied::OutOfScope { .. })), "{refused}");
    }
    assert_eq!(keys.admin_role(id.as_str(), &secret), Some(AdminRole::View));
    assert_eq!(keys.admin_role(id.as_str(), &SecretKey::new("wrong")), None);
    assert_eq!(keys.admin_role("NIGHNOBODY", &secret), None);

    keys.set_enabled(&registry, &id, false).await.unwrap();
    assert_eq!(keys.principal(&id), Err(AccessDenied::Disabled(id.clone())));
    assert!(keys.client_secret(&id).is_none() && keys.admin_role(id.as_str(), &secret).is_none());
    keys.set_enabled(&registry, &id, true).await.unwrap();
    assert!(keys.principal(&id).is_ok());
    keys.remove(&registry, &id).await.unwrap();
    assert_eq!(keys.principal(&id), Err(AccessDenied::UnknownKey(id.clone())));
    assert!(matches!(keys.remove(&registry, &id).await, Err(KeyError::Unknown(_))));
}

#[tokio::test]
async fn a_rotated_key_is_good_for_the_overlap_and_its_successor_may_do_the_same() {
    let Ground { keys, registry, clock, _folder } = ground().await;
    let day = Duration::from_secs(24 * 3600);
    let created = clock.wall();
    let expires = Some(Timestamp(created.millis() + 90 * day.as_millis() as u64));
    let key = KeyDescription { expires, ..named("uploads", created) };
    let (old, old_secret) = keys.create(&registry, key).await.unwrap();
    clock.advance(day);
    let (new, new_secret) = keys.rotate(&registry, &old, day).await.unwrap();
    assert!(old != new && old_secret != new_secret);
    assert!(keys.principal(&old).is_ok() && keys.principal(&new).is_ok());
    assert_eq!(keys.named("uploads").unwrap(), new);
    let successor = keys.describe(&new).unwrap();
    assert_eq!(successor.expires.unwrap().millis() - clock.wall().millis(), 90 * day.as_millis() as u64);
    let twice = keys.rotate(&registry, &old, day).await.unwrap_err().to_string();
    assert!(twice.contains(new.as_str()), "{twice}");

    clock.advance(day);
    assert!(matches!(keys.principal(&old), Err(AccessDenied::Expired { .. })));
    assert!(keys.principal(&new).is_ok());
    clock.advance(90 * day);
    assert!(matches!(keys.principal(&new), Err(AccessDenied::Expired { .. })));
}

#[tokio::test]
async fn changes_of_another_process_are_followed_and_calls_under_way_are_kept() {
    let Ground { keys, registry, clock, _folder } = ground().await;
    let here = AccessKeys::load(&registry).await.unwrap();
    here.follow(&registry).await.unwrap();
    let (id, _) = keys.create(&registry, named("k", clock.wall())).await.unwrap();
    while here.principal(&id).is_err() {
        tokio::task::yield_now().await;
    }
    keys.set_enabled(&registry, &id, false).await.unwrap();
    while here.principal(&id).is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(here.principal(&id), Err(AccessDenied::Disabled(id.clone())));
    keys.remove(&registry, &id).await.unwrap();
    while here.describe(&id).is_some() {
        tokio::task::yield_now().await;
    }
    let (second, _) = keys.issue(&registry, &tenant()).await.unwrap();
    while here.describe(&second).is_none() {
        tokio::task::yield_now().await;
    }
    assert!(!here.reload(&registry).await.unwrap(), "all is known");
}

#[tokio::test]
async fn a_key_in_use_that_is_damaged_in_the_registry_stops_a_reload_and_stays_in_use() {
    let Ground { keys, registry, _folder, .. } = ground().await;
    let (used, _) = keys.issue(&registry, &tenant()).await.unwrap();
    registry.put(ACCESS_KEYS_TABLE, "NIGHBROKEN", b"{\"namespace\":".to_vec(), None).await.unwrap();
    keys.check_reload(&registry).await.unwrap();
    assert!(!keys.reload(&registry).await.unwrap(), "nobody here knows the broken one");

    let whole = registry.get(ACCESS_KEYS_TABLE, used.as_str()).await.unwrap().unwrap();
    let half = whole.value[..whole.value.len() / 2].to_vec();
    registry.put(ACCESS_KEYS_TABLE, used.as_str(), half, Some(whole.revision)).await.unwrap();
    for refused in [keys.check_reload(&registry).await.unwrap_err(), keys.reload(&registry).await.unwrap_err()] {
        assert!(refused.to_string().contains(used.as_str()), "{refused}");
    }
    assert!(keys.principal(&used).is_ok());
    // As at a start.
    assert!(AccessKeys::load(&registry).await.unwrap().describe(&used).is_none());
}

#[tokio::test]
async fn a_plain_key_is_written_as_an_earlier_nigh_reads_it_and_a_limited_one_is_not() {
    let Ground { keys, registry, clock, _folder } = ground().await;
    let (plain, _) = keys.issue(&registry, &tenant()).await.unwrap();
    let (limited, _) = keys.create(&registry, named("k", clock.wall())).await.unwrap();
    for (id, format) in [(&plain, 1), (&limited, 2)] {
        let document = registry.get(ACCESS_KEYS_TABLE, id.as_str()).await.unwrap().unwrap();
        let document: serde_json::Value = serde_json::from_slice(&document.value).unwrap();
        assert_eq!(document["format"], format);
    }
    keys.set_enabled(&registry, &plain, false).await.unwrap();
    keys.set_enabled(&registry, &plain, true).await.unwrap();
    let document = registry.get(ACCESS_KEYS_TABLE, plain.as_str()).await.unwrap().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&document.value).unwrap();
    assert_eq!(document["format"], 1);
}

#[tokio::test]
async fn the_last_use_of_a_key_is_written_once_and_read_by_all() {
    let Ground { keys, registry, clock, _folder } = ground().await;
    let (used, _) = keys.create(&registry, named("used", clock.wall())).await.unwrap();
    let (unused, _) = keys.create(&registry, named("unused", clock.wall())).await.unwrap();
    keys.admit(&used, Action::Read).unwrap();
    keys.write_uses(&registry).await.unwrap();
    let other = AccessKeys::load(&registry).await.unwrap();
    let uses = other.uses(&registry).await.unwrap();
    assert_eq!(uses.get(&used), Some(&clock.wall()));
    assert!(!uses.contains_key(&unused));
    keys.forget_uses(&registry, &used).await.unwrap();
    assert!(other.uses(&registry).await.unwrap().is_empty());
}

#[tokio::test]
async fn requests_of_a_namespaces_clients_are_counted_and_those_of_its_sandboxes_are_not() {
    let Ground { keys, registry, clock, _folder } = ground().await;
    let (client, _) = keys.issue(&registry, &tenant()).await.unwrap();
    let quota =
        NamespaceQuota { requests: Some(2), stored: Some(nigh_terms::ByteSize(10)), ..NamespaceQuota::default() };
    keys.namespaces().set_quota(&registry, &tenant(), quota).await.unwrap();
    let (sandbox, _) = keys.issue_sandbox(tenant(), FunctionName::new("f").unwrap(), SandboxId::random());
    keys.set_invocation(&sandbox, Some(InvocationId::now()));
    let admitted = |key, action| (0..10).filter(|_| keys.admit(key, action).is_ok()).count();
    assert_eq!(admitted(&client, Action::Read), 2);
    assert!(matches!(keys.admit(&client, Action::Read), Err(AccessDenied::OverQuota(OverQuota::Requests { .. }))));
    assert!(keys.authorize(&client, Action::Read).is_ok(), "authorize counts nothing");
    assert_eq!(admitted(&sandbox, Action::Read), 10);
    assert_eq!(admitted(&sandbox, Action::Store { bucket: "b", bytes: 4 }), 2, "its bytes count");
    clock.advance(Duration::from_secs(1));
    assert_eq!(admitted(&client, Action::Read), 2);
}
