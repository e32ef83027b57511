//! What a server asks of its clients' certificates: an authority in a file signed them, and they are not revoked.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::PeerCertificate;
use crate::certificate_files::{CertificateError, read_certificates};
use crate::revocations::Revocations;

/// Accepts the certificates that `signed` accepts and that are not revoked. A client without one is refused.
#[derive(Debug)]
struct UnrevokedClients {
    signed: Arc<dyn ClientCertVerifier>,
    revoked: Revocations,
}

/// The error of a handshake with a revoked certificate.
pub(super) const fn revoked() -> Error {
    Error::InvalidCertificate(rustls::CertificateError::Revoked)
}

/// The authorities in a file.
///
/// # Errors
/// If the file cannot be read, or holds no usable certificate.
pub fn authorities(path: &Path) -> Result<Arc<RootCertStore>, CertificateError> {
    let mut roots = RootCertStore::empty();
    for root in read_certificates(path)? {
        roots.add(root).map_err(CertificateError::unusable(path))?;
    }
    Ok(Arc::new(roots))
}

/// Requires a certificate of each client, which an authority in the file `authority` signed and `revoked` does not name.
///
/// # Errors
/// If the file holds no usable certificate.
pub fn client_verifier(
    authority: &Path,
    revoked: Revocations,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
    let signed = WebPkiClientVerifier::builder_with_provider(authorities(authority)?, provider).build();
    let signed =
        signed.map_err(|error| CertificateError::Unusable { path: authority.to_owned(), reason: error.to_string() })?;
    Ok(Arc::new(UnrevokedClients { signed, revoked }))
}

impl ClientCertVerifier for UnrevokedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(certificate, between, now)?;
        match PeerCertificate::of(certificate) {
            Some(peer) if peer.is_in(&self.revoked) => Err(revoked()),
            _ => Ok(verified),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
