//! Whatever the head of a call of dispatch has: no panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|head: &[u8]| {
    nigh_dispatch::fuzz(head);
    // The same with a form that is read.
    let formed: Vec<u8> = [1].into_iter().chain(head.iter().copied()).collect();
    nigh_dispatch::fuzz(&formed);
});
