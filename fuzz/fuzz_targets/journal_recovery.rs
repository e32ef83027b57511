//! Whatever stands in segment files, one or several: no panic, and what recovery gives is in order and within the files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_engine::journal::fuzz;

/// At most; a segment whole counts as two, for the copy of its header in its last sector.
const FILES_MAX: usize = 8;
/// Cuts the input into files: it begins each one but the first. A segment's own first bytes, so that a corpus of whole
/// segments, one behind the other, is cut where they begin.
const MARK: &[u8] = b"NIGHJRNL";

fuzz_target!(|bytes: &[u8]| {
    let starts: Vec<usize> = (1..bytes.len()).filter(|&at| bytes[at..].starts_with(MARK)).collect();
    let mut files = Vec::new();
    let mut from = 0;
    for end in starts.into_iter().take(FILES_MAX - 1) {
        files.push(&bytes[from..end]);
        from = end;
    }
    files.push(&bytes[from..]);
    let Some(found) = fuzz(&files) else { return };
    assert!(found.records.is_sorted_by_key(|one| one.record.version));
    for one in &found.records {
        assert!(one.stored || one.record.body_bytes <= bytes.len() as u64 * 4097);
    }
    assert!(found.damage.iter().all(|damage| damage.offset <= bytes.len() as u64 || damage.offset <= 4096));
});
