//! The servers of one kind of request: Nigh's node, and the peers that are installed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use http::Method;
use nigh_client::Address;
use tempfile::TempDir;

use super::contestant::{BUCKET, Calls, Contestant, FUNCTION, OBJECT, Server};
use super::rates::{Request, RequestKind};
use super::report::SkippedSide;
use crate::LabError;
use crate::bench::{ECHO, code_folder, deployment};
use crate::instrument::bare_pool::BarePool;
use crate::instrument::error::Tried;
use crate::instrument::node_under_test::{NodeUnderTest, python, set, settings, socket_address};
use crate::instrument::peer::redis::Redis;
use crate::instrument::peer::s3_server::S3Server;
use crate::instrument::peer::{Peer, PeerError, PeerProcess, S3Access, bare_s3s, if_installed};
use crate::instrument::platform::LambdaClient;
use crate::instrument::programs;
use crate::instrument::s3_door::S3Door;
use crate::instrument::sign::Signer;

/// Nigh's name in every table; it is the first contestant.
pub(super) const NIGH: &str = "nigh";
const BARE_S3S: &str = "bare s3s";
const BARE_RUNTIME: &str = "awslambdaric, bare server";
const REDIS: &str = "Redis";
const REDIS_SYNCED: &str = "Redis, appendfsync always";
/// Of the function.
const BOOKED_MB: u64 = 128;

pub(super) struct Stage {
    pub(super) contestants: Vec<Contestant>,
    pub(super) skipped: Vec<SkippedSide>,
    /// Versions of the peers.
    pub(super) peers: BTreeMap<String, String>,
    request: &'static str,
    /// Deleted when the servers have ended.
    work: TempDir,
}

impl Stage {
    /// Starts the servers with their files below `folder`, and puts what `request` reads or runs.
    pub(super) async fn set(request: &Request, folder: &Path) -> Result<Self, LabError> {
        let work = tempfile::tempdir_in(folder).at(folder)?;
        let (contestants, skipped, peers) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut stage = Self { contestants, skipped, peers, request: request.name, work };
        match request.kind {
            RequestKind::Get(bytes) => stage.set_gets(bytes).await?,
            RequestKind::Put(bytes) => stage.set_puts(bytes).await?,
            RequestKind::FastGet(bytes) => stage.set_fast_gets(bytes).await?,
            RequestKind::Invoke => stage.set_invocations().await?,
        }
        Ok(stage)
    }

    async fn set_gets(&mut self, bytes: usize) -> Result<(), LabError> {
        let node = self.node(&toml::Table::new())?;
        let door = door_with_object(&node.s3_access(), bytes).await?;
        self.add(NIGH, Calls::S3Get { door, bytes }, Server::Node(Box::new(node)));

        let (bare, door) = start_bare_s3s()?;
        put_object(&door, bytes).await?;
        self.add(BARE_S3S, Calls::S3Get { door, bytes }, Server::Program(bare));

        let minio = self.started("MinIO", S3Server::minio(&self.work.path().join("minio")))?;
        let server = match minio {
            Some(minio) => Some(minio),
            None => self.started("versitygw", S3Server::versitygw(&self.work.path().join("versitygw")))?,
        };
        if let Some(server) = server {
            let door = door_with_object(server.s3(), bytes).await?;
            self.add_peer(server.name(), Calls::S3Get { door, bytes }, server);
        }
        Ok(())
    }

    /// versitygw does not sync what it acknowledges, and takes no part.
    async fn set_puts(&mut self, bytes: usize) -> Result<(), LabError> {
        let node = self.node(&toml::Table::new())?;
        let door = door_with_object(&node.s3_access(), bytes).await?;
        self.add(NIGH, Calls::S3Put { door, bytes }, Server::Node(Box::new(node)));

        let (bare, door) = start_bare_s3s()?;
        self.add(BARE_S3S, Calls::S3Put { door, bytes }, Server::Program(bare));

        if let Some(minio) = self.started("MinIO", S3Server::minio(&self.work.path().join("minio")))? {
            let door = door_with_object(minio.s3(), bytes).await?;
            self.add_peer(minio.name(), Calls::S3Put { door, bytes }, minio);
        }
        if let Some(redis) = self.started(REDIS_SYNCED, Redis::start_synced(&self.work.path().join("redis")))? {
            let (socket, password) = (redis.socket().to_owned(), redis.password().clone());
            self.add_peer(REDIS_SYNCED, Calls::RedisSet { socket, password, bytes }, redis);
        }
        Ok(())
    }

