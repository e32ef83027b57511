//! The certificates of a node: that of its doors, and that of its calls to other nodes.
//!
//! Each is read again when its files change; `reload` reads them at once and reports what cannot be used.

use std::sync::Arc;

use nigh_http::tls::server::{DoorFiles, DoorTls};
use nigh_rpc::certificates::{CertificateError, CertificateFacts};
use nigh_rpc::{Credentials, Security};
use nigh_terms::Timestamp;

use crate::config::{ClientCertificate, Settings};
use crate::reload::{Apply, Reload};
use crate::status::Level;

/// The name of their level.
pub const LEVEL: &str = "tls";
/// A certificate that ends so soon is to be renewed.
const RENEW_DAYS: i64 = 14;
const DAY_SECONDS: i64 = 24 * 3600;

/// The certificates of a node. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct DoorCertificates {
    doors: Option<Arc<DoorTls>>,
    admin: Option<Arc<DoorTls>>,
    cluster: Option<Arc<Credentials>>,
}

impl DoorCertificates {
    /// Reads those of the doors.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn open(settings: &Settings) -> Result<Self, CertificateError> {
        let Some(files) = settings.tls.files() else { return Ok(Self::default()) };
        let oldest = settings.tls.minimum_version.oldest();
        let doors = Arc::new(DoorTls::open(files.clone(), oldest)?);
        let admin = match settings.admin.client_certificate {
            ClientCertificate::No => Arc::clone(&doors),
            ClientCertificate::Required => {
                let client_authority = settings.tls.client_authority.clone();
                Arc::new(DoorTls::open(DoorFiles { client_authority, ..files }, oldest)?)
            }
        };
        Ok(Self { doors: Some(doors), admin: Some(admin), cluster: None })
    }

    /// The same, with what secures the calls between nodes.
    #[must_use]
    pub fn with_cluster(self, calls: Option<&Security>) -> Self {
        let cluster = match calls {
            Some(Security::Tls(credentials)) => Some(Arc::clone(credentials)),
            Some(Security::Plain) | None => None,
        };
        Self { cluster, ..self }
    }

    /// The TLS of all doors but the admin door; none without TLS.
    #[must_use]
    pub const fn doors(&self) -> Option<&Arc<DoorTls>> {
        self.doors.as_ref()
    }

    /// The TLS of the admin door; none without TLS.
    #[must_use]
    pub const fn admin(&self) -> Option<&Arc<DoorTls>> {
        self.admin.as_ref()
    }

    /// Checks that all files can be used; nothing changes.
    ///
    /// # Errors
    /// The first certificate that cannot be used.
    pub fn check_files(&self) -> Result<(), CertificateError> {
        self.doors.iter().chain(&self.admin).try_for_each(|tls| tls.check_files())?;
        self.cluster.iter().try_for_each(|credentials| credentials.check_files())
    }

    /// Reads all files again. True if any has changed since it was last read.
    ///
    /// # Errors
    /// The first certificate that cannot be used. It and the later ones stay as they were.
    pub fn reload(&self) -> Result<bool, CertificateError> {
        let mut has_changed = false;
        for tls in self.doors.iter().chain(&self.admin) {
            has_changed |= tls.reload()?;
        }
        if let Some(credentials) = &self.cluster {
            has_changed |= credentials.reload()?;
        }
        Ok(has_changed)
    }

    /// When each certificate ends, by name.
    #[must_use]
    pub fn expiries(&self) -> Vec<(&'static str, Timestamp)> {
        let ends = |seconds: i64| Timestamp(seconds.max(0).unsigned_abs() * 1000);
        let doors = self.doors.iter().map(|tls| ("doors", ends(tls.facts().until.unix_timestamp())));
        let cluster = self.cluster.iter().map(|calls| ("cluster", ends(calls.expires().unix_timestamp())));
        doors.chain(cluster).collect()
    }

    /// One line for the status, at `now` (seconds since 1970); none without TLS.
    #[must_use]
    pub fn level(&self, now: i64) -> Option<Level> {
        self.doors.as_ref().map(|tls| level(&tls.facts(), now))
    }
}

