//! The stores on the network against real Swift, by S3 and by Swift's own API, and by the suite that every store must
//! pass.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking and may talk")]

#[path = "../../nigh-stores/tests/conformance/mod.rs"]
mod conformance;
mod on_swift;
#[path = "../../../tests/skipped.rs"]
mod skipped;
mod swift_shadows;
mod write_conditions;

use std::path::Path;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use nigh_data::{Attributes, ETag, ObjectId, ObjectMeta, Tags};
use nigh_lab::instrument::peer::PeerError;
use nigh_lab::instrument::peer::keystone::{ADMIN, Keystone, REGION, TOKEN_LIFE};
use nigh_lab::instrument::peer::swift::Swift;
use nigh_stores::remote::{RemoteConfig, RemoteStore};
use nigh_stores::swift::auth::{EndpointChoice, SwiftLogin};
use nigh_stores::swift::{SwiftConfig, SwiftStore};
use nigh_stores::{NetworkLimits, Payload, Store};
use nigh_terms::{BucketName, Epoch, ObjectKey, SecretKey, Sequence, Timestamp, Token, Version};

use self::on_swift::{by_s3, namespace, natively, start};
use self::skipped::skip;

async fn check(store: &dyn Store, scratch: &Path) {
    let began = Instant::now();
    for name in ["tenant", "other"] {
        let subject =
            conformance::Subject { store, namespace: namespace(name), scratch: scratch.to_owned(), takes_nul: false };
        conformance::check(&subject).await;
    }
    println!("conformance in {} ms", began.elapsed().as_millis());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_remote_store_conforms_on_swift() {
    let folder = tempfile::tempdir().unwrap();
    let Some(swift) = start("the_remote_store_conforms_on_swift", folder.path()) else { return };
    check(&RemoteStore::new(&by_s3(&swift, swift.endpoint(), NetworkLimits::default())).unwrap(), folder.path()).await;

    let wrong = RemoteConfig {
        secret_key: SecretKey::new("wrong"),
        ..by_s3(&swift, swift.endpoint(), NetworkLimits::default())
    };
    let error = RemoteStore::new(&wrong).unwrap().list_buckets(&namespace("tenant")).await.unwrap_err();
    assert!(error.to_string().contains("access key"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_swift_store_conforms_on_swift() {
    let folder = tempfile::tempdir().unwrap();
    let Some(swift) = start("the_swift_store_conforms_on_swift", folder.path()) else { return };
    let store = SwiftStore::new(&natively(&swift, swift.endpoint(), NetworkLimits::default())).unwrap();
    check(&store, folder.path()).await;
    // Nothing is left of it: no bucket, no container of segments.
    assert_eq!(listing_of(&swift, ""), "");

    segments_go_with_their_object(&store, &swift, folder.path()).await;

    let wrong = SwiftLogin::TempAuth { user: swift.s3().access_key.clone(), key: SecretKey::new("wrong") };
    let wrong =
        SwiftStore::new(&SwiftConfig { login: wrong, ..natively(&swift, swift.endpoint(), NetworkLimits::default()) })
            .unwrap();
    let error = wrong.list_buckets(&namespace("tenant")).await.unwrap_err();
    assert!(error.to_string().contains("store.secret_key"), "{error}");
}

/// The names of all that is in the account, or in one container of it.
fn listing_of(swift: &Swift, container: &str) -> String {
    let (url, user, key) = (swift.auth_url(), swift.s3().access_key.as_str(), swift.s3().secret_key.reveal());
    let script = format!(
        "import sys, urllib.request as r\n\
         a = r.urlopen(r.Request('{url}', headers={{'X-Auth-User': '{user}', 'X-Auth-Key': sys.argv[1]}})).headers\n\
         q = r.Request(a['X-Storage-Url'] + '{container}', headers={{'X-Auth-Token': a['X-Auth-Token']}})\n\
         print(r.urlopen(q).read().decode(), end='')"
    );
    let run = std::process::Command::new("python3").args(["-c", &script, key]).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

/// Writes an object of `count` parts, each filled with its number.
async fn put_parts(store: &SwiftStore, object: &ObjectId, count: u8, scratch: &Path) -> Vec<u8> {
    let parts: Vec<Vec<u8>> = (1..=count).map(|number| vec![number; 5 << 20]).collect();
    let files = (1..).zip(&parts).map(|(number, part): (u32, _)| {
        let path = scratch.join(format!("part-{number}"));
        std::fs::write(&path, part).unwrap();
        path
    });
    let meta = ObjectMeta {
        size: parts.iter().map(|part| part.len() as u64).sum(),
        etag: ETag(format!("{}-{count}", "0".repeat(32))),
        modified: Timestamp(5),
        attributes: Attributes::default(),
        tags: Tags::new(),
        checksums: Vec::new(),
        parts: parts.iter().map(|part| part.len() as u64).collect(),
        version: Version { epoch: Epoch(1), sequence: Sequence(1) },
        token: Token::empty(),
    };
    store.put(object, &Payload::Files(files.collect()), &meta).await.unwrap();
    parts.concat()
}

async fn segments_go_with_their_object(store: &SwiftStore, swift: &Swift, scratch: &Path) {
    let (tenant, bucket) = (namespace("tenant"), BucketName::new("large").unwrap());
    store.create_bucket(&tenant, &bucket).await.unwrap();
    let object = ObjectId { namespace: tenant.clone(), bucket: bucket.clone(), key: ObjectKey::new("a//b").unwrap() };
    let segments = || listing_of(swift, "/t1-large+segments").lines().count();
    put_parts(store, &object, 3, scratch).await;
    assert_eq!(segments(), 3);
    let bytes = put_parts(store, &object, 2, scratch).await;
    assert_eq!(segments(), 2);
    let (_, stream) = store.get(&object, None, None).await.unwrap();
    let read: Vec<bytes::Bytes> = stream.try_collect().await.unwrap();
    assert!(read.concat() == bytes);
    put_parts(store, &object, 1, scratch).await;
    assert_eq!(segments(), 0);
    put_parts(store, &object, 2, scratch).await;
    store.delete(&object).await.unwrap();
    assert_eq!(segments(), 0);
    store.delete_bucket(&tenant, &bucket).await.unwrap();
    assert_eq!(listing_of(swift, ""), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_swift_store_logs_in_by_keystone_and_again_when_its_token_has_ended() {
    let test = "the_swift_store_logs_in_by_keystone_and_again_when_its_token_has_ended";
    let folder = tempfile::tempdir().unwrap();
    let started = Keystone::start(&folder.path().join("keystone"))
        .and_then(|keystone| Ok((Swift::start_with_keystone(&folder.path().join("swift"), &keystone)?, keystone)));
    let (swift, keystone) = match started {
        Ok(both) => both,
        Err(missing @ PeerError::NotInstalled { .. }) => {
            skip(test, missing);
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let credential = keystone.register(swift.endpoint()).unwrap();
    let password = |password: &SecretKey| SwiftLogin::Password {
        user: ADMIN.to_owned(),
        user_domain: "Default".to_owned(),
        password: password.clone(),
        project: ADMIN.to_owned(),
        project_domain: "Default".to_owned(),
    };
    let store = |login: SwiftLogin, region: &str| {
        let endpoint = EndpointChoice { region: Some(region.to_owned()), interface: "public".to_owned() };
        let direct = natively(&swift, swift.endpoint(), NetworkLimits::default());
        SwiftStore::new(&SwiftConfig { auth_url: keystone.url(), login, endpoint, ..direct }).unwrap()
    };
    let tenant = namespace("tenant");
    let by_password = store(password(keystone.password()), REGION);
    let by_credential =
        store(SwiftLogin::ApplicationCredential { id: credential.id, secret: credential.secret }, REGION);
    let mut written = Vec::new();
    for (at, one) in [by_password, by_credential].into_iter().enumerate() {
        let bucket = BucketName::new(&format!("keystone-{at}")).unwrap();
        one.create_bucket(&tenant, &bucket).await.unwrap();
        let object = ObjectId { namespace: tenant.clone(), bucket, key: ObjectKey::new("k").unwrap() };
        let bytes = put_parts(&one, &object, 1, folder.path()).await;
        written.push((one, object, bytes));
    }
    tokio::time::sleep(TOKEN_LIFE + Duration::from_secs(1)).await;
    for (one, object, bytes) in written {
        let (_, stream) = one.get(&object, None, None).await.unwrap();
        assert!(stream.try_collect::<Vec<bytes::Bytes>>().await.unwrap().concat() == bytes);
        assert!(one.list_buckets(&tenant).await.unwrap().iter().any(|info| info.name == object.bucket));
    }

    let error = store(password(&SecretKey::new("wrong")), REGION).list_buckets(&tenant).await.unwrap_err();
    assert!(error.to_string().contains("the login is refused"), "{error}");
    let error = store(password(keystone.password()), "nowhere").list_buckets(&tenant).await.unwrap_err();
    assert!(error.to_string().contains("public in here"), "{error}");
}
