//! Admits an incoming connection: TLS, then the hellos.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsStream};
use tokio_util::sync::CancellationToken;

use crate::connect::{HELLO, certified, of_tls, read_hello};
use crate::error::{ConnectError, Refusal, RefusalKind};
use crate::frame::{FORMAT, FrameError};
use crate::handler::Handler;
use crate::hello::Hello;
use crate::identity::Identity;
use crate::link::{Link, ReadAheadStream, prepare};
use crate::message::{read_header, write_refusal, write_short};
use crate::meters::{Meters, OpenConnection, Side};
use crate::security::{PeerCertificate, Security};
use crate::settings::ServerSettings;

/// The state that all connections of a server share.
pub(crate) struct Door {
    pub(crate) own: Hello,
    pub(crate) security: Security,
    pub(crate) settings: ServerSettings,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) ending: CancellationToken,
    pub(crate) calls: Semaphore,
    pub(crate) meters: Meters,
    connections: Arc<Semaphore>,
    of_peers: Arc<Mutex<HashMap<Identity, usize>>>,
}

/// A connection's place within the limit of connections.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    _open: OpenConnection,
}

/// Counts a connection of a peer until it is dropped.
struct OfPeer {
    identity: Identity,
    all: Arc<Mutex<HashMap<Identity, usize>>>,
}

impl Drop for OfPeer {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(count) = all.get_mut(&self.identity) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.identity);
            }
        }
    }
}

/// A connection of an admitted peer.
pub(crate) struct AdmittedPeer {
    pub(crate) link: Link,
    pub(crate) peer: Hello,
    /// None without TLS.
    pub(crate) certificate: Option<PeerCertificate>,
    _place: Place,
    _of_peer: OfPeer,
}

impl Door {
    pub(crate) fn new(
        own: Hello,
        security: Security,
        settings: ServerSettings,
        handler: Arc<dyn Handler>,
        ending: CancellationToken,
    ) -> Self {
        let calls = Semaphore::new(settings.calls_max);
        let connections = Arc::new(Semaphore::new(settings.connections_max));
        let (meters, of_peers) = (Meters::new(Side::Server), Arc::default());
        Self { own, security, settings, handler, ending, calls, meters, connections, of_peers }
    }

    /// A place for one more connection.
    pub(crate) fn place(&self) -> Option<Place> {
        let permit = Arc::clone(&self.connections).try_acquire_owned().ok()?;
        Some(Place { _permit: permit, _open: self.meters.opened() })
    }

    /// Admits the peer, or tells it why not and logs the reason.
    pub(crate) async fn admit(&self, tcp: TcpStream, place: Place) -> Option<AdmittedPeer> {
        let from = tcp.peer_addr().map_or_else(|_| "an unknown address".to_owned(), |address| address.to_string());
        let admitted = timeout(self.settings.hello_max, self.hear(tcp, place)).await;
        let refused = |error: &ConnectError| tracing::warn!("the connection from {from} is not admitted: {error}");
        admitted.unwrap_or(Err(ConnectError::TimedOut)).inspect_err(refused).ok()
    }

    async fn hear(&self, tcp: TcpStream, place: Place) -> Result<AdmittedPeer, ConnectError> {
        prepare(&tcp, self.settings.liveness)?;
        let (mut link, certified) = match &self.security {
            Security::Plain => (Link::plain(ReadAheadStream::new(tcp, false)), None),
            Security::Tls(credentials) => {
                let acceptor = TlsAcceptor::from(credentials.current().server);
                let stream = acceptor.accept(ReadAheadStream::new(tcp, true)).await.map_err(of_tls)?;
                let stream = TlsStream::Server(stream);
                let certified = certified(&stream)?;
                (Link::tls(stream), Some(certified))
            }
        };
        let known = match self.known(&mut link, certified.as_ref()).await {
            Ok((peer, of_peer)) => {
                Ok(AdmittedPeer { link, peer, certificate: certified, _place: place, _of_peer: of_peer })
            }
            Err(error) => {
                if let Some(refusal) = told(&error, &self.own.identity) {
                    write_refusal(&mut link, 0, &refusal).await?;
                    link.linger().await;
                }
                Err(error)
            }
        };
        let mut admitted = known?;
        write_short(&mut admitted.link, HELLO, &self.own.encode()).await?;
        Ok(admitted)
    }

    async fn known(
        &self,
        link: &mut Link,
        certified: Option<&PeerCertificate>,
    ) -> Result<(Hello, OfPeer), ConnectError> {
        let header = read_header(link).await?;
        let peer = read_hello(link, &header, certified).await?;
        let (ours, theirs) = (&self.own.identity, &peer.identity);
        if ours.cluster() != theirs.cluster() {
            let (theirs, ours) = (theirs.cluster().to_owned(), ours.cluster().to_owned());
            return Err(ConnectError::OtherCluster { theirs, ours });
        }
        let refused = |kind, text: String| ConnectError::Refused(Refusal::new(kind, text));
        if ours == theirs && self.own.incarnation != peer.incarnation {
            let text = format!("{ours} is this process, in another incarnation; give each process a name of its own");
            return Err(refused(RefusalKind::Forbidden, text));
        }
        self.handler.admits(&peer).map_err(ConnectError::Refused)?;
        let mut all = self.of_peers.lock();
        let count = all.entry(theirs.clone()).or_default();
        if *count >= self.settings.connections_per_peer_max {
            return Err(refused(RefusalKind::Busy, format!("{theirs} has {count} connections, as many as it may")));
        }
        *count += 1;
        let of_peer = OfPeer { identity: theirs.clone(), all: Arc::clone(&self.of_peers) };
        Ok((peer, of_peer))
    }
}

/// The refusal for a peer that is not admitted; none if the peer would not understand it.
fn told(error: &ConnectError, own: &Identity) -> Option<Refusal> {
    let text = match error {
        ConnectError::Refused(refusal) => return Some(refusal.clone()),
        // The peer understands at least the format in the header.
        ConnectError::Frame(FrameError::Format { .. }) => format!("this build speaks format {FORMAT}"),
        ConnectError::OtherCluster { theirs, ours } => format!("this is the cluster {ours:?}, not {theirs:?}"),
        ConnectError::NotItself { said, certified } => {
            format!("{own} was told {said} by a certificate of {certified}")
        }
        _ => return None,
    };
    Some(Refusal::new(RefusalKind::Forbidden, text))
}
