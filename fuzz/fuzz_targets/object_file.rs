//! Whatever an object's file holds: no panic, and nothing is served but what a store could have written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_stores::directory::object_file::{crc64, encode_tail, parse_file};
use nigh_terms::ObjectKey;

fuzz_target!(|input: (Vec<u8>, Vec<u8>, Vec<u8>, u16)| {
    let (mut payload, json, junk, cut) = input;
    let Ok(key) = ObjectKey::new("k") else { return };
    // As it comes.
    let _ = parse_file(&junk, &key);
    // Well-formed around metadata that the fuzzer chose; what is read must be what is written again.
    let Ok(mut meta) = serde_json::from_slice::<nigh_data::ObjectMeta>(&json) else { return };
    meta.size = payload.len() as u64;
    let Ok(tail) = encode_tail(&key, &meta, Some(crc64(&payload))) else { return };
    let length = payload.len();
    payload.extend_from_slice(&tail);
    match parse_file(&payload, &key) {
        Ok((bytes, read)) => assert!(bytes == &payload[..length] && read == meta),
        Err(error) => panic!("a file that the store wrote is refused: {error}"),
    }
    let at = usize::from(cut) % payload.len();
    assert!(parse_file(&payload[..at], &key).is_err());
    payload[at] ^= 1;
    assert!(parse_file(&payload, &key).is_err());
});
