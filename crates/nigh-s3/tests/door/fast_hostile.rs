//! Clients of the fast path that mean harm, or have lost their mind: what they do hurts nobody else.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use md5::{Digest, Md5};
use nigh_client::{Address, ClientError, Conditions, Connection, Headers};
use nigh_s3::FastPathLimits;
use nigh_terms::{ByteSize, Hex};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::{Value, json};

use crate::fast_path::{LARGE, aside, client, connection, limits, proof, serve};
use crate::running::Running;
use crate::sign::Signer;

const CREATE: u8 = 5;
const COMMIT: u8 = 6;
const RELEASE: u8 = 7;
const FAREWELL: u8 = 2;

/// One whole get, by a client that means well.
fn works(address: &Address, signer: &Signer) {
    let mut client = client(address, signer);
    assert_eq!(client.get("bucket", "k", &Conditions::default()).unwrap().len(), LARGE);
}

async fn with_object() -> (Running, Address, Signer) {
    with_object_and(limits()).await
}

async fn with_object_and(limits: FastPathLimits) -> (Running, Address, Signer) {
    let door = Running::with_bucket().await;
    let address = serve(&door, "fast.sock", limits, None);
    door.put("/bucket/k", vec![5; LARGE]).await;
    let signer = door.signer.clone();
    (door, address, signer)
}

fn packet(operation: u8, json: &[u8], json_length: u32, body_length: u32) -> Vec<u8> {
    let mut packet = vec![1, operation, 0, 0, 9, 0, 0, 0];
    packet.extend(json_length.to_le_bytes());
    packet.extend(body_length.to_le_bytes());
    packet.extend(json);
    packet
}

/// What the node says last, and that it hangs up behind it.
fn farewell(mut connection: Connection) -> Value {
    let last = connection.receive().unwrap();
    assert_eq!(last.kind, FAREWELL, "{last:?}");
    assert!(matches!(connection.receive(), Err(ClientError::Io { .. })), "it hangs up");
    last.json.into()
}

