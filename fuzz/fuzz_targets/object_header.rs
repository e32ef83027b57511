//! Whatever an object's bytes are: a look at its header ends, wishes for bytes that are there and were not given, and tells
//! features of the object, at most a row of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_learn::media::{ObjectHead, WANTED_BYTES_MAX, Window, is_readable, look};

/// Bytes that are given first.
const HEAD: usize = 1024;
/// Looks at an object at most.
const ROUNDS: usize = 4;

fuzz_target!(|input: (u8, u32, &[u8])| {
    let (name, behind, bytes) = input;
    let name = ["a.csv", "a.json", "a.jsonl", "a", "a.svg"][usize::from(name) % 5];
    let _ = is_readable(bytes);
    // An object may go on behind what there is of it.
    let size = bytes.len() as u64 + u64::from(behind);
    let mut given = vec![0..bytes.len().min(HEAD)];
    for _ in 0..ROUNDS {
        let windows: Vec<Window<'_>> = given
            .iter()
            .map(|range| Window { from: range.start as u64, bytes: &bytes[range.clone()] })
            .collect();
        let seen = look(&ObjectHead { size, windows: &windows, name, content_type: "" });
        assert!(seen.row.iter().all(|(name, _)| name.as_str().starts_with("in_")));
        let Some(wants) = seen.wants else { return };
        assert!(wants.start < wants.end && wants.end <= size && wants.end - wants.start <= WANTED_BYTES_MAX);
        let range = (wants.start as usize).min(bytes.len())..(wants.end as usize).min(bytes.len());
        if range.is_empty() {
            return;
        }
        given.push(range);
    }
});
