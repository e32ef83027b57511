//! The peers: a thread that sends as many bytes as it is asked for, over TCP or over rustls, and who asks.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use bytes::Bytes;
use nigh_rpc::CertificateFiles;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::failed;
use crate::LabError;
use crate::instrument::zone::Zone;

/// Who asks, over a stream.
pub(super) struct BareReader<S>(S);

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A connection to a thread that serves it with `serving`, at the other machine if there is one.
fn connected(
    zone: Option<&Zone>,
    serving: impl FnOnce(TcpStream) -> io::Result<()> + Send + 'static,
) -> io::Result<TcpStream> {
    let listener = Zone::listener(zone)?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    other.set_nodelay(true)?;
    // It ends when the reader has closed.
    std::thread::spawn(move || serving(other));
    Ok(stream)
}

fn serve(mut stream: impl Read + Write, bytes: &[u8]) -> io::Result<()> {
    loop {
        let mut length = [0; 8];
        stream.read_exact(&mut length)?;
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        stream.write_all(bytes.get(..length).ok_or(io::ErrorKind::InvalidInput)?)?;
        stream.flush()?;
    }
}

impl<S: Read + Write> BareReader<S> {
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.0.write_all(&(into.len() as u64).to_le_bytes())?;
        self.0.flush()?;
        self.0.read_exact(into)
    }
}

impl BareReader<TcpStream> {
    pub(super) fn over_tcp(zone: Option<&Zone>, bytes: &Bytes) -> Result<Self, LabError> {
        let bytes = bytes.clone();
        let stream = connected(zone, move |stream| serve(stream, &bytes));
        stream.map(Self).map_err(|error| failed("bare TCP", &error))
    }
}

impl BareReader<TlsStream> {
    /// With the certificates of the server and of the caller.
    pub(super) fn over_tls(
        zone: Option<&Zone>,
        bytes: &Bytes,
        files: &[CertificateFiles; 2],
    ) -> Result<Self, LabError> {
        let [server, caller] = files;
        let refused = |error: rustls::Error| failed("bare TLS", &error);
        let begin = |server, caller| Ok((ServerConnection::new(server)?, ClientConnection::new(caller, name())?));
        let (server, caller) = begin(server_config(server)?, client_config(caller)?).map_err(refused)?;
        let bytes = bytes.clone();
        let stream = connected(zone, move |stream| serve(StreamOwned::new(server, stream), &bytes));
        let stream = stream.map_err(|error| failed("bare TLS", &error))?;
        Ok(Self(StreamOwned::new(caller, stream)))
    }
}

fn name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into())
}

/// The authority, a certificate and its key.
type LoadedCertificates = (Arc<RootCertStore>, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn loaded(files: &CertificateFiles) -> Result<LoadedCertificates, LabError> {
    let refused = |error: rustls::pki_types::pem::Error| failed("certificates", &error);
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(&files.authority).map_err(refused)?;
    roots.add(root).map_err(|error| failed("certificates", &error))?;
    let certificate = CertificateDer::from_pem_file(&files.certificate).map_err(refused)?;
    Ok((Arc::new(roots), vec![certificate], PrivateKeyDer::from_pem_file(&files.key).map_err(refused)?))
}

fn server_config(files: &CertificateFiles) -> Result<Arc<ServerConfig>, LabError> {
    let (roots, chain, key) = loaded(files)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
    let verifier = verifier.map_err(|error| failed("certificates", &error))?;
    let refused = |error: rustls::Error| failed("bare TLS", &error);
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).map_err(refused)?;
    builder.with_client_cert_verifier(verifier).with_single_cert(chain, key).map(Arc::new).map_err(refused)
}

fn client_config(files: &CertificateFiles) -> Result<Arc<ClientConfig>, LabError> {
    let (roots, chain, key) = loaded(files)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let refused = |error: rustls::Error| failed("bare TLS", &error);
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).map_err(refused)?;
    builder.with_root_certificates(roots).with_client_auth_cert(chain, key).map(Arc::new).map_err(refused)
}
