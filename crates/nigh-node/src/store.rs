//! Which system of record stands behind the object memory, by the settings.

use std::sync::Arc;

use nigh_objects::store::Store;
use nigh_objects::store::directory::{DirectoryError, DirectoryStore};
use nigh_objects::store::remote::{RemoteConfig, RemoteError, RemoteStore};
use nigh_terms::{AccessKeyId, Clock};
use thiserror::Error;

use crate::config::{Settings, StoreKind};
use crate::status::Level;

/// Why the store is not there.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each source says what happened")]
pub enum StoreOpenError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error("store.kind is s3; store.endpoint, store.access_key and store.secret_key are needed")]
    Incomplete,
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
        StoreKind::S3 => {
            let config = remote(settings)?;
            let detail = format!("s3 at {}", config.endpoint);
            Ok((Arc::new(RemoteStore::new(&config)?), level(detail)))
        }
    }
}

/// The settings of a store that speaks S3; `Settings::check` has seen that they are complete.
fn remote(settings: &Settings) -> Result<RemoteConfig, StoreOpenError> {
    let store = &settings.store;
    let (Some(endpoint), Some(access_key), Some(secret_key)) = (&store.endpoint, &store.access_key, &store.secret_key)
    else {
        return Err(StoreOpenError::Incomplete);
    };
    Ok(RemoteConfig {
        endpoint: endpoint.clone(),
        region: store.region.clone(),
        access_key: AccessKeyId::new(access_key.clone()),
        secret_key: secret_key.clone(),
        bucket_prefixes: [(settings.namespace.clone(), store.bucket_prefix.clone())].into(),
        concurrency: store.concurrency,
        timeout: store.timeout.duration(),
    })
}

fn level(detail: String) -> Level {
    Level { name: "store".to_owned(), on: true, detail }
}
