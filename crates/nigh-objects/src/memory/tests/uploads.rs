//! Objects uploaded in parts.

use super::*;

const PART: usize = 5 << 20;

impl Fixture {
    async fn begin_upload(&self, request: MultipartRequest) -> UploadId {
        self.memory.create_upload(&self.who, &self.bucket, &key("big"), request).await.unwrap()
    }

    async fn part(&self, upload: &UploadId, number: u32, bytes: &[u8]) -> Result<CompletedPart, ObjectError> {
        let length = Some(bytes.len() as u64);
        let part = self
            .memory
            .put_part(&self.who, &self.bucket, &key("big"), upload, number, stream(bytes), length, None, None)
            .await?;
        Ok(CompletedPart { number, etag: part.etag, checksum: part.checksum })
    }

    async fn complete(&self, upload: &UploadId, request: CompleteRequest) -> Result<PutDone, ObjectError> {
        self.memory.complete_upload(&self.who, &self.bucket, &key("big"), upload, request).await
    }
}

#[tokio::test]
async fn an_upload_survives_a_restart_and_becomes_one_object() {
    let f = Fixture::new().await;
    let tags = Tags::from([("k".to_owned(), "v".to_owned())]);
    let request = MultipartRequest {
        tags: tags.clone(),
        checksum: Some(ChecksumAlgorithm::Crc64Nvme),
        ..MultipartRequest::default()
    };
    let upload = f.begin_upload(request).await;
    let bytes: Vec<u8> = (0..2 * PART + 10).map(|n| (n % 253) as u8).collect();
    let mut parts = vec![f.part(&upload, 1, &bytes[..PART]).await.unwrap()];
    parts.push(f.part(&upload, 2, &[0; 100]).await.unwrap());
    let f = f.restarted().await;
    parts[1] = f.part(&upload, 2, &bytes[PART..2 * PART]).await.unwrap();
    parts.push(f.part(&upload, 3, &bytes[2 * PART..]).await.unwrap());
    let (listed, more) = f.memory.list_parts(&f.who, &f.bucket, &key("big"), &upload, 0, 2).await.unwrap();
    assert_eq!((listed.len(), more), (2, true));
    let uploads = f.memory.list_uploads(&f.who, &f.bucket, "").await.unwrap();
    assert_eq!((uploads.len(), &uploads[0].upload), (1, &upload));

    // After a failure the upload is as it was.
    let wrong: Checksum = ChecksumAlgorithm::Crc64Nvme.checksum(&[0; 8]);
    let request = CompleteRequest { parts: parts.clone(), checksum: Some(wrong), ..CompleteRequest::default() };
    assert!(matches!(f.complete(&upload, request).await, Err(ObjectError::BadDigest { .. })));
    f.store.lose_puts.store(true, Ordering::SeqCst);
    let request = CompleteRequest { parts: parts.clone(), ..CompleteRequest::default() };
    assert!(matches!(f.complete(&upload, request).await, Err(ObjectError::Store { .. })));
    f.store.lose_puts.store(false, Ordering::SeqCst);

    let request = CompleteRequest { parts, size: Some(bytes.len() as u64), ..CompleteRequest::default() };
    let done = f.complete(&upload, request.clone()).await.unwrap();
    assert!(done.etag.0.ends_with("-3"));
    let got = f.get_with("big", GetRequest::default()).await.unwrap();
    assert_eq!((&got.meta.tags, &got.meta.etag, got.meta.parts.len()), (&tags, &done.etag, 3));
    assert_eq!(bytes_of(got).await.unwrap(), bytes);
    assert_eq!(f.range("big", RangeSpec::Part(3)).await.unwrap(), bytes[2 * PART..]);
    let whole = f.put_with(
        "same",
        PutRequest {
            checksum: Some(ChecksumClaim { algorithm: ChecksumAlgorithm::Crc64Nvme, value: ClaimedValue::Compute }),
            ..body(&bytes)
        },
    );
    assert_eq!(whole.await.unwrap().checksum, done.checksum);
    assert_eq!(f.complete(&upload, request.clone()).await.unwrap(), done);
    let fewer = CompleteRequest { parts: request.parts[..2].to_vec(), ..CompleteRequest::default() };
    assert!(matches!(f.complete(&upload, fewer).await, Err(ObjectError::NoSuchUpload(_))));
    assert_eq!(f.memory.list_uploads(&f.who, &f.bucket, "").await.unwrap(), []);
    let uploads = f.folder.path().join("uploads");
    assert_eq!(std::fs::read_dir(uploads).unwrap().count(), 0);
}

