//! What comes to the outside door: any bytes are a message or an error, and a message is within its bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_node::outside_door::message::{Invalidation, parse_invalidation, parse_push};
use nigh_node::outside_door::s3_events;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(push) = parse_push(bytes) {
        let again = serde_json::json!({
            "account": push.target.account, "container": push.target.container, "object": push.target.object,
            "version": push.version.to_string(),
        });
        assert_eq!(parse_push(again.to_string().as_bytes()), Ok(push));
    }
    if let Ok(Invalidation::Begin { token, lease, .. }) = parse_invalidation(bytes) {
        assert!((1..=64).contains(&token.len()) && lease.as_secs() <= 3600);
    }
    if let Ok(changed) = s3_events::parse(bytes) {
        // Each takes more than its own bytes.
        assert!(changed.iter().map(|one| one.bucket.len() + one.key.len()).sum::<usize>() <= bytes.len());
    }
});
