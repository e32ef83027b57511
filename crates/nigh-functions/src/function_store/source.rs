//! What an invoker asks of a store.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use nigh_terms::{FunctionName, Namespace};

use super::{FunctionStore, functions};
use crate::code_store::CodeVersion;
use crate::function::{Function, FunctionSource, Runtime};

#[async_trait]
impl FunctionSource for FunctionStore {
    async fn find(&self, namespace: &Namespace, name: &FunctionName) -> Option<Arc<Function>> {
        self.0.index.read().get(namespace)?.get(name).map(|deployed| Arc::clone(&deployed.function))
    }

    async fn code_folder(&self, function: &Function) -> PathBuf {
        let version = CodeVersion::of_function(function);
        if let Err(error) = self.0.fetch_code(&version).await {
            tracing::error!(function = %function.name, %error, "the code that another node deployed cannot be had");
        }
        self.0.code.task_folder(&version)
    }

    async fn layers_folder(&self, function: &Function) -> Result<Option<PathBuf>, String> {
        if function.layers.is_empty() {
            return Ok(None);
        }
        let folder = self.0.layers.folder(&function.namespace, &function.layers).await;
        folder.map(Some).map_err(|error| error.to_string())
    }

    fn runtimes(&self) -> BTreeSet<Runtime> {
        let index = self.0.index.read();
        let mut runtimes = BTreeSet::new();
        for function in functions(&index) {
            if !runtimes.contains(&function.runtime) {
                runtimes.insert(function.runtime.clone());
            }
        }
        runtimes
    }
}