#[tokio::test]
async fn an_upload_that_an_older_build_took_a_part_of_has_no_checksum_and_all_others_have() {
    let f = Fixture::new().await;
    let upload = f.begin_upload(MultipartRequest::default()).await;
    let parts = vec![f.part(&upload, 1, b"part").await.unwrap()];
    assert_eq!(parts[0].checksum, None);
    // Such a build's record of a part does not have the code of its bytes.
    let record = f.folder.path().join("uploads").join(&upload.0).join("part-00001.json");
    let mut part: serde_json::Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    assert!(part.as_object_mut().unwrap().remove("crc64").is_some_and(|code| code.is_u64()));
    std::fs::write(&record, part.to_string()).unwrap();
    let f = f.restarted().await;
    let done = f.complete(&upload, CompleteRequest { parts, ..CompleteRequest::default() }).await.unwrap();
    assert_eq!(done.checksum, None);
    assert_eq!(f.get("big").await.unwrap(), b"part");

    let upload = f.begin_upload(MultipartRequest::default()).await;
    let parts = vec![f.part(&upload, 1, b"part").await.unwrap()];
    let f = f.restarted().await;
    let done = f.complete(&upload, CompleteRequest { parts, ..CompleteRequest::default() }).await.unwrap();
    let whole = f.put("same", b"part").await;
    assert!(done.checksum.is_some() && done.checksum == whole.checksum, "{done:?} {whole:?}");
    let kept = f.get_with("big", GetRequest::default()).await.unwrap();
    assert_eq!(kept.meta.checksums[0].part(1), whole.checksum);
}

#[tokio::test]
async fn what_is_wrong_with_a_part_is_said_and_the_earlier_one_stays() {
    let f = Fixture::new().await;
    let upload = f
        .begin_upload(MultipartRequest { checksum: Some(ChecksumAlgorithm::Sha1), ..MultipartRequest::default() })
        .await;
    let good = f.part(&upload, 1, b"good").await.unwrap();
    assert_eq!(good.checksum.as_ref().map(|checksum| checksum.algorithm), Some(ChecksumAlgorithm::Sha1));
    for number in [0, 10_001] {
        assert!(matches!(f.part(&upload, number, b"").await, Err(ObjectError::InvalidArgument(_))));
    }
    let other = UploadId("other".to_owned());
    assert!(matches!(f.part(&other, 1, b"").await, Err(ObjectError::NoSuchUpload(_))));
    let big = key("big");
    let put = |length, md5, checksum| {
        f.memory.put_part(&f.who, &f.bucket, &big, &upload, 1, stream(b"bad"), length, md5, checksum)
    };
    assert!(matches!(put(Some(9), None, None).await, Err(ObjectError::IncompleteBody { .. })));
    assert!(matches!(put(None, Some([0; 16]), None).await, Err(ObjectError::BadDigest { .. })));
    let crc = Some(ChecksumClaim { algorithm: ChecksumAlgorithm::Crc32, value: ClaimedValue::Compute });
    assert!(matches!(put(None, None, crc).await, Err(ObjectError::InvalidRequest(_))));
    assert!(matches!(put(Some(33 << 20), None, None).await, Err(ObjectError::EntityTooLarge { .. })));

    let condition = WriteConditions { if_absent: true, if_match: None };
    f.put("big", b"there").await;
    let request = CompleteRequest { parts: vec![good.clone()], conditions: condition, ..CompleteRequest::default() };
    assert!(matches!(f.complete(&upload, request).await, Err(ObjectError::PreconditionFailed(_))));
    let request = CompleteRequest { parts: vec![good], ..CompleteRequest::default() };
    let done = f.complete(&upload, request).await.unwrap();
    assert!(done.checksum.unwrap().value.ends_with("-1"));
    assert_eq!(f.get("big").await.unwrap(), b"good");
}

