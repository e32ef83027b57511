//! Which system of record stands behind the object memory, by the settings.

use std::sync::Arc;

use nigh_objects::store::Store;
use nigh_objects::store::directory::{DirectoryError, DirectoryStore};
use nigh_terms::Clock;
use thiserror::Error;

use crate::config::{Settings, StoreKind};
use crate::status::Level;

/// Why the store is not there.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each source says what happened")]
pub enum StoreOpenError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("opening the store broke off: {0}")]
    Join(#[from] tokio::task::JoinError),
}

/// Opens the store, and says in one line what it is.
pub(crate) async fn open(
    settings: &Settings,
    clock: Arc<dyn Clock>,
) -> Result<(Arc<dyn Store>, Level), StoreOpenError> {
    match settings.store.kind {
        StoreKind::Directory => {
            let path = settings.store.path.clone();
            let store = tokio::task::spawn_blocking(move || DirectoryStore::open(&path, clock)).await??;
            Ok((Arc::new(store), level(format!("directory {}", settings.store.path.display()))))
        }
        StoreKind::S3 => todo!(),
    }
}

fn level(detail: String) -> Level {
    Level { name: "store".to_owned(), on: true, detail }
}
