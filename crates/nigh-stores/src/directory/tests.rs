//! The directory store on a real folder: durability, damage, order and limits. What every store must do is in the
//! conformance suite (tests/conformance).

use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::TryStreamExt;
use md5::{Digest, Md5};
use nigh_data::{Attributes, Segment};
use nigh_terms::{ObjectKey, SystemClock, Timestamp, Token, Version, hex};
use tempfile::TempDir;

use super::*;
use crate::directory::commit::Step;
use crate::skipped::skip;

fn namespace() -> Namespace {
    Namespace::new("tenant").unwrap()
}

fn bucket() -> BucketName {
    BucketName::new("bucket").unwrap()
}

fn id(key: &str) -> ObjectId {
    ObjectId { namespace: namespace(), bucket: bucket(), key: ObjectKey::new(key).unwrap() }
}

fn meta_of(bytes: &[u8]) -> ObjectMeta {
    let etag = hex(&Md5::digest(bytes));
    ObjectMeta {
        size: bytes.len() as u64,
        etag: ETag(etag),
        modified: Timestamp(1_700_000_000_000),
        attributes: Attributes::default(),
        tags: Tags::new(),
        checksums: Vec::new(),
        parts: Vec::new(),
        version: Version::OUTSIDE,
        token: Token::empty(),
    }
}

fn open(root: &Path) -> DirectoryStore {
    DirectoryStore::open(root, Arc::new(SystemClock::new())).unwrap()
}

async fn store_with_bucket() -> (TempDir, DirectoryStore) {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.create_bucket(&namespace(), &bucket()).await.unwrap();
    (root, store)
}

/// A payload in one spooled file.
fn spooled(store: &DirectoryStore, bytes: &[u8]) -> Payload {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let path = store.spool().unwrap().join(NEXT.fetch_add(1, Ordering::Relaxed).to_string());
    fs::write(&path, bytes).unwrap();
    Payload::Files(vec![path])
}

async fn put(store: &DirectoryStore, key: &str, bytes: &[u8]) {
    store.put(&id(key), &spooled(store, bytes), &meta_of(bytes)).await.unwrap();
}

async fn get(store: &DirectoryStore, key: &str) -> Result<Vec<u8>, ObjectError> {
    let (_, stream) = store.get(&id(key), None, None).await?;
    stream
        .try_fold(Vec::new(), |mut all, piece| async move {
            all.extend_from_slice(&piece);
            Ok(all)
        })
        .await
}

async fn listed(store: &DirectoryStore) -> Vec<String> {
    let page = store.list(ListQuery::first(&namespace(), &bucket(), 1000)).await.unwrap();
    page.into_iter().map(|object| object.key.as_str().to_owned()).collect()
}

