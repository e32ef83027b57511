//! The fast path's listeners and connections. Each connection stays on a lane, as a connection of the S3 door does.
//!
//! A request that memory can answer is read, answered and sent without waking another thread. Every other request
//! continues in the node's runtime and is answered from there. The number of connections, the requests in progress, the
//! unread answers and the time until a client authenticates are all bounded.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use nigh_http::places::{Place, Places};
use nigh_terms::{AccessKeyId, ByteSize};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::held::HeldMax;
use super::holdings::Payer;
use super::replies::Reply;
use super::session::{Ground, RequestAction, Session};
use super::socket::{ReceivedPacket, Socket, accept, register};
use super::usage::{FastPathUsage, Holders, Meters, Share};
use super::wire::{PACKET_MAX, Request, WireError, parse};
use crate::S3Door;
use crate::lanes::Lanes;

/// The most requests in progress on one connection.
const UNDER_WAY_MAX: u32 = 64;
/// The pause between two checks of held segments that no client asked for.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

/// The limits of the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastPathLimits {
    /// The most connections at a time from outside; further ones wait in the listener's backlog.
    pub connections: usize,
    /// The most connections at a time from one sandbox.
    pub sandbox_connections: usize,
    /// The most memory of the node that each sandbox, and each key outside sandboxes, may hold.
    pub held: ByteSize,
    /// The most segments that each sandbox, and each key outside sandboxes, may hold.
    pub held_segments: usize,
    /// A connection whose client does not authenticate within this time is closed.
    pub hello: Duration,
    /// A lent segment that its client does not commit within this time is taken back.
    pub loan: Duration,
    /// A connection whose client does not take its answers within this time is closed.
    pub send_silence: Duration,
    /// How long requests in progress may take to finish after the listener has stopped.
    pub drain: Duration,
}

impl FastPathLimits {
    /// The default limits, with `held` as the most memory of one holder.
    #[must_use]
    pub const fn new(held: ByteSize) -> Self {
        Self {
            connections: 1024,
            sandbox_connections: 128,
            held,
            held_segments: 1024,
            hello: Duration::from_secs(30),
            loan: Duration::from_secs(60),
            send_silence: Duration::from_secs(30),
            drain: Duration::from_secs(10),
        }
    }
}

/// The fast path: objects over Unix sockets, without HTTP. Cheap to clone.
#[derive(Clone)]
pub struct FastPath {
    door: S3Door,
    limits: FastPathLimits,
    meters: Arc<Meters>,
}

thread_local! {
    /// The buffer into which a lane reads packets. A request copies what it needs, so the buffer is free again.
    static PACKET: RefCell<Box<[u8; PACKET_MAX]>> = RefCell::new(Box::new([0; PACKET_MAX]));
}

impl FastPath {
    /// The fast path beside `door`, with the same objects, keys and meters.
    #[must_use]
    pub fn new(door: &S3Door, limits: FastPathLimits) -> Self {
        Self { door: door.clone(), limits, meters: Arc::new(Meters::new()) }
    }

    /// What the fast path does and holds now.
    #[must_use]
    pub fn usage(&self) -> FastPathUsage {
        self.meters.usage()
    }

    /// Serves connections of `listener` until `stop`, for all keys or for `only` one, then lets requests under way
    /// finish.
    ///
    /// # Errors
    /// If the listener cannot be waited on.
    pub fn serve(
        self,
        listener: OwnedFd,
        only: Option<AccessKeyId>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(self.serve_holders(listener, only, None, stop))
    }

    /// Serves one sandbox, which has `key`. `payer` pays for the memory that the sandbox holds.
    ///
    /// # Errors
    /// If the listener cannot be waited on.
    pub fn serve_sandbox(
        self,
        listener: OwnedFd,
        key: AccessKeyId,
        payer: Arc<dyn Payer>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(self.serve_holders(listener, Some(key), Some(payer), stop))
    }

