//! Mutual TLS 1.3 with certificates of the cluster's own authority, read again when their files change.
//!
//! A certificate proves the identity in its `nigh://` name, wherever its process runs: addresses are not compared.
//! There is no resumption, so that every handshake checks the certificates of that moment.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::certificate_files::{CertificateError, CertificateFiles};
use crate::identity::Identity;

/// How connections are secured.
#[derive(Clone, Debug)]
pub enum Security {
    /// Without TLS: every process that reaches the address is trusted. For private networks and for tests.
    Plain,
    /// Mutual TLS.
    Tls(Arc<Credentials>),
}

/// A process' certificates, ready for use.
pub struct Credentials {
    files: CertificateFiles,
    loaded: Mutex<LoadedFiles>,
}

struct LoadedFiles {
    stamps: [Option<Stamp>; 3],
    ready: TlsConfigs,
}

/// What changes when a file is written or replaced: device, inode, size, time.
type Stamp = (u64, u64, u64, Option<SystemTime>);

#[derive(Clone)]
pub(crate) struct TlsConfigs {
    pub(crate) identity: Identity,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

impl Credentials {
    /// Reads them.
    ///
    /// # Errors
    /// If a file is missing or damaged, or the key is not the certificate's, or the certificate names nobody.
    pub fn open(files: CertificateFiles) -> Result<Self, CertificateError> {
        let stamps = stamps(&files);
        let ready = load(&files)?;
        Ok(Self { files, loaded: Mutex::new(LoadedFiles { stamps, ready }) })
    }

    /// The identity in the certificate.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.current().identity
    }

    /// The configurations to use now. If new files cannot be used, a warning says so once and the old ones stay in use.
    pub(crate) fn current(&self) -> TlsConfigs {
        let now = stamps(&self.files);
        let mut loaded = self.loaded.lock();
        if now != loaded.stamps {
            loaded.stamps = now;
            match load(&self.files) {
                Ok(ready) if ready.identity == loaded.ready.identity => loaded.ready = ready,
                Ok(ready) => tracing::warn!(
                    "the new certificate {} is of {}, not of {}; the old one stays in use",
                    self.files.certificate.display(),
                    ready.identity,
                    loaded.ready.identity
                ),
                Err(error) => tracing::warn!("the new certificates cannot be used; the old ones stay in use: {error}"),
            }
        }
        loaded.ready.clone()
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Credentials").field(&self.files).finish()
    }
}

fn stamps(files: &CertificateFiles) -> [Option<Stamp>; 3] {
    [&files.authority, &files.certificate, &files.key].map(|path| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.dev(), about.ino(), about.size(), about.modified().ok()))
    })
}

fn load(files: &CertificateFiles) -> Result<TlsConfigs, CertificateError> {
    let certificates = |path: &Path| {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let read = read.map_err(CertificateError::reading(path))?;
        if read.is_empty() { Err(CertificateError::NoCertificate(path.to_owned())) } else { Ok(read) }
    };
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |error: rustls::Error| CertificateError::Unusable { path, reason: error.to_string() }
    };
    let mut roots = RootCertStore::empty();
    for root in certificates(&files.authority)? {
        roots.add(root).map_err(unusable(&files.authority))?;
    }
    let roots = Arc::new(roots);
    let chain = certificates(&files.certificate)?;
    let identity = identity_of(&chain[0]).ok_or_else(|| CertificateError::Nameless(files.certificate.clone()))?;
    let key = || PrivateKeyDer::from_pem_file(&files.key).map_err(CertificateError::reading(&files.key));
    let provider = Arc::new(aws_lc_rs::default_provider());

    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
    let verifier = verifier
        .map_err(|error| CertificateError::Unusable { path: files.authority.clone(), reason: error.to_string() })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(unusable(&files.certificate))?.with_client_cert_verifier(verifier);
    let mut server = builder.with_single_cert(chain.clone(), key()?).map_err(unusable(&files.key))?;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;

    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(unusable(&files.certificate))?.dangerous();
    let builder = builder.with_custom_certificate_verifier(Arc::new(OfTheCluster { roots, provider }));
    let mut client = builder.with_client_auth_cert(chain, key()?).map_err(unusable(&files.key))?;
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    Ok(TlsConfigs { identity, client: Arc::new(client), server: Arc::new(server) })
}

/// The identity in a certificate: its only `nigh://` name. Call it with certificates that were verified.
pub(crate) fn identity_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut found = parsed.valid_uri_names().filter(|uri| uri.starts_with("nigh://"));
    let identity = Identity::of_uri(found.next()?);
    identity.filter(|_| found.next().is_none())
}

/// Accepts server certificates that the cluster's authority signed. The hello is compared with their identity later.
#[derive(Debug)]
struct OfTheCluster {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OfTheCluster {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, between, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
