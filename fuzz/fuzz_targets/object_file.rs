//! Whatever lies in the directory of objects: no panic, no path with two keys or out of its folder, and metadata
//! that is read can be written and read again.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use nigh_objects::store::directory::key_path::{to_key, to_path};
use nigh_objects::store::directory::object_file::{FOOTER, Footer, crc64, encode_tail, parse_file, parse_footer};
use nigh_terms::ObjectKey;

fuzz_target!(|input: (&str, &[u8])| {
    let (name, file) = input;
    if let Some(key) = to_key(Path::new(name)) {
        assert_eq!(to_path(&key), Path::new(name));
    }
    let Ok(key) = ObjectKey::new(name) else { return };
    let path = to_path(&key);
    assert!(path.components().all(|component| matches!(component, Component::Normal(_))));
    assert_eq!(to_key(&path).as_ref(), Some(&key));

    if let Some(footer) = file.last_chunk::<FOOTER>() {
        let _ = parse_footer(footer, file.len() as u64);
    }
    assert!(parse_file(file, &key).map_or(true, |(payload, meta)| payload.len() as u64 == meta.size));

    // The checksums keep a fuzzer from what lies behind them: metadata is tried with the right one.
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, file) as u32;
    let footer = Footer { payload: 0, metadata: file.len() as u32, metadata_crc: crc, payload_crc: None };
    if let Ok(meta) = footer.parse_metadata(file, &key)
        && let Ok(tail) = encode_tail(&key, &meta, Some(crc64(b"")))
    {
        assert_eq!(parse_file(&tail, &key).expect("what was written can be read"), (&b""[..], meta));
    }
});
