//! Whatever a stored model says: it is refused, or predicts and ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_learn::{FeatureRow, FunctionModel};

fuzz_target!(|stored: &[u8]| {
    let Ok(model) = FunctionModel::decode(stored) else { return };
    let _ = model.predict(&FeatureRow::default());
    for row in model.training_set().rows() {
        let _ = model.predict(&row.features);
    }
    let _ = model.refitted().predict(&FeatureRow::default());
});