#[tokio::test]
async fn what_is_no_protocol_ends_its_connection_and_no_other() {
    let (_door, address, signer) = with_object().await;
    aside(move || {
        let good = br#"{"bucket":"bucket","key":"k"}"#;
        let length = good.len() as u32;
        for wrong in [
            vec![0],
            vec![1; 15],
            packet(2, good, 1 << 30, 0),
            packet(2, good, length, 1 << 30),
            packet(2, good, length - 1, 0),
            packet(2, good, length, 1),
            packet(99, good, length, 0),
            packet(2, b"{}", 2, 0),
            packet(2, b"\xff\xff", 2, 0),
            packet(2, &[b'['; 60_000], 60_000, 0),
            packet(1, good, length, 0),
            packet(5, br#"{"length":99999999999999999999}"#, 31, 0),
        ] {
            let connection = connection(&address, &signer);
            connection.send_parts(&[&wrong], &[]).unwrap();
            let said = farewell(connection);
            assert_eq!((&said["status"], &said["code"]), (&json!(400), &json!("MalformedPacket")), "{wrong:?}");
        }
        works(&address, &signer);
    })
    .await;
}

#[tokio::test]
async fn nobody_is_served_before_a_proof_and_no_proof_serves_twice() {
    let (_door, address, signer) = with_object().await;
    aside(move || {
        let mut first = Connection::open(&address).unwrap();
        let nonce = first.receive().unwrap().json["nonce"].as_str().unwrap().to_owned();
        first.send(2, 1, &json!({ "bucket": "bucket", "key": "k" }), b"").unwrap();
        assert_eq!(farewell(first)["code"], "AccessDenied");
        let replayed = proof(&signer.secret, &nonce);
        for mac in [replayed.as_str(), "", "zz", "00"] {
            let mut second = Connection::open(&address).unwrap();
            assert_ne!(second.receive().unwrap().json["nonce"], nonce.as_str());
            second.send(1, 1, &json!({ "access_key": signer.key, "mac": mac }), b"").unwrap();
            assert_eq!(farewell(second)["code"], "SignatureDoesNotMatch");
        }
    })
    .await;
}

#[tokio::test]
async fn a_segment_that_is_not_committed_in_time_is_taken_back_and_makes_room() {
    let (_door, address, signer) =
        with_object_and(FastPathLimits { loan: Duration::from_millis(200), ..limits() }).await;
    aside(move || {
        let mut client = client(&address, &signer);
        let forgotten: Vec<_> = (0..16).map(|_| client.create("bucket", "late", 1).unwrap()).collect();
        let begin = Instant::now();
        // All places of the connection are taken, until the node takes them back.
        while let Err(refused) = client.create("bucket", "next", 1) {
            assert_eq!(refused.code(), Some("SlowDown"), "{refused}");
            assert!(begin.elapsed() < Duration::from_secs(60), "they hold their places for ever");
            std::thread::sleep(Duration::from_millis(20));
        }
        let first = forgotten.into_iter().next().unwrap();
        let refused = first.commit(&mut client, &Headers::new()).unwrap_err();
        assert_eq!(refused.code(), Some("NoSuchHandle"), "{refused}");
        works(&address, &signer);
    })
    .await;
}

#[tokio::test]
async fn handles_that_are_guessed_reach_nothing() {
    let (_door, address, signer) = with_object().await;
    aside(move || {
        let mut owner = client(&address, &signer);
        let mut created = owner.create("bucket", "made", LARGE as u64).unwrap();
        let mut thief = connection(&address, &signer);
        for handle in [0, 1, created.handle(), created.handle() + 1, u64::MAX] {
            thief.send(COMMIT, 3, &json!({ "handle": handle, "bucket": "bucket", "key": "stolen" }), b"").unwrap();
            assert_eq!(thief.receive().unwrap().json["code"], "NoSuchHandle");
            thief.send(RELEASE, 4, &json!({ "handle": handle }), b"").unwrap();
            thief.send(8, 5, &json!({ "handle": handle }), b"").unwrap();
        }
        created.fill(1);
        created.commit(&mut owner, &Headers::new()).unwrap();
        assert_eq!(owner.get("bucket", "made", &Conditions::default()).unwrap()[..], [1; LARGE]);
    })
    .await;
}

#[tokio::test]
async fn a_client_s_own_memory_is_never_taken_and_never_kept_open() {
    let (_door, address, signer) = with_object().await;
    aside(move || {
        let connection = connection(&address, &signer);
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let own = rustix::fs::memfd_create("own", MemfdFlags::CLOEXEC).unwrap();
        let request = br#"{"bucket":"bucket","key":"k"}"#;
        let packet = packet(3, request, request.len() as u32, 0);
        connection.send_parts(&[&packet], &[own.as_fd(), write.as_fd()]).unwrap();
        let mut connection = connection;
        assert_eq!(connection.receive().unwrap().json["status"], 200, "the request is one without them");
        drop(write);
        // Nobody has the pipe's other end: it says so at once.
        assert_eq!(rustix::io::read(&read, &mut [0; 1]).unwrap(), 0);
    })
    .await;
}

#[tokio::test]
async fn what_is_mapped_for_writing_is_not_committed_and_what_is_committed_is_written_by_nobody() {
    let (_door, address, signer) = with_object().await;
    aside(move || {
        let mut connection = connection(&address, &signer);
        connection.send(CREATE, 2, &json!({ "length": LARGE }), b"").unwrap();
        let created = connection.receive().unwrap();
        let handle = created.json["handle"].as_u64().unwrap();
        let mut file = std::fs::File::from(created.descriptor.unwrap());
        assert!(file.set_len(1).is_err() && file.set_len(1 << 30).is_err(), "truncation and growth");
        // SAFETY: the file's length cannot change; only this test writes to it.
        let mut map = unsafe { memmap2::MmapMut::map_mut(&file) }.unwrap();
        map.fill(3);
        let commit = json!({ "handle": handle, "bucket": "bucket", "key": "made" });
        connection.send(COMMIT, 3, &commit, b"").unwrap();
        let busy = connection.receive().unwrap().json;
        assert_eq!((&busy["status"], &busy["code"]), (&json!(409), &json!("SegmentBusy")));
        // Unmapped while the node tries, as a client does that only begins to let go.
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(map);
        });
        connection.send(COMMIT, 4, &commit, b"").unwrap();
        assert_eq!(connection.receive().unwrap().json["status"], 200);
        late.join().unwrap();
        assert!(file.write_all(b"late").is_err());
        // SAFETY: never reached with a mapping: the seal refuses it.
        assert!(unsafe { memmap2::MmapMut::map_mut(&file) }.is_err());
        assert_eq!(client(&address, &signer).get("bucket", "made", &Conditions::default()).unwrap()[..], [3; LARGE]);
    })
    .await;
}

