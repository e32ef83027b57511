//! Connects to a peer: TCP, TLS, then the hellos of both sides.

use std::io;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, TlsStream};

use crate::error::ConnectError;
use crate::frame::{Header, Kind};
use crate::hello::Hello;
use crate::identity::PeerAddress;
use crate::link::{Link, ReadAheadStream, prepare};
use crate::message::{ReadError, read_head, read_header, read_refusal, write_short};
use crate::security::{PeerCertificate, Security};
use crate::settings::Liveness;

/// A hello's header.
pub(crate) const HELLO: Header =
    Header { kind: Kind::Hello, method: 0, number: 0, patience_ms: 0, head_bytes: 0, body_bytes: 0 };

/// An error of TLS or of the network.
pub(crate) fn of_tls(error: io::Error) -> ConnectError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(reason) => ConnectError::Tls(reason.to_string()),
        None => ConnectError::Io(error),
    }
}

/// An error of a handshake. If the peer breaks it off, the peer does not speak TLS.
fn of_handshake(error: io::Error) -> ConnectError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            ConnectError::Tls(format!("the peer does not speak TLS ({error})"))
        }
        _ => of_tls(error),
    }
}

impl From<ReadError> for ConnectError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => of_tls(error),
            ReadError::Frame(error) => Self::Frame(error),
        }
    }
}

/// The peer's certificate.
pub(crate) fn certified(stream: &TlsStream<ReadAheadStream>) -> Result<PeerCertificate, ConnectError> {
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    certificate
        .and_then(PeerCertificate::of)
        .ok_or_else(|| ConnectError::Tls("the certificate of the peer names no process of Nigh".to_owned()))
}

/// Connects to `peer`, as `own`.
pub(crate) async fn connect(
    peer: &PeerAddress,
    own: &Hello,
    security: &Security,
    liveness: Liveness,
) -> Result<(Link, Hello, Option<PeerCertificate>), ConnectError> {
    let tcp = TcpStream::connect(&*peer.address).await?;
    prepare(&tcp, liveness)?;
    let (mut link, certified) = match security {
        Security::Plain => (Link::plain(ReadAheadStream::new(tcp, false)), None),
        Security::Tls(credentials) => {
            let address = tcp.peer_addr()?.ip();
            let connector = TlsConnector::from(credentials.current().client);
            let ahead = ReadAheadStream::new(tcp, true);
            let stream = connector.connect(ServerName::IpAddress(address.into()), ahead).await.map_err(of_handshake)?;
            let stream = TlsStream::Client(stream);
            let certified = certified(&stream)?;
            (Link::tls(stream), Some(certified))
        }
    };
    write_short(&mut link, HELLO, &own.encode()).await.map_err(of_tls)?;
    let header = read_header(&mut link).await?;
    if header.kind == Kind::Refusal {
        return Err(ConnectError::Refused(read_refusal(&mut link, &header).await.map_err(of_tls)?));
    }
    let hello = read_hello(&mut link, &header, certified.as_ref()).await?;
    check(peer, own, &hello)?;
    Ok((link, hello, certified))
}

/// Reads the hello behind `header` and compares it with the certificate.
pub(crate) async fn read_hello(
    link: &mut Link,
    header: &Header,
    certified: Option<&PeerCertificate>,
) -> Result<Hello, ConnectError> {
    let no_hello = || io::Error::new(io::ErrorKind::InvalidData, "the peer sent no hello");
    if header.kind != Kind::Hello {
        return Err(no_hello().into());
    }
    let head = read_head(link, header).await.map_err(of_tls)?;
    let hello = Hello::parse(&head).ok_or_else(no_hello)?;
    match certified {
        Some(PeerCertificate { identity: certified, .. }) if *certified != hello.identity => {
            Err(ConnectError::NotItself { said: hello.identity.to_string(), certified: certified.to_string() })
        }
        _ => Ok(hello),
    }
}

/// Checks that `hello` is from `peer`.
fn check(peer: &PeerAddress, own: &Hello, hello: &Hello) -> Result<(), ConnectError> {
    let (ours, theirs) = (own.identity.cluster(), hello.identity.cluster());
    if ours != theirs {
        return Err(ConnectError::OtherCluster { theirs: theirs.to_owned(), ours: ours.to_owned() });
    }
    if hello.identity.name() != &*peer.name {
        return Err(ConnectError::OtherName { theirs: hello.identity.to_string() });
    }
    match peer.incarnation {
        Some(wanted) if wanted != hello.incarnation => {
            Err(ConnectError::OtherIncarnation { theirs: hello.incarnation, wanted })
        }
        _ => Ok(()),
    }
}
