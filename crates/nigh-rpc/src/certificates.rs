//! A cluster's own authority, and the certificates that it issues (`nigh certificates`).
//!
//! A folder holds `authority.crt` and `authority.key`, and a `NAME.crt` and `NAME.key` for each process. Keys are files of
//! mode 0600. An authority signs for the cluster in its own name; a certificate serves clients and servers.
//!
//! While one authority replaces another, `authority.crt` holds both; the one whose key is in `authority.key` signs.

mod authority_change;

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use self::authority_change::{is_of, read_pair};
use crate::certificate_files::CertificateFiles;
pub use crate::certificate_files::{CertificateError, read_certificates, read_key, read_revocations};
pub use crate::file_stamps::FileStamps;
use crate::identity::{Identity, checked};
pub use crate::revocations::Revocations;
pub use crate::security::{authorities, client_verifier};
pub use crate::x509::CertificateFacts;

/// The name of the authority's files.
const AUTHORITY: &str = "authority";
/// The role in the name of an authority's certificate.
const AUTHORITY_ROLE: &str = "authority";
/// A certificate is valid from this long before it was made, because clocks differ.
const CLOCKS_DIFFER: Duration = Duration::hours(1);

/// A cluster's authority.
pub struct Authority {
    folder: PathBuf,
    cluster: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority in `folder`, valid for `days`.
    ///
    /// # Errors
    /// If the folder has an authority already, or cannot be written.
    pub fn create(folder: &Path, cluster: &str, days: u32) -> Result<Self, CertificateError> {
        let cluster = checked(cluster)?.to_owned();
        let (certificate, key) = own_files(folder);
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

    /// Opens the authority in `folder`.
    ///
    /// # Errors
    /// If the folder has no authority.
    pub fn open(folder: &Path) -> Result<Self, CertificateError> {
        let (certificate, key) = own_files(folder);
        if !certificate.exists() {
            return Err(CertificateError::NoAuthority(certificate));
        }
        let (all, pair) = (read_certificates(&certificate)?, read_pair(&key)?);
        let own = all.iter().find(|one| is_of(one, &pair)).ok_or_else(|| CertificateError::Unusable {
            path: key.clone(),
            reason: format!("it is the key of no certificate in {}", certificate.display()),
        })?;
        let facts = CertificateFacts::read(own);
        let cluster = facts.and_then(|one| one.uris.iter().find_map(|uri| authority_of(uri)));
        let cluster = cluster.ok_or_else(|| CertificateError::NoAuthority(certificate.clone()))?;
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

    /// Makes a key and a certificate for `identity` and its `addresses`, valid for `days`. `renew` replaces existing ones.
    ///
    /// # Errors
    /// If they exist already, an address is invalid, or the folder cannot be written.
    pub fn issue(
        &self,
        identity: &Identity,
        addresses: &[String],
        days: u32,
        renew: bool,
    ) -> Result<CertificateFiles, CertificateError> {
        self.issue_at(identity, addresses, OffsetDateTime::now_utc(), days, renew)
    }

    /// As `issue`, at the time `now`.
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
        let revoked = read_revocations(&files.revoked())?.revoked_at(identity);
        let made = self.sign(identity, addresses, (now, days, revoked), &pair)?;
        // A process that reads between the two writes finds a key of another certificate, and keeps its old files.
        write_over(&files.key, &pair.serialize_pem(), 0o600)?;
        write_over(&files.certificate, &made.pem(), 0o644)?;
        Ok(files)
    }

    fn sign(
        &self,
        identity: &Identity,
        addresses: &[String],
        (now, days, revoked): (OffsetDateTime, u32, Option<OffsetDateTime>),
        pair: &KeyPair,
    ) -> Result<Certificate, CertificateError> {
        // `*.HOST` names all hosts directly below HOST.
        let is_host = |name: &str| checked(name.strip_prefix("*.").unwrap_or(name)).is_ok();
        if let Some(odd) = addresses.iter().find(|one| one.parse::<IpAddr>().is_err() && !is_host(one)) {
            return Err(CertificateError::Address(odd.clone()));
        }
        // `new` distinguishes addresses from names.
        let mut params = CertificateParams::new(addresses.to_vec())?;
        params.subject_alt_names.insert(0, SanType::URI(identity.uri().try_into()?));
        named(&mut params, identity.name());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        valid_for(&mut params, now, days)?;
        // Older certificates of this process are revoked, this one is not.
        if let Some(date) = revoked {
            params.not_before = params.not_before.max(date + Duration::seconds(1));
        }
        Ok(params.signed_by(pair, &self.issuer)?)
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({} in {})", self.cluster, self.folder.display())
    }
}

/// The facts in the certificates of a file.
///
/// # Errors
/// If the file has no certificate, or cannot be read.
pub fn describe(path: &Path) -> Result<Vec<CertificateFacts>, CertificateError> {
    let read = read_certificates(path)?;
    read.iter().map(|one| CertificateFacts::read(one).ok_or_else(|| damaged(path))).collect()
}

fn damaged(path: &Path) -> CertificateError {
    CertificateError::Unusable { path: path.to_owned(), reason: "it holds a damaged certificate".to_owned() }
}

/// The certificate and the key of the authority in `folder`.
fn own_files(folder: &Path) -> (PathBuf, PathBuf) {
    (folder.join(format!("{AUTHORITY}.crt")), folder.join(format!("{AUTHORITY}.key")))
}

fn authority_of(uri: &str) -> Option<String> {
    let (cluster, role) = uri.strip_prefix("nigh://")?.split_once('/')?;
    (role == AUTHORITY_ROLE).then(|| cluster.to_owned())
}

/// Apart from the validity, always the same for a cluster: certificates name their issuer by it.
fn authority_params(cluster: &str) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::default();
    named(&mut params, &format!("Nigh cluster {cluster}"));
    params.subject_alt_names = vec![SanType::URI(format!("nigh://{cluster}/{AUTHORITY_ROLE}").try_into()?)];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Sets the common name, of which X.509 allows 64 bytes; the identity is in the `nigh://` name.
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

/// Writes a file beside `path` and renames it.
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
