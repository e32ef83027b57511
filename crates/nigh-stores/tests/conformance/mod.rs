//! What every store must do, whatever it is made of. `check` runs all of it against one store and one namespace.

use std::path::PathBuf;

use futures::TryStreamExt;
use md5::{Digest, Md5};
use nigh_data::{Attributes, ChecksumAlgorithm, ETag, ObjectError, ObjectId, ObjectMeta, Segment, Tags};
use nigh_stores::{ListQuery, Payload, Store};
use nigh_terms::{BucketName, Epoch, Namespace, ObjectKey, Sequence, ShardId, Timestamp, Token, Version, hex};

/// Keys that file systems, URLs and XML would like to change.
const NASTY_KEYS: [&str; 24] = [
    ".",
    "..",
    "a",
    "a/",
    "a//",
    "a/b",
    "a/../b",
    "../../etc/passwd",
    "/",
    "//",
    "/lead",
    " blank ",
    "a+b",
    "a b",
    "a%2Fb",
    "%",
    "q?x=1&y#z",
    "\u{1}",
    "\u{7f}",
    "ü/日本",
    "\u{10ffff}",
    "<&\"'>",
    "a\\b",
    "~tilde*!'()",
];

/// A store under test, with a namespace of its own.
pub(crate) struct Subject<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) namespace: Namespace,
    pub(crate) scratch: PathBuf,
    /// True if the store can hold a key with a NUL byte. Swift refuses those.
    pub(crate) takes_nul: bool,
}

fn md5_of(bytes: &[u8]) -> String {
    hex(&Md5::digest(bytes))
}

fn meta_of(bytes: &[u8]) -> ObjectMeta {
    let version = Version { epoch: Epoch(2), sequence: Sequence(5) };
    let mut token = Token::empty();
    token.see(ShardId(0), version);
    ObjectMeta {
        size: bytes.len() as u64,
        etag: ETag(md5_of(bytes)),
        modified: Timestamp(1_700_000_000_123),
        attributes: Attributes::default(),
        tags: Tags::new(),
        checksums: Vec::new(),
        parts: Vec::new(),
        version,
        token,
    }
}

