//! Namespaces: list, create, limit, remove.

use std::collections::BTreeMap;

use nigh_engine::{KeyDescription, NamespaceQuota};
use nigh_terms::{ByteSize, Namespace, Timestamp};

use super::documents::{CreatedKey, ListedNamespace};
use super::{Tenancy, TenancyError};

impl Tenancy {
    /// All namespaces, by name: those of the settings, those that an operator created, and those for which keys act.
    pub(crate) fn list_namespaces(&self) -> Vec<ListedNamespace> {
        let mut all: BTreeMap<Namespace, (Option<Timestamp>, NamespaceQuota)> = BTreeMap::new();
        for namespace in &self.first.namespaces {
            all.entry(namespace.clone()).or_default();
        }
        for (_, key) in self.keys.clients() {
            all.entry(key.namespace).or_default();
        }
        for (namespace, created, quota) in self.keys.namespaces().all() {
            all.insert(namespace, (created, quota));
        }
        all.into_iter().map(|(name, (created, quota))| self.listed(name, created, quota)).collect()
    }

    /// The namespace of this name.
    pub(crate) fn show_namespace(&self, namespace: &Namespace) -> Result<ListedNamespace, TenancyError> {
        let found = self.list_namespaces().into_iter().find(|listed| listed.name == *namespace);
        found.ok_or_else(|| TenancyError::NoNamespace(namespace.clone()))
    }

    /// Creates a namespace and its first key.
    pub(crate) async fn create_namespace(&self, namespace: Namespace) -> Result<CreatedKey, TenancyError> {
        if self.exists(&namespace) {
            return Err(nigh_engine::NamespaceError::Exists(namespace).into());
        }
        let now = self.clock.wall();
        self.keys.namespaces().create(&*self.registry, &namespace, now).await?;
        let key = KeyDescription { created: Some(now), ..KeyDescription::of_settings(namespace.clone()) };
        let (id, secret) = self.keys.create(&*self.registry, key).await?;
        tracing::info!(%namespace, key = %id, "a namespace was created");
        self.created(id, secret, None)
    }

    /// Replaces the quota of a namespace.
    pub(crate) async fn set_quota(&self, namespace: &Namespace, quota: NamespaceQuota) -> Result<(), TenancyError> {
        if !self.exists(namespace) {
            return Err(TenancyError::NoNamespace(namespace.clone()));
        }
        // Without requests nobody could see why.
        if quota.requests == Some(0) {
            return Err(TenancyError::Quota("requests"));
        }
        self.keys.namespaces().set_quota(&*self.registry, namespace, quota).await?;
        tracing::info!(%namespace, ?quota, "the quota of a namespace was set");
        Ok(())
    }

    /// Removes an empty namespace with its keys, or with `everything` all that is in it before.
    pub(crate) async fn remove_namespace(&self, namespace: &Namespace, everything: bool) -> Result<(), TenancyError> {
        if self.first.namespaces.contains(namespace) {
            return Err(TenancyError::OfSettings(namespace.clone()));
        }
        if !self.exists(namespace) {
            return Err(TenancyError::NoNamespace(namespace.clone()));
        }
        let contents = self.contents(namespace).await?;
        if !contents.is_empty() && !everything {
            return Err(TenancyError::NotEmpty { namespace: namespace.clone(), contents });
        }
        // Its keys end first, so that nobody adds to it meanwhile. Its document goes last, so that a removal that was broken
        // off can be repeated.
        if self.keys.namespaces().all().iter().all(|(known, ..)| known != namespace) {
            self.keys.namespaces().set_quota(&*self.registry, namespace, NamespaceQuota::default()).await?;
        }
        for id in self.keys.of_namespace(namespace) {
            self.remove_key_for_good(&id).await?;
        }
        self.remove_contents(namespace).await?;
        self.keys.namespaces().remove(&*self.registry, namespace).await?;
        tracing::info!(%namespace, everything, "a namespace was removed");
        Ok(())
    }

    fn listed(&self, name: Namespace, created: Option<Timestamp>, quota: NamespaceQuota) -> ListedNamespace {
        let used: Option<(ByteSize, ByteSize)> = self.keys.namespaces().used(&name);
        ListedNamespace {
            from_settings: self.first.namespaces.contains(&name),
            created: created.map(Timestamp::rfc3339),
            quota,
            functions: self.functions.totals(&name).0,
            keys: self.keys.of_namespace(&name).len(),
            booked: used.map(|(booked, _)| booked),
            stored: used.map(|(_, stored)| stored).filter(|_| quota.stored.is_some()),
            name,
        }
    }
}
