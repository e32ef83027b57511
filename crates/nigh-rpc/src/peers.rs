//! The client: calls a peer over a connection of its pool.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::body::Body;
use crate::connect::connect;
use crate::error::{CallError, ConnectError, RefusalKind};
use crate::frame::{HEAD_MAX_BYTES, Header, Kind};
use crate::hello::Hello;
use crate::identity::PeerAddress;
use crate::incoming::IncomingBody;
use crate::link::WriteEnd;
use crate::message::{ReadError, SendError, read_head, read_header, read_refusal, write_message};
use crate::meters::{Meters, Side};
use crate::method::Method;
use crate::pool::{Lease, Pool, PooledConnection};
use crate::security::Security;
use crate::settings::ClientSettings;

/// How often idle connections are checked.
const TIDY_EVERY: Duration = Duration::from_secs(5);
/// After a failed write: the time to read what the peer said before.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What a peer answers.
#[derive(Debug)]
pub struct CallAnswer {
    /// Who answered, in which life.
    pub from: Hello,
    /// The answer's head.
    pub head: Bytes,
    /// Its body; read it before the call's deadline.
    pub body: IncomingBody<'static>,
}

/// Calls the peers of a process. Make it within a runtime.
#[derive(Clone)]
pub struct Peers(Arc<PeersState>);

struct PeersState {
    own: Hello,
    security: Security,
    settings: ClientSettings,
    pools: Mutex<HashMap<PeerAddress, Arc<Pool>>>,
    meters: Meters,
}

impl Peers {
    /// Calls as `own`.
    #[must_use]
    pub fn new(own: Hello, security: Security, settings: ClientSettings) -> Self {
        let meters = Meters::new(Side::Client);
        let shared = Arc::new(PeersState { own, security, settings, pools: Mutex::default(), meters });
        tokio::spawn(tidy(Arc::downgrade(&shared)));
        Self(shared)
    }

    /// Who this process says it is.
    #[must_use]
    pub fn own(&self) -> &Hello {
        &self.0.own
    }

    /// Calls `method` of `peer` and waits for its answer, until `deadline`.
    ///
    /// # Errors
    /// Why there is no answer; `CallError::fate` says whether the peer may have seen the call.
    pub async fn call(
        &self,
        peer: &PeerAddress,
        method: &Method,
        head: &[u8],
        body: impl Into<Body>,
        deadline: Instant,
    ) -> Result<CallAnswer, CallError> {
        let watch = self.0.meters.call(method);
        let (body, sent) = (body.into(), head.len() as u64);
        let bytes = sent + body.len();
        let outcome = self.attempt(peer, method, head, body, deadline).await;
        match &outcome {
            Ok(answer) => watch.answered(bytes, answer.head.len() as u64 + answer.body.len()),
            Err(error) => watch.failed(error),
        }
        outcome
    }

    async fn attempt(
        &self,
        peer: &PeerAddress,
        method: &Method,
        head: &[u8],
        body: Body,
        deadline: Instant,
    ) -> Result<CallAnswer, CallError> {
        if head.len() > HEAD_MAX_BYTES as usize {
            return Err(CallError::LongHead { peer: peer.name.to_string(), bytes: head.len() });
        }
        let mut lease = self.lease(peer, deadline).await?;
        let exchange = Box::pin(exchange(&mut lease, peer, method, head, body, deadline));
        let late = |_| CallError::Late { peer: peer.name.to_string() };
        let (head, bytes) = timeout_at(deadline, exchange).await.map_err(late)??;
        let from = lease.connected().hello.clone();
        let body = if bytes == 0 { IncomingBody::nothing() } else { IncomingBody::of_answer(lease, bytes, deadline) };
        Ok(CallAnswer { from, head, body })
    }

    async fn lease(&self, peer: &PeerAddress, deadline: Instant) -> Result<Lease, CallError> {
        let pool = {
            let mut pools = self.0.pools.lock();
            match pools.get(peer) {
                Some(pool) => Arc::clone(pool),
                None => {
                    let pool = Pool::new(&self.0.settings, self.0.security.clone());
                    Arc::clone(pools.entry(peer.clone()).or_insert(Arc::new(pool)))
                }
            }
        };
        let crowded = || CallError::Crowded { peer: peer.name.to_string() };
        let permit = pool.permit(deadline).await.ok_or_else(crowded)?;
        if let Some(connected) = pool.idle() {
            return Ok(Lease::new(connected, pool, permit));
        }
        let shared = &self.0;
        let by = deadline.min(Instant::now() + shared.settings.connect_max);
        let connecting = Box::pin(connect(peer, &shared.own, &shared.security, shared.settings.liveness));
        let connected = timeout_at(by, connecting).await.unwrap_or(Err(ConnectError::TimedOut));
        let named = |reason| CallError::Connect { peer: format!("{} at {}", peer.name, peer.address), reason };
        let (link, hello, certificate) = connected.map_err(named)?;
        let (since, open) = (Instant::now(), shared.meters.opened());
        let connected = PooledConnection { link, hello, certificate, calls: 0, since, _open: open };
        Ok(Lease::new(connected, pool, permit))
    }
}

/// Sends the call; returns the answer's head and the length of its body.
async fn exchange(
    lease: &mut Lease,
    peer: &PeerAddress,
    method: &Method,
    head: &[u8],
    body: Body,
    deadline: Instant,
) -> Result<(Bytes, u64), CallError> {
    let name = || peer.name.to_string();
    let broken = |reason: io::Error| CallError::Broken { peer: name(), reason };
    let connected = lease.connected();
    connected.calls = connected.calls.checked_add(1).unwrap_or(1);
    let number = connected.calls;
    let patience = deadline.saturating_duration_since(Instant::now()).as_millis();
    let patience_ms = u32::try_from(patience).unwrap_or(u32::MAX).max(1);
    let call = Header { kind: Kind::Call, method: method.number, number, patience_ms, head_bytes: 0, body_bytes: 0 };
    let written = write_message(lease.link(), call, head, body, true).await;
    let whole = matches!(written, Ok(WriteEnd::All));
    let header = match written {
        Ok(_) => read_header(lease.link()).await,
        Err(SendError::Source(reason)) => return Err(CallError::Source { peer: name(), reason }),
        Err(SendError::Io(error)) => match timeout_at(Instant::now() + LAST_WORDS, read_header(lease.link())).await {
            Ok(Ok(header)) => Ok(header),
            _ => Err(ReadError::Io(error)),
        },
    };
    let header = header.map_err(|error| broken(error.into()))?;
    let answers = header.number == number;
    match header.kind {
        Kind::Answer if answers && header.method == method.number => {
            let head = read_head(lease.link(), &header).await.map_err(broken)?;
            lease.settled = whole;
            Ok((head, header.body_bytes))
        }
        Kind::Refusal if answers || header.number == 0 => {
            let refusal = read_refusal(lease.link(), &header).await.map_err(broken)?;
            lease.settled = whole && answers && refusal.kind != RefusalKind::Closing;
            Err(CallError::Refused { peer: name(), refusal })
        }
        _ => Err(broken(io::Error::new(
            io::ErrorKind::InvalidData,
            "the peer sent a message that does not answer the call",
        ))),
    }
}

/// Closes idle connections and drops empty pools until `shared` is dropped.
async fn tidy(shared: Weak<PeersState>) {
    loop {
        tokio::time::sleep(TIDY_EVERY).await;
        let Some(shared) = shared.upgrade() else { return };
        shared.pools.lock().retain(|_, pool| !pool.tidy() || Arc::strong_count(pool) > 1);
    }
}
