//! Mutual TLS 1.3 with certificates of the cluster's own authority, read again when their files change.
//!
//! A certificate proves the identity in its `nigh://` name, wherever its process runs: addresses are not compared.
//! There is no resumption, so that every handshake checks the certificates of that moment. A certificate that is revoked
//! ends the connections that it made, too.

mod unrevoked_clients;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::Instant;

use self::unrevoked_clients::revoked;
pub use self::unrevoked_clients::{authorities, client_verifier};
use crate::certificate_files::{CertificateError, CertificateFiles, read_certificates, read_key, read_revocations};
use crate::file_stamps::FileStamps;
use crate::identity::Identity;
use crate::revocations::Revocations;
use crate::x509::CertificateFacts;

/// How often a process looks whether the files have changed: a revoked certificate's connections end so soon.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
    looked: Mutex<Instant>,
    revoked: watch::Sender<Revocations>,
}

struct LoadedFiles {
    stamps: FileStamps,
    ready: TlsConfigs,
}

#[derive(Clone)]
pub(crate) struct TlsConfigs {
    pub(crate) identity: Identity,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    expires: OffsetDateTime,
    revoked: Revocations,
}

/// Whom a verified certificate names, and since when it is valid.
#[derive(Clone, Debug)]
pub(crate) struct PeerCertificate {
    pub(crate) identity: Identity,
    from: OffsetDateTime,
}

impl PeerCertificate {
    /// That of a certificate that was verified; none if it names no process of Nigh.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        Some(Self { identity: identity_of(certificate)?, from: CertificateFacts::read(certificate)?.from })
    }

    pub(crate) fn is_in(&self, revoked: &Revocations) -> bool {
        revoked.revokes(&self.identity, self.from)
    }
}

impl Security {
    /// True if the certificate of a connection has been revoked.
    pub(crate) fn is_revoked(&self, certificate: Option<&PeerCertificate>) -> bool {
        match (self, certificate) {
            (Self::Tls(credentials), Some(certificate)) => {
                credentials.look_now_and_then();
                certificate.is_in(&credentials.revoked.borrow())
            }
            _ => false,
        }
    }

    /// Returns when the certificate of a connection is revoked.
    pub(crate) async fn until_revoked(&self, certificate: Option<PeerCertificate>) {
        let (Self::Tls(credentials), Some(certificate)) = (self, certificate) else {
            return std::future::pending().await;
        };
        let mut revoked = credentials.revoked.subscribe();
        let is_over = revoked.wait_for(|list| certificate.is_in(list)).await.is_err();
        // The list lives as long as the credentials.
        if is_over {
            std::future::pending().await
        }
    }

    /// Reads changed files again, now and then.
    pub(crate) async fn follow_files(&self) {
        let Self::Tls(credentials) = self else { return };
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            drop(credentials.current());
        }
    }
}

impl Credentials {
    /// Reads them.
    ///
    /// # Errors
    /// If a file is missing or damaged, or the key is not the certificate's, or the certificate names nobody.
    pub fn open(files: CertificateFiles) -> Result<Self, CertificateError> {
        let stamps = stamps(&files);
        let ready = load(&files)?;
        let revoked = watch::Sender::new(ready.revoked.clone());
        let (loaded, looked) = (Mutex::new(LoadedFiles { stamps, ready }), Mutex::new(Instant::now()));
        Ok(Self { files, loaded, looked, revoked })
    }

