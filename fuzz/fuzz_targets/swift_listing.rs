//! What Swift lists with: any bytes give entries or an error, and an entry's key is one that a request can name.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_stores::swift::listing::{parse_containers, parse_objects};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(page) = parse_objects(bytes) {
        assert!(page.iter().all(|listed| (1..=1024).contains(&listed.key.as_str().len())));
    }
    for prefix in ["", "t-"] {
        if let Ok((buckets, last)) = parse_containers(bytes, prefix) {
            assert!(buckets.is_empty() || last.is_some());
        }
    }
});
