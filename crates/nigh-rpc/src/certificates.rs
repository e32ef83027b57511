//! A cluster's own authority, and the certificates that it issues (`nigh certificates`).
//!
//! In its folder lie `authority.crt` and `authority.key`, and a `NAME.crt` and `NAME.key` for each process. Keys are
//! made with mode 0600 and leave only as files. An authority signs for one cluster, which its own name says; a certificate
//! serves for calling and for answering.

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use thiserror::Error;
use time::{Duration, OffsetDateTime};

use crate::identity::{Identity, NameError, checked};
use crate::security::CertificateFiles;
pub use crate::x509::CertificateFacts;

/// The name of the authority's files.
const AUTHORITY: &str = "authority";
/// What an authority's certificate says it is: its cluster's.
const AUTHORITY_ROLE: &str = "authority";
/// A certificate is valid from so much before it was made: clocks differ.
const CLOCKS_DIFFER: Duration = Duration::hours(1);

/// Why certificates cannot be made or used.
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
    #[error("{} is there already; {hint}", .path.display())]
    Exists {
        /// Which.
        path: PathBuf,
        /// What to do.
        hint: &'static str,
    },
    /// It holds something else.
    #[error("{}: no PEM that can be read: {reason}", .path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It holds no certificate.
    #[error("{}: no certificate", .0.display())]
    NoCertificate(PathBuf),
    /// It names nobody.
    #[error("{}: no certificate of a process of Nigh's; `nigh certificates issue` makes one", .0.display())]
    Nameless(PathBuf),
    /// It is not an authority of Nigh's.
    #[error("{}: no authority of Nigh's; `nigh certificates init` makes one", .0.display())]
    NoAuthority(PathBuf),
    /// It cannot be used.
    #[error("{}: {reason}", .path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A name or an address.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An address that a certificate cannot have.
    #[error("{0:?} is neither an address nor a host's name")]
    Address(String),
    /// A time that a certificate cannot have.
    #[error("{0} days are no validity")]
    Validity(u32),
    /// The authority signs for another cluster.
    #[error("this authority signs for the cluster {ours:?}, not for {theirs:?}")]
    OtherCluster {
        /// The authority's.
        ours: String,
        /// The one asked for.
        theirs: String,
    },
    /// Making it failed.
    #[error("a certificate cannot be made: {0}")]
    Making(#[from] rcgen::Error),
}

impl CertificateError {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |reason| Self::File { path: path.to_owned(), reason }
    }

    pub(crate) fn reading(path: &Path) -> impl FnOnce(pem::Error) -> Self {
        move |error| match error {
            pem::Error::Io(reason) => Self::File { path: path.to_owned(), reason },
            other => Self::Pem { path: path.to_owned(), reason: other.to_string() },
        }
    }
}

/// A cluster's authority.
pub struct Authority {
    folder: PathBuf,
    cluster: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes one in `folder`, for `days`.
    ///
    /// # Errors
    /// If there is one already, or the folder cannot be written.
    pub fn create(folder: &Path, cluster: &str, days: u32) -> Result<Self, CertificateError> {
        let cluster = checked(cluster)?.to_owned();
        let (certificate, key) = (folder.join(format!("{AUTHORITY}.crt")), folder.join(format!("{AUTHORITY}.key")));
        for path in [&certificate, &key] {
            if path.symlink_metadata().is_ok() {
                return Err(CertificateError::Exists { path: path.clone(), hint: "name another folder" });
            }
        }
        std::fs::create_dir_all(folder).map_err(CertificateError::file(folder))?;
        let pair = KeyPair::generate()?;
        let mut params = authority_params(&cluster)?;
        valid_for(&mut params, OffsetDateTime::now_utc(), days)?;
        let made = params.self_signed(&pair)?;
        write_new(&key, &pair.serialize_pem(), 0o600)?;
        write_new(&certificate, &made.pem(), 0o644)?;
        Ok(Self { folder: folder.to_owned(), cluster, issuer: Issuer::new(params, pair) })
    }

