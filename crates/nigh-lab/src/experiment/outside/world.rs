//! What a race needs: the store, a node before it as one setting wants it, and the ways to both.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use http::Method;
use nigh_node::client::AdminClient;
use nigh_objects::{Access, BucketPolicy, Freshness};
use nigh_terms::SecretKey;
use tokio::runtime::Handle;

use super::clients::{ClientEndpoint, SwiftAccount};
use super::event_relay::EventRelay;
use super::{BUCKET, Guard, Mode, Setting, Store};
use crate::LabError;
use crate::experiment::client_calls::{CallOutcome, Caller, Door};
use crate::instrument::error::Tried;
use crate::instrument::http_load::{Connection, header};
use crate::instrument::node_under_test::{NodeUnderTest, configure, set, settings_of_store, socket_address};
use crate::instrument::peer::s3_server::{S3Server, WEBHOOK};
use crate::instrument::peer::swift::{NighMiddleware, Swift};
use crate::instrument::peer::{Peer, S3Access, private_file};
use crate::instrument::report::name_of;

/// The node's id to the middleware.
const NODE: &str = "n1";

pub(super) struct World {
    pub(super) nigh: ClientEndpoint,
    pub(super) store: ClientEndpoint,
    pub(super) node: NodeUnderTest,
    pub(super) handle: Handle,
    pub(super) mode: Mode,
    _relay: Option<EventRelay>,
    /// The store; ended when dropped, after the node.
    _running: Box<dyn Peer + Send + Sync>,
}

impl World {
    /// Starts the store and the node of `setting`, with all files below `folder`. Blocks for seconds.
    pub(super) fn start(setting: Setting, folder: &Path, handle: &Handle) -> Result<Self, LabError> {
        let secret = SecretKey::random();
        let outside = free_address()?;
        let (store, node) = (folder.join("store"), folder.join("node"));
        std::fs::create_dir_all(&node).at(&node)?;
        let events = format!("http://{outside}/outside/v1/s3-events");
        let mut relay = None;
        let (running, asked, mut settings) = match (setting.store, setting.guard) {
            (Store::Swift, _) => start_swift(setting, &store, outside, &secret)?,
            (Store::Minio, Guard::Events) => s3(S3Server::minio_with_webhook(&store, &events, &secret)?, None, handle)?,
            (Store::Minio, _) => s3(S3Server::minio(&store)?, None, handle)?,
            (Store::Versitygw, Guard::Events) => {
                let server = S3Server::versitygw(&store)?;
                let started = handle.block_on(EventRelay::start(&server.s3().endpoint, events, &secret));
                let started = started.map_err(|error| LabError::Node(format!("a relay of events: {error}")))?;
                let before = relay.insert(started).endpoint();
                s3(server, Some(before), handle)?
            }
            (Store::Versitygw, _) => s3(S3Server::versitygw(&store)?, None, handle)?,
        };
        set(&mut settings, &[("writes.mode", &name_of(&setting.mode)), ("writes.journal_max", "256 MiB")]);
        set(&mut settings, &[("writes.delay", "200 ms"), ("cache.bytes", "64 MiB"), ("llc.policy", "off")]);
        if matches!(setting.guard, Guard::Middleware | Guard::Events) {
            let file = node.join("shared-secret");
            private_file(&file, secret.reveal()).at(&file)?;
            let file = file.to_string_lossy();
            set(&mut settings, &[("outside.listen", &outside.to_string())]);
            if setting.guard == Guard::Events {
                set(&mut settings, &[("outside.events_token_file", &file)]);
            } else {
                set(&mut settings, &[("store.shadow_secret_file", &file), ("store.shadow_node", NODE)]);
            }
        }
        configure(&node, &settings)?;
        let node = NodeUnderTest::start_again(&node)?;
        let door = Door { server: node.s3()?, signer: node.signer("s3"), handle: handle.clone() };
        let nigh = ClientEndpoint::S3(Box::new(door));
        let (mode, handle) = (setting.mode, handle.clone());
        let world = Self { nigh, store: asked, node, handle, mode, _relay: relay, _running: running };
        world.prepare(setting)?;
        Ok(world)
    }

