//! Backups come from other machines: whatever stands in one, it is refused or read within the limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_node::backup::reader::{Verify, read};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, end)) = read(bytes, &mut Verify) {
        assert!(header.format <= nigh_node::backup::archive::FORMAT);
        assert!(end.bytes <= bytes.len() as u64);
    }
});