fn object_path(root: &Path, key: &str) -> PathBuf {
    let key = ObjectKey::new(key).unwrap();
    root.join("namespaces/tenant/bucket/objects").join(key_path::to_path(&key))
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Puts `old` and then `new` under the same key. Returns a copy of the whole root after each step of the second put.
async fn images_of_an_overwrite(key: &str, old: &[u8], new: &[u8]) -> Vec<(Step, TempDir)> {
    let root = tempfile::tempdir().unwrap();
    let images = Arc::new(Mutex::new(Vec::new()));
    let armed = Arc::new(AtomicUsize::new(0));
    let hook: Box<StepHook> = {
        let (images, armed, root) = (Arc::clone(&images), Arc::clone(&armed), root.path().to_owned());
        Box::new(move |step, _| {
            if armed.load(Ordering::Relaxed) == 1 {
                let image = tempfile::tempdir()?;
                copy_tree(&root, image.path());
                images.lock().push((step, image));
            }
            Ok(())
        })
    };
    let store = DirectoryStore::open_hooked(root.path(), Arc::new(SystemClock::new()), Some(hook)).unwrap();
    store.create_bucket(&namespace(), &bucket()).await.unwrap();
    put(&store, key, old).await;
    armed.store(1, Ordering::Relaxed);
    put(&store, key, new).await;
    let mut taken = images.lock();
    std::mem::take(&mut *taken)
}

#[tokio::test]
async fn a_crash_after_any_step_leaves_the_old_object_or_the_new_one() {
    let (old, new) = (vec![b'o'; 3000], vec![b'n'; 300_000]);
    for key in ["short", &"long/".repeat(200)] {
        let images = images_of_an_overwrite(key, &old, &new).await;
        let steps: Vec<Step> = images.iter().map(|(step, _)| *step).collect();
        // A file gets its name only after its bytes are on the disk, and a write is acknowledged only after the name is
        // on the disk.
        assert_eq!(steps, [Step::Written, Step::Synced, Step::Renamed, Step::FolderSynced]);
        for (step, image) in images {
            let wanted = if matches!(step, Step::Written | Step::Synced) { &old } else { &new };
            let store = open(image.path());
            assert_eq!(&get(&store, key).await.unwrap(), wanted, "{step:?}");
            assert_eq!(store.head(&id(key)).await.unwrap(), meta_of(wanted), "{step:?}");
            assert_eq!(listed(&store).await, [key], "{step:?}");
        }
    }
}

#[tokio::test]
async fn what_a_crash_left_unwritten_or_unfinished_is_gone_at_the_next_opening() {
    let (root, store) = store_with_bucket().await;
    put(&store, "kept", b"kept").await;
    drop(store);
    fs::write(root.path().join("staging/7"), b"half").unwrap();
    fs::create_dir_all(root.path().join("staging/8/objects")).unwrap();
    fs::write(root.path().join("spool/part"), b"an upload that is not complete").unwrap();
    let store = open(root.path());
    assert_eq!(fs::read_dir(root.path().join("staging")).unwrap().count(), 0);
    assert!(root.path().join("spool/part").exists());
    assert_eq!(get(&store, "kept").await.unwrap(), b"kept");
}

#[tokio::test]
async fn a_folder_that_cannot_be_synced_is_an_error_and_the_listing_still_tells_the_truth() {
    let root = tempfile::tempdir().unwrap();
    let fail = Arc::new(Mutex::new(None));
    let hook: Box<StepHook> = {
        let fail = Arc::clone(&fail);
        Box::new(
            move |step, _| {
                if *fail.lock() == Some(step) { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
            },
        )
    };
    let store = DirectoryStore::open_hooked(root.path(), Arc::new(SystemClock::new()), Some(hook)).unwrap();
    store.create_bucket(&namespace(), &bucket()).await.unwrap();
    put(&store, "a", b"old").await;
    assert_eq!(listed(&store).await, ["a"]);

    for (step, is_there) in [(Step::Written, false), (Step::Synced, false), (Step::Renamed, true)] {
        *fail.lock() = Some(step);
        let (key, bytes) = (format!("{step:?}"), b"new");
        let payload = spooled(&store, bytes);
        let error = store.put(&id(&key), &payload, &meta_of(bytes)).await.unwrap_err();
        assert!(error.to_string().contains("free space"), "{error}");
        // Only what left the old object in place may be said not to have happened.
        assert_eq!(matches!(error, ObjectError::SlowDown(_)), !is_there, "{error:?}");
        assert_eq!(error.is_in_doubt(), is_there, "{error:?}");
        assert_eq!(listed(&store).await.contains(&key), is_there, "{step:?}");
        // A write that failed can be repeated with the same payload.
        *fail.lock() = None;
        if !is_there {
            store.put(&id(&key), &payload, &meta_of(bytes)).await.unwrap();
            assert_eq!(get(&store, &key).await.unwrap(), bytes);
        }
    }
    assert_eq!(fs::read_dir(root.path().join("staging")).unwrap().count(), 0);
}

#[test]
fn a_store_that_cannot_be_written_says_why_and_other_faults_stay_the_store_s() {
    let error = |kind: io::ErrorKind| refused("create bucket", Path::new("/secret"))(io::Error::from(kind));
    for (kind, advice) in [
        (io::ErrorKind::StorageFull, "free space"),
        (io::ErrorKind::QuotaExceeded, "free space"),
        (io::ErrorKind::ReadOnlyFilesystem, "mount it for writing"),
        (io::ErrorKind::PermissionDenied, "must belong to the user"),
    ] {
        let ObjectError::SlowDown(reason) = error(kind) else { panic!("{kind}") };
        assert!(reason.contains(advice) && !reason.contains("secret"), "{kind}: {reason}");
    }
    for kind in [io::ErrorKind::Other, io::ErrorKind::NotFound] {
        assert!(matches!(error(kind), ObjectError::Store { .. }), "{kind}");
    }
}

#[tokio::test]
async fn the_first_spooled_file_becomes_the_object_and_the_others_are_appended() {
    let (_root, store) = store_with_bucket().await;
    let spool = store.spool().unwrap().to_owned();
    let parts: Vec<PathBuf> = (0..3).map(|n| spool.join(format!("part-{n}"))).collect();
    for (n, part) in parts.iter().enumerate() {
        fs::write(part, vec![n as u8; 100_000 + n]).unwrap();
    }
    // After the first part comes a tail, as an attempt that a crash interrupted leaves it.
    fs::OpenOptions::new().append(true).open(&parts[0]).unwrap().write_all(b"tail of a dead attempt").unwrap();
    let whole: Vec<u8> = (0..3).flat_map(|n| vec![n as u8; 100_000 + n]).collect();
    let meta = ObjectMeta { parts: vec![100_000, 100_001, 100_002], ..meta_of(&whole) };
    store.put(&id("joined"), &Payload::Files(parts.clone()), &meta).await.unwrap();
    assert_eq!(get(&store, "joined").await.unwrap(), whole);
    assert_eq!(store.head(&id("joined")).await.unwrap(), meta);
    assert_eq!(parts.iter().map(|part| part.exists()).collect::<Vec<_>>(), [false, true, true]);
}

#[tokio::test]
async fn a_payload_that_is_not_what_its_metadata_says_is_refused_and_left_as_it_was() {
    let (_root, store) = store_with_bucket().await;
    let payload = spooled(&store, b"short");
    assert!(store.put(&id("k"), &payload, &meta_of(b"longer than that")).await.is_err());
    let Payload::Files(files) = &payload else { unreachable!() };
    let two = Payload::Files(vec![files[0].clone(), files[0].clone()]);
    assert!(store.put(&id("k"), &two, &ObjectMeta { parts: vec![5], ..meta_of(b"short") }).await.is_err());
    let gone = Payload::Files(vec![files[0].clone(), PathBuf::from("/nonexistent")]);
    let meta = ObjectMeta { parts: vec![5, 1], ..meta_of(b"short!") };
    assert!(store.put(&id("k"), &gone, &meta).await.is_err());
    assert_eq!(fs::read(&files[0]).unwrap(), b"short");
    assert!(matches!(store.head(&id("k")).await, Err(ObjectError::NoSuchKey(_))));
}

#[tokio::test]
async fn a_payload_on_another_file_system_is_copied() {
    let (root, store) = store_with_bucket().await;
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    if fs::metadata(elsewhere.path()).unwrap().dev() == fs::metadata(root.path()).unwrap().dev() {
        skip("a_payload_on_another_file_system_is_copied", "/dev/shm is on the temporary folder's file system");
        return;
    }
    let file = elsewhere.path().join("payload");
    fs::write(&file, b"from afar").unwrap();
    store.put(&id("k"), &Payload::Files(vec![file.clone()]), &meta_of(b"from afar")).await.unwrap();
    assert_eq!(get(&store, "k").await.unwrap(), b"from afar");
    assert_eq!(fs::read(file).unwrap(), b"from afar");
}

#[tokio::test]
async fn damaged_files_are_reported_by_name_never_served_and_left_out_of_listings() {
    let (root, store) = store_with_bucket().await;
    for key in ["cut", "flipped", "swapped", "whole"] {
        put(&store, key, key.as_bytes()).await;
    }
    let damage = |key: &str| fs::OpenOptions::new().write(true).open(object_path(root.path(), key)).unwrap();
    let cut = damage("cut");
    cut.set_len(cut.metadata().unwrap().len() - 1).unwrap();
    damage("flipped").write_all_at(b"?", 10).unwrap();
    fs::copy(object_path(root.path(), "whole"), object_path(root.path(), "swapped")).unwrap();
    fs::write(object_path(root.path(), "whole").with_file_name("no object%"), b"").unwrap();
    for key in ["cut", "flipped", "swapped"] {
        for error in [store.head(&id(key)).await.unwrap_err(), get(&store, key).await.unwrap_err()] {
            let text = error.to_string();
            assert!(text.contains(&object_path(root.path(), key).display().to_string()), "{text}");
        }
    }
    drop(store);
    let store = open(root.path());
    assert_eq!(listed(&store).await, ["whole"]);
    // A damaged object can still be deleted.
    store.delete(&id("cut")).await.unwrap();
    assert!(matches!(store.head(&id("cut")).await, Err(ObjectError::NoSuchKey(_))));
}

#[tokio::test]
async fn a_flipped_bit_of_a_segments_payload_is_noticed_before_its_last_byte() {
    for size in [1000usize, 3 << 20] {
        let (root, store) = store_with_bucket().await;
        let bytes = vec![1; size];
        let payload = Payload::Segment(Segment::copy_of(&bytes).unwrap());
        store.put(&id("k"), &payload, &meta_of(&bytes)).await.unwrap();
        assert_eq!(get(&store, "k").await.unwrap(), bytes);
        // The checksum stays known when tags change.
        store.put_tags(&id("k"), &Tags::new()).await.unwrap();
        let damaged = fs::OpenOptions::new().write(true).open(object_path(root.path(), "k")).unwrap();
        damaged.write_all_at(&[3], 500).unwrap();
        assert!(get(&store, "k").await.unwrap_err().to_string().contains("checksum"), "{size}");
    }
}

#[tokio::test]
async fn a_segment_of_another_length_than_its_metadata_says_is_refused() {
    let (_root, store) = store_with_bucket().await;
    let payload = Payload::Segment(Segment::copy_of(b"four").unwrap());
    assert!(store.put(&id("k"), &payload, &meta_of(b"three")).await.is_err());
    assert!(matches!(store.head(&id("k")).await, Err(ObjectError::NoSuchKey(_))));
    let empty = Payload::Segment(Segment::copy_of(b"").unwrap());
    store.put(&id("k"), &empty, &meta_of(b"")).await.unwrap();
    assert_eq!(get(&store, "k").await.unwrap(), b"");
}

#[tokio::test]
async fn an_open_object_stays_one_version_while_it_is_overwritten() {
    let (_root, store) = store_with_bucket().await;
    let (old, new) = (vec![b'o'; 4 << 20], vec![b'n'; 4 << 20]);
    put(&store, "k", &old).await;
    let (meta, mut stream) = store.get(&id("k"), None, None).await.unwrap();
    let mut read = stream.try_next().await.unwrap().unwrap().to_vec();
    assert!(read.len() >= 256 * 1024 && read.len() < old.len());
    put(&store, "k", &new).await;
    while let Some(piece) = stream.try_next().await.unwrap() {
        read.extend_from_slice(&piece);
    }
    assert_eq!((read == old, meta), (true, meta_of(&old)));
    // A read in parts that began before the overwrite is refused.
    let pinned = store.get(&id("k"), Some(0..10), Some(&meta_of(&old).etag)).await;
    assert!(matches!(pinned, Err(ObjectError::PreconditionFailed(_))));
}

#[tokio::test]
async fn a_root_has_one_user_at_a_time() {
    let (root, store) = store_with_bucket().await;
    let again = DirectoryStore::open(root.path(), Arc::new(SystemClock::new()));
    assert!(matches!(again.err(), Some(DirectoryError::Locked { .. })));
    drop(store);
    open(root.path());
}

#[test]
fn a_newer_or_foreign_folder_is_refused_and_left_alone() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("holiday.jpg"), b"").unwrap();
    let opened = || DirectoryStore::open(root.path(), Arc::new(SystemClock::new())).err();
    assert!(matches!(opened(), Some(DirectoryError::Foreign { .. })));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    fs::write(root.path().join("format"), "nigh directory store 2\n").unwrap();
    assert!(matches!(opened(), Some(DirectoryError::Newer { found: 2, .. })));
    fs::write(root.path().join("format"), [0xff, 0xfe]).unwrap();
    assert!(matches!(opened(), Some(DirectoryError::Foreign { .. })));
}

