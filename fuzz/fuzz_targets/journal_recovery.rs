//! Whatever stands in a segment file: no panic, and what recovery gives is in order and within the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_engine::journal::fuzz;

fuzz_target!(|bytes: &[u8]| {
    let Some(found) = fuzz(bytes) else { return };
    assert!(found.records.is_sorted_by_key(|one| one.record.version));
    for one in &found.records {
        assert!(one.stored || one.record.body_bytes <= bytes.len() as u64 * 4097);
    }
    assert!(found.damage.iter().all(|damage| damage.offset <= bytes.len() as u64 || damage.offset <= 4096));
});
