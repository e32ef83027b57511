//! Whatever a trace file holds: no panic, no more memory than the limits say, and what is read as a trace is what is
//! written of it.
#![no_main]

use crc_fast::{CrcAlgorithm, checksum};
use libfuzzer_sys::fuzz_target;
use nigh_sim::llc::Trace;

/// The bytes behind the magic, with the checksum that lets them through to the parser.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut file = [&b"NIGHLLC1"[..], body].concat();
    let crc = checksum(CrcAlgorithm::Crc32IsoHdlc, &file) as u32;
    file.extend(crc.to_le_bytes());
    file
}

fuzz_target!(|input: &[u8]| {
    let _ = Trace::decode(input);
    let _ = Trace::decode(&[&[0x28, 0xb5, 0x2f, 0xfd][..], input].concat());
    let file = sealed(input);
    if let Ok(trace) = Trace::decode(&file) {
        assert_eq!(trace.encode(), Ok(file));
    }
});
