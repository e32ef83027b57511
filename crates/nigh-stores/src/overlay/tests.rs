use bytes::Bytes;
use nigh_terms::{ObjectKey, SystemClock, Timestamp, Token, Version};
use tempfile::TempDir;

use super::*;
use crate::directory::DirectoryStore;
use nigh_data::Attributes;

struct Layers {
    lower: Arc<DirectoryStore>,
    overlay: OverlayStore,
    _folders: TempDir,
}

fn namespace() -> Namespace {
    Namespace::new("tenant").unwrap()
}

fn bucket() -> BucketName {
    BucketName::new("bucket").unwrap()
}

fn id(key: &str) -> ObjectId {
    ObjectId { namespace: namespace(), bucket: bucket(), key: ObjectKey::new(key).unwrap() }
}

async fn put(store: &dyn Store, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
    let path = store.spool().unwrap().join(format!("{key}.spooled"));
    std::fs::write(&path, bytes).unwrap();
    let meta = ObjectMeta {
        size: bytes.len() as u64,
        etag: ETag(format!("{:x}", bytes.len())),
        modified: Timestamp(1_700_000_000_000),
        attributes: Attributes::default(),
        tags: Tags::new(),
        checksums: Vec::new(),
        parts: Vec::new(),
        version: Version::OUTSIDE,
        token: Token::empty(),
    };
    store.put(&id(key), &Payload::Files(vec![path]), &meta).await
}

async fn read(store: &dyn Store, key: &str) -> Result<Bytes, ObjectError> {
    let (_, body) = store.get(&id(key), None, None).await?;
    Ok(body
        .try_fold(Vec::new(), |mut all, bytes| async move {
            all.extend_from_slice(&bytes);
            Ok(all)
        })
        .await?
        .into())
}

async fn keys(store: &dyn Store, after: Option<&str>, limit: usize) -> Vec<String> {
    let listed = store.list(ListQuery { after, ..ListQuery::first(&namespace(), &bucket(), limit) }).await.unwrap();
    listed.into_iter().map(|listed| listed.key.as_str().to_owned()).collect()
}

async fn layers(written_max: u64) -> Layers {
    let folders = tempfile::tempdir().unwrap();
    let open =
        |name: &str| Arc::new(DirectoryStore::open(&folders.path().join(name), Arc::new(SystemClock::new())).unwrap());
    let (upper, lower) = (open("upper"), open("lower"));
    lower.create_bucket(&namespace(), &bucket()).await.unwrap();
    for key in ["a", "b", "c"] {
        put(&*lower, key, format!("lower {key}").as_bytes()).await.unwrap();
    }
    let overlay = OverlayStore::new(upper, Arc::clone(&lower) as Arc<dyn Store>, ByteSize(written_max));
    Layers { lower, overlay, _folders: folders }
}

#[tokio::test]
async fn what_a_run_writes_it_reads_and_the_lower_store_never_sees() {
    let layers = layers(1000).await;
    assert_eq!(read(&layers.overlay, "a").await.unwrap(), "lower a");
    put(&layers.overlay, "a", b"new").await.unwrap();
    put(&layers.overlay, "d", b"more").await.unwrap();
    assert_eq!(read(&layers.overlay, "a").await.unwrap(), "new");
    assert_eq!(keys(&layers.overlay, None, 10).await, ["a", "b", "c", "d"]);
    assert_eq!(read(&*layers.lower, "a").await.unwrap(), "lower a");
    assert_eq!(keys(&*layers.lower, None, 10).await, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_deletion_hides_and_a_write_after_it_shows_again() {
    let layers = layers(1000).await;
    layers.overlay.delete(&id("b")).await.unwrap();
    assert!(matches!(layers.overlay.head(&id("b")).await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!(keys(&layers.overlay, None, 10).await, ["a", "c"]);
    put(&layers.overlay, "b", b"again").await.unwrap();
    assert_eq!(read(&layers.overlay, "b").await.unwrap(), "again");
    layers.overlay.delete(&id("b")).await.unwrap();
    assert!(layers.overlay.get(&id("b"), None, None).await.is_err());
    assert_eq!(read(&*layers.lower, "b").await.unwrap(), "lower b");
}

#[tokio::test]
async fn a_page_is_full_though_hidden_objects_stand_in_its_way() {
    let layers = layers(1000).await;
    layers.overlay.delete(&id("a")).await.unwrap();
    layers.overlay.delete(&id("b")).await.unwrap();
    assert_eq!(keys(&layers.overlay, None, 1).await, ["c"]);
    assert_eq!(keys(&layers.overlay, Some("c"), 1).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_bucket_is_deleted_and_made_anew_above_only() {
    let layers = layers(1000).await;
    let refused = layers.overlay.delete_bucket(&namespace(), &bucket()).await;
    assert!(matches!(refused, Err(ObjectError::BucketNotEmpty(_))));
    for key in ["a", "b", "c"] {
        layers.overlay.delete(&id(key)).await.unwrap();
    }
    layers.overlay.delete_bucket(&namespace(), &bucket()).await.unwrap();
    assert!(layers.overlay.head_bucket(&namespace(), &bucket()).await.is_err());
    assert!(layers.overlay.list_buckets(&namespace()).await.unwrap().is_empty());
    layers.overlay.create_bucket(&namespace(), &bucket()).await.unwrap();
    assert!(keys(&layers.overlay, None, 10).await.is_empty());
    assert_eq!(keys(&*layers.lower, None, 10).await, ["a", "b", "c"]);
}

#[tokio::test]
async fn tags_of_a_lower_object_are_changed_on_a_copy() {
    let layers = layers(1000).await;
    let tags = Tags::from([("kind".to_owned(), "photo".to_owned())]);
    layers.overlay.put_tags(&id("c"), &tags).await.unwrap();
    assert_eq!(layers.overlay.head(&id("c")).await.unwrap().tags, tags);
    assert_eq!(read(&layers.overlay, "c").await.unwrap(), "lower c");
    assert!(layers.lower.head(&id("c")).await.unwrap().tags.is_empty());
}

#[tokio::test]
async fn a_run_that_writes_without_end_is_refused() {
    let layers = layers(10).await;
    put(&layers.overlay, "x", b"12345").await.unwrap();
    let refused = put(&layers.overlay, "y", b"123456").await;
    assert!(refused.unwrap_err().to_string().contains("may"));
}
