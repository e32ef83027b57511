//! Replaces an authority while its certificates are in use, and revokes certificates.
//!
//! `add` makes the next authority, which signs from then on; `authority.crt` holds both, so that processes trust the
//! certificates of both. When all certificates are renewed, `retire` removes the former one. Each step is whole or not done
//! after a crash: the certificate is there before its key, and the one whose key is there signs.

use std::path::{Path, PathBuf};

use rcgen::{Issuer, KeyPair, PublicKeyData as _};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{Error, RootCertStore};
use time::OffsetDateTime;

use super::{AUTHORITY, Authority, authority_params, own_files, valid_for, write_over};
use crate::certificate_files::{CertificateError, read_certificates, read_revocations};
use crate::identity::Identity;

impl Authority {
    /// Makes the next authority of the folder, valid for `days`. It signs from now on; the former one stays trusted.
    ///
    /// # Errors
    /// If there are two authorities already, or the folder cannot be written.
    pub fn add(folder: &Path, days: u32) -> Result<Self, CertificateError> {
        let former = Self::open(folder)?;
        let (certificate, key) = own_files(folder);
        if read_certificates(&certificate)?.len() > 1 {
            return Err(CertificateError::Changing(certificate));
        }
        let pair = KeyPair::generate()?;
        let mut params = authority_params(&former.cluster)?;
        valid_for(&mut params, OffsetDateTime::now_utc(), days)?;
        let next = params.self_signed(&pair)?.pem();
        let known = std::fs::read_to_string(&certificate).map_err(CertificateError::file(&certificate))?;
        write_over(&certificate, &format!("{}\n{}", next.trim_end(), known), 0o644)?;
        write_over(&key, &pair.serialize_pem(), 0o600)?;
        Ok(Self { folder: folder.to_owned(), cluster: former.cluster, issuer: Issuer::new(params, pair) })
    }

    /// Removes all authorities of the folder but the one that signs. Unless `even_if_used`, no certificate of the folder may
    /// be of another.
    ///
    /// # Errors
    /// If there is one authority only, the others are used, or the folder cannot be written.
    pub fn retire(folder: &Path, even_if_used: bool) -> Result<(), CertificateError> {
        let (certificate, key) = own_files(folder);
        if !certificate.exists() {
            return Err(CertificateError::NoAuthority(certificate));
        }
        let all = read_certificates(&certificate)?;
        if all.len() < 2 {
            return Err(CertificateError::NotChanging(certificate));
        }
        let pair = read_pair(&key)?;
        let at = all.iter().position(|one| is_of(one, &pair));
        let text = std::fs::read_to_string(&certificate).map_err(CertificateError::file(&certificate))?;
        let kept = at.and_then(|at| Some((&all[at], block(&text, at)?)));
        let (kept, block) = kept.ok_or_else(|| CertificateError::NoAuthority(certificate.clone()))?;
        let used = if even_if_used { Vec::new() } else { signed_by_others(folder, kept)? };
        if !used.is_empty() {
            return Err(CertificateError::StillUsed(used));
        }
        write_over(&certificate, &block, 0o644)
    }

    /// Revokes all certificates of `identities` that were made until now. Returns the list, which each process of the
    /// cluster needs beside its `authority.crt`.
    ///
    /// # Errors
    /// If the list is damaged, or the folder cannot be written.
    pub fn revoke(&self, identities: &[Identity]) -> Result<PathBuf, CertificateError> {
        let list = self.files(AUTHORITY).revoked();
        let mut revoked = read_revocations(&list)?;
        // Certificates have whole seconds.
        let now = OffsetDateTime::now_utc();
        let now = now.replace_nanosecond(0).unwrap_or(now);
        for identity in identities {
            if identity.cluster() != self.cluster {
                let (ours, theirs) = (self.cluster.clone(), identity.cluster().to_owned());
                return Err(CertificateError::OtherCluster { ours, theirs });
            }
            revoked.revoke(identity.clone(), now);
        }
        write_over(&list, &revoked.text(), 0o644)?;
        Ok(list)
    }
}

pub(super) fn read_pair(key: &Path) -> Result<KeyPair, CertificateError> {
    let text = std::fs::read_to_string(key).map_err(CertificateError::file(key))?;
    KeyPair::from_pem(&text).map_err(|error| CertificateError::Pem { path: key.to_owned(), reason: error.to_string() })
}

/// True if `certificate` is of the key `pair`.
pub(super) fn is_of(certificate: &CertificateDer<'_>, pair: &KeyPair) -> bool {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    parsed.is_ok_and(|parsed| *parsed.subject_public_key_info() == *pair.subject_public_key_info())
}

