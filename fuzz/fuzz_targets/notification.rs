//! Whatever a bucket's notification configuration says: no panic, and rules that are taken together never both want the
//! same change.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_objects::ObjectChange;
use nigh_s3::fuzzing::notification_rules;

fuzz_target!(|input: (&[u8], &str)| {
    let (document, key) = input;
    let Some(config) = notification_rules(document) else { return };
    if config.check().is_ok() {
        for change in ObjectChange::ALL {
            assert!(config.wanting(*change, key).count() <= 1);
        }
    }
});
