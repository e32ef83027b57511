//! Access keys, which sign requests.

use std::fmt;

use rand::RngCore;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn random_text(length: usize) -> String {
    let mut random = vec![0u8; length];
    rand::rng().fill_bytes(&mut random);
    random.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect()
}

/// The public half of an access key, in the form of AWS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct AccessKeyId(String);

impl AccessKeyId {
    /// Takes any `text`; the lookup rejects an unknown key.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A fresh key: 20 characters, of which 80 bits are random.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("NIGH{}", random_text(16)))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccessKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The secret half. It prints as stars and is wiped from memory when dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretKey(Zeroizing<String>);

impl SecretKey {
    /// Takes `text` as the secret.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// A fresh secret: 40 characters, 200 random bits.
    #[must_use]
    pub fn random() -> Self {
        Self::new(random_text(40))
    }

    /// The secret itself, for signing. Never log it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether both are the same. The time of the comparison tells nothing but their lengths.
    #[must_use]
    pub fn equals(&self, other: &Self) -> bool {
        let (own, other) = (self.0.as_bytes(), other.0.as_bytes());
        let differences = own.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b));
        own.len() == other.len() && std::hint::black_box(differences) == 0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print() {
        let secret = SecretKey::random();
        assert_eq!(secret.reveal().len(), 40);
        assert!(!format!("{secret:?}").contains(secret.reveal()));
        assert_ne!(AccessKeyId::random(), AccessKeyId::random());
    }
}