#[tokio::test]
async fn writers_that_race_with_the_seal_change_nothing_that_was_hashed() {
    let (door, address, signer) = with_object().await;
    aside(move || {
        for round in 0..10u8 {
            let mut connection = connection(&address, &signer);
            connection.send(CREATE, 2, &json!({ "length": LARGE }), b"").unwrap();
            let created = connection.receive().unwrap();
            let handle = created.json["handle"].as_u64().unwrap();
            let file = std::fs::File::from(created.descriptor.unwrap());
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    use std::os::unix::fs::FileExt;
                    let mut wrote = 0u64;
                    while file.write_all_at(&[round + 1; 4096], (wrote * 4096) % 200_000).is_ok() {
                        wrote += 1;
                    }
                });
                let commit = json!({ "handle": handle, "bucket": "bucket", "key": "raced" });
                connection.send(COMMIT, 3, &commit, b"").unwrap();
                let done = connection.receive().unwrap().json;
                assert_eq!(done["status"], 200, "{done:?}");
                writer.join().unwrap();
            });
        }
    })
    .await;
    let got = door.get("/bucket/raced").await;
    assert_eq!(got.header("etag"), format!("\"{}\"", Hex(&Md5::digest(&got.body))));
}

#[tokio::test]
async fn a_segment_that_its_client_seals_itself_is_refused_and_counts_until_it_lets_go() {
    let (_door, address, signer) = with_object_and(FastPathLimits { held: ByteSize(512 * 1024), ..limits() }).await;
    aside(move || {
        let mut connection = connection(&address, &signer);
        connection.send(CREATE, 2, &json!({ "length": LARGE }), b"").unwrap();
        let created = connection.receive().unwrap();
        let file = created.descriptor.unwrap();
        rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL).unwrap();
        let commit = json!({ "handle": created.json["handle"], "bucket": "bucket", "key": "made" });
        connection.send(COMMIT, 3, &commit, b"").unwrap();
        assert_eq!(connection.receive().unwrap().json["code"], "SegmentRefused");
        connection.send(CREATE, 4, &json!({ "length": LARGE }), b"").unwrap();
        assert_eq!(connection.receive().unwrap().json["code"], "SlowDown", "its memory is still there");
        drop(file);
        // The node notices it a moment later.
        let is_free = (5..100).any(|request| {
            connection.send(CREATE, request, &json!({ "length": LARGE }), b"").unwrap();
            let is_free = connection.receive().unwrap().json["status"] == 200;
            if !is_free {
                std::thread::sleep(Duration::from_millis(50));
            }
            is_free
        });
        assert!(is_free, "it has let go");
    })
    .await;
}