/// Files of certificates are read again whether or not their settings changed; other files need a restart.
impl Reload for DoorCertificates {
    fn name(&self) -> &'static str {
        "certificates"
    }

    fn takes(&self, _: &str) -> bool {
        false
    }

    fn check(&self, _: &Settings) -> Result<Apply, String> {
        self.check_files().map_err(|error| error.to_string())?;
        let certificates = self.clone();
        Ok(Box::new(move || {
            certificates.reload().unwrap_or_else(|error| {
                tracing::error!(%error, "a certificate was not read again");
                false
            })
        }))
    }
}

fn level(facts: &CertificateFacts, now: i64) -> Level {
    let names: Vec<String> =
        facts.hosts.iter().cloned().chain(facts.addresses.iter().map(ToString::to_string)).collect();
    let whose = format!("certificate of {}", names.join(", "));
    let (until, days) = (facts.until.date(), (facts.until.unix_timestamp() - now).div_euclid(DAY_SECONDS));
    let (on, detail) = match days {
        ..0 => (false, format!("the {whose} has ended on {until}: clients refuse the doors; renew it")),
        0..RENEW_DAYS => (true, format!("{whose}, until {until} only: renew it")),
        _ => (true, format!("{whose}, until {until}")),
    };
    Level { name: LEVEL.to_owned(), on, detail }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nigh_rpc::certificates::Authority;
    use nigh_rpc::{CertificateFiles, Identity, Role};
    use nigh_terms::ByteSize;

    use super::*;
    use crate::config::TlsSettings;
    use crate::machine::Machine;

    fn settings(folder: &Path) -> Settings {
        let machine = Machine { hostname: "n1".to_owned(), memory: ByteSize::gib(8), cpus: 2 };
        Settings::defaults(folder, &machine)
    }

    #[test]
    fn all_doors_have_one_certificate_and_without_one_they_have_no_tls() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path());
        let none = DoorCertificates::open(&settings).unwrap();
        assert!(none.doors().is_none() && none.level(0).is_none() && !none.reload().unwrap());
        let authority = Authority::create(folder.path(), "lab", 10).unwrap();
        let node = Identity::new("lab", Role::Node, "n1").unwrap();
        let files = authority.issue(&node, &["n1.example".to_owned()], 30, false).unwrap();
        let CertificateFiles { authority: of_clients, certificate, key } = files;
        settings.tls = TlsSettings {
            certificate: Some(certificate),
            key: Some(key),
            client_authority: Some(of_clients),
            ..TlsSettings::default()
        };
        let one = DoorCertificates::open(&settings).unwrap();
        assert!(Arc::ptr_eq(one.doors().unwrap(), one.admin().unwrap()));
        settings.admin.client_certificate = ClientCertificate::Required;
        let two = DoorCertificates::open(&settings).unwrap();
        assert!(!Arc::ptr_eq(two.doors().unwrap(), two.admin().unwrap()));
        let [(name, until)] = two.expiries()[..] else { panic!("one certificate") };
        assert_eq!(name, "doors");
        let until = until.date().unix_timestamp();
        let at = |days: i64| two.level(until - days * DAY_SECONDS).unwrap();
        assert!(at(20).on && at(20).detail.contains("n1.example") && !at(20).detail.contains("renew"));
        assert!(at(3).on && at(3).detail.contains("renew it"));
        assert!(!at(-1).on && at(-1).detail.contains("has ended"));
        authority.issue(&node, &[], 30, true).unwrap();
        two.check_files().unwrap();
        assert!(two.reload().unwrap() && !two.reload().unwrap());
        std::fs::write(settings.tls.key.as_ref().unwrap(), "no key").unwrap();
        assert!(two.check_files().unwrap_err().to_string().contains("n1.key"));
        assert!(two.reload().unwrap_err().to_string().contains("n1.key"));
    }
}
