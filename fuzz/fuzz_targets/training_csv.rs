//! Whatever a training set's CSV says: no panic, what is read is within its limits, and reads back as it is written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_learn::{LinTree, TRAINING_ROWS_MAX, TrainingSet};

fuzz_target!(|text: &str| {
    let Ok(set) = TrainingSet::from_csv("1", text) else { return };
    assert!(set.rows().len() <= TRAINING_ROWS_MAX);
    let again = TrainingSet::from_csv("1", &set.to_csv());
    assert_eq!(again.as_ref().map(TrainingSet::rows), Ok(set.rows()));
    let (schema, samples) = set.samples();
    let model = LinTree::fit(&schema, &samples);
    for sample in &samples {
        let _ = model.predict(&sample.features);
    }
});
