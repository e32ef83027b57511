//! The real peers: each starts, does what it is for, and leaves no process behind.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking and may talk")]

#[path = "../../../tests/skipped.rs"]
mod skipped;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use http::Method;
use nigh_engine::Registry as _;
use nigh_engine::nats::{Cluster, NatsRegistry};
use nigh_lab::instrument::http_load::Connection;
use nigh_lab::instrument::peer::nats::NatsCluster;
use nigh_lab::instrument::peer::redis::Redis;
use nigh_lab::instrument::peer::s3_server::S3Server;
use nigh_lab::instrument::peer::{Peer, PeerError, S3Access};
use nigh_lab::instrument::sign::Signer;

use self::skipped::skip;

/// The peer, if it is installed.
fn started<P: Peer>(test: &str, peer: Result<P, PeerError>) -> Option<P> {
    match peer {
        Ok(peer) => {
            println!("{} {}", peer.name(), peer.version());
            assert!(peer.version().contains('.'), "{} tells its version", peer.name());
            assert!(!peer.processes().is_empty());
            Some(peer)
        }
        Err(missing @ PeerError::NotInstalled { .. }) => {
            skip(test, missing);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn ends_with_all_its_processes(peer: impl Peer) {
    let processes = peer.processes();
    drop(peer);
    for pid in processes {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} is left");
    }
}

async fn keeps_objects(s3: &S3Access) {
    let address = s3.endpoint.trim_start_matches("http://").parse().unwrap();
    let right = s3.signer();
    let body = vec![7; 100_000];
    // A connection each: versitygw closes the one that made a bucket.
    for (path, body) in [("/bucket", &[][..]), ("/bucket/a/b", &body)] {
        let request = right.signed(Method::PUT, address, path, &[], body).await.unwrap();
        Connection::open(address).unwrap().exchange(&request).unwrap();
    }
    let request = right.signed(Method::GET, address, "/bucket/a/b", &[], b"").await.unwrap();
    assert_eq!(Connection::open(address).unwrap().fetch(&request).unwrap().1, body);
    let wrong = Signer::new("s3", &s3.region, &s3.access_key, "another");
    let request = wrong.signed(Method::GET, address, "/bucket/a/b", &[], b"").await.unwrap();
    assert!(Connection::open(address).unwrap().fetch(&request).unwrap_err().to_string().contains("403"));
}

#[tokio::test]
async fn minio_keeps_objects_and_leaves_no_process_behind() {
    let folder = tempfile::tempdir().unwrap();
    let test = "minio_keeps_objects_and_leaves_no_process_behind";
    let Some(minio) = started(test, S3Server::minio(folder.path())) else { return };
    keeps_objects(minio.s3()).await;
    ends_with_all_its_processes(minio);
}

#[tokio::test]
async fn versitygw_keeps_objects_and_leaves_no_process_behind() {
    let folder = tempfile::tempdir().unwrap();
    let test = "versitygw_keeps_objects_and_leaves_no_process_behind";
    let Some(versity) = started(test, S3Server::versitygw(folder.path())) else { return };
    keeps_objects(versity.s3()).await;
    ends_with_all_its_processes(versity);
}

/// Sends `request` to a port of loopback and gives what comes back, of as many bytes as are expected.
fn ask(port: u16, request: &str, expected: usize) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = vec![0; expected];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn redis_keeps_values_for_who_knows_the_password_and_leaves_no_process_behind() {
    let folder = tempfile::tempdir().unwrap();
    let test = "redis_keeps_values_for_who_knows_the_password_and_leaves_no_process_behind";
    let Some(redis) = started(test, Redis::start(folder.path())) else { return };
    let request = format!("AUTH {}\r\nSET a b\r\nGET a\r\n", redis.password().reveal());
    let expected = "+OK\r\n+OK\r\n$1\r\nb\r\n";
    assert_eq!(ask(redis.port(), &request, expected.len()), expected);
    assert_eq!(ask(redis.port(), "GET a\r\n", 7), "-NOAUTH");
    redis.set("c/d", b"e\r\nf").unwrap();
    let request = format!("AUTH {}\r\nGET c/d\r\n", redis.password().reveal());
    assert_eq!(ask(redis.port(), &request, 15), "+OK\r\n$4\r\ne\r\nf\r\n");
    ends_with_all_its_processes(redis);
}

#[test]
fn a_cluster_of_nats_servers_answers_and_leaves_no_process_behind() {
    let folder = tempfile::tempdir().unwrap();
    let test = "a_cluster_of_nats_servers_answers_and_leaves_no_process_behind";
    let Some(nats) = started(test, NatsCluster::start(folder.path())) else { return };
    assert_eq!(nats.processes().len(), 3);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let registry = NatsRegistry::open(Cluster::connect(nats.settings()).await.unwrap()).await.unwrap();
        registry.put("t", "a", b"value".to_vec(), None).await.unwrap();
        assert_eq!(registry.get("t", "a").await.unwrap().unwrap().value, b"value");
    });
    ends_with_all_its_processes(nats);
}

#[test]
fn nats_answers_who_shows_the_token_and_leaves_no_process_behind() {
    let folder = tempfile::tempdir().unwrap();
    let test = "nats_answers_who_shows_the_token_and_leaves_no_process_behind";
    let Some(nats) = started(test, NatsCluster::start(folder.path())) else { return };
    let address = nats.settings().servers[0].trim_start_matches("nats://").to_owned();
    let answer = |token: &str| {
        let mut stream = BufReader::new(TcpStream::connect(&address).unwrap());
        stream.get_ref().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (mut info, mut answer) = (String::new(), String::new());
        stream.read_line(&mut info).unwrap();
        assert!(info.contains("\"jetstream\":true"), "{info}");
        let request = format!("CONNECT {{\"auth_token\":\"{token}\",\"verbose\":false}}\r\nPING\r\n");
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        stream.read_line(&mut answer).unwrap();
        answer
    };
    assert_eq!(answer(nats.token().reveal()), "PONG\r\n");
    assert!(answer("another").contains("Authorization Violation"));
    ends_with_all_its_processes(nats);
}