    async fn serve_holders(
        self,
        listener: OwnedFd,
        only: Option<AccessKeyId>,
        payer: Option<Arc<dyn Payer>>,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let listener = register(listener)?;
        let max = HeldMax { bytes: self.limits.held.bytes(), segments: self.limits.held_segments };
        let holders = Holders::new(max, payer);
        self.meters.listens(&holders);
        let places = if only.is_some() { self.limits.sandbox_connections } else { self.limits.connections };
        let places = Places::new(places);
        let found = Arc::clone(&holders);
        let ground = Ground {
            reads: Arc::new(self.door.reads()),
            keys: self.door.keys().clone(),
            telemetry: Arc::clone(self.door.telemetry()),
            audit: self.door.audit().clone(),
            only,
            holdings: Arc::new(move |key| found.of(key)),
            loan: self.limits.loan,
        };
        let (tracker, cut) = (TaskTracker::new(), CancellationToken::new());
        let served = ListenerState {
            ground,
            limits: self.limits,
            meters: Arc::clone(&self.meters),
            home: self.door.lanes.home().clone(),
            stop: stop.clone(),
            cut: cut.clone(),
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = served.accept(&listener, &places, &self.door.lanes, &tracker) => {}
            () = look_around(&holders, &self.meters) => {}
        }
        drop(listener);
        tracker.close();
        let drain = self.door.farewell.drain().unwrap_or(self.limits.drain);
        if tokio::time::timeout(drain, tracker.wait()).await.is_err() {
            tracing::warn!(connections = tracker.len(), "fast-path requests were still under way at the drain's end");
            cut.cancel();
            tracker.wait().await;
        }
        Ok(())
    }
}

async fn look_around(holders: &Holders, meters: &Meters) {
    let mut share = Share::new(meters);
    loop {
        tokio::time::sleep(LOOK_PAUSE).await;
        share.look_around(holders);
    }
}

/// The state that all connections of one listener share.
#[derive(Clone)]
struct ListenerState {
    ground: Ground,
    limits: FastPathLimits,
    meters: Arc<Meters>,
    home: Runtime,
    /// Cancelled when no further request may be accepted.
    stop: CancellationToken,
    /// Cancelled when requests in progress must end.
    cut: CancellationToken,
}

impl ListenerState {
    /// Accepts connections; never ends by itself.
    async fn accept(&self, listener: &AsyncFd<OwnedFd>, places: &Places, lanes: &Lanes, tracker: &TaskTracker) {
        let start = |socket, place| lanes.run(tracker.track_future(self.clone().connection(socket, place)));
        nigh_http::listener::accept("fast path", places, || accept(listener), start).await;
    }

    /// Serves one connection, on the lane it was given to.
    async fn connection(self, socket: OwnedFd, _place: Place) {
        let socket = match Socket::adopt(socket) {
            Ok(socket) => Arc::new(socket),
            Err(error) => return tracing::warn!(%error, "a connection to the fast path could not be taken up"),
        };
        self.meters.connected();
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let session = Arc::new(Session::new(self.ground.clone(), nonce.clone()));
        let connection = Connection {
            session,
            under_way: Arc::new(Semaphore::new(UNDER_WAY_MAX as usize)),
            socket: Arc::clone(&socket),
            served: self,
        };
        connection.await_hello();
        connection.reply(0, Reply::greeting(nonce), None);
        if let Err(error) = connection.run().await {
            // Clients may disconnect at any time: not a fault of the node.
            tracing::debug!(%error, "a connection to the fast path broke");
        }
        socket.end();
        if let Some(holdings) = connection.session.holdings() {
            holdings.look_around();
        }
        connection.served.meters.disconnected();
    }
}

struct Connection {
    session: Arc<Session>,
    socket: Arc<Socket>,
    under_way: Arc<Semaphore>,
    served: ListenerState,
}

impl Connection {
    /// Ends the connection if its client does not authenticate in time.
    fn await_hello(&self) {
        let (session, socket) = (Arc::downgrade(&self.session), Arc::downgrade(&self.socket));
        let patience = self.served.limits.hello;
        self.served.home.spawn(async move {
            tokio::time::sleep(patience).await;
            if let (Some(session), Some(socket)) = (session.upgrade(), socket.upgrade())
                && !session.is_known()
            {
                socket.end();
            }
        });
    }

