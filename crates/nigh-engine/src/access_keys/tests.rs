use std::task::Poll;

use super::*;
use crate::{LocalRegistry, StateFile};

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
    registry.put(ACCESS_KEYS_TABLE, "NIGHNEW", b"{\"format\":2}".to_vec(), None).await.unwrap();
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
