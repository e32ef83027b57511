//! What an operator does with clients' keys. Each change is durable when it returns, and takes effect here at once; other
//! processes follow the registry.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_terms::{AccessKeyId, Namespace, SecretKey, Timestamp};
use thiserror::Error;

use super::description::KeyDescription;
use super::document::{StoredKey, decode};
use super::{ACCESS_KEYS_TABLE, AccessKeys};
use crate::{Registry, RegistryError};

/// How often a change is tried again because another was first.
const CONFLICTS_MAX: u32 = 8;

/// Why a key was not changed.
#[derive(Debug, Error)]
pub enum KeyError {
    /// No client has it.
    #[error("there is no access key {0}; `nigh keys ls` lists them")]
    Unknown(String),
    /// Another key has the name.
    #[error("another access key is named {0}; choose another name, or remove that key")]
    NameTaken(String),
    /// It was rotated before.
    #[error("access key {old} was rotated; rotate its successor {new}")]
    Rotated {
        /// The key.
        old: AccessKeyId,
        /// The key that took its place.
        new: AccessKeyId,
    },
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl AccessKeys {
    /// Creates a key that may do everything in `namespace`, as one of the settings.
    ///
    /// # Errors
    /// If the registry cannot be written.
    #[boxed]
    pub async fn issue(
        &self,
        registry: &dyn Registry,
        namespace: &Namespace,
    ) -> Result<(AccessKeyId, SecretKey), RegistryError> {
        self.write_new(registry, KeyDescription::of_settings(namespace.clone())).await
    }

    /// Creates a key. Its name must be no other's; the check sees the keys that this process knows.
    ///
    /// # Errors
    /// If the name is taken, or the registry cannot be written.
    #[boxed]
    pub async fn create(
        &self,
        registry: &dyn Registry,
        key: KeyDescription,
    ) -> Result<(AccessKeyId, SecretKey), KeyError> {
        if let Some(name) = &key.name
            && self.named(name).is_ok()
        {
            return Err(KeyError::NameTaken(name.clone()));
        }
        Ok(self.write_new(registry, key).await?)
    }

    /// Creates a key that may do what `id` may, and lets `id` expire after `overlap`.
    ///
    /// # Errors
    /// If there is no such key, it was rotated before, or the registry cannot be written. If the second of the two
    /// documents cannot be written, both keys are valid.
    #[boxed]
    pub async fn rotate(
        &self,
        registry: &dyn Registry,
        id: &AccessKeyId,
        overlap: Duration,
    ) -> Result<(AccessKeyId, SecretKey), KeyError> {
        let old = self.describe(id).ok_or_else(|| KeyError::Unknown(id.to_string()))?;
        if let Some(new) = &old.replaced_by {
            return Err(KeyError::Rotated { old: id.clone(), new: new.clone() });
        }
        let now = self.shared.clock.wall();
        // One that an operator created with a term gets the same term again.
        let term = old.expires.zip(old.created).map(|(expires, created)| expires.millis().saturating_sub(created.0));
        let successor = KeyDescription {
            created: old.created.map(|_| now),
            expires: term.map(|term| Timestamp(now.millis().saturating_add(term))),
            disabled: false,
            ..old
        };
        let (new, secret) = self.write_new(registry, successor).await?;
        let until = Timestamp(now.millis().saturating_add(overlap.as_millis() as u64));
        let replaced_by = new.clone();
        self.change(registry, id, move |key| {
            key.expires = Some(key.expires.map_or(until, |expires| expires.min(until)));
            key.replaced_by = Some(replaced_by.clone());
        })
        .await?;
        Ok((new, secret))
    }

    /// Enables or disables a key.
    ///
    /// # Errors
    /// If there is no such key, or the registry cannot be read or written.
    #[boxed]
    pub async fn set_enabled(&self, registry: &dyn Registry, id: &AccessKeyId, enabled: bool) -> Result<(), KeyError> {
        self.change(registry, id, move |key| key.disabled = !enabled).await
    }

    /// Removes a key.
    ///
    /// # Errors
    /// If there is no such key, or the registry cannot be read or written.
    #[boxed]
    pub async fn remove(&self, registry: &dyn Registry, id: &AccessKeyId) -> Result<(), KeyError> {
        for _ in 0..CONFLICTS_MAX {
            let found = registry.get(ACCESS_KEYS_TABLE, id.as_str()).await?;
            let found = found.ok_or_else(|| KeyError::Unknown(id.to_string()))?;
            match registry.delete(ACCESS_KEYS_TABLE, id.as_str(), found.revision).await {
                Ok(()) => {
                    self.revoke(id);
                    return Ok(());
                }
                Err(RegistryError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(changed_too_often(id).into())
    }

    /// The client's key whose id or name is `text`. Of keys with one name it is the one that no other has replaced.
    ///
    /// # Errors
    /// If there is none.
    pub fn named(&self, text: &str) -> Result<AccessKeyId, KeyError> {
        let keys = self.clients();
        let by_id = keys.iter().find(|(id, _)| id.as_str() == text);
        let by_name = || keys.iter().find(|(_, key)| key.name.as_deref() == Some(text) && key.replaced_by.is_none());
        let found = by_id.or_else(by_name).map(|(id, _)| id.clone());
        found.ok_or_else(|| KeyError::Unknown(text.to_owned()))
    }

    #[boxed]
    async fn write_new(
        &self,
        registry: &dyn Registry,
        key: KeyDescription,
    ) -> Result<(AccessKeyId, SecretKey), RegistryError> {
        let (id, secret) = (AccessKeyId::random(), SecretKey::random());
        let document = StoredKey::new(secret.clone(), key.clone()).encode()?;
        registry.put(ACCESS_KEYS_TABLE, id.as_str(), document, None).await?;
        self.learn(id.clone(), secret.clone(), key);
        Ok((id, secret))
    }

    async fn change(
        &self,
        registry: &dyn Registry,
        id: &AccessKeyId,
        change: impl Fn(&mut KeyDescription) + Send + Sync,
    ) -> Result<(), KeyError> {
        for _ in 0..CONFLICTS_MAX {
            let found = registry.get(ACCESS_KEYS_TABLE, id.as_str()).await?;
            let unknown = || KeyError::Unknown(id.to_string());
            let found = found.ok_or_else(unknown)?;
            let StoredKey { secret, mut key, .. } = decode(id.as_str(), &found.value)?.ok_or_else(unknown)?;
            change(&mut key);
            let document = StoredKey::new(secret.clone(), key.clone()).encode()?;
            match registry.put(ACCESS_KEYS_TABLE, id.as_str(), document, Some(found.revision)).await {
                Ok(_) => {
                    self.learn(id.clone(), secret, key);
                    return Ok(());
                }
                Err(RegistryError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(changed_too_often(id).into())
    }
}

fn changed_too_often(id: &AccessKeyId) -> RegistryError {
    RegistryError::Storage(format!("access key {id} is changed by others again and again; try again"))
}