    async fn set_fast_gets(&mut self, bytes: usize) -> Result<(), LabError> {
        let node = self.node(&toml::Table::new())?;
        let access = node.s3_access();
        door_with_object(&access, bytes).await?;
        let socket = node.endpoints.fast_socket.clone();
        let socket = socket.ok_or_else(|| LabError::Node("it has no fast path".to_owned()))?;
        let calls = Calls::FastGet { address: Address::File(socket), access, bytes };
        self.add(NIGH, calls, Server::Node(Box::new(node)));

        if let Some(redis) = self.started(REDIS, Redis::start(&self.work.path().join("redis")))? {
            redis.set(OBJECT, &vec![b'x'; bytes])?;
            let (socket, password) = (redis.socket().to_owned(), redis.password().clone());
            self.add_peer(REDIS, Calls::RedisGet { socket, password, bytes }, redis);
        }
        Ok(())
    }

    async fn set_invocations(&mut self) -> Result<(), LabError> {
        let python = python()?;
        let code = code_folder(self.work.path(), "code", ECHO)?;
        let mut settings = settings(None, &python);
        // All sandboxes that take part are started before anything is measured.
        set(&mut settings, &[("functions.prewarm", "off")]);
        let node = self.node(&settings)?;
        LambdaClient::connect(&node)?.deploy(&deployment(FUNCTION, &code, BOOKED_MB)).await?;
        let calls = Calls::Invoke { address: node.lambda()?, signer: node.signer("lambda") };
        self.add(NIGH, calls, Server::Node(Box::new(node)));

        let pool = BarePool::new(&python, BTreeMap::new());
        self.add(BARE_RUNTIME, Calls::BareInvoke { pool, code }, Server::ThisProcess);
        Ok(())
    }

    fn node(&self, settings: &toml::Table) -> Result<NodeUnderTest, LabError> {
        let folder = self.work.path().join("nigh");
        std::fs::create_dir(&folder).at(&folder)?;
        NodeUnderTest::start(&folder, settings)
    }

    /// The peer; none if it is not installed, which is noted.
    fn started<T>(&mut self, side: &str, started: Result<T, PeerError>) -> Result<Option<T>, LabError> {
        let (request, side) = (self.request.to_owned(), side.to_owned());
        Ok(if_installed(started, |reason| self.skipped.push(SkippedSide { request, side, reason }))?)
    }

    fn add(&mut self, name: &'static str, calls: Calls, server: Server) {
        self.contestants.push(Contestant { name, calls, server });
    }

    fn add_peer(&mut self, name: &'static str, calls: Calls, peer: impl Peer + 'static) {
        self.peers.insert(peer.name().to_owned(), peer.version());
        self.add(name, calls, Server::Peer(Box::new(peer)));
    }
}

fn start_bare_s3s() -> Result<(PeerProcess, S3Door), LabError> {
    let bare = PeerProcess::start(BARE_S3S, Command::new(programs::nigh_peer()?).arg("bare-s3s"))?;
    let signer = Signer::new("s3", "us-east-1", bare_s3s::ACCESS_KEY, bare_s3s::SECRET_KEY);
    let door = S3Door { signer, address: bare.address() };
    Ok((bare, door))
}

/// The S3 API at `access`, with the bucket and the object that is read.
async fn door_with_object(access: &S3Access, bytes: usize) -> Result<S3Door, LabError> {
    let door = S3Door { signer: access.signer(), address: socket_address(&access.endpoint)? };
    door.send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
    put_object(&door, bytes).await?;
    Ok(door)
}

async fn put_object(door: &S3Door, bytes: usize) -> Result<(), LabError> {
    door.send(Method::PUT, &format!("/{BUCKET}/{OBJECT}"), &vec![b'x'; bytes]).await
}
