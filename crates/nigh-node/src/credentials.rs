//! Clients' keys, as profiles of an AWS credentials file, which `aws`, boto3 and `nigh` read.

mod first_keys;

use std::fmt::Write;
use std::path::Path;

use nigh_terms::{AccessKeyId, SecretKey};
use thiserror::Error;

pub(crate) use self::first_keys::FirstKeys;
use crate::state_folder::{StateFolderError, write_private};

/// A key of one profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The profile, which is the namespace's name.
    pub profile: String,
    /// The access key.
    pub access_key: AccessKeyId,
    /// The secret key.
    pub secret_key: SecretKey,
}

/// Why a profile has no key.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("{path}: {source}; the first start of `nigh up` writes this file")]
    Io {
        /// The path of the file.
        path: std::path::PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The file has no such profile.
    #[error("{path} has no profile {profile:?}; it has {found}")]
    NoProfile {
        /// The path of the file.
        path: std::path::PathBuf,
        /// The name of the profile.
        profile: String,
        /// The profiles in the file.
        found: String,
    },
}

/// Writes `profiles` to `path`, replacing the file.
pub fn write(path: &Path, profiles: &[Credentials]) -> Result<(), StateFolderError> {
    let mut text = String::from("# Written by nigh. The keys of its clients, one profile a namespace.\n");
    for one in profiles {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n[{}]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
            one.profile,
            one.access_key,
            one.secret_key.reveal()
        );
    }
    write_private(path, text.as_bytes())
}

/// The key of `profile`.
///
/// # Errors
/// If the file cannot be read or lacks the profile.
pub fn read(path: &Path, profile: &str) -> Result<Credentials, CredentialsError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| CredentialsError::Io { path: path.to_owned(), source })?;
    let profiles = parse(&text);
    let found = profiles.iter().map(|one| one.profile.as_str()).collect::<Vec<_>>().join(", ");
    profiles.into_iter().find(|one| one.profile == profile).ok_or_else(|| CredentialsError::NoProfile {
        path: path.to_owned(),
        profile: profile.to_owned(),
        found: if found.is_empty() { "none".to_owned() } else { found },
    })
}

/// The complete profiles of `text`. Other lines are ignored, as AWS's tools do.
fn parse(text: &str) -> Vec<Credentials> {
    let mut profiles = Vec::new();
    let (mut profile, mut access, mut secret) = (None::<String>, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            (profile, access, secret) = (Some(name.trim().to_owned()), None, None);
            continue;
        }
        match line.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
            Some(("aws_access_key_id", value)) => access = Some(AccessKeyId::new(value)),
            Some(("aws_secret_access_key", value)) => secret = Some(SecretKey::new(value)),
            _ => continue,
        }
        if let (Some(name), Some(access_key), Some(secret_key)) = (&profile, &access, &secret) {
            profiles.push(Credentials {
                profile: name.clone(),
                access_key: access_key.clone(),
                secret_key: secret_key.clone(),
            });
        }
    }
    profiles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_read_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        let one = |profile: &str| Credentials {
            profile: profile.to_owned(),
            access_key: AccessKeyId::random(),
            secret_key: SecretKey::random(),
        };
        let (a, b) = (one("default"), one("tenant-2"));
        write(&path, &[a.clone(), b.clone()]).unwrap();
        assert_eq!(read(&path, "default").unwrap(), a);
        assert_eq!(read(&path, "tenant-2").unwrap(), b);
        let missing = read(&path, "other").unwrap_err().to_string();
        assert!(missing.contains("default, tenant-2"), "{missing}");
    }

    #[test]
    fn an_incomplete_profile_is_none() {
        assert!(parse("[a]\naws_access_key_id = X\n[b]\naws_secret_access_key = Y\n").is_empty());
        assert!(parse("aws_access_key_id = X\naws_secret_access_key = Y\n").is_empty());
    }
}
