//! The client's side: which authorities it trusts, and what a failed handshake means.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nigh_rpc::certificates::{CertificateError, authorities};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::HTTP_1;

/// The authorities that a client trusts.
#[derive(Clone)]
pub struct ClientTls {
    connector: TlsConnector,
    bundle: Option<PathBuf>,
}

impl ClientTls {
    /// Trusts the authorities in `bundle`; without one, those of the system.
    ///
    /// # Errors
    /// If the file cannot be read, or holds no usable certificate.
    pub fn trusting(bundle: Option<&Path>) -> Result<Self, CertificateError> {
        let roots = match bundle {
            Some(path) => authorities(path)?,
            None => {
                let mut roots = RootCertStore::empty();
                // What cannot be read or used is not trusted; a server that needs it is refused, and named.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                Arc::new(roots)
            }
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| CertificateError::Unusable {
            path: bundle.map(Path::to_owned).unwrap_or_default(),
            reason: error.to_string(),
        })?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![HTTP_1.to_vec()];
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), bundle: bundle.map(Path::to_owned) })
    }

    /// Makes the handshake with `host`, a name or an address.
    ///
    /// # Errors
    /// If the server does not speak TLS, or its certificate is not trusted or not of `host`; the text says what to do.
    pub async fn connect<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // An IPv6 address is in brackets in a URL.
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned()).map_err(io::Error::other)?;
        let connected = self.connector.connect(name, stream).await;
        connected.map_err(|error| io::Error::new(error.kind(), self.reason(&error)))
    }

    /// Why a handshake failed, and what to do.
    fn reason(&self, error: &io::Error) -> String {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let trusted = || match &self.bundle {
            Some(path) => format!("by {}", path.display()),
            None => "by this system".to_owned(),
        };
        match inner {
            // A bad signature is one of another authority of the same name.
            Some(rustls::Error::InvalidCertificate(
                rustls::CertificateError::UnknownIssuer | rustls::CertificateError::BadSignature,
            )) => {
                format!(
                    "its certificate is not trusted {}; name its authority's file with --ca or NIGH_CA_BUNDLE",
                    trusted()
                )
            }
            Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS; write http:// in its URL".to_owned(),
            Some(reason) => reason.to_string(),
            None if error.kind() == io::ErrorKind::UnexpectedEof => "it broke off the TLS handshake".to_owned(),
            None => error.to_string(),
        }
    }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClientTls").field(&self.bundle).finish()
    }
}
