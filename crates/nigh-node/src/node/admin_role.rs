//! What a key may do at the admin API.
//!
//! The keys of the first namespace are the operator's, who started the node: they operate. Keys of other namespaces, and
//! those of sandboxes, have no role.

use hmac::{Hmac, KeyInit as _, Mac as _};
use nigh_engine::AccessKeys;
use nigh_terms::{AccessKeyId, AdminRole, Namespace, SecretKey};
use sha2::Sha256;

/// The role of `access_key`; none if it or `secret` is wrong, or it has no role.
pub(super) fn of_key(keys: &AccessKeys, first: &Namespace, access_key: &str, secret: &SecretKey) -> Option<AdminRole> {
    let id = AccessKeyId::new(access_key);
    // An unknown key takes as long as a wrong secret.
    let known = keys.client_secret(&id).unwrap_or_else(SecretKey::random);
    let is_operators = keys.of_namespace(first).contains(&id);
    (is_same(&known, secret) && is_operators).then_some(AdminRole::Operate)
}

/// True if both are the same text. How long it takes says nothing about where they differ: the codes under a key of one
/// use are compared, in constant time.
fn is_same(one: &SecretKey, other: &SecretKey) -> bool {
    let key = SecretKey::random();
    let code = |text: &SecretKey| {
        let mac = Hmac::<Sha256>::new_from_slice(key.reveal().as_bytes()).ok()?;
        Some(mac.chain_update(text.reveal().as_bytes()))
    };
    let (Some(one), Some(other)) = (code(one), code(other)) else { return false };
    one.verify_slice(&other.finalize().into_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use nigh_engine::{LocalRegistry, StateFile};
    use nigh_terms::{FunctionName, SandboxId};

    use super::*;

    #[tokio::test]
    async fn the_first_namespaces_keys_operate_and_no_other_key_has_a_role() {
        let folder = tempfile::tempdir().unwrap();
        let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state")).unwrap());
        let [first, other] = ["default", "tenant"].map(|name| Namespace::new(name).unwrap());
        let keys = AccessKeys::load(&registry).await.unwrap();
        let (own, secret) = keys.issue(&registry, &first).await.unwrap();
        let (tenants, tenants_secret) = keys.issue(&registry, &other).await.unwrap();
        let function = FunctionName::new("f").unwrap();
        let (sandboxes, sandboxes_secret) = keys.issue_sandbox(first.clone(), function, SandboxId::random());
        let role = |key: &AccessKeyId, secret: &SecretKey| of_key(&keys, &first, key.as_str(), secret);
        assert_eq!(role(&own, &secret), Some(AdminRole::Operate));
        assert_eq!(role(&own, &tenants_secret), None);
        assert_eq!(role(&own, &SecretKey::new("")), None);
        assert_eq!(role(&tenants, &tenants_secret), None);
        assert_eq!(role(&sandboxes, &sandboxes_secret), None);
        assert_eq!(role(&AccessKeyId::random(), &secret), None);
        keys.revoke(&own);
        assert_eq!(role(&own, &secret), None);
    }
}
