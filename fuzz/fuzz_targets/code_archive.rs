//! Whatever the archive: nothing outside its folder, nothing but plain files and folders, nothing above the limits.
#![no_main]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use nigh_functions::code_archive::{Archive, ArchiveLimits, unpack};
use nigh_terms::ByteSize;

const LIMITS: ArchiveLimits = ArchiveLimits {
    uploaded: ByteSize::mib(1),
    zipped: ByteSize::mib(1),
    unpacked: ByteSize::kib(256),
    entries: 64,
};

/// The bytes and the number of what is below `folder`.
fn measure(folder: &Path) -> (u64, usize) {
    let (mut bytes, mut entries) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7022, 0, "{:?}", entry.path());
        entries += 1;
        if metadata.is_dir() {
            let below = measure(&entry.path());
            (bytes, entries) = (bytes + below.0, entries + below.1);
        } else {
            assert!(metadata.is_file(), "{:?}", entry.path());
            bytes += metadata.len();
        }
    }
    (bytes, entries)
}

fuzz_target!(|archive: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let into = folder.path().join("code");
    let result = unpack(&Archive::from(bytes::Bytes::copy_from_slice(archive)), &into, LIMITS);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        assert_eq!(entry.unwrap().file_name(), "code");
    }
    if into.exists() {
        let (bytes, entries) = measure(&into);
        assert!(bytes <= LIMITS.unpacked.bytes() && entries <= LIMITS.entries);
        if let Ok(unpacked) = result {
            assert_eq!((bytes, entries), (unpacked.size.bytes(), unpacked.entries));
        }
    }
});
