//! The changes: each is checked, its code unpacked, its document written to the registry, and then shown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nigh_engine::{RegistryError, Revision};
use nigh_terms::{ByteSize, FunctionName, Namespace};
use uuid::Uuid;

use super::document::{Document, decode, key};
use super::{
    DeployedFunction, FUNCTIONS_MAX, FunctionAttachments, FunctionSettings, FunctionStoreError, FunctionStoreState,
    NewFunction, TABLE, blocking,
};
use crate::code_archive::Archive;
use crate::code_store::CodeVersion;
use crate::function::Function;

/// While this lives, no other change of the function begins.
pub(super) struct ChangeGuard<'a> {
    store: &'a FunctionStoreState,
    which: (Namespace, FunctionName),
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        self.store.changing.lock().remove(&self.which);
    }
}

impl FunctionStoreState {
    pub(super) async fn create(
        &self,
        namespace: Namespace,
        new: NewFunction,
        archive: Archive,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        let _changing = self.begin(&namespace, &new.name)?;
        {
            let index = self.index.read();
            let functions = index.get(&namespace);
            if functions.is_some_and(|functions| functions.contains_key(&new.name)) {
                return Err(FunctionStoreError::Exists(new.name));
            }
            if functions.is_some_and(|functions| functions.len() >= FUNCTIONS_MAX) {
                return Err(FunctionStoreError::TooMany(FUNCTIONS_MAX));
            }
        }
        let (version, code_size, unpacked) = self.publish(&namespace, &new.name, archive).await?;
        let mut function = Function {
            namespace,
            name: new.name,
            runtime: new.runtime.0,
            runtime_name: new.runtime.1,
            handler: new.handler,
            description: String::new(),
            memory: ByteSize::mib(128),
            timeout: Duration::from_secs(3),
            ephemeral_storage: ByteSize::mib(512),
            environment: BTreeMap::new(),
            layers: Vec::new(),
            role: String::new(),
            code_sha256: version.sha256,
            code_size,
            modified: self.clock.wall(),
            revision_id: Uuid::new_v4().to_string(),
            action: None,
        };
        new.settings.apply(&mut function);
        check_size(&function, unpacked, self.limits.archive.unpacked)?;
        self.commit(Document::new(function, new.tags, unpacked, FunctionAttachments::default()), None).await
    }

    pub(super) async fn update_code(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        archive: Archive,
        revision: Option<String>,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        let _changing = self.begin(namespace, name)?;
        let current = self.current(namespace, name, revision.as_deref())?;
        let (version, code_size, unpacked) = self.publish(namespace, name, archive).await?;
        let function = Function { code_sha256: version.sha256, code_size, ..(*current.function).clone() };
        self.replace(current, function, unpacked).await
    }

    pub(super) async fn update_settings(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        settings: FunctionSettings,
        revision: Option<String>,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        let _changing = self.begin(namespace, name)?;
        let current = self.current(namespace, name, revision.as_deref())?;
        let mut function = (*current.function).clone();
        settings.apply(&mut function);
        let unpacked = current.unpacked;
        self.replace(current, function, unpacked).await
    }

    pub(super) async fn delete(&self, namespace: &Namespace, name: &FunctionName) -> Result<(), FunctionStoreError> {
        let _changing = self.begin(namespace, name)?;
        let current = self.current(namespace, name, None)?;
        let deleted = self.registry.delete(TABLE, &key(namespace, name), current.revision).await;
        self.resolved(namespace, name, deleted).await?;
        if let Some(functions) = self.index.write().get_mut(namespace) {
            functions.remove(name);
        }
        self.show_url(current.attached.url.as_ref(), None);
        self.retire_code_of(&current);
        self.remove_due_code().await;
        // If this fails on a node alone, the next start removes them.
        Ok(self.schedules.delete_of(namespace, name).await?)
    }

