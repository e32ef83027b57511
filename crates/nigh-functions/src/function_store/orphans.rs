//! Schedules whose function is gone: a crash came between the two removals.

use nigh_terms::{FunctionName, Namespace};

use super::{FunctionStore, FunctionStoreError};

impl FunctionStore {
    /// Removes the schedules of functions that do not exist. For a node alone: in a cluster another node may just have
    /// deployed the function.
    ///
    /// # Errors
    /// If the registry refuses.
    pub async fn sweep_schedules(&self) -> Result<(), FunctionStoreError> {
        let is_deployed = |namespace: &Namespace, name: &FunctionName| self.get(namespace, name).is_some();
        Ok(self.0.schedules.sweep(is_deployed).await?)
    }
}