#[tokio::test]
async fn a_part_is_copied_from_another_object() {
    let f = Fixture::new().await;
    f.put("source", b"0123456789").await;
    let upload = f.begin_upload(MultipartRequest::default()).await;
    let copy = |range, conditions| {
        let source = (f.bucket.clone(), key("source"));
        let (memory, who, bucket, upload) = (f.memory.clone(), f.who.clone(), f.bucket.clone(), upload.clone());
        async move {
            memory.copy_part(&who, &bucket, &key("big"), &upload, 1, (&source.0, &source.1), range, conditions).await
        }
    };
    let within = Some(RangeSpec::From { first: 2, last: Some(5) });
    let part = copy(within, ReadConditions::default()).await.unwrap();
    assert_eq!(part.size, 4);
    let beyond = Some(RangeSpec::From { first: 2, last: Some(10) });
    assert!(matches!(copy(beyond, ReadConditions::default()).await, Err(ObjectError::InvalidRange { size: 10 })));
    let conditions = ReadConditions { if_match: Some(vec![ETag("x".to_owned())]), ..ReadConditions::default() };
    assert!(matches!(copy(None, conditions).await, Err(ObjectError::PreconditionFailed(_))));
    let parts = vec![CompletedPart { number: 1, etag: part.etag, checksum: None }];
    f.complete(&upload, CompleteRequest { parts, ..CompleteRequest::default() }).await.unwrap();
    assert_eq!(f.get("big").await.unwrap(), b"2345");
}

#[tokio::test]
async fn an_aborted_upload_is_gone_and_a_bucket_takes_its_uploads_along() {
    let f = Fixture::new().await;
    let upload = f.begin_upload(MultipartRequest::default()).await;
    f.part(&upload, 1, b"part").await.unwrap();
    f.memory.abort_upload(&f.who, &f.bucket, &key("big"), &upload).await.unwrap();
    assert!(matches!(f.part(&upload, 1, b"part").await, Err(ObjectError::NoSuchUpload(_))));
    let again = f.memory.abort_upload(&f.who, &f.bucket, &key("big"), &upload).await;
    assert!(matches!(again, Err(ObjectError::NoSuchUpload(_))));

    let upload = f.begin_upload(MultipartRequest::default()).await;
    f.memory.delete_bucket(&f.who, &f.bucket).await.unwrap();
    f.memory.create_bucket(&f.who, &f.bucket).await.unwrap();
    assert!(matches!(f.part(&upload, 1, b"part").await, Err(ObjectError::NoSuchUpload(_))));
}

#[tokio::test]
async fn a_completion_asked_for_again_gives_the_same_answer_and_changes_nothing() {
    let f = Fixture::new().await;
    let upload = f.begin_upload(MultipartRequest::default()).await;
    let request =
        CompleteRequest { parts: vec![f.part(&upload, 1, b"part").await.unwrap()], ..CompleteRequest::default() };
    // One completion is repeated during the first, one after it, one after a newer write.
    let gate = f.store.close(Point::PutAsked);
    let (first, second, ()) =
        futures::join!(f.complete(&upload, request.clone()), f.complete(&upload, request.clone()), async {
            gate.arrival().await;
            f.store.open(Point::PutAsked);
            gate.let_one_on();
        });
    let first = first.unwrap();
    assert_eq!(second.unwrap(), first);
    assert_eq!(f.complete(&upload, request.clone()).await.unwrap(), first);
    f.put("big", b"newer").await;
    assert_eq!(f.complete(&upload, request.clone()).await.unwrap(), first);
    assert_eq!(f.get("big").await.unwrap(), b"newer");
    f.delete("big").await;
    f.memory.delete_bucket(&f.who, &f.bucket).await.unwrap();
    assert!(matches!(f.complete(&upload, request).await, Err(ObjectError::NoSuchUpload(_))));
}

