//! Objects stream through in bounded memory. Measured in a process of its own: what the tests beside it hold would
//! count too.

use std::process::Command;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Request, Response};
use crate::running::Running;
use crate::sign::Payload;

const PIECE: usize = 1 << 20;
/// What buffers on the way may take, whatever the object's length.
const ALLOWED: u64 = 24 << 20;
/// Tells the process that measures how many MiB to send.
const PIECES: &str = "NIGH_TEST_BOUNDED_MIB";

/// What this process holds for itself, without files and shared memory, where segments live.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// A put of `pieces` MiB: its head, and what stands before and behind the bytes on the wire.
fn upload(door: &Running, pieces: usize, piece: &[u8], chunked: bool) -> (Vec<u8>, String, String) {
    let length = pieces * PIECE;
    let request = Request::new("PUT", "/bucket/large");
    if !chunked {
        let request = request.header("content-length", &length.to_string());
        return (door.signer.sign_length(request, Payload::Unsigned, length).head(), String::new(), String::new());
    }
    // One unsigned chunk for all of it, as some SDKs send.
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32IsoHdlc);
    (0..pieces).for_each(|_| digest.update(piece));
    let crc = BASE64_STANDARD.encode((digest.finalize() as u32).to_be_bytes());
    let (before, behind) = (format!("{length:x}\r\n"), format!("\r\n0\r\nx-amz-checksum-crc32:{crc}\r\n\r\n"));
    let request = request
        .header("content-length", &(before.len() + length + behind.len()).to_string())
        .trailer("x-amz-checksum-crc32", &crc);
    (door.signer.sign_length(request, Payload::UnsignedChunksAndTrailer, length).head(), before, behind)
}

/// Streams an object up and down; gives the most that the process grew by meanwhile.
async fn growth(pieces: usize, chunked: bool) -> u64 {
    let door = Running::with_bucket().await;
    let piece = vec![5u8; PIECE];
    let (head, before, behind) = upload(&door, pieces, &piece, chunked);
    let base = anonymous_bytes();
    let mut most = 0;
    let mut stream = door.connect().await;
    stream.write_all(&head).await.unwrap();
    stream.write_all(before.as_bytes()).await.unwrap();
    for _ in 0..pieces {
        stream.write_all(&piece).await.unwrap();
        most = most.max(anonymous_bytes().saturating_sub(base));
    }
    stream.write_all(behind.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = Response::parse(&answer);
    assert_eq!(answer.status, 200, "{}", answer.text());

    let get = door.signer.sign(Request::new("GET", "/bucket/large"), Payload::Signed);
    let mut stream = door.connect().await;
    stream.write_all(&get.head()).await.unwrap();
    let (mut buffer, mut received) = (vec![0; PIECE], 0);
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        if read == 0 {
            break;
        }
        received += read;
        most = most.max(anonymous_bytes().saturating_sub(base));
    }
    assert!((pieces * PIECE..pieces * PIECE + 1000).contains(&received), "{received}");
    most
}

fn measure_alone(pieces: usize) {
    let alone = Command::new(std::env::current_exe().unwrap())
        .args(["bounded::streaming_grows_the_process_by_little", "--exact", "--ignored", "--nocapture"])
        .env(PIECES, pieces.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&alone.stdout);
    assert!(alone.status.success(), "{said}{}", String::from_utf8_lossy(&alone.stderr));
    assert_eq!(said.matches("grew by").count(), 2, "{said}");
}

#[tokio::test]
#[ignore = "run in a process of its own by the tests below"]
async fn streaming_grows_the_process_by_little() {
    let pieces = std::env::var(PIECES).unwrap().parse().unwrap();
    for chunked in [false, true] {
        let grown = growth(pieces, chunked).await;
        println!("{pieces} MiB, chunked {chunked}: grew by {} KiB", grown >> 10);
        assert!(grown < ALLOWED, "grew by {grown} bytes");
    }
}

#[test]
fn an_object_of_64_mib_streams_through_in_bounded_memory() {
    measure_alone(64);
}

#[test]
#[ignore = "moves two gigabytes; run by hand"]
fn an_object_of_512_mib_streams_through_in_bounded_memory() {
    measure_alone(512);
}