    /// Serves requests until the client or the node ends the connection; returns when none is under way.
    async fn run(&self) -> io::Result<()> {
        loop {
            let permit = Arc::clone(&self.under_way).acquire_owned();
            let permit = tokio::select! {
                biased;
                () = self.served.stop.cancelled() => break,
                permit = permit => permit.map_err(io::Error::other)?,
            };
            let received = tokio::select! {
                biased;
                () = self.served.stop.cancelled() => break,
                received = self.receive() => received?,
            };
            match received {
                None => break,
                Some(Err(malformed)) => {
                    self.reply(0, Reply::malformed(&malformed), None);
                    break;
                }
                Some(Ok((id, request))) => match self.session.take(request) {
                    RequestAction::Nothing => {}
                    RequestAction::Reply(reply) => self.reply(id, reply, Some(permit)),
                    RequestAction::End(reply) => {
                        self.reply(id, reply, None);
                        break;
                    }
                    RequestAction::Later(answer) => self.answer(id, answer, permit),
                },
            }
        }
        tokio::select! {
            () = self.served.cut.cancelled() => {}
            _all = self.under_way.acquire_many(UNDER_WAY_MAX) => {}
        }
        Ok(())
    }

    /// Returns the next request. None when the client has disconnected.
    async fn receive(&self) -> io::Result<Option<Result<(u32, Request), WireError>>> {
        loop {
            let received = PACKET.with_borrow_mut(|buffer| {
                Ok::<_, io::Error>(self.socket.try_receive(buffer)?.map(|received| match received {
                    ReceivedPacket::End => None,
                    ReceivedPacket::TooLong => Some(Err(WireError::Long)),
                    ReceivedPacket::Packet(length) => Some(parse(&buffer[..length])),
                }))
            })?;
            match received {
                Some(received) => return Ok(received),
                None => {
                    self.session.look_at_released();
                    self.socket.readable().await?;
                }
            }
        }
    }

    /// Answers here if the answer is ready at once, otherwise from the node's runtime.
    fn answer(&self, id: u32, mut answer: BoxFuture<'static, Reply>, permit: OwnedSemaphorePermit) {
        let _home = self.served.home.enter();
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => self.reply(id, reply, Some(permit)),
            Poll::Pending => {
                let this = Self {
                    session: Arc::clone(&self.session),
                    socket: Arc::clone(&self.socket),
                    under_way: Arc::clone(&self.under_way),
                    served: self.served.clone(),
                };
                self.served.home.spawn(async move {
                    let reply = answer.await;
                    this.reply(id, reply, Some(permit));
                });
            }
        }
    }

    /// Sends a reply. If the client has too many unread packets, the reply is sent when the client reads again.
    fn reply(&self, id: u32, reply: Reply, permit: Option<OwnedSemaphorePermit>) {
        self.served.meters.answered(&reply);
        let packet = match reply.packet(id) {
            Ok(packet) => packet,
            Err(error) => {
                tracing::warn!(%error, "an answer on the fast path cannot be said");
                return self.socket.end();
            }
        };
        match self.socket.try_send(&packet) {
            Ok(true) => {}
            Ok(false) => {
                let (socket, patience) = (Arc::clone(&self.socket), self.served.limits.send_silence);
                self.served.home.spawn(async move {
                    let sent = tokio::time::timeout(patience, socket.send(&packet)).await;
                    if !matches!(sent, Ok(Ok(()))) {
                        socket.end();
                    }
                    drop(permit);
                });
            }
            Err(error) if is_too_much(&error) && self.leave_to_http(id) => {}
            Err(error) => {
                tracing::debug!(%error, "an answer on the fast path is not taken");
                self.socket.end();
            }
        }
    }

    /// Tells the client to use HTTP for request `id`. Returns true if the packet was sent.
    fn leave_to_http(&self, id: u32) -> bool {
        Reply::use_http().packet(id).is_ok_and(|packet| self.socket.try_send(&packet).unwrap_or(false))
    }
}

/// Returns true if the packet is longer than the system accepts, or if too many descriptors are in transit.
fn is_too_much(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MSGSIZE | Errno::TOOMANYREFS))
}
