//! The files of a process' certificate, and why they cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use time::OffsetDateTime;

use crate::identity::NameError;
use crate::revocations::Revocations;

/// The name of the list of revoked certificates.
const REVOKED: &str = "revoked.txt";

/// The PEM files of a process.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The authority's certificate; two while one authority replaces another.
    pub authority: PathBuf,
    /// The process' own certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Why certificates cannot be issued or used.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file.
    #[error("{}: {reason}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// A file would be overwritten.
    #[error("{} exists already; {hint}", .path.display())]
    Exists {
        /// Which.
        path: PathBuf,
        /// What to do.
        hint: &'static str,
    },
    /// The file is no PEM.
    #[error("{}: not readable as PEM: {reason}", .path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file holds no certificate.
    #[error("{} holds no certificate; `nigh certificates --help` says how to make one", .0.display())]
    NoCertificate(PathBuf),
    /// The certificate names no process.
    #[error("{} holds no certificate of a process of Nigh; `nigh certificates issue` makes one", .0.display())]
    Nameless(PathBuf),
    /// The certificate is not of an authority.
    #[error("{} holds no certificate of an authority of Nigh; `nigh certificates init` makes one", .0.display())]
    NoAuthority(PathBuf),
    /// The certificate or the key cannot be used.
    #[error("{}: {reason}", .path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The name of a cluster or a process is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The address is invalid.
    #[error("{0:?} is neither an IP address nor a host name")]
    Address(String),
    /// The validity is invalid.
    #[error("a certificate cannot be valid for {0} days")]
    Validity(u32),
    /// The authority signs for another cluster.
    #[error("this authority signs for the cluster {ours:?}, not for {theirs:?}")]
    OtherCluster {
        /// The authority's cluster.
        ours: String,
        /// The requested cluster.
        theirs: String,
    },
    /// The certificate is over, or its time has not come.
    #[error("{}: the certificate is valid from {from} to {until}, and not now; renew it", .path.display())]
    NotValidNow {
        /// Which.
        path: PathBuf,
        /// Valid from.
        from: OffsetDateTime,
        /// Valid until.
        until: OffsetDateTime,
    },
    /// The list of revoked certificates is damaged.
    #[error(
        "{}, line {line}: write nigh://CLUSTER/ROLE/NAME and a date, or let `nigh certificates revoke` write it",
        .path.display()
    )]
    Revocations {
        /// Which.
        path: PathBuf,
        /// The first damaged line.
        line: usize,
    },
    /// There are two authorities already.
    #[error(
        "{} holds two authorities already; end that change first: `nigh certificates authority retire`", .0.display()
    )]
    Changing(PathBuf),
    /// There is one authority only.
    #[error("{} holds one authority only; `nigh certificates authority add` adds the next one", .0.display())]
    NotChanging(PathBuf),
    /// Certificates of the former authority are in use.
    #[error(
        "the former authority signed {}: first renew them (`nigh certificates issue FOLDER NAME --renew`) and copy them to \
         their nodes, or give --force",
        .0.join(", ")
    )]
    StillUsed(Vec<String>),
    /// The certificate could not be generated.
    #[error("the certificate cannot be generated: {0}")]
    Making(#[from] rcgen::Error),
}

impl CertificateFiles {
    /// The list of revoked certificates, beside the authority's; it need not exist.
    #[must_use]
    pub fn revoked(&self) -> PathBuf {
        self.authority.with_file_name(REVOKED)
    }
}

/// The certificates in a PEM file.
///
/// # Errors
/// If the file cannot be read, or holds none.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(CertificateError::reading(path))?;
    if read.is_empty() { Err(CertificateError::NoCertificate(path.to_owned())) } else { Ok(read) }
}

/// The private key in a PEM file.
///
/// # Errors
/// If the file cannot be read, or holds none.
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    PrivateKeyDer::from_pem_file(path).map_err(CertificateError::reading(path))
}

/// The list of revoked certificates at `path`; an empty one if there is no file.
///
/// # Errors
/// If the file cannot be read, or a line of it is damaged.
pub fn read_revocations(path: &Path) -> Result<Revocations, CertificateError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Revocations::default()),
        Err(error) => return Err(CertificateError::file(path)(error)),
    };
    Revocations::parse(&text).map_err(|line| CertificateError::Revocations { path: path.to_owned(), line })
}

impl CertificateError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |reason| Self::File { path: path.to_owned(), reason }
    }

    pub(crate) fn unusable(path: &Path) -> impl FnOnce(rustls::Error) -> Self {
        move |error| Self::Unusable { path: path.to_owned(), reason: error.to_string() }
    }

    pub(crate) fn reading(path: &Path) -> impl FnOnce(pem::Error) -> Self {
        move |error| match error {
            pem::Error::Io(reason) => Self::File { path: path.to_owned(), reason },
            other => Self::Pem { path: path.to_owned(), reason: other.to_string() },
        }
    }
}