    /// Makes the bucket, with its policy and who is told of its changes.
    fn prepare(&self, setting: Setting) -> Result<(), LabError> {
        self.ask_nigh(&Method::PUT, &format!("/{BUCKET}"), b"")?.expect_done("make the bucket")?;
        if let (Guard::Events, Store::Minio, ClientEndpoint::S3(door)) = (setting.guard, setting.store, &self.store) {
            let events =
                ["ObjectCreated", "ObjectRemoved"].map(|event| format!("<Event>s3:{event}:*</Event>")).concat();
            let text = format!(
                "<NotificationConfiguration><QueueConfiguration><Id>nigh</Id><Queue>{WEBHOOK}</Queue>{events}\
                 </QueueConfiguration></NotificationConfiguration>"
            );
            let path = format!("/{BUCKET}?notification=");
            let told = Caller::new(door).call(&Method::PUT, &path, &[], text.as_bytes())?;
            told.expect_done("tell of changes")?;
        }
        // Where others write, what is pushed late overwrites nothing of theirs. The control takes them for nobody.
        let is_late = matches!(setting.mode, Mode::Lazy | Mode::Ephemeral);
        let is_told = matches!(setting.guard, Guard::Events | Guard::Freshness | Guard::Shared);
        let access = if is_late && is_told { Access::Shared } else { Access::Exclusive };
        let freshness = (setting.guard == Guard::Freshness).then_some(Freshness::ALWAYS);
        let policy = BucketPolicy { access, freshness, ..BucketPolicy::default() };
        let path = format!("/buckets/{}/{BUCKET}/policy", self.node.endpoints.namespace);
        let admin = AdminClient::new(&self.node.endpoints.admin_socket);
        let set = self.handle.block_on(admin.give(&path, &policy));
        set.map_err(|error| LabError::Node(format!("the bucket's policy: {error}")))
    }

    pub(super) fn ask_nigh(&self, method: &Method, path: &str, body: &[u8]) -> Result<CallOutcome, LabError> {
        match &self.nigh {
            ClientEndpoint::S3(door) => Caller::new(door).call(method, path, &[], body),
            ClientEndpoint::Swift(_) => Err(LabError::Node("Nigh's door speaks S3".to_owned())),
        }
    }
}

/// An address of loopback that nobody listens at now: the store is told where the node will be before it is there.
fn free_address() -> Result<SocketAddr, LabError> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map_err(|error| LabError::Node(format!("no port is free: {error}")))
}

/// A service, or what stands `before` it, and the ways to that.
fn s3(
    server: S3Server,
    before: Option<String>,
    handle: &Handle,
) -> Result<(Box<dyn Peer + Send + Sync>, ClientEndpoint, toml::Table), LabError> {
    let own = server.s3().clone();
    let access = &S3Access { endpoint: before.unwrap_or_else(|| own.endpoint.clone()), ..own };
    let door = Door { server: socket_address(&access.endpoint)?, signer: access.signer(), handle: handle.clone() };
    let (asked, settings) = (ClientEndpoint::S3(Box::new(door)), settings_of_store(access));
    Ok((Box::new(server), asked, settings))
}

fn middleware_source() -> Result<PathBuf, LabError> {
    let path = std::env::current_dir().unwrap_or_default().join("integrations/swift/src");
    let hint = "run it in the project's folder";
    if path.is_dir() { Ok(path) } else { Err(LabError::Missing { missing: path.display().to_string(), hint }) }
}

fn start_swift(
    setting: Setting,
    folder: &Path,
    outside: SocketAddr,
    secret: &SecretKey,
) -> Result<(Box<dyn Peer + Send + Sync>, ClientEndpoint, toml::Table), LabError> {
    let swift = match setting.guard {
        Guard::Middleware => {
            let (source, secret) = (middleware_source()?, secret.clone());
            Swift::start_with_nigh(
                folder,
                NighMiddleware { source, secret, nodes: format!("{NODE}=http://{outside}") },
            )?
        }
        _ => Swift::start(folder)?,
    };
    let server = socket_address(swift.endpoint())?;
    let (user, key) = (swift.s3().access_key.as_str(), swift.s3().secret_key.reveal());
    let login =
        format!("GET /auth/v1.0 HTTP/1.1\r\nhost: {server}\r\nx-auth-user: {user}\r\nx-auth-key: {key}\r\n\r\n");
    let failed = |reason: String| LabError::Request { what: "a login at Swift".to_owned(), reason };
    let answer = Connection::open(server).and_then(|mut connection| connection.fetch(login.as_bytes()));
    let (head, _) = answer.map_err(|error| failed(error.to_string()))?;
    let url = header(&head, "x-storage-url").and_then(|url| url.split_once("://"));
    let path = url.and_then(|(_, rest)| rest.find('/').map(|at| rest[at..].to_owned()));
    let (Some(path), Some(token)) = (path, header(&head, "x-auth-token")) else { return Err(failed(head)) };
    let account = SwiftAccount { server, path, token: token.to_owned() };
    let mut settings = toml::Table::new();
    set(&mut settings, &[("store.kind", "swift"), ("store.endpoint", &swift.auth_url())]);
    set(&mut settings, &[("store.access_key", user), ("store.secret_key", key)]);
    Ok((Box::new(swift), ClientEndpoint::Swift(account), settings))
}
