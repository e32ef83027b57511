use super::*;
use crate::{LocalRegistry, StateFile};

fn registry(folder: &std::path::Path) -> LocalRegistry {
    LocalRegistry::new(StateFile::open(&folder.join("state.redb")).unwrap())
}

fn tenant() -> Namespace {
    Namespace::new("tenant").unwrap()
}

const NOW: Timestamp = Timestamp(1_700_000_000_000);

#[tokio::test]
async fn a_namespace_and_its_quota_survive_a_restart_and_end_with_their_removal() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(folder.path());
    let namespaces = Namespaces::load(&registry).await.unwrap();
    namespaces.create(&registry, &tenant(), NOW).await.unwrap();
    let twice = namespaces.create(&registry, &tenant(), NOW).await.unwrap_err();
    assert!(matches!(twice, NamespaceError::Exists(_)), "{twice}");
    let quota = NamespaceQuota { functions: Some(3), requests: Some(7), ..NamespaceQuota::default() };
    namespaces.set_quota(&registry, &tenant(), quota).await.unwrap();

    let again = Namespaces::load(&registry).await.unwrap();
    assert_eq!(again.all(), [(tenant(), Some(NOW), quota)]);
    assert_eq!(again.quota(&tenant()), quota);
    again.remove(&registry, &tenant()).await.unwrap();
    assert!(again.all().is_empty() && again.quota(&tenant()).is_empty());
    assert!(Namespaces::load(&registry).await.unwrap().all().is_empty());
}

#[tokio::test]
async fn a_quota_of_another_process_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(folder.path());
    let (here, there) = (Namespaces::load(&registry).await.unwrap(), Namespaces::load(&registry).await.unwrap());
    here.follow(&registry).await.unwrap();
    let quota = NamespaceQuota { memory: Some(ByteSize::mib(64)), ..NamespaceQuota::default() };
    there.set_quota(&registry, &tenant(), quota).await.unwrap();
    while here.quota(&tenant()) != quota {
        tokio::task::yield_now().await;
    }
    there.remove(&registry, &tenant()).await.unwrap();
    while !here.quota(&tenant()).is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_namespace_of_a_newer_nigh_stops_the_start_and_a_damaged_one_limits_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(folder.path());
    registry.put(NAMESPACES_TABLE, "broken", b"{".to_vec(), None).await.unwrap();
    assert!(Namespaces::load(&registry).await.unwrap().all().is_empty());
    registry.put(NAMESPACES_TABLE, "new", b"{\"format\":2}".to_vec(), None).await.unwrap();
    let refused = Namespaces::load(&registry).await.unwrap_err().to_string();
    assert!(refused.contains("new") && refused.contains("newer nigh"), "{refused}");
}

async fn limited(quota: NamespaceQuota) -> Namespaces {
    let folder = tempfile::tempdir().unwrap();
    let namespaces = Namespaces::default();
    namespaces.set_quota(&registry(folder.path()), &tenant(), quota).await.unwrap();
    namespaces
}

#[tokio::test]
async fn the_nodes_of_a_cluster_share_a_namespaces_requests() {
    let namespaces = limited(NamespaceQuota { requests: Some(30), ..NamespaceQuota::default() }).await;
    let passed = |now| (0..100).filter(|_| namespaces.take_request(&tenant(), || now).is_ok()).count();
    assert_eq!(passed(Monotonic(0)), 30, "a node alone");
    namespaces.set_nodes(3);
    assert_eq!(passed(Monotonic(1_000_000_000)), 10);
    let other = Namespace::new("other").unwrap();
    assert!((0..100).all(|_| namespaces.take_request(&other, || Monotonic(0)).is_ok()), "another has no quota");
}

#[tokio::test]
async fn memory_is_booked_until_an_invocation_ends() {
    let namespaces = limited(NamespaceQuota { memory: Some(ByteSize::mib(256)), ..NamespaceQuota::default() }).await;
    let first = namespaces.book(&tenant(), ByteSize::mib(192)).unwrap();
    let refused = namespaces.book(&tenant(), ByteSize::mib(128)).unwrap_err().to_string();
    assert!(refused.contains("192 MiB") && refused.contains("256 MiB"), "{refused}");
    let second = namespaces.book(&tenant(), ByteSize::mib(64)).unwrap();
    drop(first);
    let third = namespaces.book(&tenant(), ByteSize::mib(128)).unwrap();
    drop((second, third));
    assert_eq!(namespaces.used(&tenant()), Some((ByteSize::ZERO, ByteSize::ZERO)));
}

#[tokio::test]
async fn stored_bytes_are_those_of_the_last_listing_and_what_was_accepted_since_it_began() {
    let namespaces = limited(NamespaceQuota { stored: Some(ByteSize(100)), ..NamespaceQuota::default() }).await;
    namespaces.store(&tenant(), 60).unwrap();
    assert!(namespaces.store(&tenant(), 60).is_err());
    let since = namespaces.listing_starts(&tenant()).unwrap();
    namespaces.store(&tenant(), 30).unwrap();
    // The client removed most of what it had stored.
    namespaces.listed(&tenant(), 10, since);
    assert_eq!(namespaces.used(&tenant()).unwrap().1, ByteSize(40));
    namespaces.store(&tenant(), 60).unwrap();
    assert!(matches!(namespaces.store(&tenant(), 1), Err(OverQuota::Stored { used: ByteSize(100), .. })));
}

#[tokio::test]
async fn as_many_functions_are_deployed_as_the_quota_says() {
    let namespaces = limited(NamespaceQuota { functions: Some(2), ..NamespaceQuota::default() }).await;
    namespaces.check_functions(&tenant(), 1).unwrap();
    assert!(namespaces.check_functions(&tenant(), 2).is_err());
    namespaces.check_functions(&Namespace::new("other").unwrap(), 1000).unwrap();
}
