//! What other nodes deploy: taken over from the registry they share, one function at a time.
//!
//! While a function is changed here, what others did to it waits: then the registry is asked for it, and says how both came
//! out. The code of another node's function is not on this disk.

use std::sync::{Arc, Weak};
use std::time::Duration;

use nigh_engine::RegistryChange;
use nigh_terms::{FunctionName, Namespace};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::document::{decode, key};
use super::{FunctionStoreError, Inner, TABLE};

/// How often it is looked whether a change here has ended.
const LOOKED_EVERY: Duration = Duration::from_millis(20);

pub(super) async fn follow(store: Weak<Inner>, mut changes: mpsc::Receiver<RegistryChange>) {
    while let Some(RegistryChange { key, now }) = changes.recv().await {
        let Some(store) = store.upgrade() else { return };
        let named = key.split_once('/').map(|(namespace, name)| (Namespace::new(namespace), FunctionName::new(name)));
        let Some((Ok(namespace), Ok(name))) = named else { continue };
        let known = store.index.read().get(&namespace).and_then(|functions| Some(functions.get(&name)?.revision));
        if now.map(|now| now.revision) == known {
            continue;
        }
        if let Err(error) = store.take_over(&namespace, &name).await {
            tracing::error!(%error, "what another node deployed is not known here");
        }
    }
}

impl Inner {
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
        let before = {
            let mut index = self.index.write();
            let functions = index.entry(namespace.clone()).or_default();
            match &found {
                Some(found) => functions.insert(name.clone(), Arc::clone(found)),
                None => functions.remove(name),
            }
        };
        self.show_url(before.as_ref().and_then(|before| before.attached.url.as_ref()), found.as_deref());
        Ok(())
    }
}
