//! The remote store against real Swift, by the suite that every store must pass.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../nigh-objects/tests/conformance/mod.rs"]
mod conformance;

use std::time::Instant;

use nigh_lab::peer::PeerError;
use nigh_lab::peer::swift::Swift;
use nigh_objects::store::remote::{RemoteConfig, RemoteStore};
use nigh_terms::{AccessKeyId, Namespace, SecretKey};

fn config(swift: &Swift) -> RemoteConfig {
    let mut config = RemoteConfig::of_one_namespace(
        Namespace::new("tenant").unwrap(),
        swift.endpoint(),
        swift.region(),
        AccessKeyId::new(swift.access_key()),
        swift.secret_key().clone(),
    );
    config.bucket_prefixes =
        [("tenant", "t1-"), ("other", "t2-")].map(|(name, p)| (Namespace::new(name).unwrap(), p.to_owned())).into();
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn the_remote_store_conforms_on_swift() {
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let swift = match Swift::start(folder.path()) {
        Ok(swift) => swift,
        Err(missing @ PeerError::NotInstalled { .. }) => {
            println!("SKIPPED: the_remote_store_conforms_on_swift: {missing}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    println!("Swift started in {} ms", began.elapsed().as_millis());
    let began = Instant::now();
    let store = RemoteStore::new(&config(&swift)).unwrap();
    for name in ["tenant", "other"] {
        let subject = conformance::Subject {
            store: &store,
            namespace: Namespace::new(name).unwrap(),
            scratch: folder.path().to_owned(),
            takes_nul: false,
        };
        conformance::check(&subject).await;
    }
    println!("conformance in {} ms", began.elapsed().as_millis());

    let wrong = RemoteConfig { secret_key: SecretKey::new("wrong"), ..config(&swift) };
    let store = RemoteStore::new(&wrong).unwrap();
    let error = nigh_objects::store::Store::list_buckets(&store, &Namespace::new("tenant").unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("access key"), "{error}");
}
