//! The stores of the settings: the node's, and those of namespaces.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nigh_data::ObjectError;
use nigh_objects::WriteMode;
use nigh_stores::Store;
#[cfg(feature = "cloud-stores")]
use nigh_stores::cloud::{CloudConfig, CloudError, CloudService, CloudStore, GcsAccount};
use nigh_stores::directory::{DirectoryError, DirectoryStore};
use nigh_stores::remote::{RemoteConfig, RemoteError, RemoteStore};
use nigh_stores::routed::RoutedStore;
use nigh_stores::swift::auth::{EndpointChoice, SwiftLogin};
use nigh_stores::swift::shadow::{ShadowConfig, ShadowError};
use nigh_stores::swift::{SwiftConfig, SwiftError, SwiftStore};
use nigh_stores::traced::TracedStore;
use nigh_terms::{AccessKeyId, Clock, Namespace, SecretKey};
use thiserror::Error;

use crate::config::{Settings, StoreKind, StoreSettings, SwiftAuth};
use crate::outside_door::{SecretFileError, read_secrets};
use crate::status::Level;

/// How long a start waits for a remote store's first answer; then the node starts without it.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// The region of an S3 service's signatures if none is set.
const DEFAULT_REGION: &str = "us-east-1";

/// Why a store cannot be opened.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each source says what happened")]
pub enum StoreOpenError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error(transparent)]
    Swift(#[from] SwiftError),
    #[error(transparent)]
    Secret(#[from] SecretFileError),
    #[error("Swift: {0}")]
    Shadows(#[from] ObjectError),
    #[error(
        "writes of {namespace} are to be shadows, and {kind} behind cannot show them: install Nigh's middleware there \
         (integrations/swift/README.md), or set another mode (writes.mode, namespaces.{namespace}.write_mode)"
    )]
    NoShadows { namespace: Namespace, kind: &'static str },
    #[error("{kind}: {missing} is needed")]
    Incomplete { kind: &'static str, missing: &'static str },
    #[cfg(feature = "cloud-stores")]
    #[error(transparent)]
    Cloud(#[from] CloudError),
    #[cfg(not(feature = "cloud-stores"))]
    #[error("this nigh was built without stores of kind {kind}; build it with `--features cloud-stores`")]
    NotBuilt { kind: &'static str },
    #[error("opening the store failed: {0}")]
    Join(#[from] tokio::task::JoinError),
}

/// Opens the stores. Returns one line about each, the node's first.
pub(crate) async fn open(
    settings: &Settings,
    clock: Arc<dyn Clock>,
) -> Result<(Arc<dyn Store>, Vec<Level>), StoreOpenError> {
    let mut opening = StoreOpener { clock, directories: BTreeMap::new(), node: &settings.node };
    // The first namespace uses the node's store, unless it has its own.
    let has_own = settings.own_stores().any(|(name, _)| *name == settings.namespace);
    let nodes = (!has_own).then_some(&settings.namespace);
    let (store, level) = opening.open(&settings.store, nodes).await?;
    let (mut own, mut levels) = (BTreeMap::new(), vec![Level { name: "store".to_owned(), ..level }]);
    for (name, store_settings) in settings.own_stores() {
        let (store, level) = opening.open(store_settings, Some(name)).await?;
        own.insert(name.clone(), store);
        levels.push(Level { name: format!("store of {name}"), ..level });
    }
    let store = if own.is_empty() { store } else { Arc::new(RoutedStore::new(store, own)) };
    check_modes(settings, &*store)?;
    Ok((Arc::new(TracedStore::new(store)), levels))
}

/// Rejects write mode `shadow` if Swift reports that it lacks the middleware.
fn check_modes(settings: &Settings, store: &dyn Store) -> Result<(), StoreOpenError> {
    let own = settings.namespaces.iter().map(|(name, own)| (name, own.write_mode));
    for (namespace, mode) in std::iter::once((&settings.namespace, None)).chain(own) {
        let abilities = store.abilities(namespace);
        if mode.unwrap_or(settings.writes.mode) == WriteMode::Shadow && !abilities.shadows {
            return Err(StoreOpenError::NoShadows { namespace: namespace.clone(), kind: abilities.kind });
        }
    }
    Ok(())
}

struct StoreOpener<'a> {
    /// This node's name.
    node: &'a str,
    clock: Arc<dyn Clock>,
    /// Namespaces with the same folder share one store.
    directories: BTreeMap<PathBuf, Arc<DirectoryStore>>,
}

impl StoreOpener<'_> {
    /// Opens a store for buckets of `namespace`; a directory serves all namespaces. The returned level has no name yet.
    async fn open(
        &mut self,
        settings: &StoreSettings,
        namespace: Option<&Namespace>,
    ) -> Result<(Arc<dyn Store>, Level), StoreOpenError> {
        let level = |on, detail| Level { name: String::new(), on, detail };
        let store: Arc<dyn Store> = match settings.kind {
            StoreKind::Directory => {
                let detail = format!("directory {}", settings.path.display());
                return Ok((self.directory(&settings.path).await?, level(true, detail)));
            }
            StoreKind::S3 => Arc::new(RemoteStore::new(&remote(settings, namespace)?)?),
            StoreKind::Swift => {
                let (store, detail) = self.swift(settings, namespace).await?;
                let (on, reached) = reach(&store, namespace).await;
                let detail = format!("swift at {}{reached}{detail}", endpoint(settings)?);
                return Ok((Arc::new(store), level(on, detail)));
            }
            #[cfg(feature = "cloud-stores")]
            StoreKind::Gcs | StoreKind::Azure => {
                let store = Arc::new(CloudStore::new(&cloud(settings, namespace)?)?);
                let place = settings.endpoint.as_deref().unwrap_or("the service's own address");
                let detail = format!("{} at {place}, untested on the real service", settings.kind.as_str());
                return Ok((store, level(true, detail)));
            }
            #[cfg(not(feature = "cloud-stores"))]
            StoreKind::Gcs | StoreKind::Azure => {
                return Err(StoreOpenError::NotBuilt { kind: settings.kind.as_str() });
            }
        };
        let name = format!("{} at {}", settings.kind.as_str(), endpoint(settings)?);
        let (on, detail) = reach(&*store, namespace).await;
        Ok((store, level(on, format!("{name}{detail}"))))
    }

    /// Opens a Swift store. Returns whether it has the middleware, if the settings name a shared secret.
    async fn swift(
        &self,
        settings: &StoreSettings,
        namespace: Option<&Namespace>,
    ) -> Result<(SwiftStore, String), StoreOpenError> {
        let store = SwiftStore::new(&swift(settings, namespace)?)?;
        let Some(file) = &settings.shadow_secret_file else { return Ok((store, String::new())) };
        let node = settings.shadow_node.clone().unwrap_or_else(|| self.node.to_owned());
        let secret = read_secrets(file, "store.shadow_secret_file")?.into_iter().next();
        let secret = needed(&secret, settings.kind, "shadow_secret_file")?;
        let store = store.with_shadows(ShadowConfig { secret, node: node.clone() })?;
        let found = tokio::time::timeout(FIRST_ANSWER, store.find_middleware()).await;
        let detail = match found {
            Ok(Ok(())) => format!(", shadows of node {node}"),
            Ok(Err(error @ ShadowError::NoMiddleware)) => format!("; {error}"),
            Ok(Err(_)) | Err(_) => "; whether it has Nigh's middleware is not known yet".to_owned(),
        };
        Ok((store, detail))
    }

    async fn directory(&mut self, path: &Path) -> Result<Arc<DirectoryStore>, StoreOpenError> {
        // A folder that does not exist yet cannot be another namespace's.
        let known = path.canonicalize().ok().and_then(|folder| self.directories.get(&folder));
        if let Some(open) = known {
            return Ok(Arc::clone(open));
        }
        let (clock, folder) = (Arc::clone(&self.clock), path.to_owned());
        let store = Arc::new(tokio::task::spawn_blocking(move || DirectoryStore::open(&folder, clock)).await??);
        self.directories.insert(path.canonicalize().unwrap_or_else(|_| path.to_owned()), Arc::clone(&store));
        Ok(store)
    }
}

/// A value that `Settings::check` has required.
fn needed<T: Clone>(value: &Option<T>, kind: StoreKind, missing: &'static str) -> Result<T, StoreOpenError> {
    value.clone().ok_or(StoreOpenError::Incomplete { kind: kind.as_str(), missing })
}

fn endpoint(store: &StoreSettings) -> Result<String, StoreOpenError> {
    needed(&store.endpoint, store.kind, "endpoint")
}

fn account(store: &StoreSettings) -> Result<(String, SecretKey), StoreOpenError> {
    Ok((needed(&store.access_key, store.kind, "access_key")?, needed(&store.secret_key, store.kind, "secret_key")?))
}

fn prefixes(store: &StoreSettings, namespace: Option<&Namespace>) -> BTreeMap<Namespace, String> {
    namespace.map(|name| (name.clone(), store.bucket_prefix.clone())).into_iter().collect()
}

fn remote(store: &StoreSettings, namespace: Option<&Namespace>) -> Result<RemoteConfig, StoreOpenError> {
    let (access_key, secret_key) = account(store)?;
    Ok(RemoteConfig {
        endpoint: endpoint(store)?,
        region: store.region.clone().unwrap_or_else(|| DEFAULT_REGION.to_owned()),
        access_key: AccessKeyId::new(access_key),
        secret_key,
        bucket_prefixes: prefixes(store, namespace),
        limits: store.limits(),
    })
}

fn swift(store: &StoreSettings, namespace: Option<&Namespace>) -> Result<SwiftConfig, StoreOpenError> {
    let (who, secret) = account(store)?;
    let login = match store.auth {
        SwiftAuth::Tempauth => SwiftLogin::TempAuth { user: who, key: secret },
        SwiftAuth::ApplicationCredential => SwiftLogin::ApplicationCredential { id: who, secret },
        SwiftAuth::Password => SwiftLogin::Password {
            user: who,
            user_domain: store.user_domain.clone(),
            password: secret,
            project: needed(&store.project, store.kind, "project")?,
            project_domain: store.project_domain.clone(),
        },
    };
    Ok(SwiftConfig {
        auth_url: endpoint(store)?,
        login,
        endpoint: EndpointChoice { region: store.region.clone(), interface: store.interface.clone() },
        bucket_prefixes: prefixes(store, namespace),
        limits: store.limits(),
    })
}

#[cfg(feature = "cloud-stores")]
fn cloud(store: &StoreSettings, namespace: Option<&Namespace>) -> Result<CloudConfig, StoreOpenError> {
    let service = match store.kind {
        StoreKind::Azure => {
            let (account, key) = account(store)?;
            let own = || format!("https://{account}.blob.core.windows.net");
            CloudService::Azure { endpoint: store.endpoint.clone().unwrap_or_else(own), account, key }
        }
        _ => CloudService::Gcs {
            endpoint: store.endpoint.clone(),
            account: store.credential_file.clone().map_or(GcsAccount::OfMachine, GcsAccount::File),
        },
    };
    Ok(CloudConfig { service, bucket_prefixes: prefixes(store, namespace), limits: store.limits() })
}

/// Sends the store one request, so that a wrong key or address shows at the start.
async fn reach(store: &dyn Store, namespace: Option<&Namespace>) -> (bool, String) {
    let Some(namespace) = namespace else { return (true, ", not used: its namespace has its own".to_owned()) };
    match tokio::time::timeout(FIRST_ANSWER, store.list_buckets(namespace)).await {
        Ok(Ok(buckets)) => (true, format!(", {} buckets", buckets.len())),
        Ok(Err(error)) => (false, format!(": {error}; each request tries again")),
        Err(_) => (false, format!(": no answer in {} s; each request tries again", FIRST_ANSWER.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use nigh_data::ObjectError;
    use nigh_terms::{BucketName, ByteSize, SystemClock};

    use super::*;
    use crate::config::NamespaceSettings;
    use crate::machine::Machine;

    fn settings(state: &Path) -> Settings {
        let machine = Machine { hostname: "n".to_owned(), memory: ByteSize::gib(1), cpus: 1 };
        Settings::defaults(state, &machine)
    }

    fn name(text: &str) -> Namespace {
        Namespace::new(text).unwrap()
    }

    #[tokio::test]
    async fn each_namespace_gets_the_store_of_its_settings_and_one_that_does_not_answer_stops_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path());
        let own = |store| NamespaceSettings { store: Some(store), write_mode: None, share: None };
        let absent = StoreSettings {
            kind: StoreKind::Swift,
            endpoint: Some("http://127.0.0.1:1/auth/v1.0".to_owned()),
            access_key: Some("a:b".to_owned()),
            secret_key: Some(SecretKey::new("hush")),
            attempts: 1,
            ..StoreSettings::directory(Path::new("/unused"))
        };
        settings.namespaces = [
            (name("apart"), own(StoreSettings::directory(&folder.path().join("apart")))),
            (name("with-the-node"), own(settings.store.clone())),
            (name("absent"), own(absent)),
        ]
        .into();
        settings.check().unwrap();
        let (store, levels) = open(&settings, Arc::new(SystemClock::new())).await.unwrap();
        let said: Vec<_> = levels.iter().map(|level| (level.name.as_str(), level.on)).collect();
        let expected =
            [("store", true), ("store of absent", false), ("store of apart", true), ("store of with-the-node", true)];
        assert_eq!(said, expected);
        assert!(levels[1].detail.contains("login") && !levels[1].detail.contains("hush"), "{}", levels[1].detail);

        let bucket = BucketName::new("bucket").unwrap();
        for namespace in ["default", "apart", "with-the-node"] {
            store.create_bucket(&name(namespace), &bucket).await.unwrap();
        }
        assert!(folder.path().join("apart/namespaces/apart/bucket").is_dir());
        assert!(folder.path().join("objects/namespaces/with-the-node/bucket").is_dir());
        let unreachable = store.create_bucket(&name("absent"), &bucket).await;
        assert!(matches!(unreachable, Err(ObjectError::StoreUnreached { store: "swift", .. })), "{unreachable:?}");
    }
}
