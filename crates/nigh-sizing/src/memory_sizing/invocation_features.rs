//! The features of an invocation before it runs, as one row: its data, its arguments, and its kind of start. Pure.
//!
//! The sizes of several inputs are added, and the first one with recorded features gives the other features. Features
//! of the data and the sandbox come before arguments; what exceeds the row is left out.

use std::sync::Arc;

use nigh_invoke::hooks::Run;
use nigh_learn::{FeatureRow, FeatureValue, Start};
use nigh_schedule::activation::SandboxStart;
use nigh_terms::Namespace;

use super::input_rules::InputRules;
use crate::object_features::{INPUT_SIZE, ObjectFeatures};

/// The number of inputs, where they are several.
const INPUTS: &str = "input_count";

/// The features of `run`, whose inputs are found by `rules`.
pub(super) fn features(run: &Run<'_>, rules: &InputRules, objects: &dyn ObjectFeatures) -> FeatureRow {
    let mut row = of_data(run, &run.function.namespace, rules, objects);
    let start = match run.start {
        SandboxStart::Warm => Start::Warm,
        SandboxStart::Cold | SandboxStart::Prewarmed => Start::Cold,
    };
    // A full row has no room for it, and no use.
    let _full = row.set_start(start);
    if let Some(used) = run.used_before {
        let _full = row.set_used_before(used);
    }
    for (name, value) in run.walk().arguments.iter().filter(|(name, _)| !rules.is_name(name.as_str())) {
        if row.set_from(name, value).is_err() {
            break;
        }
    }
    row
}

fn of_data(run: &Run<'_>, namespace: &Namespace, rules: &InputRules, objects: &dyn ObjectFeatures) -> FeatureRow {
    let inputs = rules.inputs(run.walk());
    let mut known = inputs.iter().filter_map(|(bucket, key)| objects.of(namespace, bucket, key));
    let Some(first) = known.next() else { return FeatureRow::default() };
    let Some(second) = known.next() else { return Arc::unwrap_or_clone(first) };
    let size = |row: &FeatureRow| match row.get(INPUT_SIZE) {
        Some(FeatureValue::Number(size)) => *size,
        _ => 0.0,
    };
    let (mut sum, mut count, mut row) = (size(&first), 1.0, Arc::unwrap_or_clone(first));
    for other in std::iter::once(second).chain(known) {
        (sum, count) = (sum + size(&other), count + 1.0);
        // Only its size is known; another input may have more features.
        if row.len() <= 1 {
            row = Arc::unwrap_or_clone(other);
        }
    }
    for (name, value) in [(INPUT_SIZE, sum), (INPUTS, count)] {
        let _full = row.set_number(name, value);
    }
    row
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use nigh_terms::{BucketName, ByteSize, ObjectKey};

    use super::*;
    use crate::memory_sizing::tests::run;
    use nigh_functions::test_support::function;

    struct Table(HashMap<&'static str, FeatureRow>);

    impl ObjectFeatures for Table {
        fn of(&self, _: &Namespace, _: &BucketName, key: &ObjectKey) -> Option<Arc<FeatureRow>> {
            self.0.get(key.as_str()).cloned().map(Arc::new)
        }
    }

    fn object(size: f64, width: Option<f64>) -> FeatureRow {
        let mut row = FeatureRow::default();
        row.set_number(INPUT_SIZE, size).unwrap();
        if let Some(width) = width {
            row.set_number("in_width", width).unwrap();
        }
        row
    }

    fn words(row: &FeatureRow) -> Vec<String> {
        row.iter()
            .filter(|(name, _)| name.as_str() != "arg_payload_bytes")
            .map(|(name, value)| match value {
                FeatureValue::Number(number) => format!("{name}={number}"),
                FeatureValue::Word(word) => format!("{name}={word}"),
            })
            .collect()
    }

    #[test]
    fn a_row_holds_the_data_the_arguments_and_how_the_sandbox_begins() {
        let table = Table(HashMap::from([("in", object(900.0, Some(30.0)))]));
        let function = function("f");
        let payload = br#"{"input":{"bucket":"photos","key":"in"},"width":5}"#;
        let mut warm = run(&function, payload);
        (warm.start, warm.used_before) = (SandboxStart::Warm, Some(ByteSize(7)));
        let row = features(&warm, &InputRules::default(), &table);
        assert_eq!(words(&row), ["arg_width=5", "in_width=30", "input_size=900", "start=warm", "used_before_bytes=7"]);
        let cold = run(&function, b"{}");
        assert_eq!(words(&features(&cold, &InputRules::default(), &table)), ["start=cold"]);
    }

    #[test]
    fn sizes_of_several_inputs_add_up_and_what_was_looked_into_says_the_rest() {
        let table = Table(HashMap::from([("a", object(1.0, None)), ("b", object(2.0, Some(30.0)))]));
        let function = function("f");
        let run = run(&function, br#"["s3://photos/a","s3://photos/b","s3://photos/unknown"]"#);
        let row = features(&run, &InputRules::default(), &table);
        assert_eq!(words(&row), ["in_width=30", "input_count=2", "input_size=3", "start=cold"]);
    }
}
