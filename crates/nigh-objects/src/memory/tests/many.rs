//! The memory of many small objects, as the kernel counts it, in a process of its own that the test starts.

use std::os::unix::process::ExitStatusExt;

use nigh_data::account::{Account, OVERHEAD};
use nigh_data::segment::SegmentWriter;
use nigh_data::segment_cost::Cost;
use nigh_data::{Attributes, ETag, ObjectId, ObjectMeta, Tags};
use nigh_protocol::{Copy, CopyStore as _, Stamp};
use nigh_terms::{BucketName, Epoch, Namespace, ObjectKey, Sequence, ShardId, Timestamp, Token, Version};

use crate::cache::{CostedCopy, OverheadCost, Shelf};
use crate::eviction::Origin;
use crate::kept::CachedCopy;

/// The number of objects, unless the environment variable sets another.
const OBJECTS: usize = 50_000;
const OBJECTS_VARIABLE: &str = "NIGH_TEST_SMALL_OBJECTS";
/// Tells the process that it is the measured one.
const MEASURED: &str = "NIGH_TEST_MEASURED";
const LENGTH: usize = 100;

/// The memory of this process that is neither a file's nor shared: everything but the objects' own pages.
fn own_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn a_small_object_in_memory_takes_256_bytes_at_most_beside_its_pages_and_its_key() {
    const TEST: &str =
        "memory::tests::many::a_small_object_in_memory_takes_256_bytes_at_most_beside_its_pages_and_its_key";
    if std::env::var_os(MEASURED).is_some() {
        return measure();
    }
    let program = std::env::current_exe().unwrap();
    let alone = std::process::Command::new(program)
        .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
        .env(MEASURED, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&alone.stdout);
    println!("{said}");
    assert!(alone.status.success(), "{:?} {:?} {said}", alone.status.code(), alone.status.signal());
}

fn measure() {
    let objects: usize = std::env::var(OBJECTS_VARIABLE).map_or(OBJECTS, |number| number.parse().unwrap());
    let account = Account::open().unwrap();
    let mut cache: Shelf<CachedCopy> = Shelf::new(crate::Shards::ONE, Cost { bytes: 1 << 40, segments: 1000 });
    let object = |n: usize| ObjectId {
        namespace: Namespace::new("default").unwrap(),
        bucket: BucketName::new("pictures-of-2026").unwrap(),
        key: ObjectKey::new(&format!("thumbnails/{n:010}.jpg")).unwrap(),
    };
    let meta = |n: usize| ObjectMeta {
        size: LENGTH as u64,
        etag: ETag(format!("{n:032x}")),
        modified: Timestamp(1_700_000_000_000),
        attributes: Attributes::default(),
        tags: Tags::new(),
        checksums: vec![nigh_data::ChecksumAlgorithm::Crc64Nvme.checksum(&(n as u64).to_be_bytes())],
        parts: Vec::new(),
        version: Version { epoch: Epoch(1), sequence: Sequence(n as u64) },
        token: Token::empty(),
    };
    let before = own_memory();
    for n in 0..objects {
        let (object, cost) = (object(n), account.cost(LENGTH as u64));
        assert!(cache.reserve(cost, OverheadCost::default()).0);
        cache.release(cost);
        let mut filling = SegmentWriter::new(&account, LENGTH as u64).unwrap();
        filling.append(&[n as u8; LENGTH]).unwrap();
        let kept = CachedCopy::new(&meta(n), Some(filling.seal().unwrap()));
        let stamp = Stamp { version: meta(n).version, others: None };
        cache.insert(ShardId(0), &object, Copy { stamp, value: CostedCopy { kept, cost, origin: Origin::Written } });
    }
    let each = (own_memory() - before) as f64 / objects as f64 - object(0).key.as_str().len() as f64;
    let slabs = account.living().segments;
    println!("{objects} objects of {LENGTH} bytes: {each:.0} bytes each beside pages and key, in {slabs} slabs");
    assert!(each <= OVERHEAD as f64, "{each:.1} bytes an object");
    assert!(slabs <= 1 + objects as u64 / 10_000);
    assert_eq!(cache.copies(), objects);
    for n in [0, 1, objects / 2, objects - 1] {
        let kept = cache.peek(&object(n)).unwrap();
        assert_eq!(kept.segment.as_ref().unwrap().as_slice(), [n as u8; LENGTH]);
        assert_eq!(*kept.meta.unpack(), meta(n));
    }
}