impl Subject<'_> {
    fn bucket(&self) -> BucketName {
        BucketName::new("conformance").unwrap()
    }

    fn id(&self, key: &str) -> ObjectId {
        ObjectId { namespace: self.namespace.clone(), bucket: self.bucket(), key: ObjectKey::new(key).unwrap() }
    }

    /// `pieces` as spooled files, where the store would have them.
    fn payload(&self, pieces: &[&[u8]]) -> Payload {
        let folder = self.store.spool().unwrap_or(&self.scratch);
        let spool = |piece: &&[u8]| {
            let path = folder.join(uuid::Uuid::new_v4().to_string());
            std::fs::write(&path, piece).unwrap();
            path
        };
        Payload::Files(pieces.iter().map(spool).collect())
    }

    async fn put(&self, key: &str, bytes: &[u8]) {
        self.store.put(&self.id(key), &self.payload(&[bytes]), &meta_of(bytes)).await.unwrap();
    }

    async fn read(&self, key: &str, range: Option<std::ops::Range<u64>>) -> (ObjectMeta, Vec<u8>) {
        let (meta, stream) = self.store.get(&self.id(key), range, None).await.unwrap();
        let pieces: Vec<bytes::Bytes> = stream.try_collect().await.unwrap();
        (meta, pieces.concat())
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Vec<String> {
        let page = self
            .store
            .list(ListQuery { prefix, after, ..ListQuery::first(&self.namespace, &self.bucket(), limit) })
            .await
            .unwrap();
        page.into_iter().map(|object| object.key.as_str().to_owned()).collect()
    }

    async fn empty(&self) {
        for key in self.list("", None, 10_000).await {
            self.store.delete(&self.id(&key)).await.unwrap();
        }
        assert_eq!(self.list("", None, 10).await, [""; 0]);
    }

    async fn buckets_are_made_listed_and_removed(&self) {
        let (store, namespace, bucket) = (self.store, &self.namespace, self.bucket());
        assert!(matches!(store.head_bucket(namespace, &bucket).await, Err(ObjectError::NoSuchBucket(_))));
        assert!(matches!(store.delete_bucket(namespace, &bucket).await, Err(ObjectError::NoSuchBucket(_))));
        assert_eq!(store.list_buckets(namespace).await.unwrap(), []);
        store.create_bucket(namespace, &bucket).await.unwrap();
        let again = store.create_bucket(namespace, &bucket).await;
        assert!(matches!(again, Err(ObjectError::BucketAlreadyOwnedByYou(_))), "{again:?}");
        let info = store.head_bucket(namespace, &bucket).await.unwrap();
        assert_eq!(info.name, bucket);
        assert!(info.created > Timestamp(1_000_000_000_000));
        assert_eq!(store.list_buckets(namespace).await.unwrap(), [info]);
        self.put("k", b"x").await;
        let full = store.delete_bucket(namespace, &bucket).await;
        assert!(matches!(full, Err(ObjectError::BucketNotEmpty(_))), "{full:?}");
        store.delete(&self.id("k")).await.unwrap();
        store.delete_bucket(namespace, &bucket).await.unwrap();
        assert!(matches!(store.head_bucket(namespace, &bucket).await, Err(ObjectError::NoSuchBucket(_))));
        assert_eq!(store.list_buckets(namespace).await.unwrap(), []);
    }

    async fn what_is_not_there_is_told_apart(&self) {
        let absent = self.id("absent");
        assert!(matches!(self.store.head(&absent).await, Err(ObjectError::NoSuchKey(_))));
        assert!(matches!(self.store.get(&absent, None, None).await.err(), Some(ObjectError::NoSuchKey(_))));
        assert!(matches!(self.store.put_tags(&absent, &Tags::new()).await, Err(ObjectError::NoSuchKey(_))));
        self.store.delete(&absent).await.unwrap();
        let elsewhere = ObjectId { bucket: BucketName::new("no-such-bucket").unwrap(), ..absent };
        let is_bucket = |error: Option<ObjectError>| matches!(error, Some(ObjectError::NoSuchBucket(_)));
        assert!(is_bucket(self.store.head(&elsewhere).await.err()));
        assert!(is_bucket(self.store.get(&elsewhere, None, None).await.err()));
        assert!(is_bucket(self.store.put(&elsewhere, &self.payload(&[b"x"]), &meta_of(b"x")).await.err()));
        assert!(is_bucket(self.store.delete(&elsewhere).await.err()));
        assert!(is_bucket(self.store.list(ListQuery::first(&self.namespace, &elsewhere.bucket, 1)).await.err()));
        // Another namespace sees nothing of this one's.
        let stranger = ObjectId { namespace: Namespace::new("stranger").unwrap(), ..self.id("k") };
        self.put("k", b"x").await;
        assert!(is_bucket(self.store.head(&stranger).await.err()));
        assert_eq!(self.store.list_buckets(&stranger.namespace).await.unwrap(), []);
    }

    async fn what_was_put_is_what_is_read(&self) {
        for size in [0, 1, 70_000, 3_000_000] {
            let bytes: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            self.put("object", &bytes).await;
            let (meta, read) = self.read("object", None).await;
            assert_eq!((meta, read == bytes), (meta_of(&bytes), true), "{size}");
            assert_eq!(self.store.head(&self.id("object")).await.unwrap(), meta_of(&bytes), "{size}");
        }
        let bytes: Vec<u8> = (0..3_000_000).map(|n| (n % 251) as u8).collect();
        for range in [0..1, 0..3_000_000, 5..5, 1_048_570..1_048_580, 2_999_999..3_000_000] {
            let (meta, read) = self.read("object", Some(range.clone())).await;
            assert_eq!((meta.size, &read[..]), (3_000_000, &bytes[range.start as usize..range.end as usize]));
        }
        let beyond = self.store.get(&self.id("object"), Some(3_000_000..3_000_001), None).await.err();
        assert!(matches!(beyond, Some(ObjectError::InvalidRange { size: 3_000_000 })), "{beyond:?}");
        let beyond = self.store.get(&self.id("object"), Some(2_999_999..3_000_001), None).await.err();
        assert!(matches!(beyond, Some(ObjectError::InvalidRange { size: 3_000_000 })), "{beyond:?}");
    }

    async fn a_segment_is_stored_like_a_file(&self) {
        for size in [0, 5, 2_000_000] {
            let bytes: Vec<u8> = (0..size).map(|n| (n % 249) as u8).collect();
            let payload = Payload::Segment(Segment::copy_of(&bytes).unwrap());
            self.store.put(&self.id("segment"), &payload, &meta_of(&bytes)).await.unwrap();
            let (meta, read) = self.read("segment", None).await;
            assert_eq!((meta, read == bytes), (meta_of(&bytes), true), "{size}");
        }
    }

    async fn a_pinned_read_gets_its_version_or_nothing(&self) {
        self.put("pinned", b"first").await;
        let first = meta_of(b"first").etag;
        let (meta, _) = self.store.get(&self.id("pinned"), Some(0..2), Some(&first)).await.unwrap();
        assert_eq!(meta.etag, first);
        self.put("pinned", b"second").await;
        for range in [None, Some(0..2), Some(1..1)] {
            let error = self.store.get(&self.id("pinned"), range, Some(&first)).await.err();
            assert!(matches!(error, Some(ObjectError::PreconditionFailed(_))), "{error:?}");
        }
    }

    async fn all_that_is_known_of_an_object_comes_back(&self) {
        let text = |text: &str| Some(text.to_owned());
        let rich = ObjectMeta {
            attributes: Attributes {
                content_type: text("text/x-strange; charset=utf-8"),
                cache_control: text("max-age=5"),
                content_disposition: text("attachment; filename=\"a b.txt\""),
                content_encoding: text("gzip"),
                content_language: text("de, en"),
                expires: text("Thu, 01 Dec 2044 16:00:00 GMT"),
                user: [
                    ("simple", "value"),
                    ("with-hyphen", "a, b; c=\"d\""),
                    ("under_score", "1"),
                    ("text", "grüße 日本"),
                ]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            },
            tags: [("project".to_owned(), "nigh & far".to_owned()), ("empty".to_owned(), String::new())].into(),
            checksums: vec![ChecksumAlgorithm::Sha256.checksum(&[0xaa; 32])],
            ..meta_of(b"rich")
        };
        let id = self.id("rich");
        self.store.put(&id, &self.payload(&[b"rich"]), &rich).await.unwrap();
        assert_eq!(self.store.head(&id).await.unwrap(), rich);
        assert_eq!(self.read("rich", None).await, (rich.clone(), b"rich".to_vec()));
        assert_eq!(self.read("rich", Some(1..3)).await, (rich.clone(), b"ic".to_vec()));

        let tags: Tags = [("new".to_owned(), "tags".to_owned())].into();
        self.store.put_tags(&id, &tags).await.unwrap();
        let retagged = ObjectMeta { tags, ..rich };
        assert_eq!(self.read("rich", None).await, (retagged, b"rich".to_vec()));

        // An overwrite leaves nothing of what was before.
        self.put("rich", b"plain").await;
        assert_eq!(self.store.head(&id).await.unwrap(), meta_of(b"plain"));
    }

    async fn an_object_of_parts_is_one_object(&self) {
        let parts: Vec<Vec<u8>> = vec![vec![1; 5 << 20], vec![2; 5 << 20], vec![3; 1000]];
        let whole = parts.concat();
        let digests: Vec<u8> = parts.iter().flat_map(|part| Md5::digest(part).to_vec()).collect();
        let meta = ObjectMeta {
            etag: ETag(format!("{}-3", md5_of(&digests))),
            parts: parts.iter().map(|part| part.len() as u64).collect(),
            ..meta_of(&whole)
        };
        let id = self.id("parts");
        let pieces: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        self.store.put(&id, &self.payload(&pieces), &meta).await.unwrap();
        let (read_meta, read) = self.read("parts", None).await;
        assert_eq!((read_meta, read == whole), (meta.clone(), true));
        let (_, across) = self.read("parts", Some((5 << 20) - 2..(5 << 20) + 2)).await;
        assert_eq!(across, [1, 1, 2, 2]);
        let page = self
            .store
            .list(ListQuery { prefix: "parts", ..ListQuery::first(&self.namespace, &self.bucket(), 10) })
            .await
            .unwrap();
        assert_eq!((page[0].size, &page[0].etag), (meta.size, &meta.etag));
        // Small parts, which S3 would refuse in an upload, are stored all the same; and retagging keeps the tag.
        let small = ObjectMeta { etag: ETag(format!("{}-2", "0".repeat(32))), parts: vec![3, 2], ..meta_of(b"abcde") };
        self.store.put(&id, &self.payload(&[b"abc", b"de"]), &small).await.unwrap();
        assert_eq!(self.read("parts", None).await, (small.clone(), b"abcde".to_vec()));
        self.store.put_tags(&id, &Tags::new()).await.unwrap();
        assert_eq!(self.store.head(&id).await.unwrap(), small);
    }

    async fn keys_are_kept_as_they_are_and_listed_in_the_order_of_their_bytes(&self) {
        self.empty().await;
        let longest = "k".repeat(1024);
        let wide = "ü".repeat(512);
        let mut keys: Vec<&str> = NASTY_KEYS.to_vec();
        keys.extend([longest.as_str(), wide.as_str()]);
        if self.takes_nul {
            keys.extend(["\0", "a\0b"]);
        }
        for key in &keys {
            self.put(key, key.as_bytes()).await;
        }
        for key in &keys {
            assert_eq!(self.read(key, None).await.1, key.as_bytes(), "{key:?}");
        }
        keys.sort_unstable();
        assert_eq!(self.list("", None, 1000).await, keys);
        let of_a: Vec<&str> = keys.iter().copied().filter(|key| key.starts_with("a/")).collect();
        assert_eq!(self.list("a/", None, 1000).await, of_a);
        assert_eq!(self.list("a/", Some("a//"), 1).await, ["a/b"]);
        assert_eq!(self.list("zzz", None, 10).await, [""; 0]);
        let (mut paged, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = self.list("", after.as_deref(), 5).await;
            after = page.last().cloned();
            if after.is_none() {
                break;
            }
            paged.extend(page);
        }
        assert_eq!(paged, keys);
        let shown = self
            .store
            .list(ListQuery { prefix: "/lead", ..ListQuery::first(&self.namespace, &self.bucket(), 1) })
            .await
            .unwrap()
            .remove(0);
        assert_eq!((shown.size, shown.etag), (5, meta_of(b"/lead").etag));
        // `a` goes, what begins with it stays.
        self.store.delete(&self.id("a")).await.unwrap();
        assert!(matches!(self.store.head(&self.id("a")).await, Err(ObjectError::NoSuchKey(_))));
        assert_eq!(self.list("a/", None, 1000).await, of_a);
        self.empty().await;
    }
}

/// Runs the suite. The namespace must have no buckets; it has none afterwards.
pub(crate) async fn check(subject: &Subject<'_>) {
    subject.buckets_are_made_listed_and_removed().await;
    subject.store.create_bucket(&subject.namespace, &subject.bucket()).await.unwrap();
    subject.what_is_not_there_is_told_apart().await;
    subject.what_was_put_is_what_is_read().await;
    subject.a_segment_is_stored_like_a_file().await;
    subject.a_pinned_read_gets_its_version_or_nothing().await;
    subject.all_that_is_known_of_an_object_comes_back().await;
    subject.an_object_of_parts_is_one_object().await;
    subject.keys_are_kept_as_they_are_and_listed_in_the_order_of_their_bytes().await;
    subject.store.delete_bucket(&subject.namespace, &subject.bucket()).await.unwrap();
}