#[tokio::test]
async fn folders_of_long_keys_come_and_go_with_their_objects() {
    let (root, store) = store_with_bucket().await;
    let stem = "k".repeat(1000);
    let keys = [format!("{stem}a"), format!("{stem}b"), "k".repeat(240), "k".repeat(241)];
    for key in &keys {
        put(&store, key, key.as_bytes()).await;
    }
    let mut sorted = keys.to_vec();
    sorted.sort();
    assert_eq!(listed(&store).await, sorted);
    assert!(matches!(store.delete_bucket(&namespace(), &bucket()).await, Err(ObjectError::BucketNotEmpty(_))));
    for key in &keys {
        store.delete(&id(key)).await.unwrap();
    }
    let objects = root.path().join("namespaces/tenant/bucket/objects");
    assert_eq!(fs::read_dir(objects).unwrap().count(), 0);
    store.delete_bucket(&namespace(), &bucket()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn long_keys_under_one_folder_can_be_written_and_deleted_at_once() {
    let (_root, store) = store_with_bucket().await;
    let store = Arc::new(store);
    let stem = "k".repeat(1000);
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let (store, key) = (Arc::clone(&store), format!("{stem}{n}"));
            tokio::spawn(async move {
                for _ in 0..20 {
                    put(&store, &key, b"x").await;
                    store.delete(&id(&key)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(listed(&store).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_listing_that_begins_amid_writes_and_deletes_misses_none_of_them() {
    let (root, store) = store_with_bucket().await;
    for n in 0..300 {
        put(&store, &format!("old-{n:03}"), b"x").await;
    }
    drop(store);
    let store = Arc::new(open(root.path()));
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 0..300 {
                put(&store, &format!("new-{n:03}"), b"y").await;
                store.delete(&id(&format!("old-{n:03}"))).await.unwrap();
            }
        })
    };
    while !writer.is_finished() {
        let keys = listed(&store).await;
        // Each write precedes its deletion, so there are always 300 or 301 objects.
        assert!((300..=301).contains(&keys.len()), "{}", keys.len());
    }
    writer.await.unwrap();
    let keys = listed(&store).await;
    assert_eq!(keys.len(), 300);
    assert!(keys.iter().all(|key| key.starts_with("new-")));
}

#[tokio::test]
async fn a_bucket_of_100_000_objects_is_listed_page_by_page() {
    let (root, store) = store_with_bucket().await;
    let keys: Vec<String> = (0..100_000).map(|n| format!("{:02}/{n:06}", n % 100)).collect();
    let meta = meta_of(b"x");
    for key in &keys {
        // This writes files as the store does, but without a sync of each, which would take most of the time.
        let tail = object_file::encode_tail(&id(key).key, &meta, None).unwrap();
        fs::write(object_path(root.path(), key), [&b"x"[..], &tail].concat()).unwrap();
    }
    let began = std::time::Instant::now();
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let after = found.last().map(String::as_str);
        let page = store.list(ListQuery { after, ..ListQuery::first(&namespace(), &bucket(), 1000) }).await.unwrap();
        assert!(page.iter().all(|object| object.size == 1 && object.etag == meta.etag));
        if page.is_empty() {
            break;
        }
        pages += 1;
        found.extend(page.into_iter().map(|object| object.key.as_str().to_owned()));
    }
    println!("100,000 objects in {pages} pages: {} ms", began.elapsed().as_millis());
    let mut sorted = keys;
    sorted.sort();
    assert_eq!((found == sorted, pages), (true, 100));
    let one = store
        .list(ListQuery { prefix: "42/", after: Some("42/000042"), ..ListQuery::first(&namespace(), &bucket(), 2) })
        .await
        .unwrap();
    assert_eq!(one.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), ["42/000142", "42/000242"]);
}

#[tokio::test]
async fn a_bucket_deleted_and_made_again_is_a_new_one() {
    let (_root, store) = store_with_bucket().await;
    put(&store, "k", b"x").await;
    assert_eq!(listed(&store).await, ["k"]);
    store.delete(&id("k")).await.unwrap();
    store.delete_bucket(&namespace(), &bucket()).await.unwrap();
    let meta = meta_of(b"x");
    let refused = store.put(&id("k"), &spooled(&store, b"x"), &meta).await;
    assert!(matches!(refused, Err(ObjectError::NoSuchBucket(_))));
    store.create_bucket(&namespace(), &bucket()).await.unwrap();
    put(&store, "k2", b"x").await;
    assert_eq!(listed(&store).await, ["k2"]);
}

#[tokio::test]
async fn deleting_a_bucket_during_a_large_write_holds_nobody_up_and_the_write_finds_it_gone() {
    let (root, store) = store_with_bucket().await;
    let store = Arc::new(store);
    let other = ObjectId { namespace: Namespace::new("other").unwrap(), ..id("k") };
    store.create_bucket(&other.namespace, &other.bucket).await.unwrap();
    let Payload::Files(mut files) = spooled(&store, b"first") else { unreachable!() };
    // The copy of the second part waits until something is written into the pipe.
    let pipe = root.path().join("spool/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    files.push(pipe.clone());
    let writing = {
        let store = Arc::clone(&store);
        let meta = ObjectMeta { parts: vec![5, 7], ..meta_of(b"first, second") };
        let meta = ObjectMeta { size: 12, ..meta };
        tokio::spawn(async move { store.put(&id("large"), &Payload::Files(files), &meta).await })
    };
    // Opening a pipe for writing waits for a reader, so the copy has begun when this returns.
    let mut feed = tokio::task::spawn_blocking(move || File::options().write(true).open(pipe).unwrap()).await.unwrap();
    store.delete_bucket(&namespace(), &bucket()).await.unwrap();
    store.put(&other, &spooled(&store, b"other"), &meta_of(b"other")).await.unwrap();
    feed.write_all(b"second!").unwrap();
    drop(feed);
    assert!(matches!(writing.await.unwrap(), Err(ObjectError::NoSuchBucket(_))));
    assert!(!root.path().join("namespaces/tenant/bucket").exists());
}

#[tokio::test]
async fn deleting_a_bucket_during_a_commit_holds_no_other_bucket_up() {
    let root = tempfile::tempdir().unwrap();
    let (arrived, arrival) = std::sync::mpsc::channel();
    let (let_on, passes) = std::sync::mpsc::channel::<()>();
    let passes = Mutex::new(passes);
    let hook: Box<StepHook> = Box::new(move |step, _| {
        if step == Step::Written {
            arrived.send(()).map_err(io::Error::other)?;
            passes.lock().recv().map_err(io::Error::other)?;
        }
        Ok(())
    });
    let store = DirectoryStore::open_hooked(root.path(), Arc::new(SystemClock::new()), Some(hook)).unwrap();
    let store = Arc::new(store);
    store.create_bucket(&namespace(), &bucket()).await.unwrap();
    let writing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { put(&store, "k", b"bytes").await })
    };
    tokio::task::spawn_blocking(move || arrival.recv().unwrap()).await.unwrap();
    let (tenant, name) = (namespace(), bucket());
    let mut deleting = Box::pin(store.delete_bucket(&tenant, &name));
    // The test cannot see whether the deletion has reached the bucket's lock; within this time it usually has.
    assert!(tokio::time::timeout(std::time::Duration::from_millis(100), &mut deleting).await.is_err());
    let other = Namespace::new("other").unwrap();
    let others = async {
        store.create_bucket(&other, &bucket()).await.unwrap();
        store.head_bucket(&other, &bucket()).await.unwrap();
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), others).await.unwrap();
    assert!(matches!(deleting.await, Err(ObjectError::SlowDown(_))), "the commit has not ended");
    let_on.send(()).unwrap();
    writing.await.unwrap();
    assert!(matches!(store.delete_bucket(&namespace(), &bucket()).await, Err(ObjectError::BucketNotEmpty(_))));
}

#[tokio::test]
async fn a_reader_that_meets_a_write_in_its_folders_sync_answers_when_the_disk_has_it() {
    let root = tempfile::tempdir().unwrap();
    let (arrived, arrival) = std::sync::mpsc::channel();
    let (let_on, passes) = std::sync::mpsc::channel::<()>();
    let passes = Mutex::new(passes);
    let on_disk = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&on_disk);
    let hook: Box<StepHook> = Box::new(move |step, _| {
        if step == Step::Renamed {
            arrived.send(()).map_err(io::Error::other)?;
            passes.lock().recv().map_err(io::Error::other)?;
        } else if step == Step::FolderSynced {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    let store = DirectoryStore::open_hooked(root.path(), Arc::new(SystemClock::new()), Some(hook)).unwrap();
    let store = Arc::new(store);
    store.create_bucket(&namespace(), &bucket()).await.unwrap();
    let writing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { put(&store, "k", b"bytes").await })
    };
    tokio::task::spawn_blocking(move || arrival.recv().unwrap()).await.unwrap();
    assert!(object_path(root.path(), "k").exists(), "the name is there; the disk need not know");
    let reading = {
        let (store, on_disk) = (Arc::clone(&store), Arc::clone(&on_disk));
        tokio::spawn(async move { (get(&store, "k").await.unwrap(), on_disk.load(Ordering::SeqCst)) })
    };
    let looking = {
        let (store, on_disk) = (Arc::clone(&store), Arc::clone(&on_disk));
        tokio::spawn(async move { (store.head(&id("k")).await.unwrap().size, on_disk.load(Ordering::SeqCst)) })
    };
    // Reads of other keys do not wait. During this time, the two reads above could have answered too early.
    assert!(matches!(store.head(&id("other")).await, Err(ObjectError::NoSuchKey(_))));
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let_on.send(()).unwrap();
    assert_eq!(reading.await.unwrap(), (b"bytes".to_vec(), 1));
    assert_eq!(looking.await.unwrap(), (5, 1));
    writing.await.unwrap();
}

#[tokio::test]
async fn a_write_that_would_fill_the_file_system_is_told_to_come_back() {
    let (root, store) = store_with_bucket().await;
    let Payload::Files(mut files) = spooled(&store, b"first") else { unreachable!() };
    let found = rustix::fs::statvfs(root.path()).unwrap();
    let more = found.f_blocks * found.f_frsize;
    let sparse = root.path().join("spool/sparse");
    File::create_new(&sparse).unwrap().set_len(more).unwrap();
    files.push(sparse);
    let meta = ObjectMeta { parts: vec![5, more], ..meta_of(b"") };
    let refused = store.put(&id("k"), &Payload::Files(files), &ObjectMeta { size: 5 + more, ..meta }).await;
    assert!(matches!(refused, Err(ObjectError::SlowDown(_))), "{refused:?}");
    assert!(matches!(store.head(&id("k")).await, Err(ObjectError::NoSuchKey(_))));
}

#[tokio::test]
async fn a_store_of_the_first_form_gives_back_what_is_in_it() {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.file_name().unwrap());
            if path.is_dir() {
                copy(&path, &target);
            } else {
                fs::copy(&path, &target).unwrap();
            }
        }
    }
    let root = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/directory-store-1"), root.path());
    let store = open(root.path());
    assert_eq!(store.head_bucket(&namespace(), &bucket()).await.unwrap().created, Timestamp(1_700_000_000_000));
    let (meta, body) = store.get(&id("folder/a b"), None, None).await.unwrap();
    let bytes: Vec<u8> = body.try_collect::<Vec<_>>().await.unwrap().concat();
    assert_eq!(bytes, b"the first form");
    assert_eq!((meta.modified, &meta.tags["k"]), (Timestamp(1_700_000_000_123), &"v".to_owned()));
    assert_eq!(meta.attributes.user["colour"], "blue");
    assert_eq!(store.list(ListQuery::first(&namespace(), &bucket(), 10)).await.unwrap().len(), 1);
}
