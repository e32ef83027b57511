//! The secrets of the outside door: those shared with Swift's middleware, and the token of S3 events.
//!
//! Each is in a file that other users cannot read. The file for the middleware has one secret on each line: Nigh signs
//! with the first and accepts all, so that secrets can be replaced on one side after the other.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nigh_terms::SecretKey;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::config::Settings;

/// The middleware accepts no shorter secret.
const SECRET_BYTES_MIN: usize = 32;
/// The most secrets in force at a time.
const SECRETS_MAX: usize = 4;
/// A shorter token could be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// The most bytes of a file of secrets.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Why a file of secrets cannot be used.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum SecretFileError {
    #[error("setting {setting}: {path}: {source}")]
    File { setting: String, path: PathBuf, source: std::io::Error },
    #[error("setting {setting}: {path} is open to others; run `chmod 600 {path}`")]
    Open { setting: String, path: PathBuf },
    #[error("setting {setting}: {path}: {why}")]
    Content { setting: String, path: PathBuf, why: String },
}

/// The text of a file that other users cannot read.
pub(crate) fn read_private(path: &Path, setting: &str) -> Result<String, SecretFileError> {
    let failed = |source| SecretFileError::File { setting: setting.to_owned(), path: path.to_owned(), source };
    let meta = std::fs::metadata(path).map_err(failed)?;
    if meta.mode() & 0o027 != 0 {
        return Err(SecretFileError::Open { setting: setting.to_owned(), path: path.to_owned() });
    }
    if meta.len() > FILE_BYTES_MAX {
        return Err(failed(std::io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes"))));
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// Reads the secrets that are shared with Swift's middleware.
///
/// # Errors
/// If the file cannot be read, other users can read it, or it does not have 1 to 4 secrets of 32 bytes or more.
pub fn read_secrets(path: &Path, setting: &str) -> Result<Vec<SecretKey>, SecretFileError> {
    let text = read_private(path, setting)?;
    let bad = |why| SecretFileError::Content { setting: setting.to_owned(), path: path.to_owned(), why };
    let found: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if found.is_empty() || found.len() > SECRETS_MAX {
        return Err(bad(format!("it has {} secrets; it takes 1 to {SECRETS_MAX}, one a line", found.len())));
    }
    if found.iter().any(|secret| secret.len() < SECRET_BYTES_MIN) {
        let why = "a secret has fewer than 32 bytes; make one with `openssl rand -hex 32`";
        return Err(bad(why.to_owned()));
    }
    Ok(found.into_iter().map(SecretKey::new).collect())
}

/// All secrets of the door.
#[derive(Debug)]
pub(crate) struct OutsideSecrets {
    signing: Vec<SecretKey>,
    events: Option<SecretKey>,
}

impl OutsideSecrets {
    /// Reads the secrets from the settings' files.
    pub(crate) fn read(settings: &Settings) -> Result<Self, SecretFileError> {
        let mut signing = Vec::new();
        let nodes = std::iter::once(("store".to_owned(), &settings.store));
        let own = settings.own_stores().map(|(name, store)| (format!("namespaces.{name}.store"), store));
        for (section, store) in nodes.chain(own) {
            if let Some(path) = &store.shadow_secret_file {
                signing.extend(read_secrets(path, &format!("{section}.shadow_secret_file"))?);
            }
        }
        let setting = "outside.events_token_file";
        let events = match &settings.outside.events_token_file {
            None => None,
            Some(path) => {
                let token = read_private(path, setting)?.trim().to_owned();
                if token.len() < TOKEN_BYTES_MIN || token.contains(char::is_whitespace) {
                    let why = format!("it does not hold one word of {TOKEN_BYTES_MIN} bytes or more");
                    return Err(SecretFileError::Content { setting: setting.to_owned(), path: path.clone(), why });
                }
                Some(SecretKey::new(token))
            }
        };
        Ok(Self { signing, events })
    }

    /// The secrets that may sign messages.
    pub(super) fn signing(&self) -> &[SecretKey] {
        &self.signing
    }

    /// True if `given` is the token of S3 events. The time that this takes reveals nothing about the token.
    pub(super) fn is_events_token(&self, given: &[u8]) -> bool {
        self.events.as_ref().is_some_and(|token| Sha256::digest(token.reveal()) == Sha256::digest(given))
    }

    /// What the door accepts, in words.
    pub(crate) fn words(&self) -> &'static str {
        match (self.signing.is_empty(), self.events.is_none()) {
            (false, false) => "Swift's middleware and S3 events",
            (false, true) => "Swift's middleware",
            (true, false) => "S3 events",
            (true, true) => "nobody: neither store.shadow_secret_file nor outside.events_token_file is set",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_of_secrets_is_read_if_nobody_else_can_and_it_holds_long_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let read = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read_secrets(&path, "store.shadow_secret_file")
                .map(|secrets| secrets.len())
                .map_err(|error| error.to_string())
        };
        let long = "0123456789abcdef0123456789abcdef";
        assert_eq!(read(&format!("{long}\n\n {long}\n"), 0o640), Ok(2));
        assert!(read(long, 0o644).unwrap_err().contains("chmod 600"));
        assert!(read("short", 0o600).unwrap_err().contains("openssl rand"));
        assert!(read("", 0o600).unwrap_err().contains("0 secrets"));
        assert!(read(&format!("{long}\n").repeat(5), 0o600).unwrap_err().contains("5 secrets"));
    }
}
