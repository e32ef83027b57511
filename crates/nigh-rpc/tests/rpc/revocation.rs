//! Certificates that lose their validity before their time: revoked ones, and those of an authority that is replaced.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use nigh_rpc::certificates::Authority;
use nigh_rpc::{CertificateFiles, ConnectError, Credentials, Identity, Peers, Role, Security};

use crate::support::*;

fn node(name: &str) -> Identity {
    Identity::new(CLUSTER, Role::Node, name).unwrap()
}

async fn answers(peers: &Peers, running: &Running) -> bool {
    peers.call(&running.peer(), &ECHO, b"", Bytes::new(), within(5.0)).await.is_ok()
}

/// Calls until it is answered, or until it is not.
async fn until_answered(peers: &Peers, running: &Running, wanted: bool, seconds: f64) {
    let deadline = within(seconds);
    while answers(peers, running).await != wanted {
        assert!(tokio::time::Instant::now() < deadline, "answered = {} for {seconds} s", !wanted);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_revoked_process_is_refused_at_once_and_comes_back_with_a_new_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (running, peers) = secured(folder.path()).await;
    let authority = Authority::open(folder.path()).unwrap();
    assert!(answers(&peers, &running).await);
    // A call that is under way ends, too.
    let (caller, at) = (peers.clone(), running.peer());
    let waiting = tokio::spawn(async move { caller.call(&at, &WAIT, b"", Bytes::new(), within(60.0)).await.map(drop) });
    until(|| running.begun() == 2).await;
    authority.revoke(&[node(CALLER)]).unwrap();
    until_answered(&peers, &running, false, 10.0).await;
    waiting.await.unwrap().unwrap_err();
    let error = peers.call(&running.peer(), &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap_err();
    assert!(error.to_string().to_lowercase().contains("revoked"), "{error}");
    authority.issue(&node(CALLER), &[], 10, true).unwrap();
    until_answered(&peers, &running, true, 30.0).await;
}

#[tokio::test]
async fn a_revoked_process_is_not_called_either() {
    let folder = tempfile::tempdir().unwrap();
    let (running, peers) = secured(folder.path()).await;
    assert!(answers(&peers, &running).await);
    Authority::open(folder.path()).unwrap().revoke(&[node(SERVER)]).unwrap();
    until_answered(&peers, &running, false, 10.0).await;
    let error = peers.call(&running.peer(), &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap_err();
    assert!(
        matches!(&error, nigh_rpc::CallError::Connect { reason: ConnectError::Tls(_), .. })
            && error.to_string().to_lowercase().contains("revoked"),
        "{error}"
    );
    // A damaged list revokes nobody else, and the one before stays in force.
    std::fs::write(folder.path().join("revoked.txt"), "who?").unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert!(!answers(&peers, &running).await);
}

/// A process' own copies of its files, as an operator distributes them.
fn copy(from: &Path, to: &Path, name: &str) -> CertificateFiles {
    std::fs::create_dir_all(to).unwrap();
    let path = |folder: &Path, file: &str| folder.join(file);
    let (certificate, key) = (format!("{name}.crt"), format!("{name}.key"));
    for file in ["authority.crt", &certificate, &key] {
        std::fs::copy(path(from, file), path(to, file)).unwrap();
    }
    CertificateFiles { authority: to.join("authority.crt"), certificate: to.join(certificate), key: to.join(key) }
}

#[tokio::test]
async fn an_authority_is_replaced_while_no_call_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, ours, theirs) = (folder.path().join("ca"), folder.path().join("ours"), folder.path().join("theirs"));
    let first = Authority::create(&ca, CLUSTER, 10).unwrap();
    for name in [CALLER, SERVER] {
        first.issue(&node(name), &[], 10, false).unwrap();
    }
    let secured = |files| Security::Tls(Arc::new(Credentials::open(files).unwrap()));
    let caller = secured(copy(&ca, &ours, CALLER));
    let running = start(secured(copy(&ca, &theirs, SERVER))).await;
    let (calls, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let calling = {
        let (calls, over, at) = (Arc::clone(&calls), Arc::clone(&over), running.peer());
        tokio::spawn(async move {
            let mut failed = Vec::new();
            while !over.load(Ordering::SeqCst) {
                // Each over a connection of its own.
                let peers = peers(caller.clone());
                if let Err(error) = peers.call(&at, &ECHO, b"", Bytes::new(), within(5.0)).await {
                    failed.push(error.to_string());
                }
                calls.fetch_add(1, Ordering::SeqCst);
            }
            failed
        })
    };
    let some_calls = async || {
        let enough = calls.load(Ordering::SeqCst) + 5;
        until(|| calls.load(Ordering::SeqCst) >= enough).await;
    };
    some_calls().await;
    let next = Authority::add(&ca, 10).unwrap();
    for (to, name) in [(&ours, CALLER), (&theirs, SERVER)] {
        copy(&ca, to, name);
        some_calls().await;
    }
    for (to, name) in [(&theirs, SERVER), (&ours, CALLER)] {
        next.issue(&node(name), &[], 10, true).unwrap();
        copy(&ca, to, name);
        some_calls().await;
    }
    Authority::retire(&ca, false).unwrap();
    for (to, name) in [(&ours, CALLER), (&theirs, SERVER)] {
        copy(&ca, to, name);
        some_calls().await;
    }
    over.store(true, Ordering::SeqCst);
    assert_eq!(calling.await.unwrap(), Vec::<String>::new());
    // A certificate of the former authority is refused now.
    let old = folder.path().join("old");
    let other = Authority::create(&folder.path().join("other"), CLUSTER, 10).unwrap();
    other.issue(&node(CALLER), &[], 10, false).unwrap();
    let files = copy(&folder.path().join("other"), &old, CALLER);
    std::fs::copy(ca.join("authority.crt"), old.join("authority.crt")).unwrap();
    assert!(!answers(&peers(secured(files)), &running).await);
}
