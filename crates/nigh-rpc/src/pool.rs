//! The pool of connections to one peer: a call takes the one used last, and idle ones are closed after a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::hello::Hello;
use crate::link::{LITTLE_BYTES, Link};
use crate::meters::OpenConnection;
use crate::security::{PeerCertificate, Security};
use crate::settings::ClientSettings;

/// The connections to one peer.
pub(crate) struct Pool {
    idle: Mutex<Vec<IdleConnection>>,
    pub(crate) permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    settings: ClientSettings,
    security: Security,
}

/// A connection, with its peer and its age.
pub(crate) struct PooledConnection {
    pub(crate) link: Link,
    pub(crate) hello: Hello,
    /// The peer's; none without TLS.
    pub(crate) certificate: Option<PeerCertificate>,
    pub(crate) calls: u32,
    pub(crate) since: Instant,
    pub(crate) _open: OpenConnection,
}

struct IdleConnection {
    connected: PooledConnection,
    since: Instant,
}

/// A connection in use. It goes back into the pool when its call has ended and its body was read.
pub(crate) struct Lease {
    connected: Option<PooledConnection>,
    pool: Arc<Pool>,
    /// The call has ended: no more of its bytes can arrive.
    pub(crate) settled: bool,
    permit: Option<OwnedSemaphorePermit>,
}

/// A call that waits for a connection.
struct WaitingCall<'a>(&'a AtomicUsize);

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    pub(crate) fn new(settings: &ClientSettings, security: Security) -> Self {
        Self {
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(settings.connections_max)),
            waiting: AtomicUsize::new(0),
            settings: settings.clone(),
            security,
        }
    }

    /// The right to a connection; none if too many calls wait, or no connection becomes free before `deadline`.
    pub(crate) async fn permit(&self, deadline: Instant) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Some(permit);
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.settings.waiting_max {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let _waiting = WaitingCall(&self.waiting);
        tokio::time::timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await.ok()?.ok()
    }

    /// An idle connection that does not look broken.
    pub(crate) fn idle(&self) -> Option<PooledConnection> {
        loop {
            let IdleConnection { connected, since } = self.idle.lock().pop()?;
            if self.keeps(&connected, since) && !connected.link.has_heard() {
                return Some(connected);
            }
        }
    }

    fn keeps(&self, connected: &PooledConnection, since: Instant) -> bool {
        since.elapsed() < self.settings.idle_max
            && connected.since.elapsed() < self.settings.age_max
            && !self.security.is_revoked(connected.certificate.as_ref())
    }

    /// Closes connections that were idle for too long or that the peer has closed. True if the pool is empty and unused.
    pub(crate) fn tidy(&self) -> bool {
        let mut idle = self.idle.lock();
        idle.retain(|one| self.keeps(&one.connected, one.since) && !one.connected.link.has_heard());
        idle.is_empty() && self.permits.available_permits() == self.settings.connections_max
    }
}

impl Lease {
    pub(crate) fn new(connected: PooledConnection, pool: Arc<Pool>, permit: OwnedSemaphorePermit) -> Self {
        Self { connected: Some(connected), pool, settled: false, permit: Some(permit) }
    }

    /// The connection.
    pub(crate) fn link(&mut self) -> &mut Link {
        &mut self.connected().link
    }

    #[expect(clippy::expect_used, reason = "only drop takes the connection")]
    pub(crate) fn connected(&mut self) -> &mut PooledConnection {
        self.connected.as_mut().expect("a lease has its connection")
    }
}

fn give_back(pool: &Pool, connected: PooledConnection, permit: OwnedSemaphorePermit) {
    pool.idle.lock().push(IdleConnection { connected, since: Instant::now() });
    drop(permit);
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (Some(mut connected), Some(permit)) = (self.connected.take(), self.permit.take()) else { return };
        let left = connected.link.left;
        if !self.settled || left > LITTLE_BYTES {
            return;
        }
        if left == 0 {
            return give_back(&self.pool, connected, permit);
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let pool = Arc::clone(&self.pool);
        runtime.spawn(async move {
            if connected.link.drain().await {
                give_back(&pool, connected, permit);
            }
        });
    }
}
