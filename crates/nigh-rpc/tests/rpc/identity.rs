//! Who may speak with whom.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nigh_rpc::certificates::{Authority, CertificateError, describe};
use nigh_rpc::{CallError, ConnectError, Credentials, Fate, Identity, PeerAddress, Role, Security};

use crate::support::*;

async fn refused(ours: Security, theirs: Security, name: &str) -> CallError {
    let running = start_as(hello(CLUSTER, name, 1), theirs, Default::default()).await;
    let error = peers(ours).call(&running.peer(), &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap_err();
    assert_eq!((running.begun(), error.fate()), (0, Fate::NotSent), "{error}");
    error
}

#[tokio::test]
async fn certificates_of_another_authority_are_refused_by_both_sides() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ours = credentials(one.path(), CLUSTER, CALLER);
    let theirs = credentials(other.path(), CLUSTER, SERVER);
    let error = refused(ours, theirs, SERVER).await;
    assert!(matches!(&error, CallError::Connect { reason: ConnectError::Tls(_), .. }), "{error}");
    // Only the server knows both: it refuses the caller.
    let both = other.path().join("both.crt");
    let read = |folder: &std::path::Path| std::fs::read(folder.join("authority.crt")).unwrap();
    std::fs::write(&both, [read(one.path()), read(other.path())].concat()).unwrap();
    let mut files = Authority::open(one.path()).unwrap().files(CALLER);
    files.authority = both;
    let ours = Security::Tls(Arc::new(Credentials::open(files).unwrap()));
    let error = refused(ours, credentials(other.path(), CLUSTER, SERVER), SERVER).await;
    assert!(matches!(&error, CallError::Connect { reason: ConnectError::Tls(_), .. }), "{error}");
}

#[tokio::test]
async fn an_expired_certificate_is_refused_by_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (credentials(folder.path(), CLUSTER, CALLER), credentials(folder.path(), CLUSTER, SERVER));
    for expired in [CALLER, SERVER] {
        let old = expired_credentials(folder.path(), expired);
        let (ours, theirs) = if expired == CALLER { (old, theirs.clone()) } else { (ours.clone(), old) };
        let error = refused(ours, theirs, SERVER).await;
        assert!(error.to_string().to_lowercase().contains("expired"), "{expired}: {error}");
    }
}

/// As `credentials`, but they were valid for a day of the last year.
fn expired_credentials(folder: &std::path::Path, name: &str) -> Security {
    let authority = Authority::open(folder).unwrap();
    let identity = Identity::new(CLUSTER, Role::Node, name).unwrap();
    let past = time::OffsetDateTime::now_utc() - time::Duration::days(300);
    let files = authority.issue_at(&identity, &[], past, 1, true).unwrap();
    Security::Tls(Arc::new(Credentials::open(files).unwrap()))
}

