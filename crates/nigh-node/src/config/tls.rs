//! Settings of TLS at the doors, all of which have one certificate.

use std::path::PathBuf;

use nigh_http::tls::server::{DoorFiles, OldestTls};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ConfigError;

/// TLS of all doors: S3, Lambda, OpenWhisk, admin, health, and that for outside writes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSettings {
    /// The PEM file of the doors' certificate, with those between it and its authority behind it. If absent, the doors speak
    /// plain HTTP. New files are used from the next connection on.
    pub certificate: Option<PathBuf>,
    /// The PEM file of its key.
    pub key: Option<PathBuf>,
    /// The PEM file of its authority, for clients: `endpoints.json` and `nigh env` name it. If absent, clients trust whom their
    /// system trusts.
    pub authority: Option<PathBuf>,
    /// The oldest version of TLS that the doors speak: `1.2` or `1.3`.
    pub minimum_version: MinimumVersion,
    /// The PEM file of the authorities of clients' certificates (`admin.client_certificate`); `revoked.txt` beside it names
    /// revoked ones.
    pub client_authority: Option<PathBuf>,
}

/// The oldest version of TLS, as the settings have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinimumVersion {
    /// TLS 1.2.
    #[default]
    V12,
    /// TLS 1.3.
    V13,
}

impl MinimumVersion {
    const fn text(self) -> &'static str {
        match self {
            Self::V12 => "1.2",
            Self::V13 => "1.3",
        }
    }

    /// The version, as doors have it.
    #[must_use]
    pub const fn oldest(self) -> OldestTls {
        match self {
            Self::V12 => OldestTls::V12,
            Self::V13 => OldestTls::V13,
        }
    }
}

impl Serialize for MinimumVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

impl<'de> Deserialize<'de> for MinimumVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Without quotes, a file has a number.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Number(f64),
        }
        let text = match Form::deserialize(deserializer)? {
            Form::Text(text) => text,
            Form::Number(number) => number.to_string(),
        };
        let known = [Self::V12, Self::V13].into_iter().find(|version| version.text() == text.trim());
        known.ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no version; write \"1.2\" or \"1.3\"")))
    }
}

/// Whether the clients of a door need a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificate {
    /// Each client needs one that an authority of `tls.client_authority` signed.
    Required,
    /// Clients need none.
    #[default]
    No,
}

impl TlsSettings {
    /// The files of the doors' certificate; none without TLS.
    #[must_use]
    pub fn files(&self) -> Option<DoorFiles> {
        let (certificate, key) = self.certificate.clone().zip(self.key.clone())?;
        Some(DoorFiles { certificate, key, client_authority: None })
    }

    /// The broken rules of the table, and of `admin.client_certificate`.
    pub(super) fn faults(&self, of_admin: ClientCertificate) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        let mut broken = |key: &str, why: &str| faults.push(ConfigError::rule(key, why.to_owned()));
        if self.certificate.is_some() != self.key.is_some() {
            broken("tls.certificate", "set both tls.certificate and tls.key, or none");
        }
        if of_admin == ClientCertificate::Required && (self.certificate.is_none() || self.client_authority.is_none()) {
            let why = "clients show certificates over TLS only: set tls.certificate, tls.key and tls.client_authority";
            broken("admin.client_certificate", why);
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_has_a_key_and_required_client_certificates_have_an_authority() {
        let path = || Some(PathBuf::from("/c"));
        let said = |settings: &TlsSettings, of_admin| {
            let faults = settings.faults(of_admin);
            faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let none = TlsSettings::default();
        assert!(said(&none, ClientCertificate::No).is_empty() && none.files().is_none());
        assert!(said(&none, ClientCertificate::Required).contains("tls.client_authority"));
        let half = TlsSettings { key: path(), ..TlsSettings::default() };
        assert!(said(&half, ClientCertificate::No).contains("set both tls.certificate and tls.key"));
        let whole = TlsSettings { certificate: path(), client_authority: path(), ..half };
        assert!(said(&whole, ClientCertificate::Required).is_empty() && whole.files().is_some());
    }

    #[test]
    fn a_version_may_be_a_text_or_a_number() {
        let parse = |text: &str| serde_json::from_str::<MinimumVersion>(text);
        assert_eq!(parse("\"1.3\"").unwrap(), MinimumVersion::V13);
        assert_eq!(parse("1.2").unwrap(), MinimumVersion::V12);
        assert!(parse("\"1.1\"").unwrap_err().to_string().contains("\"1.3\""));
        assert_eq!(serde_json::to_string(&MinimumVersion::V12).unwrap(), "\"1.2\"");
    }
}
