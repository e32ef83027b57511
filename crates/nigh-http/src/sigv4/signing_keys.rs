//! The keys that secrets give for a day, a region and a service, kept: a client's next request needs one HMAC, not five.

use std::collections::HashMap;
use std::sync::Arc;

use hmac::Mac;
use nigh_terms::SecretKey;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::mac;

/// The most keys that are kept; beyond it all are forgotten, and derived again by those who still sign.
const KEPT_MAX: usize = 1024;

/// A key that signs within one scope, wiped from memory when dropped.
pub(super) type SigningKey = Zeroizing<[u8; 32]>;

struct KeptKey {
    /// Another secret of the same access key has another signing key.
    secret: SecretKey,
    key: SigningKey,
}

/// The signing keys of those who sign, by access key and scope. Cheap to clone; clones share the keys.
#[derive(Clone, Default)]
pub struct SigningKeys {
    kept: Arc<Mutex<HashMap<String, KeptKey>>>,
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SigningKeys").finish_non_exhaustive()
    }
}

impl SigningKeys {
    /// Whether `check` holds of the key of `secret`, which is that of `access_key`, in a scope of date, region and service.
    /// A key of which it holds is kept: only those who know a secret take room here.
    pub(super) fn check(
        &self,
        (access_key, secret): (&str, &SecretKey),
        scope: [&str; 3],
        check: impl FnOnce(&SigningKey) -> bool,
    ) -> bool {
        let [date, region, service] = scope;
        let name = format!("{access_key}/{date}/{region}/{service}");
        let known =
            self.kept.lock().get(&name).filter(|known| known.secret.equals(secret)).map(|known| known.key.clone());
        if let Some(key) = known {
            return check(&key);
        }
        let key = derived(secret, scope);
        let holds = check(&key);
        if holds {
            let mut kept = self.kept.lock();
            if kept.len() >= KEPT_MAX {
                kept.clear();
            }
            kept.insert(name, KeptKey { secret: secret.clone(), key });
        }
        holds
    }
}

/// The key that a secret gives for a scope of date, region and service.
pub(super) fn derived(secret: &SecretKey, scope: [&str; 3]) -> SigningKey {
    let [date, region, service] = scope;
    let start = Zeroizing::new(format!("AWS4{}", secret.reveal()));
    let of_day = mac(start.as_bytes(), date.as_bytes());
    let signing = [region, service, "aws4_request"].iter().fold(of_day, |key, part| {
        let key: SigningKey = Zeroizing::new(key.finalize().into_bytes().into());
        mac(&*key, part.as_bytes())
    });
    Zeroizing::new(signing.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: [&str; 3] = ["20150830", "us-east-1", "iam"];

    /// From "Deriving a signing key" of AWS' documentation of Signature Version 4.
    #[test]
    fn a_key_is_derived_as_documented() {
        let secret = SecretKey::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let key = derived(&secret, SCOPE);
        let expected = "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9";
        assert_eq!(nigh_terms::Hex(&*key).to_string(), expected);
    }

    #[test]
    fn what_is_kept_is_of_that_secret_and_scope_alone_and_bounded() {
        let (keys, first, second) = (SigningKeys::default(), SecretKey::new("first"), SecretKey::new("second"));
        let of = |name: &str, secret: &SecretKey, scope| {
            let mut seen = None;
            assert!(keys.check((name, secret), scope, |key| seen.replace(key.clone()).is_none()));
            seen.unwrap()
        };
        for _ in 0..2 {
            assert_eq!(of("K", &first, SCOPE), derived(&first, SCOPE));
            assert_eq!(of("K", &second, SCOPE), derived(&second, SCOPE), "the secret was changed");
        }
        let other = ["20150831", "us-east-1", "iam"];
        assert_eq!(of("K", &second, other), derived(&second, other));
        assert_eq!(keys.kept.lock().len(), 2);
        assert!(!keys.check(("guessed", &first), SCOPE, |_| false));
        assert_eq!(keys.kept.lock().len(), 2, "who did not sign takes no room");
        for number in 0..2 * KEPT_MAX {
            of(&format!("K{number}"), &first, SCOPE);
        }
        assert!(keys.kept.lock().len() <= KEPT_MAX);
    }
}
