//! The code of functions in a cluster: it is also stored in the registry, so that every node can run what another has deployed,
//! even if that node has left.
//!
//! An archive is in the registry before its document. A node fetches missing code when it hears of the document; if that fails,
//! when the code is to run.

use std::sync::atomic::Ordering;

use nigh_engine::{RegistryError, Revision};

use super::{FunctionStoreError, FunctionStoreState, blocking};
use crate::code_archive::Archive;
use crate::code_store::{CodeVersion, read_archive};

/// The registry's table of archives.
const CODE: &str = "function-code";

fn key(version: &CodeVersion) -> String {
    format!("{}/{}/{}", version.namespace, version.function, version.folder_name())
}

impl FunctionStoreState {
    fn is_shared(&self) -> bool {
        self.shares_code.load(Ordering::Relaxed)
    }

    /// Stores a version's archive in the registry.
    pub(super) async fn share(&self, version: &CodeVersion) -> Result<(), FunctionStoreError> {
        if !self.is_shared() {
            return Ok(());
        }
        let path = self.code.archive(version);
        let bytes = blocking(move || read_archive(&path)).await?;
        match self.registry.put(CODE, &key(version), bytes, None).await {
            // It was deployed before.
            Ok(Revision(_)) | Err(RegistryError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Fetches a version's code to this disk, if another node deployed it.
    pub(super) async fn fetch_code(&self, version: &CodeVersion) -> Result<(), FunctionStoreError> {
        if !self.is_shared() || self.code.task_folder(version).exists() {
            return Ok(());
        }
        let Some(stored) = self.registry.get(CODE, &key(version)).await? else {
            return Err(FunctionStoreError::CodeGone(version.function.clone()));
        };
        let (code, version) = (self.code.clone(), version.clone());
        blocking(move || code.publish(&version, &Archive::from(stored.value))).await.map(|_| ())
    }

    /// No function has the version any more.
    pub(super) async fn unshare(&self, version: &CodeVersion) {
        if !self.is_shared() {
            return;
        }
        let removed = match self.registry.get(CODE, &key(version)).await {
            Ok(Some(stored)) => self.registry.delete(CODE, &key(version), stored.revision).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(%error, "an unused archive cannot be removed from the registry");
        }
    }
}
