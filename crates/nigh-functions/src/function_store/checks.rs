//! What a change would be refused for, without making it.

use std::sync::Arc;

use nigh_terms::{FunctionName, Namespace};

use super::{DeployedFunction, FunctionStore, FunctionStoreError, blocking};
use crate::code_archive::Archive;

impl FunctionStore {
    /// Checks what `update_code` would check, and changes nothing.
    ///
    /// # Errors
    /// As `update_code`.
    pub async fn check_code(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        archive: impl Into<Archive> + Send,
        revision: Option<&str>,
    ) -> Result<Arc<DeployedFunction>, FunctionStoreError> {
        let current = self.0.current(namespace, name, revision)?;
        let (code, archive) = (self.0.code.clone(), archive.into());
        blocking(move || code.check(&archive)).await?;
        Ok(current)
    }
}
