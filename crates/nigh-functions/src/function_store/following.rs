//! What other nodes deploy: taken over from the registry they share, one function at a time.
//!
//! While a function is being changed here, changes by other nodes wait: afterwards the registry is asked, and has the result.

use std::sync::{Arc, Weak};
use std::time::Duration;

use nigh_engine::RegistryChange;
use nigh_terms::{FunctionName, Namespace};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::document::{decode, key};
use super::{DeployedFunction, FunctionStoreError, FunctionStoreState, TABLE};
use crate::code_store::CodeVersion;

/// How often to look whether a change here has ended.
const LOOKED_EVERY: Duration = Duration::from_millis(20);

pub(super) async fn follow(store: Weak<FunctionStoreState>, mut changes: mpsc::Receiver<RegistryChange>) {
    while let Some(RegistryChange { key, now }) = changes.recv().await {
        let Some(store) = store.upgrade() else { return };
        let named = key.split_once('/').map(|(namespace, name)| (Namespace::new(namespace), FunctionName::new(name)));
        let Some((Ok(namespace), Ok(name))) = named else { continue };
        let known = store.index.read().get(&namespace).and_then(|functions| Some(functions.get(&name)?.revision));
        if now.map(|now| now.revision) == known {
            continue;
        }
        if let Err(error) = store.take_over(&namespace, &name).await {
            tracing::error!(%error, "a function that another node deployed cannot be read");
        }
    }
}

impl FunctionStoreState {
    /// Shows the function as the registry has it.
    async fn take_over(&self, namespace: &Namespace, name: &FunctionName) -> Result<(), FunctionStoreError> {
        let _changing = loop {
            match self.begin(namespace, name) {
                Ok(changing) => break changing,
                Err(_) => sleep(LOOKED_EVERY).await,
            }
        };
        let place = key(namespace, name);
        let found = self.registry.get(TABLE, &place).await?;
        let found = found.map(|stored| decode(&place, &stored.value, stored.revision)).transpose()?.map(Arc::new);
        if let Some(found) = &found
            && let Err(error) = self.fetch_code(&CodeVersion::of_function(&found.function)).await
        {
            tracing::warn!(function = %name, %error, "the code that another node deployed could not be fetched; it is fetched when it runs");
        }
        let before = {
            let mut index = self.index.write();
            let functions = index.entry(namespace.clone()).or_default();
            match &found {
                Some(found) => functions.insert(name.clone(), Arc::clone(found)),
                None => functions.remove(name),
            }
        };
        let code_of = |deployed: &Arc<DeployedFunction>| deployed.function.code_sha256.clone();
        if let Some(before) = before.as_ref().filter(|before| found.as_ref().map(code_of) != Some(code_of(before))) {
            self.retire_code_of(before);
        }
        self.show_url(before.as_ref().and_then(|before| before.attached.url.as_ref()), found.as_deref());
        Ok(())
    }
}
