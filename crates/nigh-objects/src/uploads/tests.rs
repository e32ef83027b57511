use super::*;
use crate::spool::Spool;

fn object() -> ObjectId {
    ObjectId {
        namespace: Namespace::new("n").unwrap(),
        bucket: BucketName::new("bucket").unwrap(),
        key: ObjectKey::new("k").unwrap(),
    }
}

fn manifest() -> Manifest {
    Manifest::new(&object(), Attributes::default(), Tags::new(), None, Timestamp(5))
}

fn info(number: u32, size: u64) -> PartInfo {
    PartInfo { number, size, etag: ETag(size.to_string()), modified: Timestamp(6), checksum: None }
}

/// Room for `bytes` of an upload that is not there.
fn room(bytes: usize) -> ReservedRoom {
    UploadRoom::default().found(&object().namespace, bytes as u64)
}

fn add(spool: &Spool, upload: &Upload, number: u32, bytes: &[u8]) {
    let (file, mut open) = spool.create().unwrap();
    std::io::Write::write_all(&mut open, bytes).unwrap();
    file.sync().unwrap();
    upload.add(&file, &info(number, bytes.len() as u64), Some(bytes.len() as u64), room(bytes.len())).unwrap();
}

fn contents(upload: &Upload, numbers: &[u32]) -> Vec<Vec<u8>> {
    upload.files(numbers).unwrap().iter().map(|path| fs::read(path).unwrap()).collect()
}

#[tokio::test]
async fn an_upload_and_its_parts_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(folder.path().join("spool")).await.unwrap();
    let path = folder.path().join("uploads");
    let uploads = Uploads::open(path.clone()).unwrap();
    let id = uploads.begin(manifest()).unwrap();
    let upload = uploads.find(&id, &object()).unwrap();
    add(&spool, &upload, 1, b"first");
    add(&spool, &upload, 2, b"replaced");
    add(&spool, &upload, 2, b"second");
    // What a crash in the middle of each step leaves.
    fs::write(path.join(&id.0).join("part-00003-1"), b"not acknowledged").unwrap();
    fs::write(path.join(&id.0).join("part-00003.json.new"), b"{").unwrap();
    fs::create_dir(path.join("begun")).unwrap();
    drop(uploads);

    let uploads = Uploads::open(path.clone()).unwrap();
    let upload = uploads.find(&id, &object()).unwrap();
    assert_eq!(upload.parts(0, 10), (vec![info(1, 5), info(2, 6)], false));
    assert_eq!(upload.parts(0, 1), (vec![info(1, 5)], true));
    assert_eq!(upload.parts(1, 10), (vec![info(2, 6)], false));
    assert_eq!(contents(&upload, &[1, 2]), [b"first".to_vec(), b"second".to_vec()]);
    assert_eq!((upload.crc64s(&[2, 1]), upload.crc64s(&[1, 3])), (Some(vec![6, 5]), None));
    assert_eq!(upload.manifest.initiated, Timestamp(5));
    let mut names: Vec<_> = fs::read_dir(path.join(&id.0))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["part-00001-1", "part-00001.json", "part-00002-2", "part-00002.json", "upload.json"]);
    assert!(!path.join("begun").exists());

    uploads.remove(&upload).unwrap();
    assert!(matches!(uploads.find(&id, &object()), Err(ObjectError::NoSuchUpload(_))));
    assert!(Uploads::open(path).unwrap().find(&id, &object()).is_err());
}

#[test]
fn an_upload_answers_to_its_own_object_only() {
    let folder = tempfile::tempdir().unwrap();
    let uploads = Uploads::open(folder.path().to_owned()).unwrap();
    let id = uploads.begin(manifest()).unwrap();
    for other in [
        ObjectId { namespace: Namespace::new("m").unwrap(), ..object() },
        ObjectId { bucket: BucketName::new("other").unwrap(), ..object() },
        ObjectId { key: ObjectKey::new("other").unwrap(), ..object() },
    ] {
        assert!(matches!(uploads.find(&id, &other), Err(ObjectError::NoSuchUpload(_))));
    }
    assert_eq!(uploads.list(&object().namespace, &object().bucket, "k").len(), 1);
    assert_eq!(uploads.list(&object().namespace, &object().bucket, "x").len(), 0);
}

#[test]
fn a_part_whose_file_was_cut_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let uploads = Uploads::open(folder.path().to_owned()).unwrap();
    let id = uploads.begin(manifest()).unwrap();
    let upload = uploads.find(&id, &object()).unwrap();
    let part = Part {
        number: 1,
        file: 1,
        size: 5,
        etag: ETag(String::new()),
        modified: Timestamp(0),
        checksum: None,
        crc64: None,
    };
    fs::write(folder.path().join(&id.0).join(part.data()), b"1234").unwrap();
    upload.parts.lock().insert(1, KeptPart { part, _room: room(5) });
    assert!(matches!(upload.files(&[1]), Err(ObjectError::InvalidPart(1))));
}

#[tokio::test]
async fn an_upload_whose_part_a_store_has_taken_is_not_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(folder.path().join("spool")).await.unwrap();
    let path = folder.path().join("uploads");
    let uploads = Uploads::open(path.clone()).unwrap();
    let id = uploads.begin(manifest()).unwrap();
    let upload = uploads.find(&id, &object()).unwrap();
    add(&spool, &upload, 1, b"first");
    add(&spool, &upload, 2, b"second");
    fs::remove_file(&upload.files(&[1]).unwrap()[0]).unwrap();
    drop(uploads);
    let uploads = Uploads::open(path.clone()).unwrap();
    assert!(matches!(uploads.find(&id, &object()), Err(ObjectError::NoSuchUpload(_))));
    assert_eq!(fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn an_upload_of_the_first_form_goes_on_and_a_damaged_one_beside_it_is_left_alone() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/uploads-1");
    let folder = tempfile::tempdir().unwrap();
    let id = UploadId("0123456789abcdef0123456789abcdef".to_owned());
    let upload = folder.path().join(&id.0);
    fs::create_dir(&upload).unwrap();
    for entry in fs::read_dir(fixture.join(&id.0)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, upload.join(path.file_name().unwrap())).unwrap();
    }
    let damaged = folder.path().join("damaged");
    fs::create_dir(&damaged).unwrap();
    fs::write(damaged.join("upload.json"), "{\"format\":1,").unwrap();
    let uploads = Uploads::open(folder.path().to_owned()).unwrap();
    let found = uploads.find(&id, &object()).unwrap();
    assert_eq!(found.parts(0, 10), (vec![info(2, 6)], false));
    assert_eq!(contents(&found, &[2]), [b"second".to_vec()]);
    assert_eq!(found.crc64s(&[2]), None);
    assert_eq!(found.manifest.attributes.content_type.as_deref(), Some("text/plain"));
    assert!(damaged.join("upload.json").exists());
}

#[test]
fn an_upload_of_a_later_format_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let uploads = Uploads::open(folder.path().to_owned()).unwrap();
    let id = uploads.begin(Manifest { format: 2, ..manifest() }).unwrap();
    drop(uploads);
    let why = Upload::read(&folder.path().join(&id.0), &UploadRoom::default()).unwrap_err();
    assert!(why.contains("format is 2") && why.contains("newer nigh"), "{why}");
    let uploads = Uploads::open(folder.path().to_owned()).unwrap();
    assert!(uploads.find(&id, &object()).is_err());
    assert!(folder.path().join(&id.0).join("upload.json").exists());
}
