//! The caller, from HTTP's Basic authentication: the user is an access key, the password its secret.
//!
//! `wsk` and the client libraries call the two together the `auth` key.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use nigh_engine::AccessKeys;
use nigh_terms::{AccessKeyId, Principal, SecretKey};
use sha2::{Digest, Sha256};

use super::error::WhiskError;

/// The longest header that is read.
const HEADER_BYTES_MAX: usize = 1024;
const NOT_SUPPLIED: &str = "The resource requires authentication, which was not supplied with the request";
const INVALID: &str = "The supplied authentication is invalid.";

/// A key and its secret, as they were sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    key: AccessKeyId,
    secret: SecretKey,
}

impl Credentials {
    /// The key and the secret in the header; none without the header.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Self>, WhiskError> {
        let Some(header) = headers.get(AUTHORIZATION) else { return Ok(None) };
        let invalid = || WhiskError::unauthorized(INVALID);
        let text = header.to_str().ok().filter(|text| text.len() <= HEADER_BYTES_MAX).ok_or_else(invalid)?;
        let (scheme, value) = text.split_once(' ').ok_or_else(invalid)?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return Err(invalid());
        }
        let decoded = STANDARD.decode(value.trim()).map_err(|_| invalid())?;
        let decoded = zeroize::Zeroizing::new(decoded);
        let (key, secret) =
            std::str::from_utf8(&decoded).ok().and_then(|text| text.split_once(':')).ok_or_else(invalid)?;
        Ok(Some(Self { key: AccessKeyId::new(key), secret: SecretKey::new(secret) }))
    }

    /// The access key.
    pub(super) const fn key(&self) -> &AccessKeyId {
        &self.key
    }

    /// The principal of the key, if the secret is right.
    pub(super) fn principal(&self, keys: &AccessKeys) -> Result<Principal, WhiskError> {
        // Digests are compared, so that the time of the comparison reveals nothing about the secret.
        let digest = |secret: &SecretKey| Sha256::digest(secret.reveal());
        match keys.secret(&self.key) {
            Some(secret) if digest(&secret) == digest(&self.secret) => Ok(keys.principal(&self.key)?),
            _ => Err(WhiskError::unauthorized(INVALID)),
        }
    }
}

/// The principal of a request that needs a key, and the key.
pub(super) fn required(headers: &HeaderMap, keys: &AccessKeys) -> Result<(Principal, AccessKeyId), WhiskError> {
    let credentials = Credentials::of(headers)?.ok_or_else(|| WhiskError::unauthorized(NOT_SUPPLIED))?;
    Ok((credentials.principal(keys)?, credentials.key))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use nigh_terms::{FunctionName, Namespace, SandboxId};

    use super::*;

    fn headers(text: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(text).unwrap())])
    }

    #[test]
    fn a_key_opens_with_its_secret_and_with_nothing_else() {
        let keys = AccessKeys::default();
        let (namespace, function) = (Namespace::new("tenant").unwrap(), FunctionName::new("f").unwrap());
        let (key, secret) = keys.issue_sandbox(namespace, function, SandboxId::random());
        keys.set_invocation(&key, Some(nigh_terms::InvocationId::now()));
        let basic = |text: String| headers(&format!("Basic {}", STANDARD.encode(text)));
        let right = basic(format!("{key}:{}", secret.reveal()));
        assert_eq!(required(&right, &keys).unwrap().0.namespace.as_str(), "tenant");
        for wrong in [
            basic(format!("{key}:wrong")),
            basic(format!("nobody:{}", secret.reveal())),
            basic(key.to_string()),
            headers("Basic !"),
            headers("Bearer x"),
            headers("Basic"),
            headers(&"x".repeat(2000)),
            HeaderMap::new(),
        ] {
            assert_eq!(required(&wrong, &keys).unwrap_err().status.as_u16(), 401, "{wrong:?}");
        }
        keys.set_invocation(&key, None);
        assert_eq!(required(&right, &keys).unwrap_err().status.as_u16(), 403, "between invocations");
    }
}