#[tokio::test]
async fn an_upload_that_nobody_completes_is_abandoned_after_a_week() {
    let f = Fixture::new().await;
    let day = Duration::from_secs(24 * 3600);
    let begun = || f.memory.list_uploads(&f.who, &f.bucket, "");
    let old = f.begin_upload(MultipartRequest::default()).await;
    f.part(&old, 1, b"part").await.unwrap();
    f.clock.advance(6 * day);
    let young = f.begin_upload(MultipartRequest::default()).await;
    assert_eq!(begun().await.unwrap().len(), 2);
    f.clock.advance(day + Duration::from_secs(1));
    f.begin_upload(MultipartRequest::default()).await;
    assert_eq!(begun().await.unwrap().len(), 2, "beginning another drops the old one");
    assert!(matches!(f.part(&old, 2, b"part").await, Err(ObjectError::NoSuchUpload(_))));
    f.part(&young, 1, b"part").await.unwrap();
    f.clock.advance(8 * day);
    let f = f.restarted().await;
    assert_eq!(f.memory.list_uploads(&f.who, &f.bucket, "").await.unwrap(), [], "and so does a start");
    assert_eq!(std::fs::read_dir(f.folder.path().join("uploads")).unwrap().count(), 0);
}

#[tokio::test]
async fn parts_of_unfinished_uploads_are_bounded_for_each_namespace_and_room_comes_back_when_uploads_end() {
    let f = Fixture::new().await;
    f.memory.limit_uploads(ByteSize(250));
    let refused = |part: Result<CompletedPart, ObjectError>| matches!(part, Err(ObjectError::SlowDown(_)));
    let (one, two) =
        (f.begin_upload(MultipartRequest::default()).await, f.begin_upload(MultipartRequest::default()).await);
    let first = f.part(&one, 1, &[1; 100]).await.unwrap();
    f.part(&two, 1, &[2; 100]).await.unwrap();
    // It is refused before its body is read, and leaves nothing.
    let unread = futures::stream::once(async { panic!("the body is read") }).boxed();
    let put = f.memory.put_part(&f.who, &f.bucket, &key("big"), &two, 2, unread, Some(100), None, None).await;
    assert!(matches!(put, Err(ObjectError::SlowDown(why)) if why.contains("complete or abort")));
    // Nor does it help to keep its length to oneself.
    let put = f.memory.put_part(&f.who, &f.bucket, &key("big"), &two, 2, stream(&[0; 100]), None, None, None).await;
    assert!(matches!(put, Err(ObjectError::SlowDown(_))));
    assert_eq!(f.memory.list_parts(&f.who, &f.bucket, &key("big"), &two, 0, 9).await.unwrap().0.len(), 1);

    // Another namespace has its own room.
    let other = Fixture { who: Principal::outside(Namespace::new("other").unwrap()), ..f };
    other.memory.create_bucket(&other.who, &other.bucket).await.unwrap();
    let others = other.begin_upload(MultipartRequest::default()).await;
    other.part(&others, 1, &[3; 250]).await.unwrap();
    assert!(refused(other.part(&others, 2, &[3; 1]).await));
    other.memory.abort_upload(&other.who, &other.bucket, &key("big"), &others).await.unwrap();
    let others = other.begin_upload(MultipartRequest::default()).await;
    other.part(&others, 1, &[3; 250]).await.unwrap();

    // What is there counts after a restart too.
    let f = Fixture { who: Principal::outside(Namespace::new("tenant").unwrap()), ..other }.restarted().await;
    f.memory.limit_uploads(ByteSize(250));
    assert!(refused(f.part(&two, 2, &[2; 100]).await));
    f.complete(&one, CompleteRequest { parts: vec![first], ..CompleteRequest::default() }).await.unwrap();
    f.part(&two, 2, &[2; 100]).await.unwrap();
    // A replaced part gives its room back once its replacement is there.
    f.part(&two, 2, &[2; 50]).await.unwrap();
    f.part(&two, 3, &[2; 100]).await.unwrap();
    assert!(refused(f.part(&two, 4, &[2; 1]).await));
}
