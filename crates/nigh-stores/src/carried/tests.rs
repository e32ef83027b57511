use nigh_terms::{Epoch, Sequence, ShardId};
use proptest::prelude::*;

use super::*;
use nigh_data::PartChecksums;

const S3: Dialect = Dialect::of_headers("s3", "x-amz-meta-");

fn key() -> ObjectKey {
    ObjectKey::new("k").unwrap()
}

fn rich() -> ObjectMeta {
    let version = Version { epoch: Epoch(3), sequence: Sequence(77) };
    let mut token = Token::empty();
    token.see(ShardId(1), version);
    ObjectMeta {
        size: 7,
        etag: ETag(format!("{}-2", "0".repeat(32))),
        modified: Timestamp(1_700_000_000_123),
        attributes: Attributes {
            content_type: Some("text/plain".to_owned()),
            content_language: Some("dé".to_owned()),
            expires: Some(String::new()),
            user: [
                ("plain", "value"),
                ("under_score", "v"),
                ("long", &"l".repeat(400)),
                ("nigh-0", "mine"),
                ("ü", " ü "),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            ..Attributes::default()
        },
        tags: [("a b".to_owned(), "c%d".to_owned())].into(),
        checksums: vec![ChecksumAlgorithm::Crc32.checksum(&[0; 4])],
        parts: vec![5, 2],
        version,
        token,
    }
}

/// The headers as the remote returns them, with those that the remote adds.
fn answered(headers: Vec<(HeaderName, HeaderValue)>) -> HeaderMap {
    let mut all: HeaderMap = headers.into_iter().collect();
    all.insert(ETAG, HeaderValue::from_static("\"ffffffffffffffffffffffffffffffff\""));
    all.insert(LAST_MODIFIED, HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
    all.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/octet-stream"));
    all
}

#[test]
fn what_goes_out_comes_back() {
    let meta = rich();
    let headers = to_headers(S3, &key(), &meta).unwrap();
    assert!(headers.iter().all(|(_, value)| value.len() <= 256));
    assert!(headers.iter().any(|(name, value)| name == "x-amz-meta-plain" && value == "value"));
    let (back, remote) = from_headers(S3, &key(), 7, &answered(headers));
    assert_eq!(back, meta);
    assert_eq!(remote.0, "f".repeat(32));
}

#[test]
fn an_object_without_a_type_has_none_whatever_the_remote_says() {
    let meta = ObjectMeta { attributes: Attributes::default(), ..rich() };
    let (back, _) = from_headers(S3, &key(), 7, &answered(to_headers(S3, &key(), &meta).unwrap()));
    assert_eq!(back.attributes, Attributes::default());
}

#[test]
fn an_outsiders_object_is_what_the_remote_says() {
    let mut headers = answered(Vec::new());
    headers.insert("x-amz-meta-a", HeaderValue::from_static("b"));
    let (meta, _) = from_headers(S3, &key(), 9, &headers);
    assert_eq!(meta.modified, Timestamp(784_111_777_000));
    assert_eq!((meta.size, meta.version), (9, Version::OUTSIDE));
    assert_eq!(meta.attributes.user, [("a".to_owned(), "b".to_owned())].into());
    assert_eq!(meta.attributes.content_type.as_deref(), Some("application/octet-stream"));
}

#[test]
fn what_was_carried_for_another_key_is_not_believed() {
    let headers = answered(to_headers(S3, &key(), &rich()).unwrap());
    let (meta, _) = from_headers(S3, &ObjectKey::new("copy").unwrap(), 7, &headers);
    assert_eq!((meta.etag.0, meta.version), ("f".repeat(32), Version::OUTSIDE));
    assert!(meta.tags.is_empty());
}

#[test]
fn part_lengths_give_way_before_metadata_is_refused() {
    let mut meta = rich();
    meta.parts = vec![5 << 20; 9999];
    let (back, _) = from_headers(S3, &key(), 7, &answered(to_headers(S3, &key(), &meta).unwrap()));
    assert_eq!(back.parts.len(), 9999);
    meta.parts = (0..1000).collect();
    let (back, _) = from_headers(S3, &key(), 7, &answered(to_headers(S3, &key(), &meta).unwrap()));
    assert_eq!((back.parts.len(), back.tags), (0, meta.tags.clone()));
    meta.tags.insert("k".to_owned(), "ü".repeat(600));
    assert!(matches!(to_headers(S3, &key(), &meta), Err(ObjectError::MetadataTooLarge)));
}

#[test]
fn the_checksums_of_the_first_parts_are_carried_as_far_as_s3_has_room() {
    let values: Vec<Vec<u8>> = (0..100).map(|part| vec![part; 32]).collect();
    let composite = ChecksumAlgorithm::Sha256.checksum(&[7; 32]);
    let composite = Checksum { value: format!("{}-100", composite.value), ..composite };
    let mut meta = ObjectMeta { parts: vec![5 << 20; 100], attributes: Attributes::default(), ..rich() };
    let carried = |meta: &ObjectMeta, count: usize| {
        let checksum = Checksum { parts: PartChecksums::new(&values[..count]), ..composite.clone() };
        let headers = to_headers(S3, &key(), &ObjectMeta { checksums: vec![checksum], ..meta.clone() }).unwrap();
        let users = headers
            .iter()
            .filter_map(|(name, value)| Some(name.as_str().strip_prefix("x-amz-meta-")?.len() + value.len()));
        let bytes: usize = users.sum();
        let (mut back, _) = from_headers(S3, &key(), 7, &answered(headers));
        (back.checksums.remove(0), bytes)
    };
    let (few, _) = carried(&meta, 3);
    assert_eq!(few.parts, PartChecksums::new(&values[..3]));
    let (many, bytes) = carried(&meta, 100);
    let kept = (1..=100).filter(|part| many.part(*part).is_some()).count();
    assert!((20..45).contains(&kept) && bytes <= 2048, "{kept} {bytes}");
    assert_eq!((&many.parts, &many.value), (&PartChecksums::new(&values[..kept]), &composite.value));
    // A user's metadata comes first.
    meta.attributes.user.insert("name".to_owned(), "v".repeat(1700));
    let (none, _) = carried(&meta, 100);
    assert_eq!((none.parts.is_empty(), &none.value), (true, &composite.value));
}

#[test]
fn a_checksum_that_nobody_asked_for_is_no_reason_to_refuse_an_object() {
    let mut meta = ObjectMeta { parts: Vec::new(), attributes: Attributes::default(), ..rich() };
    let fits = |meta: &ObjectMeta| to_headers(S3, &key(), meta).is_ok();
    meta.checksums.clear();
    let long = (1..3000).rev().find(|length| {
        meta.tags.insert("k".to_owned(), "v".repeat(*length));
        fits(&meta)
    });
    assert!(long.is_some_and(|length| length > 2000), "{long:?}");
    meta.checksums = vec![ChecksumAlgorithm::Sha1.checksum(&[1; 20])];
    assert!(!fits(&meta));
    meta.checksums = vec![ChecksumAlgorithm::Crc64Nvme.checksum(&[1; 8])];
    let (back, _) = from_headers(S3, &key(), 7, &answered(to_headers(S3, &key(), &meta).unwrap()));
    assert_eq!((back.checksums, back.tags), (Vec::new(), meta.tags));
}

proptest! {
    #[test]
    fn any_user_metadata_comes_back(user in proptest::collection::btree_map("[a-zü_-]{1,8}", any::<String>(), 0..4)) {
        let mut meta = rich();
        meta.attributes.user = user;
        if let Ok(headers) = to_headers(S3, &key(), &meta) {
            prop_assert_eq!(from_headers(S3, &key(), 7, &answered(headers)).0, meta);
        }
    }
}
