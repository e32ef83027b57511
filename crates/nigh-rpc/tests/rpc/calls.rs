//! What a call promises, over TLS and without.

use std::io::Cursor;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nigh_rpc::{Body, BodyError, CallError, ClientSettings, Fate, Peers, RefusalKind, Security, ServerSettings};
use tokio::io::AsyncReadExt as _;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_take_one_connection_and_concurrent_ones_no_more_than_may_be() {
    let folder = tempfile::tempdir().unwrap();
    for security in [Security::Plain, credentials(folder.path(), CLUSTER, SERVER)] {
        let (ours, theirs) = match &security {
            Security::Plain => (Security::Plain, Security::Plain),
            Security::Tls(_) => (credentials(folder.path(), CLUSTER, CALLER), security),
        };
        let proxied = start(theirs).await;
        let counted = crate::faults::Relay::start(proxied.address).await;
        let settings = ClientSettings { connections_max: 4, ..ClientSettings::default() };
        let peers = Peers::new(hello(CLUSTER, CALLER, 7), ours, settings);
        let peer = peer(counted.address);
        for count in 0..1000_usize {
            let body = pattern(count);
            let answer = peers.call(&peer, &ECHO, b"head", body.clone(), within(10.0)).await.unwrap();
            assert_eq!(&answer.head[..], b"head");
            assert_eq!(answer.body.collect(1 << 20).await.unwrap(), body);
        }
        assert_eq!(counted.connections(), 1);
        let calls: Vec<_> = (0..64_usize)
            .map(|count| {
                let (peers, peer, body) = (peers.clone(), peer.clone(), pattern(count * 1000));
                tokio::spawn(async move {
                    let answer = peers.call(&peer, &ECHO, b"", body.clone(), within(10.0)).await.unwrap();
                    assert_eq!(answer.body.collect(1 << 20).await.unwrap(), body);
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        assert!(counted.connections() <= 4, "{}", counted.connections());
        assert_eq!(proxied.begun(), 1064);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_whole_in_each_way_of_sending_and_receiving() {
    let folder = tempfile::tempdir().unwrap();
    let (running, secured) = secured(folder.path()).await;
    let bare = start(Security::Plain).await;
    for (peers, peer) in [(secured, running.peer()), (peers(Security::Plain), bare.peer())] {
        let whole = pattern(20 << 20);
        let reader = Body::reader(whole.len() as u64, Cursor::new(whole.clone()));
        let answer = peers.call(&peer, &ECHO, b"", reader, within(10.0)).await.unwrap();
        let mut own = vec![0; whole.len()];
        let mut body = answer.body;
        let (first, second) = own.split_at_mut(100_001);
        body.read_exact(first).await.unwrap();
        body.read_exact(second).await.unwrap();
        assert!(matches!(body.read_exact(&mut [0]).await, Err(BodyError::Short { left: 0, wanted: 1 })));
        assert!(body.next().await.unwrap().is_none());
        assert_eq!(own, whole);
        drop(body);
        let pieces = Body::pieces((0..20).map(|at| whole.slice(at << 20..(at + 1) << 20)));
        let mut answer = peers.call(&peer, &ECHO, b"", pieces, within(10.0)).await.unwrap();
        let mut read = Vec::new();
        while let Some(piece) = answer.body.next().await.unwrap() {
            read.extend_from_slice(&piece);
        }
        assert_eq!(read, whole);
        drop(answer);
        let mut answer = peers.call(&peer, &FETCH, b"3000000", Bytes::new(), within(10.0)).await.unwrap();
        read.clear();
        answer.body.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, whole[..3_000_000]);
        let answer = peers.call(&peer, &FETCH, b"3000000", Bytes::new(), within(10.0)).await.unwrap();
        assert!(matches!(answer.body.collect(10).await, Err(BodyError::TooLarge { bytes: 3_000_000, max: 10 })));
    }
}

#[tokio::test]
async fn a_body_that_is_dropped_costs_the_connection_only_if_much_is_left() {
    let running = start(Security::Plain).await;
    let counted = crate::faults::Relay::start(running.address).await;
    let (peers, peer) = (peers(Security::Plain), peer(counted.address));
    let dropped = async |length: &str| {
        let answer = peers.call(&peer, &FETCH, length.as_bytes(), Bytes::new(), within(5.0)).await.unwrap();
        drop(answer);
        // What is left is read in the background.
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    dropped("60000").await;
    dropped("60000").await;
    assert_eq!(counted.connections(), 1);
    dropped("8000000").await;
    dropped("1").await;
    assert_eq!(counted.connections(), 2);
    // A body that the handler leaves behind: likewise, and the answer comes through.
    for (length, connections) in [(60_000, 2), (16 << 20, 2), (1, 3)] {
        peers.call(&peer, &IGNORE, b"", pattern(length), within(5.0)).await.unwrap();
        assert_eq!(counted.connections(), connections, "{length}");
    }
}

#[tokio::test]
async fn a_deadline_ends_a_call_on_both_sides() {
    let running = start(Security::Plain).await;
    let peers = peers(Security::Plain);
    let begun = Instant::now();
    let error = peers.call(&running.peer(), &WAIT, b"", Bytes::new(), within(0.2)).await.unwrap_err();
    assert!(matches!(error, CallError::Late { .. } | CallError::Refused { .. }), "{error}");
    assert_eq!(error.fate(), Fate::Unknown);
    assert!(begun.elapsed() < Duration::from_secs(1));
    until(|| running.dropped() == 1).await;
    // With a body too.
    let error = peers.call(&running.peer(), &WAIT, b"", pattern(10), within(0.2)).await.unwrap_err();
    assert_eq!(error.fate(), Fate::Unknown);
    until(|| running.dropped() == 2).await;
}

#[tokio::test]
async fn an_abandoned_call_ends_at_the_server() {
    let running = start(Security::Plain).await;
    let (peers, peer) = (peers(Security::Plain), running.peer());
    let call = tokio::spawn(async move { peers.call(&peer, &WAIT, b"", Bytes::new(), within(60.0)).await.map(drop) });
    until(|| running.begun() == 1).await;
    call.abort();
    until(|| running.dropped() == 1).await;
}

#[tokio::test]
async fn beyond_a_bound_calls_are_refused_and_were_not_begun() {
    let settings = ServerSettings { calls_max: 1, ..ServerSettings::default() };
    let running = start_as(hello(CLUSTER, SERVER, 1), Security::Plain, settings).await;
    let (peers, peer) = (peers(Security::Plain), running.peer());
    let waiting = {
        let (peers, peer) = (peers.clone(), peer.clone());
        tokio::spawn(async move { peers.call(&peer, &WAIT, b"", Bytes::new(), within(5.0)).await.map(drop) })
    };
    until(|| running.begun() == 1).await;
    // A small body is read and dropped, a large one costs the connection: the refusal comes through all the same.
    for length in [0, 1000, 16 << 20] {
        let error = peers.call(&peer, &ECHO, b"head", pattern(length), within(5.0)).await.unwrap_err();
        assert_eq!(error.refusal().map(|refusal| refusal.kind), Some(RefusalKind::Busy), "{length}: {error}");
        assert_eq!(error.fate(), Fate::NotSent);
    }
    assert_eq!(running.begun(), 1);
    running.handler.gate.add_permits(1);
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn connections_are_bounded_on_both_sides() {
    let settings = ServerSettings { connections_per_peer_max: 2, ..ServerSettings::default() };
    let running = start_as(hello(CLUSTER, SERVER, 1), Security::Plain, settings).await;
    let settings = ClientSettings { connections_max: 3, waiting_max: 1, ..ClientSettings::default() };
    let (peers, peer) = (Peers::new(hello(CLUSTER, CALLER, 7), Security::Plain, settings), running.peer());
    let call = |seconds| {
        let (peers, peer) = (peers.clone(), peer.clone());
        tokio::spawn(async move { peers.call(&peer, &WAIT, b"", Bytes::new(), within(seconds)).await.map(drop) })
    };
    let both = [call(10.0), call(10.0)];
    until(|| running.begun() == 2).await;
    // The third connection is one too many for the server.
    let error = call(10.0).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("as many as it may") && error.fate() == Fate::NotSent, "{error}");
    running.handler.gate.add_permits(2);
    for call in both {
        call.await.unwrap().unwrap();
    }

    let settings = ClientSettings { connections_max: 1, waiting_max: 1, ..ClientSettings::default() };
    let other = start(Security::Plain).await;
    let (peers, peer) = (Peers::new(hello(CLUSTER, CALLER, 7), Security::Plain, settings), other.peer());
    let call = |seconds| {
        let (peers, peer) = (peers.clone(), peer.clone());
        tokio::spawn(async move { peers.call(&peer, &WAIT, b"", Bytes::new(), within(seconds)).await.map(drop) })
    };
    let first = call(10.0);
    until(|| other.begun() == 1).await;
    let second = call(0.2);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begun = Instant::now();
    let third = call(10.0).await.unwrap().unwrap_err();
    assert!(matches!(third, CallError::Crowded { .. }) && begun.elapsed() < Duration::from_millis(100), "{third}");
    let second = second.await.unwrap().unwrap_err();
    assert!(matches!(second, CallError::Crowded { .. }) && second.fate() == Fate::NotSent, "{second}");
    other.handler.gate.add_permits(1);
    first.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_a_method_does_not_take_is_refused_before_it_is_read() {
    let running = start(Security::Plain).await;
    let (peers, peer) = (peers(Security::Plain), running.peer());
    let cases = [
        (&UNKNOWN, 0, 0, RefusalKind::UnknownMethod),
        (&BARE, 17, 0, RefusalKind::TooLarge),
        (&BARE, 16, 1, RefusalKind::TooLarge),
        (&BARE, 1 << 20, 30 << 20, RefusalKind::TooLarge),
    ];
    for (method, head, body, kind) in cases {
        let error = peers.call(&peer, method, &pattern(head), pattern(body), within(5.0)).await.unwrap_err();
        assert_eq!(error.refusal().map(|refusal| refusal.kind), Some(kind), "{error}");
    }
    let error = peers.call(&peer, &ECHO, &pattern((1 << 20) + 1), Bytes::new(), within(5.0)).await.unwrap_err();
    assert!(matches!(error, CallError::LongHead { .. }), "{error}");
    assert_eq!(running.begun(), 0);
    peers.call(&peer, &BARE, &pattern(16), Bytes::new(), within(5.0)).await.unwrap();
}

#[tokio::test]
async fn a_handler_that_panics_costs_its_connection_only() {
    let running = start(Security::Plain).await;
    let (peers, peer) = (peers(Security::Plain), running.peer());
    let (one, two) = (peers.clone(), peer.clone());
    let other = tokio::spawn(async move { one.call(&two, &WAIT, b"", Bytes::new(), within(5.0)).await.map(drop) });
    until(|| running.begun() == 1).await;
    let error = peers.call(&peer, &PANIC, b"", Bytes::new(), within(5.0)).await.unwrap_err();
    assert!(matches!(error, CallError::Broken { .. }) && error.fate() == Fate::Unknown, "{error}");
    peers.call(&peer, &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap();
    running.handler.gate.add_permits(1);
    other.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_ends_lets_its_calls_end_and_begins_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (running, peers) = secured(folder.path()).await;
    let peer = running.peer();
    // An idle connection, and one in use.
    let both = [pattern(1), pattern(2)].map(|body| {
        let (peers, peer) = (peers.clone(), peer.clone());
        tokio::spawn(async move { peers.call(&peer, &ECHO, b"", body, within(5.0)).await.map(drop) })
    });
    for call in both {
        call.await.unwrap().unwrap();
    }
    let waiting = {
        let (peers, peer) = (peers.clone(), peer.clone());
        tokio::spawn(async move { peers.call(&peer, &WAIT, b"", Bytes::new(), within(10.0)).await.map(drop) })
    };
    until(|| running.begun() == 3).await;
    running.ending.cancel();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let error = peers.call(&peer, &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap_err();
    assert_eq!(error.fate(), Fate::NotSent, "{error}");
    assert!(!running.task.is_finished());
    running.handler.gate.add_permits(1);
    waiting.await.unwrap().unwrap();
    drop(peers);
    running.task.await.unwrap();
    assert_eq!(running.handler.begun.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn calls_that_do_not_end_are_cut_off_when_the_server_must() {
    let settings = ServerSettings { drain_max: Duration::from_millis(100), ..ServerSettings::default() };
    let running = start_as(hello(CLUSTER, SERVER, 1), Security::Plain, settings).await;
    let (peers, peer) = (peers(Security::Plain), running.peer());
    let waiting =
        tokio::spawn(async move { peers.call(&peer, &WAIT, b"", Bytes::new(), within(60.0)).await.map(drop) });
    until(|| running.begun() == 1).await;
    running.ending.cancel();
    running.task.await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().fate(), Fate::Unknown);
}

#[tokio::test]
async fn the_caller_s_trace_is_current_in_the_handler_unless_the_head_is_json_or_has_no_room() {
    let running = start(Security::Plain).await;
    let (peers, peer) = (peers(Security::Plain), running.peer());
    let context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01;timer";
    for (head, within_trace, expected) in [
        (&b"\x01head"[..], true, context),
        (&b"\x01head"[..], false, ""),
        (&b"{\"json\":1}"[..], true, ""),
        // The longest head of the method.
        (&[1; 4096][..], true, ""),
    ] {
        let trace = within_trace.then(|| context.parse().unwrap());
        let call = peers.call(&peer, &TRACE, head, Bytes::new(), within(10.0));
        let answer = nigh_trace::scope(trace, call).await.unwrap();
        assert_eq!(answer.body.collect(1 << 10).await.unwrap(), expected);
    }
}
