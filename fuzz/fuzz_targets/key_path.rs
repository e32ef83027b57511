//! Whatever a file in a bucket is called: it is one key's place, or nobody's.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use nigh_stores::directory::key_path::{to_key, to_path};
use nigh_terms::ObjectKey;

fuzz_target!(|text: &str| {
    if let Some(key) = to_key(Path::new(text)) {
        assert_eq!(to_path(&key), Path::new(text));
    }
    if let Ok(key) = ObjectKey::new(text) {
        let path = to_path(&key);
        assert!(path.components().all(|piece| matches!(piece, Component::Normal(_))));
        assert_eq!(to_key(&path), Some(key));
    }
});
