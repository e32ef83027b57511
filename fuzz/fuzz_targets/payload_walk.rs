//! Whatever an input's bytes are: the walk ends within its bounds, and its row can be predicted from.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_schedule::inputs::payload_walk::{ARGUMENTS_MAX, PayloadWalk};

fuzz_target!(|payload: &[u8]| {
    let walk = PayloadWalk::of(payload);
    // The payload's own size is one more.
    assert!(walk.arguments.len() <= ARGUMENTS_MAX + 1);
    let _ = walk.arguments.fingerprint();
});
