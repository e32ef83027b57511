//! Keys: list, create, rotate, disable, enable, remove.

use std::time::Duration;

use nigh_engine::{KeyDescription, KeyError, KeyScope};
use nigh_terms::{AccessKeyId, SecretKey, Timestamp};

use super::documents::{CreatedKey, ListedKey, NewKey};
use super::{DESCRIPTION_MAX, KEY_NAME_MAX, Tenancy, TenancyError};

/// The longest time until a key expires.
const EXPIRY_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);
/// What the ids of keys begin with.
const ID_PREFIX: &str = "NIGH";

impl Tenancy {
    /// All clients' keys, by namespace and date.
    pub(crate) async fn list_keys(&self) -> Result<Vec<ListedKey>, TenancyError> {
        let (uses, now) = (self.keys.uses(&*self.registry).await?, self.clock.wall());
        let clients = self.keys.clients().into_iter();
        let mut listed: Vec<ListedKey> = clients
            .map(|(id, key)| {
                let used = uses.get(&id).copied();
                ListedKey::of(id, key, used, now)
            })
            .collect();
        listed.sort_by(|a, b| (&a.namespace, &a.created, &a.id).cmp(&(&b.namespace, &b.created, &b.id)));
        Ok(listed)
    }

    /// The key whose id or name is `text`.
    pub(crate) async fn show_key(&self, text: &str) -> Result<ListedKey, TenancyError> {
        let id = self.keys.named(text)?;
        let found = self.list_keys().await?.into_iter().find(|key| key.id == id);
        Ok(found.ok_or_else(|| KeyError::Unknown(text.to_owned()))?)
    }

    /// Creates a key.
    pub(crate) async fn create_key(&self, new: NewKey) -> Result<CreatedKey, TenancyError> {
        let NewKey { name, description, namespace, read_only, buckets, functions, role, expires_s } = new;
        if let Some(name) = name.as_deref().filter(|name| !is_key_name(name)) {
            return Err(TenancyError::KeyName(name.chars().take(KEY_NAME_MAX).collect()));
        }
        if description.chars().count() > DESCRIPTION_MAX {
            return Err(TenancyError::Description);
        }
        let namespace = namespace.unwrap_or_else(|| self.namespace.clone());
        if !self.exists(&namespace) {
            return Err(TenancyError::NoNamespace(namespace));
        }
        let now = self.clock.wall();
        let expires = expires_s.map(|seconds| expiry(now, Duration::from_secs(seconds))).transpose()?;
        let key = KeyDescription {
            name,
            description,
            created: Some(now),
            expires,
            scope: KeyScope { read_only, buckets, functions },
            role,
            ..KeyDescription::of_settings(namespace)
        };
        let (id, secret) = self.keys.create(&*self.registry, key).await?;
        tracing::info!(key = %id, "an access key was created");
        self.created(id, secret, None)
    }

    /// Replaces a key by one that may do the same; the old one is good for `overlap` yet.
    pub(crate) async fn rotate_key(&self, text: &str, overlap: Duration) -> Result<CreatedKey, TenancyError> {
        let old = self.keys.named(text)?;
        let (id, secret) = self.keys.rotate(&*self.registry, &old, overlap.min(EXPIRY_MAX)).await?;
        tracing::info!(key = %id, replaces = %old, "an access key was rotated");
        self.first.write_file()?;
        self.created(id, secret, Some(old))
    }

    /// Enables or disables a key.
    pub(crate) async fn set_key_enabled(&self, text: &str, enabled: bool) -> Result<(), TenancyError> {
        let id = self.keys.named(text)?;
        self.keys.set_enabled(&*self.registry, &id, enabled).await?;
        tracing::info!(key = %id, enabled, "an access key was enabled or disabled");
        Ok(())
    }

    /// Removes a key. The key that Nigh made for a namespace of the settings stays: the next start would make another.
    pub(crate) async fn remove_key(&self, text: &str) -> Result<(), TenancyError> {
        let id = self.keys.named(text)?;
        let key = self.keys.describe(&id).ok_or_else(|| KeyError::Unknown(text.to_owned()))?;
        let is_needed = key.created.is_none() && key.replaced_by.is_none();
        if is_needed && self.first.namespaces.contains(&key.namespace) {
            return Err(TenancyError::KeyOfSettings(id.to_string(), key.namespace));
        }
        self.remove_key_for_good(&id).await
    }

    pub(super) async fn remove_key_for_good(&self, id: &AccessKeyId) -> Result<(), TenancyError> {
        self.keys.remove(&*self.registry, id).await?;
        self.keys.forget_uses(&*self.registry, id).await?;
        tracing::info!(key = %id, "an access key was removed");
        Ok(())
    }

    pub(super) fn created(
        &self,
        id: AccessKeyId,
        secret: SecretKey,
        replaces: Option<AccessKeyId>,
    ) -> Result<CreatedKey, TenancyError> {
        let key = self.keys.describe(&id).ok_or_else(|| KeyError::Unknown(id.to_string()))?;
        let key = ListedKey::of(id, key, None, self.clock.wall());
        Ok(CreatedKey { key, secret, replaces })
    }
}

/// Whether `text` can be a key's name: it fits into a path, and is no id.
fn is_key_name(text: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    (1..=KEY_NAME_MAX).contains(&text.len()) && text.chars().all(fits) && !text.starts_with(ID_PREFIX)
}

fn expiry(now: Timestamp, after: Duration) -> Result<Timestamp, TenancyError> {
    if after.is_zero() || after > EXPIRY_MAX {
        return Err(TenancyError::Expiry);
    }
    Ok(Timestamp(now.millis().saturating_add(after.as_millis() as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keys_name_fits_into_a_path_and_is_no_id() {
        for good in ["uploads", "ci.2026_11", "a", &"x".repeat(64)] {
            assert!(is_key_name(good), "{good}");
        }
        for bad in ["", "a b", "a/b", "\u{e9}", "NIGHABC", &"x".repeat(65)] {
            assert!(!is_key_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_key_expires_after_a_second_at_least() {
        assert_eq!(expiry(Timestamp(1000), Duration::from_secs(1)).unwrap(), Timestamp(2000));
        assert!(expiry(Timestamp(1000), Duration::ZERO).is_err());
        assert!(expiry(Timestamp(1000), Duration::MAX).is_err());
    }
}
