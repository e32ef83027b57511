//! Who takes part: a server, and clients that send it one kind of request again and again.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use nigh_client::{Address, Conditions};
use nigh_terms::SecretKey;

use crate::LabError;
use crate::instrument::bare_pool::BarePool;
use crate::instrument::cpu_time;
use crate::instrument::http_load::{Connection, header};
use crate::instrument::made_up::failed;
use crate::instrument::node_under_test::NodeUnderTest;
use crate::instrument::peer::redis::RedisConnection;
use crate::instrument::peer::{Peer, PeerProcess, S3Access};
use crate::instrument::platform::{invocations_path, until_pushed};
use crate::instrument::s3_door::S3Door;
use crate::instrument::sign::Signer;

pub(super) const BUCKET: &str = "bench-bucket";
/// What reads ask for.
pub(super) const OBJECT: &str = "object";
pub(super) const FUNCTION: &str = "noop";
pub(super) const HANDLER: &str = "app.handler";
const PAYLOAD: &[u8] = b"{\"ping\":1}";
/// How long Nigh may take to push what a turn wrote.
const PUSHED_WITHIN: Duration = Duration::from_secs(120);

/// Sends one request and waits for its answer.
pub(super) type LoadClient<'a> = Box<dyn FnMut() -> Result<(), String> + Send + 'a>;

pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) calls: Calls,
    pub(super) server: Server,
}

/// What its clients call.
pub(super) enum Calls {
    S3Get { door: S3Door, bytes: usize },
    S3Put { door: S3Door, bytes: usize },
    FastGet { address: Address, access: S3Access, bytes: usize },
    RedisGet { socket: PathBuf, password: SecretKey, bytes: usize },
    RedisSet { socket: PathBuf, password: SecretKey, bytes: usize },
    Invoke { address: SocketAddr, signer: Signer },
    BareInvoke { pool: BarePool, code: PathBuf },
}

/// Whose processor time counts. It ends when this is dropped.
pub(super) enum Server {
    Node(Box<NodeUnderTest>),
    Program(PeerProcess),
    Peer(Box<dyn Peer>),
    /// The server is part of this process.
    ThisProcess,
}