#[tokio::test]
async fn segments_to_be_filled_are_bounded_in_number_and_in_bytes() {
    let (_door, address, signer) = with_object().await;
    aside(move || {
        let mut connection = connection(&address, &signer);
        let mut lent = 0;
        loop {
            connection.send(CREATE, 2, &json!({ "length": 4096 }), b"").unwrap();
            let answer = connection.receive().unwrap();
            match answer.json["status"].as_u64() {
                Some(200) => lent += 1,
                Some(503) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(lent, 16);
        // They are given up with their connection.
        drop(connection);
        works(&address, &signer);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_has_said_its_last_word_gets_its_answers() {
    let (_door, address, signer) = with_object().await;
    aside(move || {
        let mut connection = connection(&address, &signer);
        connection.send(2, 2, &json!({ "bucket": "bucket", "key": "k" }), b"").unwrap();
        connection.send(4, 3, &json!({ "bucket": "bucket", "key": "last", "headers": {} }), b"word").unwrap();
        rustix::net::shutdown(&connection, rustix::net::Shutdown::Write).unwrap();
        let mut statuses = [connection.receive().unwrap(), connection.receive().unwrap()]
            .map(|answer| (answer.id, answer.json["status"].clone()));
        statuses.sort_by_key(|(id, _)| *id);
        assert_eq!(statuses, [(2, json!(200)), (3, json!(200))]);
        assert!(connection.receive().is_err());
        assert_eq!(client(&address, &signer).get("bucket", "last", &Conditions::default()).unwrap()[..], *b"word");
    })
    .await;
}

#[tokio::test]
async fn a_client_that_takes_no_answers_is_cut_off_and_holds_nobody_up() {
    let patience = FastPathLimits { send_silence: Duration::from_millis(500), ..limits() };
    let (_door, address, signer) = with_object_and(patience).await;
    aside(move || {
        let deaf = connection(&address, &signer);
        rustix::fs::fcntl_setfl(&deaf, rustix::fs::OFlags::NONBLOCK).unwrap();
        let began = Instant::now();
        let (mut asked, mut blocked) = (0, false);
        loop {
            match deaf.send(2, asked, &json!({ "bucket": "bucket", "key": "k", "range": "bytes=0-65000" }), b"") {
                Ok(()) => asked += 1,
                Err(ClientError::Io { reason, .. }) if reason.kind() == std::io::ErrorKind::WouldBlock => {
                    // The node reads no further: others are served meanwhile.
                    if !blocked {
                        works(&address, &signer);
                    }
                    blocked = true;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(_) => break,
            }
            assert!(began.elapsed() < Duration::from_secs(30), "it is not cut off");
        }
        assert!(blocked && asked < 10_000, "{asked} requests were taken");
        works(&address, &signer);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_does_not_say_who_it_is_is_cut_off() {
    let hurry = FastPathLimits { hello: Duration::from_millis(200), ..limits() };
    let (_door, address, signer) = with_object_and(hurry).await;
    aside(move || {
        let mut silent = Connection::open(&address).unwrap();
        silent.receive().unwrap();
        assert!(matches!(silent.receive(), Err(ClientError::Io { .. })));
        let mut known = client(&address, &signer);
        std::thread::sleep(Duration::from_millis(400));
        assert!(known.get("bucket", "k", &Conditions::default()).is_ok(), "who is known may be silent");
    })
    .await;
}

fn try_connect(path: &std::path::Path) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).ok()?;
    Some(socket)
}

#[tokio::test]
async fn of_ten_thousand_connections_few_are_taken_up_and_the_next_client_is_served() {
    const PLACES: usize = 20;
    const BACKLOG: usize = 128;
    let few = FastPathLimits { connections: PLACES, ..limits() };
    let (_door, address, signer) = with_object_and(few).await;
    let Address::File(path) = address.clone() else { panic!() };
    aside(move || {
        let connected: Vec<_> = (0..10_000).filter_map(|_| try_connect(&path)).collect();
        // One more may be in the hands of whoever takes them up, and the kernel counts its backlog from zero.
        assert!(connected.len() <= PLACES + BACKLOG + 2, "{} connections", connected.len());
        assert!(connected.len() >= BACKLOG);
        drop(connected);
        works(&address, &signer);
    })
    .await;
}