/// The files of processes in `folder` whose certificates another authority than `kept` signed. Expired ones do not count.
fn signed_by_others(folder: &Path, kept: &CertificateDer<'static>) -> Result<Vec<String>, CertificateError> {
    let mut roots = RootCertStore::empty();
    roots.add(kept.clone()).map_err(CertificateError::unusable(folder))?;
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
    let entries = std::fs::read_dir(folder).map_err(CertificateError::file(folder))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.retain(|path| {
        path.extension().is_some_and(|end| end == "crt") && path.file_stem().is_some_and(|name| name != AUTHORITY)
    });
    paths.sort();
    let is_of_another = |path: &PathBuf| {
        let Ok(chain) = read_certificates(path) else { return false };
        let Ok(parsed) = ParsedCertificate::try_from(&chain[0]) else { return false };
        let verified =
            verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &chain[1..], UnixTime::now(), algorithms);
        let Err(Error::InvalidCertificate(reason)) = verified else { return false };
        matches!(reason, rustls::CertificateError::UnknownIssuer | rustls::CertificateError::BadSignature)
    };
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(paths.iter().filter(|path| is_of_another(path)).map(name).collect())
}

/// The text of the certificate number `at` in a PEM file (RFC 7468).
fn block(text: &str, at: usize) -> Option<String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let (body, _) = text.split(BEGIN).nth(at + 1)?.split_once(END)?;
    Some(format!("{BEGIN}{body}{END}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Role;

    fn names(folder: &Path) -> usize {
        read_certificates(&folder.join("authority.crt")).unwrap().len()
    }

    #[test]
    fn an_authority_is_replaced_in_two_steps_and_not_before_its_certificates_are_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert!(matches!(Authority::add(path, 10), Err(CertificateError::NoAuthority(_))));
        let first = Authority::create(path, "lab", 10).unwrap();
        let nodes = ["n1", "n2"].map(|name| Identity::new("lab", Role::Node, name).unwrap());
        for node in &nodes {
            first.issue(node, &[], 10, false).unwrap();
        }
        assert!(matches!(Authority::retire(path, false), Err(CertificateError::NotChanging(_))));
        let next = Authority::add(path, 10).unwrap();
        assert!(matches!(Authority::add(path, 10), Err(CertificateError::Changing(_))));
        assert_eq!((names(path), next.cluster()), (2, "lab"));
        next.issue(&nodes[0], &[], 10, true).unwrap();
        let Err(CertificateError::StillUsed(used)) = Authority::retire(path, false) else {
            panic!("n2 is not renewed")
        };
        assert_eq!(used, ["n2.crt"]);
        // Opened again, it is the next one that signs.
        Authority::open(path).unwrap().issue(&nodes[1], &[], 10, true).unwrap();
        Authority::retire(path, false).unwrap();
        assert_eq!(names(path), 1);
        let kept = read_certificates(&path.join("authority.crt")).unwrap();
        assert!(is_of(&kept[0], &read_pair(&path.join("authority.key")).unwrap()));
        assert!(signed_by_others(path, &kept[0]).unwrap().is_empty());
    }

    #[test]
    fn after_a_crash_between_certificate_and_key_the_former_authority_signs_and_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        Authority::create(path, "lab", 10).unwrap();
        let key = std::fs::read(path.join("authority.key")).unwrap();
        Authority::add(path, 10).unwrap();
        std::fs::write(path.join("authority.key"), key).unwrap();
        let node = Identity::new("lab", Role::Node, "n1").unwrap();
        Authority::open(path).unwrap().issue(&node, &[], 10, false).unwrap();
        Authority::retire(path, false).unwrap();
        assert_eq!(names(path), 1);
        Authority::open(path).unwrap();
        std::fs::write(path.join("authority.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert!(matches!(Authority::open(path), Err(CertificateError::Unusable { .. })));
    }

    #[test]
    fn a_certificate_that_is_made_after_a_revocation_is_not_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create(folder.path(), "lab", 10).unwrap();
        let node = Identity::new("lab", Role::Node, "n1").unwrap();
        let from = |files: &crate::CertificateFiles| super::super::describe(&files.certificate).unwrap()[0].from;
        let files = authority.issue(&node, &[], 10, false).unwrap();
        let list = authority.revoke(std::slice::from_ref(&node)).unwrap();
        assert_eq!(list, files.revoked());
        let revoked = read_revocations(&list).unwrap();
        assert!(revoked.revokes(&node, from(&files)));
        let files = authority.issue(&node, &[], 10, true).unwrap();
        assert!(!revoked.revokes(&node, from(&files)));
        let other = Identity::new("other", Role::Node, "n1").unwrap();
        assert!(matches!(authority.revoke(&[other]), Err(CertificateError::OtherCluster { .. })));
        std::fs::write(&list, "n1").unwrap();
        assert!(matches!(authority.revoke(&[node]), Err(CertificateError::Revocations { line: 1, .. })));
    }
}
