use nigh_learn::FeatureValue;
use proptest::prelude::*;

use super::*;

fn objects(payload: &str) -> Vec<(String, String)> {
    let found = PayloadWalk::of(payload.as_bytes()).objects.into_iter();
    found.map(|object| (object.path.to_string(), format!("{}/{}", object.bucket, object.key))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(path, object)| ((*path).to_owned(), (*object).to_owned())).collect()
}

/// The arguments without the payload's size.
fn arguments(payload: &str) -> Vec<(String, String)> {
    let row = PayloadWalk::of(payload.as_bytes()).arguments;
    let of = |value: &FeatureValue| match value {
        FeatureValue::Number(number) => number.to_string(),
        FeatureValue::Word(word) => format!("{word:?}"),
    };
    row.iter()
        .filter(|(name, _)| name.as_str() != SIZE_FEATURE)
        .map(|(name, value)| (name.to_string(), of(value)))
        .collect()
}

#[test]
fn objects_are_found_as_pairs_as_notifications_and_as_addresses() {
    let payload = r#"{"input":{"bucket":"photos","key":"in.png"},"output":{"bucket":"photos","key":"out.png"}}"#;
    assert_eq!(objects(payload), pairs(&[("/input", "photos/in.png"), ("/output", "photos/out.png")]));
    let payload = r#"{"Records":[{"s3":{"bucket":{"name":"photos"},"object":{"key":"a b","size":3}}}]}"#;
    assert_eq!(objects(payload), pairs(&[("/Records/*/s3", "photos/a b")]));
    assert_eq!(objects(r#"{"from":"s3://photos/x/y"}"#), pairs(&[("/from", "photos/x/y")]));
    let beside = r#"{"key":"in","bucket":"photos","mask":"s3://photos/mask"}"#;
    assert_eq!(objects(beside), pairs(&[("/mask", "photos/mask"), ("", "photos/in")]));
}

#[test]
fn the_key_of_a_notification_is_decoded() {
    let payload = r#"{"Records":[{"awsRegion":"eu","s3":{"bucket":{"name":"photos","arn":"x"},
            "object":{"key":"a+b%2Bc%C3%A4"}}}]}"#;
    assert_eq!(objects(payload), pairs(&[("/Records/*/s3", "photos/a b+cä")]));
    assert!(arguments(payload).is_empty(), "what S3 says beside is no argument");
    let broken = payload.replace("%C3%A4", "%C3");
    assert!(objects(&broken).is_empty(), "no text");
}

#[test]
fn arguments_are_numbers_truth_values_and_words_by_their_names() {
    let payload = r#"{"input":{"bucket":"photos","key":"in.png","sigma":2.5},"width":640,"fast":true,"to":"webp",
            "crop":[1,2],"none":null,"a b":{"ä":1}}"#;
    let expected = [
        ("arg_a_b._", "1"),
        ("arg_crop.0", "1"),
        ("arg_crop.1", "2"),
        ("arg_fast", "\"true\""),
        ("arg_input.sigma", "2.5"),
        ("arg_to", "\"webp\""),
        ("arg_width", "640"),
    ];
    assert_eq!(arguments(payload), pairs(&expected));
    assert_eq!(arguments("12"), pairs(&[("arg_", "12")]));
}

#[test]
fn what_names_nothing_costs_nothing() {
    for payload in ["not json", r#"{"bucket":"photos"}"#, r#"{"bucket":"Not A Bucket","key":"k"}"#] {
        assert!(objects(payload).is_empty(), "{payload}");
    }
    let large = format!(r#"{{"pad":"{}","a":"s3://photos/k"}}"#, "x".repeat(PAYLOAD_BYTES_MAX));
    assert!(objects(&large).is_empty() && arguments(&large).is_empty());
    assert!(objects(&format!("{}\"s3://photos/k\"{}", "[".repeat(20), "]".repeat(20))).is_empty());
}

#[test]
fn the_size_of_a_payload_is_a_feature_in_coarse_steps() {
    let size = |bytes: usize| {
        let payload = format!("\"{}\"", "x".repeat(bytes - 2));
        PayloadWalk::of(payload.as_bytes()).arguments.get(SIZE_FEATURE).cloned()
    };
    assert_eq!(size(100), size(1000));
    assert_eq!(size(1 << 20), Some(FeatureValue::Number((1 << 20) as f64)));
}

#[test]
fn hostile_payloads_are_walked_within_bounds() {
    let many = vec![r#""s3://photos/k""#; 1000].join(",");
    assert_eq!(objects(&format!("[{many}]")).len(), OBJECTS_MAX);
    let wide: Vec<String> = (0..3000).map(|at| format!("\"a{at}\":{at}")).collect();
    assert_eq!(arguments(&format!("{{{}}}", wide.join(","))).len(), ARGUMENTS_MAX);
    let values = vec!["0"; 20_000].join(",");
    assert_eq!(arguments(&format!("[{values}]")).len(), LIST_MAX);
    // Numbers beyond any feature, and NaN, which JSON lacks but Python writes.
    assert!(arguments(r#"{"a":1e300,"b":-1e300}"#).is_empty());
    assert_eq!(arguments(r#"{"a":1,"b":NaN,"c":2}"#), pairs(&[("arg_a", "1")]));
    let word = format!(r#"{{"text":"{}"}}"#, "x".repeat(50_000));
    assert_eq!(arguments(&word)[0].1.len(), "\"#0123456789abcdef\"".len());
    let name = format!(r#"{{"{}":1}}"#, "n".repeat(50_000));
    assert!(arguments(&name).is_empty());
    let deep = format!("{}1{}", r#"{"a":"#.repeat(5000), "}".repeat(5000));
    assert!(arguments(&deep).is_empty());
    let key = format!(r#"{{"file":"{}"}}"#, "k".repeat(200));
    assert_eq!(PayloadWalk::of(key.as_bytes()).long_words, [("arg_file".into(), "k".repeat(200).into())]);
}

proptest! {
    #[test]
    fn whatever_the_bytes_are_the_walk_ends_within_its_bounds(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        words in prop::collection::vec(
            prop::sample::select(vec!["{", "}", "[", "]", ",", ":", "\"bucket\"", "\"key\"", "\"s3\"", "\"name\"",
                "\"object\"", "\"s3://b/k\"", "1e400", "-1", "null", "true", "\"\\ud800\"", "\"a%\""]), 0..60),
    ) {
        for payload in [bytes, words.concat().into_bytes()] {
            let walk = PayloadWalk::of(&payload);
            prop_assert!(walk.objects.len() <= OBJECTS_MAX && walk.arguments.len() <= ARGUMENTS_MAX + 1);
            prop_assert!(walk.long_words.len() <= LONG_WORDS_MAX);
        }
    }
}