impl Contestant {
    /// `count` clients, each with a connection over which it has called once.
    pub(super) async fn clients(&self, count: usize) -> Result<Vec<LoadClient<'_>>, LabError> {
        let mut clients = Vec::with_capacity(count);
        for number in 0..count {
            let mut client = self.client(number).await?;
            client().map_err(|reason| failed(self.name, &reason))?;
            clients.push(client);
        }
        Ok(clients)
    }

    /// Requests are signed here, once for all calls: a signature is good for minutes.
    async fn client(&self, number: usize) -> Result<LoadClient<'_>, LabError> {
        let own = format!("{OBJECT}-{number}");
        let client: LoadClient<'_> = match &self.calls {
            Calls::S3Get { door, bytes } => {
                let path = format!("/{BUCKET}/{OBJECT}");
                let request = door.signer.signed(Method::GET, door.address, &path, &[], b"").await?;
                by_http(door.address, move |connection| whole(connection.exchange(&request).map_err(reason)?, *bytes))
            }
            Calls::S3Put { door, bytes } => {
                let (path, body) = (format!("/{BUCKET}/{own}"), vec![b'x'; *bytes]);
                let request = door.signer.signed(Method::PUT, door.address, &path, &[], &body).await?;
                by_http(door.address, move |connection| connection.exchange(&request).map(drop).map_err(reason))
            }
            Calls::FastGet { address, access, bytes } => {
                let connect =
                    move || nigh_client::Client::connect(address, &access.access_key, access.secret_key.reveal());
                reopening(connect, move |client| {
                    let view = client.get(BUCKET, OBJECT, &Conditions::default()).map_err(reason)?;
                    whole(view.len() as u64, *bytes)
                })
            }
            Calls::RedisGet { socket, password, bytes } => reopening(
                move || RedisConnection::open(socket, password),
                move |redis| whole(redis.get(OBJECT).map_err(reason)?.len() as u64, *bytes),
            ),
            Calls::RedisSet { socket, password, bytes } => {
                let value = vec![b'x'; *bytes];
                reopening(
                    move || RedisConnection::open(socket, password),
                    move |redis| redis.set(&own, &value).map_err(reason),
                )
            }
            Calls::Invoke { address, signer } => {
                let (path, headers) = (invocations_path(FUNCTION), [("content-type", "application/json")]);
                let request = signer.signed(Method::POST, *address, &path, &headers, PAYLOAD).await?;
                by_http(*address, move |connection| {
                    let (head, _) = connection.fetch(&request).map_err(reason)?;
                    header(&head, "x-amz-function-error").map_or(Ok(()), |kind| Err(kind.to_owned()))
                })
            }
            Calls::BareInvoke { pool, code } => {
                Box::new(move || pool.invoke(FUNCTION, (code.as_path(), HANDLER), PAYLOAD).map(drop))
            }
        };
        Ok(client)
    }

    /// The processor time of its server so far; of a node, without its sandboxes. None if it cannot be told from the generator's.
    pub(super) fn cpu_time(&self) -> Result<Option<Duration>, LabError> {
        let processes = match &self.server {
            Server::Node(node) => vec![node.pid()],
            Server::Program(program) => vec![program.pid()],
            Server::Peer(peer) => peer.processes(),
            Server::ThisProcess => return Ok(None),
        };
        let times = processes.into_iter().map(cpu_time::of_process);
        times.sum::<std::io::Result<Duration>>().map(Some).map_err(|error| failed(self.name, &error))
    }

    /// Waits until a node has pushed what it acknowledged, so that it does not work while others are measured.
    pub(super) async fn settle(&self) -> Result<(), LabError> {
        match &self.server {
            Server::Node(node) => until_pushed(&node.endpoints.admin_socket, PUSHED_WITHIN).await,
            _ => Ok(()),
        }
    }
}

fn by_http<'a>(
    address: SocketAddr,
    call: impl FnMut(&mut Connection) -> Result<(), String> + Send + 'a,
) -> LoadClient<'a> {
    reopening(move || Connection::open(address), call)
}

/// A client that keeps its connection, and opens a new one after a call that failed.
fn reopening<'a, T: Send + 'a, E: std::fmt::Display>(
    open: impl Fn() -> Result<T, E> + Send + 'a,
    mut call: impl FnMut(&mut T) -> Result<(), String> + Send + 'a,
) -> LoadClient<'a> {
    let mut kept = None;
    Box::new(move || -> Result<(), String> {
        let mut connection = kept.take().map_or_else(&open, Ok).map_err(reason)?;
        call(&mut connection)?;
        kept = Some(connection);
        Ok(())
    })
}

fn reason(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn whole(length: u64, expected: usize) -> Result<(), String> {
    if length == expected as u64 { Ok(()) } else { Err(format!("{length} bytes, expected {expected}")) }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_client_keeps_its_connection_until_a_call_fails() {
        let opened = AtomicUsize::new(0);
        let open = || Ok::<_, io::Error>(opened.fetch_add(1, Ordering::Relaxed));
        let mut calls = 0;
        let mut client = reopening(open, move |connection: &mut usize| {
            calls += 1;
            if calls == 3 { Err(format!("{connection} broke")) } else { Ok(()) }
        });
        let answers: Vec<_> = (0..5).map(|_| client()).collect();
        assert_eq!(answers, [Ok(()), Ok(()), Err("0 broke".to_owned()), Ok(()), Ok(())]);
        drop(client);
        assert_eq!(opened.into_inner(), 2);
        let mut refused = reopening(|| Err(io::Error::other("no")), |_: &mut usize| Ok(()));
        assert_eq!(refused(), Err("no".to_owned()));
    }
}