    pub(super) fn begin(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
    ) -> Result<ChangeGuard<'_>, FunctionStoreError> {
        let which = (namespace.clone(), name.clone());
        if !self.changing.lock().insert(which.clone()) {
            return Err(FunctionStoreError::Busy(name.clone()));
        }
        Ok(ChangeGuard { store: self, which })
    }

    pub(super) fn current(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        revision: Option<&str>,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        let index = self.index.read();
        let current = index.get(namespace).and_then(|functions| functions.get(name));
        let current = current.ok_or_else(|| FunctionStoreError::NotFound(name.clone()))?;
        let found = &current.function.revision_id;
        match revision {
            Some(asked) if asked != found => {
                Err(FunctionStoreError::OtherRevision { asked: asked.to_owned(), found: found.clone() })
            }
            _ => Ok(Arc::clone(current)),
        }
    }

    /// Puts the archive's code on disk: its version, its size and what it unpacks to.
    async fn publish(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        archive: Archive,
    ) -> Result<(CodeVersion, ByteSize, ByteSize), FunctionStoreError> {
        self.remove_due_code().await;
        let size = archive.size();
        let (code, namespace, name) = (self.code.clone(), namespace.clone(), name.clone());
        let used = self.code_in_use(&namespace);
        let limit = self.limits.code;
        if used + size > limit {
            return Err(FunctionStoreError::CodeStorage { limit });
        }
        let (version, unpacked) = blocking(move || {
            let version = CodeVersion::of_archive(&namespace, &name, &archive)?;
            code.publish(&version, &archive).map(|unpacked| (version, unpacked))
        })
        .await?;
        let came_back = {
            let mut retired = self.retired.lock();
            let before = retired.len();
            retired.retain(|retired| retired.version != version);
            retired.len() < before
        };
        if !came_back && used + size + unpacked > limit {
            self.remove_unless_live(&version).await;
            return Err(FunctionStoreError::CodeStorage { limit });
        }
        self.share(&version).await?;
        Ok((version, size, unpacked))
    }

    pub(super) async fn update_all(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        settings: FunctionSettings,
        archive: Option<Archive>,
        revision: Option<String>,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        let _changing = self.begin(namespace, name)?;
        let current = self.current(namespace, name, revision.as_deref())?;
        let mut function = (*current.function).clone();
        let mut unpacked = current.unpacked;
        if let Some(archive) = archive {
            let (version, code_size, unpacks_to) = self.publish(namespace, name, archive).await?;
            (function.code_sha256, function.code_size, unpacked) = (version.sha256, code_size, unpacks_to);
        }
        settings.apply(&mut function);
        self.replace(current, function, unpacked).await
    }

    async fn replace(
        &self,
        current: Arc<DeployedFunction>,
        function: Function,
        unpacked: ByteSize,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        let function = Function { modified: self.clock.wall(), revision_id: Uuid::new_v4().to_string(), ..function };
        check_size(&function, unpacked, self.limits.archive.unpacked)?;
        let changed = function.code_sha256 != current.function.code_sha256;
        let document = Document::new(function, current.tags.clone(), unpacked, current.attached.clone());
        let deployed = self.commit(document, Some(current.revision)).await?;
        if changed {
            self.retire_code_of(&current);
        }
        Ok(deployed)
    }

    /// Writes the document to the registry, then shows the function.
    pub(super) async fn commit(
        &self,
        document: Document,
        expected: Option<Revision>,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        let (namespace, name) = (document.function.namespace.clone(), document.function.name.clone());
        let version = CodeVersion::of_function(&document.function);
        let place = key(&namespace, &name);
        let encoded = serde_json::to_vec(&document)
            .map_err(|error| FunctionStoreError::Document(place.clone(), error.to_string()))?;
        let put = self.registry.put(TABLE, &place, encoded, expected).await;
        if matches!(put, Err(RegistryError::Conflict { .. })) {
            let put = self.resolved(&namespace, &name, put).await;
            self.retire(version, document.function.code_size + document.unpacked);
            return Err(put.err().unwrap_or(FunctionStoreError::Busy(name)));
        }
        // After any other failure the document may have been written: the next open reads it, and sweeps.
        let Document { function, tags, unpacked, attached, .. } = document;
        let deployed =
            Arc::new(DeployedFunction { function: Arc::new(function), tags, attached, unpacked, revision: put? });
        self.index.write().entry(namespace).or_default().insert(name, Arc::clone(&deployed));
        Ok(deployed)
    }

    /// After a conflict another node has changed the function: takes over its document and returns `Busy`.
    async fn resolved<T>(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        result: Result<T, RegistryError>,
    ) -> Result<T, FunctionStoreError> {
        let Err(RegistryError::Conflict { .. }) = &result else { return Ok(result?) };
        let place = key(namespace, name);
        let found = self.registry.get(TABLE, &place).await?;
        let found = found.map(|stored| decode(&place, &stored.value, stored.revision)).transpose()?;
        let mut index = self.index.write();
        let functions = index.entry(namespace.clone()).or_default();
        match found {
            Some(deployed) => functions.insert(name.clone(), Arc::new(deployed)),
            None => functions.remove(name),
        };
        Err(FunctionStoreError::Busy(name.clone()))
    }
}

/// Code and layers have one limit together (Lambda quotas: 250 MB unpacked).
fn check_size(function: &Function, unpacked: ByteSize, limit: ByteSize) -> Result<(), FunctionStoreError> {
    let size = unpacked + function.layers.iter().map(|layer| layer.unpacked).sum();
    if size > limit && !function.layers.is_empty() {
        return Err(FunctionStoreError::WithLayers { size, limit });
    }
    Ok(())
}
