//! Which system of record stands behind the object memory, by the settings.

use std::sync::Arc;
use std::time::Duration;

use nigh_objects::store::directory::{DirectoryError, DirectoryStore};
use nigh_objects::store::remote::{RemoteConfig, RemoteError, RemoteStore};
use nigh_objects::store::{NetworkLimits, Store};
use nigh_terms::{AccessKeyId, Clock};
use thiserror::Error;

use crate::config::{Settings, StoreKind};
use crate::status::Level;

/// How long a start waits for a remote store's first answer; a node starts without it.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

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
            let detail = format!("directory {}", settings.store.path.display());
            Ok((Arc::new(store), Level { name: "store".to_owned(), on: true, detail }))
        }
        StoreKind::S3 => {
            let config = remote(settings)?;
            let store = RemoteStore::new(&config)?;
            let level = reach(&store, settings, &config.endpoint).await;
            Ok((Arc::new(store), level))
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
        limits: NetworkLimits {
            concurrency: store.concurrency,
            answer: store.timeout.duration(),
            idle: store.timeout.duration(),
            ..NetworkLimits::default()
        },
    })
}

/// Asks once, so that a wrong key or address is known at the start and not at a function's first call.
async fn reach(store: &RemoteStore, settings: &Settings, endpoint: &str) -> Level {
    let answer = tokio::time::timeout(FIRST_ANSWER, store.list_buckets(&settings.namespace)).await;
    let (on, detail) = match answer {
        Ok(Ok(buckets)) => (true, format!("s3 at {endpoint}, {} buckets", buckets.len())),
        Ok(Err(error)) => (false, format!("s3 at {endpoint}: {error}; each request asks it again")),
        Err(_) => {
            (false, format!("s3 at {endpoint}: no answer in {} s; each request asks it again", FIRST_ANSWER.as_secs()))
        }
    };
    Level { name: "store".to_owned(), on, detail }
}
