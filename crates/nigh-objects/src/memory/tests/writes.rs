//! What a write accepts and leaves: bodies, copies, tags, deletes.

use super::*;

#[tokio::test]
async fn a_body_that_is_not_what_was_claimed_is_not_stored() {
    let f = Fixture::new().await;
    let large = vec![7; CACHED + 1];
    for bytes in [&b"12345"[..], &large] {
        let claim = |algorithm, value| Some(ChecksumClaim { algorithm, value });
        let wrong = || Some("AAAAAA==".to_owned());
        let refused = [
            PutRequest { md5: Some([0; 16]), ..body(bytes) },
            PutRequest {
                checksum: claim(ChecksumAlgorithm::Crc32, ClaimedValue::Given("AAAAAA==".to_owned())),
                ..body(bytes)
            },
            PutRequest {
                checksum: claim(ChecksumAlgorithm::Crc32c, ClaimedValue::Trailer(Box::new(wrong))),
                ..body(bytes)
            },
            PutRequest { length: None, md5: Some([0; 16]), ..body(bytes) },
        ];
        for request in refused {
            assert!(matches!(f.put_with("a", request).await, Err(ObjectError::BadDigest { .. })));
        }
        let size = bytes.len() as u64;
        for length in [size - 1, size + 1] {
            let request = PutRequest { length: Some(length), ..body(bytes) };
            let refused = f.put_with("a", request).await.unwrap_err();
            assert!(matches!(refused, ObjectError::IncompleteBody { expected, .. } if expected == length), "{refused}");
        }
    }
    let long = PutRequest { length: Some(33 << 20), ..body(b"") };
    assert!(matches!(f.put_with("a", long).await, Err(ObjectError::EntityTooLarge { .. })));
    assert!(matches!(f.get("a").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!(f.memory.usage().reserved, ByteSize::ZERO);
}

#[tokio::test]
async fn bodies_of_any_kind_come_back_with_their_checksum() {
    let f = Fixture::new().await;
    for size in [0, 1, 4096, CACHED, CACHED + 1, 3_000_000] {
        let bytes: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        for length in [Some(size as u64), None] {
            let checksum = Some(ChecksumClaim { algorithm: ChecksumAlgorithm::Sha256, value: ClaimedValue::Compute });
            let done = f.put_with("a", PutRequest { length, checksum, ..body(&bytes) }).await.unwrap();
            assert_eq!(done.size, size as u64);
            let got = f.get_with("a", GetRequest::default()).await.unwrap();
            assert_eq!(got.meta.checksums.as_slice(), done.checksum.as_slice());
            assert_eq!(bytes_of(got).await.unwrap(), bytes);
        }
    }
}

#[tokio::test]
async fn a_delete_is_idempotent_and_versions_grow() {
    let f = Fixture::new().await;
    let one = f.put("a", b"1").await.version;
    f.delete("a").await;
    f.delete("a").await;
    assert!(matches!(f.get("a").await, Err(ObjectError::NoSuchKey(_))));
    let two = f.put("a", b"2").await.version;
    assert!(Version::OUTSIDE < one && one < two);
    let missing = BucketName::new("missing").unwrap();
    let deleted = f.memory.delete(&f.who, &missing, &key("a"), WriteConditions::default(), None).await;
    assert!(matches!(deleted, Err(ObjectError::NoSuchBucket(_))));
    let put = f.memory.put(&f.who, &missing, &key("a"), body(b"")).await;
    assert!(matches!(put, Err(ObjectError::NoSuchBucket(_))));
}

pub(super) fn copy_of(source: &str) -> CopyRequest {
    CopyRequest {
        source_bucket: BucketName::new("bucket").unwrap(),
        source_key: key(source),
        source_conditions: ReadConditions::default(),
        conditions: WriteConditions::default(),
        attributes_from: Direction::Copy,
        attributes: Attributes::default(),
        tags_from: Direction::Copy,
        tags: Tags::new(),
        checksum: None,
        request: None,
    }
}

#[tokio::test]
async fn a_copy_carries_what_is_not_replaced() {
    let f = Fixture::new().await;
    let attributes = Attributes { content_type: Some("text/x".to_owned()), ..Attributes::default() };
    let tags = Tags::from([("a".to_owned(), "b".to_owned())]);
    for size in [5, CACHED * 3] {
        let bytes = vec![9; size];
        let request = PutRequest { attributes: attributes.clone(), tags: tags.clone(), ..body(&bytes) };
        let done = f.put_with("a", request).await.unwrap();
        let copied = f.memory.copy(&f.who, &f.bucket, &key("b"), copy_of("a")).await.unwrap();
        assert_eq!((&copied.done.etag, copied.source_version), (&done.etag, done.version));
        let got = f.get_with("b", GetRequest::default()).await.unwrap();
        assert_eq!((&got.meta.attributes, &got.meta.tags), (&attributes, &tags));
        assert_eq!(bytes_of(got).await.unwrap(), bytes);

        let to_itself = f.memory.copy(&f.who, &f.bucket, &key("a"), copy_of("a")).await;
        assert!(matches!(to_itself, Err(ObjectError::InvalidRequest(_))));
        let request = CopyRequest {
            attributes_from: Direction::Replace,
            tags_from: Direction::Replace,
            checksum: Some(ChecksumAlgorithm::Crc32),
            ..copy_of("a")
        };
        let copied = f.memory.copy(&f.who, &f.bucket, &key("a"), request).await.unwrap();
        assert!(copied.done.checksum.is_some());
        let got = f.get_with("a", GetRequest::default()).await.unwrap();
        assert_eq!((&got.meta.attributes, &got.meta.tags), (&Attributes::default(), &Tags::new()));
        assert_eq!(bytes_of(got).await.unwrap(), bytes);

        let source_conditions =
            ReadConditions { if_none_match: Some(vec![ETag("*".to_owned())]), ..ReadConditions::default() };
        let refused =
            f.memory.copy(&f.who, &f.bucket, &key("b"), CopyRequest { source_conditions, ..copy_of("a") }).await;
        assert!(matches!(refused, Err(ObjectError::PreconditionFailed(_))));
    }
    let missing = f.memory.copy(&f.who, &f.bucket, &key("b"), copy_of("missing")).await;
    assert!(matches!(missing, Err(ObjectError::NoSuchKey(_))));
}

#[tokio::test]
async fn tags_are_replaced_in_the_store_and_in_the_copy() {
    let f = Fixture::new().await;
    let done = f.put("a", b"bytes").await;
    let tags = Tags::from([("k".to_owned(), "v".to_owned())]);
    f.memory.put_tags(&f.who, &f.bucket, &key("a"), tags.clone()).await.unwrap();
    let got = f.get_with("a", GetRequest::default()).await.unwrap();
    assert_eq!(got.meta.tags, tags);
    assert!(got.version > done.version, "other nodes would be told");
    assert!(got.body.as_segment().is_some());
    assert_eq!(f.store.gets.load(Ordering::SeqCst), 0, "the copy was kept on");
    let f = f.restarted().await;
    assert_eq!(f.memory.get_tags(&f.who, &f.bucket, &key("a")).await.unwrap(), tags);
    let missing = f.memory.put_tags(&f.who, &f.bucket, &key("missing"), tags).await;
    assert!(matches!(missing, Err(ObjectError::NoSuchKey(_))));
    let wrong = Tags::from([(String::new(), String::new())]);
    assert!(f.memory.put_tags(&f.who, &f.bucket, &key("a"), wrong).await.is_err());
}