    /// The identity in the certificate.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.current().identity
    }

    /// When the certificate in use ends.
    #[must_use]
    pub fn expires(&self) -> OffsetDateTime {
        self.current().expires
    }

    /// Reads the files again. True if they have changed since they were last read.
    ///
    /// # Errors
    /// If they cannot be used; the old ones stay in use.
    pub fn reload(&self) -> Result<bool, CertificateError> {
        let now = stamps(&self.files);
        let mut loaded = self.loaded.lock();
        let is_changed = now != loaded.stamps;
        loaded.stamps = now;
        let ready = self.read_of(&loaded.ready.identity)?;
        self.note_revoked(&ready.revoked);
        loaded.ready = ready;
        Ok(is_changed)
    }

    /// Checks that the files can be used; nothing changes.
    ///
    /// # Errors
    /// As `reload`.
    pub fn check_files(&self) -> Result<(), CertificateError> {
        let own = self.loaded.lock().ready.identity.clone();
        self.read_of(&own).map(drop)
    }

    fn read_of(&self, own: &Identity) -> Result<TlsConfigs, CertificateError> {
        let ready = load(&self.files)?;
        if ready.identity == *own {
            return Ok(ready);
        }
        let reason = format!("it is of {}, not of {own}", ready.identity);
        Err(CertificateError::Unusable { path: self.files.certificate.clone(), reason })
    }

    /// The configurations to use now. If new files cannot be used, a warning says so once and the old ones stay in use.
    pub(crate) fn current(&self) -> TlsConfigs {
        let is_changed = stamps(&self.files) != self.loaded.lock().stamps;
        if is_changed && let Err(error) = self.reload() {
            tracing::warn!("the new certificates cannot be used; the old ones stay in use: {error}");
        }
        self.loaded.lock().ready.clone()
    }

    /// Reads changed files again, if the last look was long ago.
    fn look_now_and_then(&self) {
        let mut looked = self.looked.lock();
        if looked.elapsed() >= LOOK_EVERY {
            *looked = Instant::now();
            drop(looked);
            drop(self.current());
        }
    }

    /// Ends the connections of certificates that are newly revoked.
    fn note_revoked(&self, now: &Revocations) {
        let is_other = self.revoked.send_if_modified(|known| {
            let is_other = known != now;
            if is_other {
                known.clone_from(now);
            }
            is_other
        });
        if is_other {
            let names: Vec<String> = now.identities().map(ToString::to_string).collect();
            tracing::info!("revoked certificates: {}", if names.is_empty() { "none".into() } else { names.join(", ") });
        }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Credentials").field(&self.files).finish()
    }
}

fn stamps(files: &CertificateFiles) -> FileStamps {
    let revoked = files.revoked();
    FileStamps::of([files.authority.as_path(), &files.certificate, &files.key, &revoked])
}

fn load(files: &CertificateFiles) -> Result<TlsConfigs, CertificateError> {
    let unusable = CertificateError::unusable;
    let (roots, revoked) = (authorities(&files.authority)?, read_revocations(&files.revoked())?);
    let chain = read_certificates(&files.certificate)?;
    let nameless = || CertificateError::Nameless(files.certificate.clone());
    let identity = identity_of(&chain[0]).ok_or_else(nameless)?;
    let expires = CertificateFacts::read(&chain[0]).ok_or_else(nameless)?.until;
    let key = || read_key(&files.key);
    let provider = Arc::new(aws_lc_rs::default_provider());

    let verifier = client_verifier(&files.authority, revoked.clone(), Arc::clone(&provider))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(unusable(&files.certificate))?.with_client_cert_verifier(verifier);
    let mut server = builder.with_single_cert(chain.clone(), key()?).map_err(unusable(&files.key))?;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;

    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(unusable(&files.certificate))?.dangerous();
    let builder =
        builder.with_custom_certificate_verifier(Arc::new(OfTheCluster { roots, revoked: revoked.clone(), provider }));
    let mut client = builder.with_client_auth_cert(chain, key()?).map_err(unusable(&files.key))?;
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    Ok(TlsConfigs { identity, client: Arc::new(client), server: Arc::new(server), expires, revoked })
}

/// The identity in a certificate: its only `nigh://` name. Call it with certificates that were verified.
fn identity_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut found = parsed.valid_uri_names().filter(|uri| uri.starts_with("nigh://"));
    let identity = Identity::of_uri(found.next()?);
    identity.filter(|_| found.next().is_none())
}

/// Accepts server certificates that the cluster's authority signed and that are not revoked. The hello is compared with
/// their identity later.
#[derive(Debug)]
struct OfTheCluster {
    roots: Arc<RootCertStore>,
    revoked: Revocations,
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
        match PeerCertificate::of(certificate) {
            Some(peer) if peer.is_in(&self.revoked) => Err(revoked()),
            _ => Ok(ServerCertVerified::assertion()),
        }
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
