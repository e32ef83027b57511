//! Clients of the race: of Nigh's S3 door, of an S3 service, and of Swift by its own API. Each has one connection.

use std::net::SocketAddr;

use http::Method;

use super::BUCKET;
use super::verdict::OutsideFinding;
use crate::LabError;
use crate::experiment::client_calls::{CallOutcome, Caller, Door, exchange};
use crate::instrument::http_load::Connection;

#[derive(Clone, Debug)]
pub(super) struct SwiftAccount {
    pub(super) server: SocketAddr,
    /// The path of the account: `/v1/AUTH_test`.
    pub(super) path: String,
    pub(super) token: String,
}

pub(super) enum ClientEndpoint {
    S3(Box<Door>),
    Swift(SwiftAccount),
}

pub(super) enum Client<'a> {
    S3(Caller<'a>),
    Swift { account: &'a SwiftAccount, connection: Option<Connection> },
}

impl ClientEndpoint {
    pub(super) const fn client(&self) -> Client<'_> {
        match self {
            Self::S3(door) => Client::S3(Caller::new(door)),
            Self::Swift(account) => Client::Swift { account, connection: None },
        }
    }
}

impl Client<'_> {
    /// Sends one request. Blocks.
    fn call(&mut self, method: &Method, key: &str, body: &[u8]) -> Result<CallOutcome, LabError> {
        match self {
            Self::S3(caller) => caller.call(method, &format!("/{BUCKET}/{key}"), &[], body),
            Self::Swift { account: SwiftAccount { server, path, token }, connection } => {
                let length = body.len();
                let mut request = format!(
                    "{method} {path}/{BUCKET}/{key} HTTP/1.1\r\nhost: {server}\r\nx-auth-token: {token}\r\n\
                     content-length: {length}\r\n\r\n"
                )
                .into_bytes();
                request.extend_from_slice(body);
                Ok(exchange(connection, || Connection::open(*server), &request))
            }
        }
    }

    /// What is at `key`, or why that is not told.
    pub(super) fn get(&mut self, key: &str) -> Result<Result<OutsideFinding, String>, LabError> {
        let found = self.call(&Method::GET, key, b"")?.body();
        Ok(found.map(|body| body.map_or(OutsideFinding::Absent, |body| seen(key, &body))))
    }

    /// That the write `id` of `bytes` bytes was acknowledged, or why not.
    pub(super) fn put(&mut self, key: &str, id: u64, bytes: usize) -> Result<Result<(), String>, LabError> {
        let put = self.call(&Method::PUT, key, &body(key, id, bytes))?.body();
        Ok(put.and_then(|done| done.map(drop).ok_or_else(|| "404".to_owned())))
    }

    /// That the deletion was acknowledged, or why not. One of nothing is.
    pub(super) fn delete(&mut self, key: &str) -> Result<Result<(), String>, LabError> {
        Ok(self.call(&Method::DELETE, key, b"")?.body().map(drop))
    }
}

/// Bytes that tell which write they are of, all of them.
fn body(key: &str, id: u64, bytes: usize) -> Vec<u8> {
    let mut body = format!("{key} {id} {bytes}\n").into_bytes();
    let head = body.len();
    body.extend((0..bytes).map(|at| (id as usize).wrapping_mul(31).wrapping_add(at) as u8));
    debug_assert_eq!(body.len(), head + bytes);
    body
}

/// The write that a body is of. A key kept apart holds the body of another.
pub(super) fn seen(key: &str, found: &[u8]) -> OutsideFinding {
    let head = found.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let head = String::from_utf8_lossy(head);
    let mut words = head.split(' ');
    let (of, id, bytes) = (words.next(), words.next(), words.next());
    let (Some(of), Some(Ok(id)), Some(Ok(bytes))) = (of, id.map(str::parse), bytes.map(str::parse)) else {
        return OutsideFinding::Mixed;
    };
    if bytes <= found.len() && key.starts_with(of) && found == body(of, id, bytes) {
        OutsideFinding::Write(id)
    } else {
        OutsideFinding::Mixed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_tells_its_write() {
        for bytes in [0, 1, 5000] {
            let mut whole = body("k1", 7, bytes);
            assert_eq!(seen("k1", &whole), OutsideFinding::Write(7));
            assert_eq!(seen("k1.nigh-conflict-1-2", &whole), OutsideFinding::Write(7));
            assert_eq!(seen("k2", &whole), OutsideFinding::Mixed);
            whole.push(0);
            assert_eq!(seen("k1", &whole), OutsideFinding::Mixed);
        }
        let mut torn = body("k1", 7, 100);
        torn[50] ^= 1;
        assert_eq!(seen("k1", &torn), OutsideFinding::Mixed);
        assert_eq!(seen("k1", b""), OutsideFinding::Mixed);
    }
}