    /// Opens the one in `folder`.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(folder: &Path) -> Result<Self, CertificateError> {
        let (certificate, key) = (folder.join(format!("{AUTHORITY}.crt")), folder.join(format!("{AUTHORITY}.key")));
        if !certificate.exists() {
            return Err(CertificateError::NoAuthority(certificate));
        }
        let described = describe(&certificate)?.into_iter().next();
        let cluster = described.and_then(|one| one.uris.iter().find_map(|uri| authority_of(uri)));
        let cluster = cluster.ok_or_else(|| CertificateError::NoAuthority(certificate.clone()))?;
        let text = std::fs::read_to_string(&key).map_err(CertificateError::file(&key))?;
        let pair = KeyPair::from_pem(&text);
        let pair = pair.map_err(|error| CertificateError::Pem { path: key.clone(), reason: error.to_string() })?;
        let issuer = Issuer::new(authority_params(&cluster)?, pair);
        Ok(Self { folder: folder.to_owned(), cluster, issuer })
    }

    /// The cluster that it signs for.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The files of the process `name`.
    #[must_use]
    pub fn files(&self, name: &str) -> CertificateFiles {
        CertificateFiles {
            authority: self.folder.join(format!("{AUTHORITY}.crt")),
            certificate: self.folder.join(format!("{name}.crt")),
            key: self.folder.join(format!("{name}.key")),
        }
    }

    /// Makes a key and a certificate for `identity`, which also names `addresses`, for `days`. Those that are there are
    /// replaced only to `renew` them.
    ///
    /// # Errors
    /// If they are there already, or an address is none, or the folder cannot be written.
    pub fn issue(
        &self,
        identity: &Identity,
        addresses: &[String],
        days: u32,
        renew: bool,
    ) -> Result<CertificateFiles, CertificateError> {
        self.issue_at(identity, addresses, OffsetDateTime::now_utc(), days, renew)
    }

    /// The same as if it were `now`.
    ///
    /// # Errors
    /// As `issue`.
    pub fn issue_at(
        &self,
        identity: &Identity,
        addresses: &[String],
        now: OffsetDateTime,
        days: u32,
        renew: bool,
    ) -> Result<CertificateFiles, CertificateError> {
        if identity.cluster() != self.cluster {
            let (ours, theirs) = (self.cluster.clone(), identity.cluster().to_owned());
            return Err(CertificateError::OtherCluster { ours, theirs });
        }
        let files = self.files(identity.name());
        let own = identity.name() == AUTHORITY;
        for path in [&files.certificate, &files.key] {
            if path.symlink_metadata().is_ok() && (own || !renew) {
                let hint = if own { "it is the authority's" } else { "renew it (--renew), or take another name" };
                return Err(CertificateError::Exists { path: path.clone(), hint });
            }
        }
        let pair = KeyPair::generate()?;
        let made = self.sign(identity, addresses, (now, days), &pair)?;
        // Whoever reads the two in between has a key that is not its certificate's, and stays with what it had.
        write_over(&files.key, &pair.serialize_pem(), 0o600)?;
        write_over(&files.certificate, &made.pem(), 0o644)?;
        Ok(files)
    }

    fn sign(
        &self,
        identity: &Identity,
        addresses: &[String],
        (now, days): (OffsetDateTime, u32),
        pair: &KeyPair,
    ) -> Result<Certificate, CertificateError> {
        if let Some(odd) = addresses.iter().find(|one| one.parse::<IpAddr>().is_err() && checked(one).is_err()) {
            return Err(CertificateError::Address(odd.clone()));
        }
        // `new` tells addresses from names.
        let mut params = CertificateParams::new(addresses.to_vec())?;
        params.subject_alt_names.insert(0, SanType::URI(identity.uri().try_into()?));
        named(&mut params, identity.name());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        valid_for(&mut params, now, days)?;
        Ok(params.signed_by(pair, &self.issuer)?)
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({} in {})", self.cluster, self.folder.display())
    }
}

/// What the certificates in a file say.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn describe(path: &Path) -> Result<Vec<CertificateFacts>, CertificateError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(CertificateError::reading(path))?;
    let described = read
        .iter()
        .map(|one| CertificateFacts::read(one).ok_or_else(|| damaged(path)))
        .collect::<Result<Vec<_>, _>>()?;
    if described.is_empty() { Err(CertificateError::NoCertificate(path.to_owned())) } else { Ok(described) }
}

fn damaged(path: &Path) -> CertificateError {
    CertificateError::Unusable { path: path.to_owned(), reason: "a certificate that cannot be read".to_owned() }
}

fn authority_of(uri: &str) -> Option<String> {
    let (cluster, role) = uri.strip_prefix("nigh://")?.split_once('/')?;
    (role == AUTHORITY_ROLE).then(|| cluster.to_owned())
}

/// The same each time it is asked, but for validity: what is signed names it and its key.
fn authority_params(cluster: &str) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::default();
    named(&mut params, &format!("Nigh cluster {cluster}"));
    params.subject_alt_names = vec![SanType::URI(format!("nigh://{cluster}/{AUTHORITY_ROLE}").try_into()?)];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// X.509 allows 64 bytes; who it is is said by its `nigh://` name.
fn named(params: &mut CertificateParams, name: &str) {
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, &name[..name.floor_char_boundary(64)]);
}

fn valid_for(params: &mut CertificateParams, now: OffsetDateTime, days: u32) -> Result<(), CertificateError> {
    let until = now.checked_add(Duration::days(i64::from(days))).filter(|_| days > 0);
    params.not_before = now - CLOCKS_DIFFER;
    params.not_after = until.ok_or(CertificateError::Validity(days))?;
    Ok(())
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let mut options = std::fs::File::options();
    let written = options.write(true).create_new(true).mode(mode).open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(CertificateError::file(path))
}

/// Writes beside `path` and then renames.
fn write_over(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let mut beside = path.to_owned().into_os_string();
    beside.push(".partial");
    let beside = PathBuf::from(beside);
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(CertificateError::file(&beside)(error)),
        _ => {}
    }
    write_new(&beside, text, mode)?;
    std::fs::rename(&beside, path).map_err(CertificateError::file(path))
}
