//! The files of a process' certificate, and why they cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem;
use thiserror::Error;

use crate::identity::NameError;

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
    /// The certificate could not be generated.
    #[error("the certificate cannot be generated: {0}")]
    Making(#[from] rcgen::Error),
}

impl CertificateError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |reason| Self::File { path: path.to_owned(), reason }
    }

    pub(crate) fn reading(path: &Path) -> impl FnOnce(pem::Error) -> Self {
        move |error| match error {
            pem::Error::Io(reason) => Self::File { path: path.to_owned(), reason },
            other => Self::Pem { path: path.to_owned(), reason: other.to_string() },
        }
    }
}