#[tokio::test]
async fn another_cluster_another_name_and_another_life_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_as(hello("other", SERVER, 1), Security::Plain, Default::default()).await;
    let caller = peers(Security::Plain);
    let error = caller.call(&running.peer(), &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap_err();
    assert!(error.to_string().contains("the cluster \"other\""), "{error}");

    let error = refused(Security::Plain, Security::Plain, "somebody").await;
    assert!(matches!(&error, CallError::Connect { reason: ConnectError::OtherName { .. }, .. }), "{error}");

    let running = start(Security::Plain).await;
    let with = |incarnation| PeerAddress { incarnation: Some(incarnation), ..running.peer() };
    let error = caller.call(&with(2), &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap_err();
    let CallError::Connect { reason: ConnectError::OtherIncarnation { theirs: 1, wanted: 2 }, .. } = error else {
        panic!("{error}");
    };
    caller.call(&with(1), &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap();

    // A certificate for one name does not do for another, on either side.
    let theirs = credentials(folder.path(), CLUSTER, SERVER);
    let error = refused(credentials(folder.path(), CLUSTER, "thief"), theirs.clone(), SERVER).await;
    assert!(error.to_string().contains("certificate of nigh://lab/node/thief"), "{error}");
    let error = refused(credentials(folder.path(), CLUSTER, CALLER), theirs, "impostor").await;
    assert!(matches!(&error, CallError::Connect { reason: ConnectError::NotItself { .. }, .. }), "{error}");
}

#[tokio::test]
async fn two_processes_of_one_name_and_those_not_admitted_are_refused() {
    let running = start(Security::Plain).await;
    let call = async |name, incarnation| {
        let peers = nigh_rpc::Peers::new(hello(CLUSTER, name, incarnation), Security::Plain, Default::default());
        peers.call(&running.peer(), &ECHO, b"", Bytes::new(), within(5.0)).await
    };
    let error = call(SERVER, 2).await.unwrap_err();
    assert!(error.to_string().contains("in another incarnation"), "{error}");
    // It may call itself.
    call(SERVER, 1).await.unwrap();
    let error = call("shunned", 1).await.unwrap_err();
    assert!(error.to_string().contains("not here") && error.fate() == Fate::NotSent, "{error}");
}

#[tokio::test]
async fn with_tls_on_one_side_only_both_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(Security::Plain, credentials(folder.path(), CLUSTER, SERVER), SERVER).await;
    assert!(error.to_string().contains("the peer speaks TLS"), "{error}");
    let error = refused(credentials(folder.path(), CLUSTER, CALLER), Security::Plain, SERVER).await;
    assert!(error.to_string().contains("nigh certificates"), "{error}");
}

#[tokio::test]
async fn certificates_are_rotated_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let theirs = credentials(path, CLUSTER, SERVER);
    let authority = Authority::open(path).unwrap();
    let expired = expired_credentials(path, CALLER);
    let running = start(theirs.clone()).await;
    let call = async |security: &Security| {
        let peers = peers(security.clone());
        peers.call(&running.peer(), &ECHO, b"", Bytes::new(), within(5.0)).await.map(drop)
    };
    call(&expired).await.unwrap_err();
    let caller = Identity::new(CLUSTER, Role::Node, CALLER).unwrap();
    authority.issue(&caller, &[], 10, true).unwrap();
    call(&expired).await.unwrap();
    // The server's expires, and is renewed.
    drop(expired_credentials(path, SERVER));
    call(&expired).await.unwrap_err();
    let server = Identity::new(CLUSTER, Role::Node, SERVER).unwrap();
    let files = authority.issue(&server, &[], 10, true).unwrap();
    call(&expired).await.unwrap();
    // What cannot be used leaves the old ones in use.
    std::fs::write(&files.certificate, "no certificate").unwrap();
    call(&expired).await.unwrap();
    let stranger = Identity::new(CLUSTER, Role::Node, "stranger").unwrap();
    let stranger = authority.issue(&stranger, &[], 10, false).unwrap();
    std::fs::copy(&stranger.certificate, &files.certificate).unwrap();
    std::fs::copy(&stranger.key, &files.key).unwrap();
    call(&expired).await.unwrap();
}

#[test]
fn an_authority_keeps_its_keys_and_overwrites_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert!(matches!(Authority::open(path), Err(CertificateError::NoAuthority(_))));
    Authority::create(path, CLUSTER, 10).unwrap();
    assert!(matches!(Authority::create(path, CLUSTER, 10), Err(CertificateError::Exists { .. })));
    let authority = Authority::open(path).unwrap();
    assert_eq!(authority.cluster(), CLUSTER);
    let node = Identity::new(CLUSTER, Role::Controller, "c1").unwrap();
    let addresses = ["10.0.0.7".to_owned(), "c1.example".to_owned(), "::1".to_owned()];
    let files = authority.issue(&node, &addresses, 30, false).unwrap();
    assert!(matches!(authority.issue(&node, &addresses, 30, false), Err(CertificateError::Exists { .. })));
    let own = Identity::new(CLUSTER, Role::Node, "authority").unwrap();
    assert!(matches!(authority.issue(&own, &[], 30, true), Err(CertificateError::Exists { .. })));
    let other = Identity::new("other", Role::Node, "n1").unwrap();
    assert!(matches!(authority.issue(&other, &[], 30, false), Err(CertificateError::OtherCluster { .. })));
    for key in [files.key.clone(), path.join("authority.key")] {
        assert_eq!(std::fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let described = describe(&files.certificate).unwrap();
    assert_eq!(described.len(), 1);
    assert_eq!(described[0].uris, ["nigh://lab/controller/c1"]);
    assert_eq!(described[0].hosts, ["c1.example"]);
    assert_eq!(described[0].addresses, ["10.0.0.7".parse::<std::net::IpAddr>().unwrap(), "::1".parse().unwrap()]);
    let days = Duration::try_from(described[0].until - described[0].from).unwrap();
    assert_eq!(days, Duration::from_secs(30 * 24 * 3600 + 3600));
    assert!(matches!(authority.issue(&node, &["a b".to_owned()], 30, true), Err(CertificateError::Address(_))));
    assert!(matches!(Credentials::open(authority.files("n2")), Err(CertificateError::File { .. })));
}
