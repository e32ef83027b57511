//! A door's certificate: read from files, and read again when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nigh_rpc::certificates::{
    CertificateError, CertificateFacts, FileStamps, Revocations, client_verifier, read_certificates, read_key,
    read_revocations,
};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use time::OffsetDateTime;

use super::HTTP_1;

/// The list of revoked clients, beside the file of their authority.
const REVOKED: &str = "revoked.txt";

/// The oldest version of TLS that a door speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldestTls {
    /// TLS 1.2, with the suites that rustls has: forward secret, authenticated encryption.
    V12,
    /// TLS 1.3.
    V13,
}

/// The PEM files of a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorFiles {
    /// The certificate, and behind it those between it and its authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of clients; if there is one, each client needs a certificate, which `revoked.txt` beside it does not
    /// name.
    pub client_authority: Option<PathBuf>,
}

/// The TLS of a door.
#[derive(Debug)]
pub struct DoorTls {
    files: DoorFiles,
    oldest: OldestTls,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    stamps: FileStamps,
    ready: Ready,
    /// What was last logged; the same is not logged again.
    complaint: Option<String>,
}

#[derive(Clone, Debug)]
struct Ready {
    config: Arc<ServerConfig>,
    facts: Arc<CertificateFacts>,
}

impl DoorTls {
    /// Reads the files. A certificate that is over is used, and a warning says so.
    ///
    /// # Errors
    /// If a file is missing or damaged, or the key is not the certificate's.
    pub fn open(files: DoorFiles, oldest: OldestTls) -> Result<Self, CertificateError> {
        let stamps = stamps(&files);
        let ready = load(&files, oldest)?;
        let CertificateFacts { from, until, .. } = *ready.facts;
        if !is_valid(&ready.facts, OffsetDateTime::now_utc()) {
            let error = CertificateError::NotValidNow { path: files.certificate.clone(), from, until };
            tracing::warn!("clients will refuse the doors: {error}");
        }
        Ok(Self { files, oldest, loaded: Mutex::new(Loaded { stamps, ready, complaint: None }) })
    }

    /// The configuration for the next connection. If the files have changed they are read; if they cannot be used, a warning
    /// says so once and the old ones stay in use.
    pub fn current(&self) -> Arc<ServerConfig> {
        let is_changed = stamps(&self.files) != self.loaded.lock().stamps;
        if is_changed && let Err(error) = self.reload() {
            let complaint = error.to_string();
            let mut loaded = self.loaded.lock();
            if loaded.complaint.as_ref() != Some(&complaint) {
                tracing::warn!("the new certificate cannot be used; the old one stays in use: {complaint}");
                loaded.complaint = Some(complaint);
            }
        }
        Arc::clone(&self.loaded.lock().ready.config)
    }

    /// Reads the files now. True if they have changed since they were last read.
    ///
    /// # Errors
    /// If they cannot be used, or the certificate is not valid now and the one in use is; the old ones stay in use.
    pub fn reload(&self) -> Result<bool, CertificateError> {
        let now = stamps(&self.files);
        let mut loaded = self.loaded.lock();
        let is_changed = now != loaded.stamps;
        loaded.stamps = now;
        let ready = self.read_after(&loaded.ready.facts)?;
        (loaded.ready, loaded.complaint) = (ready, None);
        if is_changed {
            tracing::info!("the doors use the new certificate {}", self.files.certificate.display());
        }
        Ok(is_changed)
    }

    /// Checks that the files can be used; nothing changes.
    ///
    /// # Errors
    /// As `reload`.
    pub fn check_files(&self) -> Result<(), CertificateError> {
        let in_use = Arc::clone(&self.loaded.lock().ready.facts);
        self.read_after(&in_use).map(drop)
    }

    fn read_after(&self, in_use: &CertificateFacts) -> Result<Ready, CertificateError> {
        let ready = load(&self.files, self.oldest)?;
        if replaces(&ready.facts, in_use, OffsetDateTime::now_utc()) {
            return Ok(ready);
        }
        let CertificateFacts { from, until, .. } = *ready.facts;
        Err(CertificateError::NotValidNow { path: self.files.certificate.clone(), from, until })
    }

    /// What the certificate in use says.
    #[must_use]
    pub fn facts(&self) -> Arc<CertificateFacts> {
        drop(self.current());
        Arc::clone(&self.loaded.lock().ready.facts)
    }
}

/// True if a certificate that was read replaces the one in use: one that is not valid now replaces none that is.
fn replaces(new: &CertificateFacts, old: &CertificateFacts, now: OffsetDateTime) -> bool {
    is_valid(new, now) || !is_valid(old, now)
}

fn is_valid(facts: &CertificateFacts, now: OffsetDateTime) -> bool {
    facts.from <= now && now < facts.until
}

fn revoked_of(authority: &Path) -> PathBuf {
    authority.with_file_name(REVOKED)
}

fn stamps(files: &DoorFiles) -> FileStamps {
    let of_clients = files.client_authority.as_deref();
    let revoked = of_clients.map(revoked_of);
    FileStamps::of([files.certificate.as_path(), &files.key].into_iter().chain(of_clients).chain(revoked.as_deref()))
}

fn load(files: &DoorFiles, oldest: OldestTls) -> Result<Ready, CertificateError> {
    let unusable = |path: &Path, error: &dyn std::error::Error| CertificateError::Unusable {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let chain = read_certificates(&files.certificate)?;
    let facts = CertificateFacts::read(&chain[0]).ok_or_else(|| CertificateError::Unusable {
        path: files.certificate.clone(),
        reason: "its first certificate is damaged".to_owned(),
    })?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let both = [&TLS13, &TLS12];
    let versions = match oldest {
        OldestTls::V12 => &both[..],
        OldestTls::V13 => &both[..1],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions);
    let builder = builder.map_err(|error| unusable(&files.certificate, &error))?;
    let builder = match &files.client_authority {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let revoked: Revocations = read_revocations(&revoked_of(authority))?;
            builder.with_client_cert_verifier(client_verifier(authority, revoked, provider)?)
        }
    };
    let config = builder.with_single_cert(chain, read_key(&files.key)?);
    let mut config = config.map_err(|error| unusable(&files.key, &error))?;
    config.alpn_protocols = vec![HTTP_1.to_vec()];
    if files.client_authority.is_some() {
        // Each connection shows its certificate: a resumed one would not.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Ready { config: Arc::new(config), facts: Arc::new(facts) })
}

#[cfg(test)]
mod tests;
