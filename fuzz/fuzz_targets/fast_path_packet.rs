//! Whatever comes over the fast path's socket: no panic, and a packet is taken only if its lengths fill it exactly.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_s3::fuzzing::reads_fast_path_packet;

/// The header's length, and where it has the two lengths.
const HEADER_BYTES: usize = 16;

fuzz_target!(|input: (u8, &str, &[u8], &[u8])| {
    let (operation, json, body, raw) = input;
    if reads_fast_path_packet(raw) {
        let length = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]) as usize;
        assert_eq!(HEADER_BYTES + length(8) + length(12), raw.len());
        assert_eq!(raw[0], 1);
        assert!((1..=8).contains(&raw[1]));
    }
    // The same with a right frame, so that what is inside is read.
    let mut packet = vec![1, operation % 10, 0, 0, 7, 0, 0, 0];
    packet.extend((json.len() as u32).to_le_bytes());
    packet.extend((body.len() as u32).to_le_bytes());
    packet.extend(json.as_bytes());
    packet.extend(body);
    let _ = reads_fast_path_packet(&packet);
});
